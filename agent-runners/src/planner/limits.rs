//! The limits of plans, of conversations between a planner and its executors, and of their replies.

use std::time::Duration;

use entourage_core::{Error, ErrorKind, Result};

/// Limits of a [`Planner`](super::Planner): of its plans, and of its conversations with executors.
///
/// A conversation that reaches a limit ends as failed, with the reason. What the last turn completes still counts.
///
/// A plan that is too long goes back to the planner once; a second one fails the run with [`ErrorKind::TooLarge`].
/// Whatever the limits, a plan has at most 1,000 steps and 256 KiB.
///
/// | limit | default |
/// |---|---|
/// | turns of the executor | 10 |
/// | time of a conversation | 300 s |
/// | time of a turn of the executor | 60 s |
/// | time of an answer of the planner | 30 s |
/// | output of a turn, and its temperature | 1,500 tokens, 0.3 |
/// | output of an answer of the planner, and its temperature | 1,000 tokens, 0.7 |
/// | output of the final answer | 500 tokens |
/// | output of a model call that makes a plan | 16,000 tokens |
/// | steps of a plan | 200 |
/// | tool calls of a turn | 10 |
/// | retries of a tool that fails in a turn | 2 |
///
/// ```
/// use std::time::Duration;
///
/// use entourage_runners::planner::ConversationLimits;
///
/// let limits = ConversationLimits::default().with_turns(4).with_turn_time(Duration::from_secs(20));
/// assert_eq!((limits.turns, limits.tool_calls), (4, 10));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ConversationLimits {
    /// Turns of the executor.
    pub turns: u32,
    /// Time of a whole conversation.
    pub time: Duration,
    /// Time of one turn of the executor.
    pub turn_time: Duration,
    /// Time of one answer of the planner.
    pub answer_time: Duration,
    /// Output tokens of each model call of an executor.
    pub executor_output: u64,
    /// Temperature of executors.
    pub executor_temperature: f64,
    /// Output tokens of an answer of the planner to an executor.
    pub answer_output: u64,
    /// Temperature of such an answer.
    pub answer_temperature: f64,
    /// Output tokens of the planner's final answer from the results of a plan.
    pub synthesis_output: u64,
    /// Output tokens of each of the planner's model calls by which it looks and makes a plan.
    pub plan_output: u64,
    /// Steps of a plan.
    pub plan_steps: usize,
    /// Tool calls of one turn of the executor, those of `reply` not among them.
    pub tool_calls: u32,
    /// Times that an executor may call a tool again in a turn in which it failed.
    pub tool_retries: u32,
}

/// Makes the setters of plain settings.
macro_rules! settings {
    ($($(#[$doc:meta])* $set:ident => $field:ident: $type:ty;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $set(mut self, $field: $type) -> Self {
            self.$field = $field;
            self
        }
    )*};
}
pub(super) use settings;

impl ConversationLimits {
    settings! {
        /// Sets the turns of the executor, at least 1.
        with_turns => turns: u32;
        /// Sets the time of a whole conversation. It starts anew when a conversation goes on after a restart.
        with_time => time: Duration;
        /// Sets the time of one turn of the executor. It starts anew when a turn goes on after a restart.
        with_turn_time => turn_time: Duration;
        /// Sets the time of one answer of the planner to an executor.
        with_answer_time => answer_time: Duration;
        /// Sets the output tokens of each model call of an executor.
        with_executor_output => executor_output: u64;
        /// Sets the temperature of executors.
        with_executor_temperature => executor_temperature: f64;
        /// Sets the output tokens of an answer of the planner to an executor.
        with_answer_output => answer_output: u64;
        /// Sets the temperature of such an answer.
        with_answer_temperature => answer_temperature: f64;
        /// Sets the output tokens of the final answer from the results of a plan.
        with_synthesis_output => synthesis_output: u64;
        /// Sets the output tokens of each model call that makes a plan.
        with_plan_output => plan_output: u64;
        /// Sets the steps of a plan, at least 1.
        with_plan_steps => plan_steps: usize;
        /// Sets the tool calls of one turn of the executor.
        with_tool_calls => tool_calls: u32;
        /// Sets how often an executor may call a tool again in a turn in which it failed.
        with_tool_retries => tool_retries: u32;
    }

    /// Checks that a conversation can begin within these limits.
    pub(super) fn check(&self) -> Result<()> {
        let zero = [
            ("turns", self.turns == 0),
            ("time", self.time.is_zero()),
            ("turn_time", self.turn_time.is_zero()),
            ("answer_time", self.answer_time.is_zero()),
            ("plan_steps", self.plan_steps == 0),
        ];
        if let Some((name, _)) = zero.iter().find(|(_, is_zero)| *is_zero) {
            let text = format!("a planner needs more than none of `{name}`; raise that limit");
            return Err(Error::new(ErrorKind::Config, text));
        }
        let warm = [
            ("executor_temperature", self.executor_temperature),
            ("answer_temperature", self.answer_temperature),
        ];
        match warm.iter().find(|(_, value)| !value.is_finite() || *value < 0.0) {
            None => Ok(()),
            Some((name, value)) => {
                let text = format!("`{name}` is {value}, and a temperature is 0 or more; set another one");
                Err(Error::new(ErrorKind::Config, text))
            }
        }
    }
}

impl Default for ConversationLimits {
    fn default() -> Self {
        Self {
            turns: 10,
            time: Duration::from_secs(300),
            turn_time: Duration::from_secs(60),
            answer_time: Duration::from_secs(30),
            executor_output: 1_500,
            executor_temperature: 0.3,
            answer_output: 1_000,
            answer_temperature: 0.7,
            synthesis_output: 500,
            plan_output: 16_000,
            plan_steps: 200,
            tool_calls: 10,
            tool_retries: 2,
        }
    }
}
