//! Events that shorten a session: compaction, and clearing of old results. Also its first title.

use std::{borrow::Cow, sync::Arc};

use super::{
    super::{
        ContextUsage, cleared,
        open::Closing,
        sound::{said, tail},
    },
    SessionState,
};
use crate::{
    base::shown::{holds_harmful, is_harmful, plain_line},
    event::{Compacted, OutputsCleared},
    message::{Message, estimate_tokens},
};

impl SessionState {
    /// True when the conversation of `session` must be made smaller before the next call of a model with this window,
    /// or a compaction was begun and has no end.
    #[must_use]
    pub fn compaction_due(&self, session: &crate::SessionId, window: Option<u64>) -> bool {
        let gauge = self.gauge();
        gauge.open(session).is_some() || gauge.is_due(self.context_usage(), self.estimated_tokens(), window)
    }

    /// True when a call that was refused for its length may be tried again with a smaller conversation.
    #[must_use]
    pub fn may_retry(&self) -> bool {
        self.gauge().may_retry()
    }

    /// Replaces the older messages by the summary.
    pub(crate) fn compact(&mut self, compacted: &Compacted) {
        self.close(Closing::Abandoned);
        let from = self.history.len().saturating_sub(tail(&self.history, compacted.kept));
        let summary = said(&compacted.summary).map(Cow::into_owned);
        self.history = summary.into_iter().chain(self.history.iter().skip(from).cloned()).collect();
        self.head.messages = self.head.messages.saturating_add(1);
        self.recount();
        // The next step will report the summary and the kept messages, so the context is counted as such.
        let kept = self.tokens.saturating_sub(estimate_tokens(&compacted.summary));
        self.context = ContextUsage::of(kept, compacted.output);
        self.gauge.compacted(self.tokens);
    }

    pub(crate) fn clear_outputs(&mut self, note: &OutputsCleared) {
        let before = usize::try_from(note.before).unwrap_or(usize::MAX);
        let shown = self.history.iter().enumerate().map(|(place, message)| {
            if place < before { cleared(message, note.least) } else { Arc::clone(message) }
        });
        self.history = shown.collect();
        let tokens = self.tokens;
        self.recount();
        let freed = tokens.saturating_sub(self.tokens);
        self.context = ContextUsage::of(self.context.input.saturating_sub(freed), self.context.output);
        self.gauge.cleared(freed);
    }

    fn recount(&mut self) {
        self.tokens =
            self.history.iter().map(|message| estimate_tokens(message)).fold(0, u64::saturating_add);
    }
}

/// A title as it was given, on one line that shows all of it.
pub(crate) fn given_title(title: &Arc<str>) -> Arc<str> {
    if holds_harmful(title) { plain_line(title).into() } else { Arc::clone(title) }
}

pub(crate) fn title(prompt: &Message) -> Arc<str> {
    const MOST: usize = 80;
    let text = prompt.first_text().unwrap_or_default().trim();
    if text.len() <= MOST && !holds_harmful(text) {
        return text.into();
    }
    // The length of the title at its newest gap: a word that does not fit is left out, and the first one is cut.
    let (mut title, mut count, mut gap, mut whole) = (String::with_capacity(MOST + 4), 0, false, 0);
    for c in text.chars() {
        let is_plain = c.is_ascii_graphic();
        if !is_plain && (c.is_whitespace() || c.is_control()) {
            gap = count > 0;
        } else if is_plain || !is_harmful(c) {
            if std::mem::take(&mut gap) {
                whole = title.len();
                title.push(' ');
                count += 1;
            }
            if count < MOST {
                title.push(c);
                count += 1;
            } else if whole > 0 {
                title.replace_range(whole.., "…");
                break;
            }
        }
    }
    title.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same by all words of the whole text.
    fn by_words(text: &str) -> String {
        let words: Vec<_> = plain_line(text).split(' ').map(str::to_owned).collect();
        let mut title: String = words[0].chars().take(80).collect();
        for word in &words[1..] {
            if title.chars().count() + word.chars().count() + 1 > 80 {
                return title + "…";
            }
            title = format!("{title} {word}");
        }
        title
    }

    proptest! {
        #[test]
        fn a_title_is_the_words_that_fit(
            text in prop_oneof![
                "[a-eé \\n\\u{1b}\\u{202e}\\u{2028}]{0,200}",
                "([a-d]{70,90} ?){1,3}",
                "[a-dé]{20,60}( [a-d]{1,3}){0,30}",
            ],
        ) {
            prop_assert_eq!(&*title(&Message::user(text.as_str())), by_words(&text));
        }
    }
}
