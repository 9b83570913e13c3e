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
    base::shown::{holds_harmful, plain_line},
    event::{Compacted, OutputsCleared},
    message::{Message, estimate_tokens},
};

impl SessionState {
    /// True when the conversation of `session` must be made smaller before the next call of a model with this window,
    /// or a compaction was begun and has no end.
    #[must_use]
    pub fn compaction_due(&self, session: &crate::SessionId, window: Option<u64>) -> bool {
        let gauge = self.gauge();
        let open = gauge.open(session).is_some();
        open || gauge.is_due(self.context_usage(), self.estimated_tokens(), window)
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
    let harmful = holds_harmful(text);
    if text.len() <= MOST && !harmful {
        return text.into();
    }
    let text = if harmful { Cow::Owned(plain_line(text)) } else { Cow::Borrowed(text) };
    let mut words = text.split_whitespace();
    let mut title: String = words.next().unwrap_or_default().chars().take(MOST).collect();
    for word in words {
        if title.chars().count() + word.chars().count() + 1 > MOST {
            title.push('…');
            break;
        }
        title.push(' ');
        title.push_str(word);
    }
    title.into()
}
