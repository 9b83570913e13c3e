//! Conditions that end a run after a step.

use std::{fmt, sync::Arc};

use entourage_core::{Money, Usage, event::ModelFinished, provider::FinishReason};

use super::phase::CallState;

/// A condition that ends a run after a step whose tools have run. Any one suffices.
///
/// A condition ends a run at a good place; it bounds nothing. Steps are bounded by
/// [`Limits`](entourage_core::run::Limits::with_steps), time by
/// [`Task::with_deadline`](entourage_core::run::Task::with_deadline), and money and tokens, before they are spent, by
/// [`Task::with_budget`](entourage_core::run::Task::with_budget).
///
/// ```
/// use entourage_core::Money;
/// use entourage_runners::StopWhen;
///
/// let conditions = [
///     StopWhen::tool_called("submit"),
///     StopWhen::cost(Money::usd("0.50").unwrap()),
///     StopWhen::custom("the word DONE", |reply| reply.message.text().contains("DONE")),
/// ];
/// assert_eq!(conditions[0].to_string(), "a call of submit");
/// ```
#[derive(Clone)]
pub struct StopWhen(Condition);

/// A test of a step's reply.
type Holds = Arc<dyn Fn(&ModelFinished) -> bool + Send + Sync>;

#[derive(Clone)]
enum Condition {
    Steps(u32),
    ToolCalled(Box<str>),
    Finish(FinishReason),
    Tokens(u64),
    Cost(Money),
    Custom(Box<str>, Holds),
}

impl StopWhen {
    /// At least this many steps were made.
    #[must_use]
    pub fn steps(steps: u32) -> Self {
        Self(Condition::Steps(steps))
    }

    /// The step called this tool, also by the one that calls deferred tools.
    pub fn tool_called(tool: impl Into<Box<str>>) -> Self {
        Self(Condition::ToolCalled(tool.into()))
    }

    /// The step's reply ended with this reason.
    #[must_use]
    pub fn finish(reason: FinishReason) -> Self {
        Self(Condition::Finish(reason))
    }

    /// At least this many tokens were used in the run, input and output together.
    #[must_use]
    pub fn tokens(tokens: u64) -> Self {
        Self(Condition::Tokens(tokens))
    }

    /// The run's model calls cost at least this much. Never holds once the cost of a call is unknown.
    #[must_use]
    pub fn cost(cost: Money) -> Self {
        Self(Condition::Cost(cost))
    }

    /// The test holds for the step's reply. It must follow from the reply alone, so that a resumed run decides the
    /// same. The outcome shows `name` as the reason.
    pub fn custom(
        name: impl Into<Box<str>>,
        holds: impl Fn(&ModelFinished) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self(Condition::Custom(name.into(), Arc::new(holds)))
    }

    /// True if it holds after a step with these calls, which all have their results.
    pub(super) fn holds(
        &self,
        step: u32,
        reply: &ModelFinished,
        calls: &[CallState],
        usage: &Usage,
        cost: Option<Money>,
    ) -> bool {
        match &self.0 {
            Condition::Steps(steps) => step >= *steps,
            // Results bear the name of the tool that was called, whatever the model wrote.
            Condition::ToolCalled(tool) => {
                reply.message.tool_calls().any(|call| *call.name == **tool)
                    || calls.iter().filter_map(CallState::result).any(|result| *result.name == **tool)
            }
            Condition::Finish(reason) => reply.finish.reason == *reason,
            Condition::Tokens(tokens) => usage.total().unwrap_or(0) >= *tokens,
            Condition::Cost(most) => cost.is_some_and(|cost| cost >= *most),
            Condition::Custom(_, holds) => holds(reply),
        }
    }
}

impl fmt::Display for StopWhen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Condition::Steps(steps) => write!(f, "{steps} steps"),
            Condition::ToolCalled(tool) => write!(f, "a call of {tool}"),
            Condition::Finish(reason) => write!(f, "a reply that ends with {reason:?}"),
            Condition::Tokens(tokens) => write!(f, "{tokens} tokens"),
            Condition::Cost(cost) => write!(f, "a cost of {cost}"),
            Condition::Custom(name, _) => f.write_str(name),
        }
    }
}

impl fmt::Debug for StopWhen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StopWhen({self})")
    }
}
