//! Budgets of input tokens by the parts of a prompt, and what is left out to keep them. Pure.

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind, Result,
    context::estimate_tokens,
    message::{History, Message, Role},
    tool::ToolSpec,
};

use super::limits::settings;

/// Characters of one token, as the estimate has it.
const CHARACTERS: usize = 4;

/// Budgets of a [`Planner`](super::Planner)'s input by part, in tokens of 4 characters. Output has limits of its own:
/// see [`ConversationLimits`](super::ConversationLimits).
///
/// | agent | parts | sum |
/// |---|---|---|
/// | planner | system 800, conversation 2,500, location 1,000, profile 300, buffer 400 | 5,000 |
/// | executor | system 300, task 200, tools 400, data 400, buffer 200 | 1,500 |
///
/// - Parts that the program fixes (system, location, profile, each tool that an executor may have) are checked when the
///   planner is built: the error names the part that is too long.
/// - A step whose description or tools are too long is refused with its plan.
/// - Conversations that are too long lose their oldest exchanges, whole; the newest stays whatever its length, and so
///   does an executor's task.
/// - Data, which are the results of earlier steps, are cut to equal shares.
/// - The buffer is what the estimate may be wrong by, and the tool `reply`.
///
/// ```
/// use entourage_runners::planner::PartBudgets;
///
/// let budgets = PartBudgets::default().with_executor_tools(2_000);
/// assert_eq!((budgets.planner_total(), budgets.executor_total()), (5_000, 3_100));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartBudgets {
    /// The planner's instructions.
    pub planner_system: usize,
    /// The planner's conversation.
    pub planner_conversation: usize,
    /// The place that the planner works in, such as a project.
    pub planner_location: usize,
    /// The user's profile.
    pub planner_profile: usize,
    /// Room for errors of the estimate.
    pub planner_buffer: usize,
    /// An executor's instructions.
    pub executor_system: usize,
    /// Description and constraints of its step.
    pub executor_task: usize,
    /// The tools of its step.
    pub executor_tools: usize,
    /// Results of the steps before.
    pub executor_data: usize,
    /// Room for errors of the estimate.
    pub executor_buffer: usize,
}

impl PartBudgets {
    settings! {
        /// Sets the tokens of the planner's instructions.
        with_planner_system => planner_system: usize;
        /// Sets the tokens of the planner's conversation.
        with_planner_conversation => planner_conversation: usize;
        /// Sets the tokens of the text about the place that the planner works in.
        with_planner_location => planner_location: usize;
        /// Sets the tokens of the user's profile.
        with_planner_profile => planner_profile: usize;
        /// Sets the planner's room for errors of the estimate.
        with_planner_buffer => planner_buffer: usize;
        /// Sets the tokens of an executor's instructions.
        with_executor_system => executor_system: usize;
        /// Sets the tokens of a step's description and constraints.
        with_executor_task => executor_task: usize;
        /// Sets the tokens of a step's tools.
        with_executor_tools => executor_tools: usize;
        /// Sets the tokens of the results of the steps before.
        with_executor_data => executor_data: usize;
        /// Sets an executor's room for errors of the estimate.
        with_executor_buffer => executor_buffer: usize;
    }

    /// Returns the sum of the planner's parts.
    #[must_use]
    pub fn planner_total(&self) -> usize {
        let parts =
            [self.planner_conversation, self.planner_location, self.planner_profile, self.planner_buffer];
        parts.into_iter().fold(self.planner_system, usize::saturating_add)
    }

    /// Returns the sum of an executor's parts.
    #[must_use]
    pub fn executor_total(&self) -> usize {
        let parts = [self.executor_task, self.executor_tools, self.executor_data, self.executor_buffer];
        parts.into_iter().fold(self.executor_system, usize::saturating_add)
    }

    /// Returns the tokens of an executor's conversation.
    pub(super) fn executor_conversation(&self) -> usize {
        self.executor_task.saturating_add(self.executor_data).saturating_add(self.executor_buffer)
    }
}

impl Default for PartBudgets {
    fn default() -> Self {
        Self {
            planner_system: 800,
            planner_conversation: 2_500,
            planner_location: 1_000,
            planner_profile: 300,
            planner_buffer: 400,
            executor_system: 300,
            executor_task: 200,
            executor_tools: 400,
            executor_data: 400,
            executor_buffer: 200,
        }
    }
}

/// Estimates the tokens of a text.
pub(super) fn tokens(text: &str) -> usize {
    text.chars().count().div_ceil(CHARACTERS)
}

/// Estimates the tokens of a tool, as a model is shown it.
pub(super) fn tokens_of(tool: &ToolSpec) -> usize {
    let parts = [tool.name(), tool.description(), &tool.schema().to_string()].map(tokens);
    parts.into_iter().fold(0, usize::saturating_add)
}

/// Checks a part that the program fixes.
///
/// # Errors
/// [`ErrorKind::Config`] with the part's name for one that is too long.
pub(super) fn check(part: &str, used: usize, budget: usize) -> Result<()> {
    if used <= budget {
        return Ok(());
    }
    let text = format!(
        "the part `{part}` takes {used} of {budget} tokens; shorten it, or raise its budget with `PlannerBuilder::budgets`"
    );
    Err(Error::new(ErrorKind::Config, text).with("part", part.to_owned()))
}

/// Cuts a text to a number of tokens, with a mark where something is missing.
pub(super) fn cut(text: &str, most: usize) -> String {
    crate::cut::cut(text, most.saturating_mul(CHARACTERS))
}

/// Cuts texts so that all together take at most so many tokens: short ones stay whole, and the others share the rest.
pub(super) fn shares<'a>(texts: impl IntoIterator<Item = &'a str>, most: usize) -> Vec<String> {
    let texts: Vec<_> = texts.into_iter().collect();
    let mut lengths: Vec<_> = texts.iter().map(|text| tokens(text)).collect();
    lengths.sort_unstable();
    let (mut left, mut share) = (most, most);
    for (after, length) in (1..=lengths.len()).rev().zip(&lengths) {
        share = left.checked_div(after).unwrap_or(left);
        if *length > share {
            break;
        }
        left = left.saturating_sub(*length);
        share = usize::MAX;
    }
    texts.into_iter().map(|text| cut(text, share)).collect()
}

/// Returns the conversation without its oldest exchanges, so that it takes at most so many tokens; `None` if it needs
/// no change. An exchange begins with a message of the user. The newest stays, and with `keeps_first` the first message
/// too, which is a task: what was done for it at first is dropped like an exchange.
pub(super) fn fitted(history: &History, most: usize, keeps_first: bool) -> Option<History> {
    let most = u64::try_from(most).unwrap_or(u64::MAX);
    let sizes: Vec<_> = history.iter().map(|message| estimate_tokens(message)).collect();
    let mut total = sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(*size));
    if total <= most {
        return None;
    }
    let is_user = |(_, message): &(_, &Arc<Message>)| message.role() == Role::User;
    let mut starts: Vec<_> = history.iter().enumerate().filter(is_user).map(|(at, _)| at).collect();
    let first = starts.first_mut()?;
    *first = first.saturating_add(usize::from(keeps_first));
    let from = *first;
    let mut until = from;
    for next in starts.into_iter().skip(1) {
        if total <= most {
            break;
        }
        let dropped = sizes.iter().take(next).skip(until);
        total = dropped.fold(total, |sum, size| sum.saturating_sub(*size));
        until = next;
    }
    let kept = |at: &usize| !(from..until).contains(at);
    let messages = history.iter().enumerate().filter(|(at, _)| kept(at)).map(|(_, message)| message.clone());
    (until > from).then(|| messages.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(history: &History) -> Vec<String> {
        history.iter().map(|message| message.text()).collect()
    }

    fn talk(exchanges: usize) -> History {
        let exchange = |n| [Message::user(format!("ask {n:08}")), Message::assistant(format!("say {n:08}"))];
        (0..exchanges).flat_map(exchange).collect()
    }

    #[test]
    fn bo10_the_parts_have_the_figures_of_the_row() {
        let parts = PartBudgets::default();
        assert_eq!((parts.planner_total(), parts.executor_total()), (5_000, 1_500));
        assert_eq!((tokens("12345"), tokens("äöü!"), tokens("")), (2, 1, 0));
    }

    #[test]
    fn bo10_whole_exchanges_are_dropped_and_the_newest_stays() {
        // Each message takes 3 tokens.
        assert!(fitted(&talk(3), 18, false).is_none());
        assert_eq!(
            texts(&fitted(&talk(3), 17, false).unwrap()),
            ["ask 00000001", "say 00000001", "ask 00000002", "say 00000002"]
        );
        assert_eq!(texts(&fitted(&talk(3), 0, false).unwrap()), ["ask 00000002", "say 00000002"]);
        assert_eq!(
            texts(&fitted(&talk(3), 15, true).unwrap()),
            ["ask 00000000", "ask 00000001", "say 00000001", "ask 00000002", "say 00000002"]
        );
        assert_eq!(
            texts(&fitted(&talk(3), 0, true).unwrap()),
            ["ask 00000000", "ask 00000002", "say 00000002"]
        );
        assert!(fitted(&talk(1), 0, false).is_none() && fitted(&talk(1), 0, true).is_none());
    }

    #[test]
    fn bo10_data_is_cut_to_shares_and_short_texts_stay_whole() {
        let long = "x".repeat(400);
        let cut = shares(["four", &long, &long], 21);
        assert_eq!((cut[0].as_str(), tokens(&cut[1]), tokens(&cut[2])), ("four", 10, 10));
        assert!(cut[1].ends_with('…'));
        assert_eq!(shares(["four", "four"], 2), ["four", "four"]);
        assert!(shares([], 2).is_empty());
        assert!(shares([long.as_str(); 30], 20).iter().all(|text| text.is_empty() || text == "…"));
    }

    #[test]
    fn bo10_a_part_that_is_too_long_is_named() {
        assert!(check("planner system", 800, 800).is_ok());
        let error = check("planner profile", 301, 300).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.message().contains("the part `planner profile` takes 301 of 300 tokens"), "{error}");
    }
}
