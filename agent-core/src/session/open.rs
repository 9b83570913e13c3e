//! What a session holds open: a run without an end, a message whose calls wait for results, prompts that wait.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    Money, RunId, Timestamp, Usage,
    event::{PromptQueued, RunFinished, RunStarted},
    layers::{BudgetLimits, Spend},
    message::{Message, ToolResult},
    run::{Outcome, Pause},
};

/// A prompt that waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QueuedPrompt {
    /// Number of the event that queued it.
    pub seq: u64,
    /// What was queued.
    pub queued: Arc<PromptQueued>,
}

/// A run that has no end yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OpenRun {
    pub(crate) id: RunId,
    pub(crate) agent: Arc<str>,
    pub(crate) prompt: Arc<Message>,
    /// Number of the event that started it.
    pub(crate) seq: u64,
    pub(crate) resumed: u32,
    /// What it may use.
    pub(crate) budget: Option<BudgetLimits>,
    /// When it is stopped.
    pub(crate) deadline: Option<Timestamp>,
    /// Whether a hand-written agent's effects are recorded: they are all needed to resume it.
    pub(crate) keyed: bool,
    /// Whether the run's own model calls make up the conversation.
    pub(super) converses: bool,
    pub(crate) usage: Usage,
    pub(crate) cost: Option<Money>,
    pub(crate) steps: u32,
    /// Tool calls that were claimed.
    pub(crate) tool_calls: u32,
    /// Whether a model call has begun and not ended.
    pub(crate) calling: bool,
    /// The mode that it works in to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<Arc<str>>,
    /// How many messages the conversation had when its prompt had joined it.
    #[serde(default)]
    pub(crate) messages_before: u64,
    /// What the session's calls had come to when it began.
    #[serde(default)]
    pub(crate) spent_before: Spend,
    /// Time in microseconds that it ran before it was resumed last.
    pub(crate) ran: u64,
    /// When it was started or resumed last.
    pub(crate) since: Timestamp,
    /// The newest message with text.
    pub(crate) text: Option<Arc<Message>>,
    /// As in [`RunStarted`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) named_by_run: bool,
    /// What it waits for, while it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pause: Option<Pause>,
    /// Whether an answer came since it was paused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) answered: bool,
}

/// A run that is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct EndedRun {
    pub(crate) id: RunId,
    /// How many messages the conversation had when its prompt had joined it.
    pub(crate) messages_before: u64,
    pub(crate) end: Arc<RunFinished>,
}

/// An assistant message whose calls wait for results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OpenStep {
    pub(crate) message: Arc<Message>,
    /// Number of the event that holds the message.
    pub(crate) seq: u64,
    pub(crate) results: Vec<Option<Arc<ToolResult>>>,
    pub(super) started: Vec<bool>,
}

/// Why calls that have no result get one now.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Closing<'a> {
    Cancelled,
    Failed(&'a str),
    Ended(&'a str),
    Abandoned,
}

impl OpenRun {
    /// Tells the outcome what the run's own calls came to, when its agent did not: one written by hand need not count.
    pub(crate) fn count(&self, outcome: &mut Outcome) {
        if outcome.steps == 0 && self.steps > 0 {
            (outcome.usage, outcome.cost, outcome.steps) = (self.usage, self.cost, self.steps);
        }
    }

    pub(super) fn new(id: RunId, seq: u64, at: Timestamp, started: &RunStarted) -> Self {
        Self {
            id,
            agent: Arc::clone(&started.agent),
            prompt: Arc::clone(&started.prompt),
            seq,
            resumed: 0,
            budget: started.budget,
            deadline: started.deadline,
            keyed: false,
            converses: false,
            usage: Usage::default(),
            cost: Some(Money::default()),
            steps: 0,
            tool_calls: 0,
            calling: false,
            mode: None,
            messages_before: 0,
            spent_before: Spend::default(),
            ran: 0,
            since: at,
            text: None,
            named_by_run: started.named_by_run,
            pause: None,
            answered: false,
        }
    }

    /// The time up to `at` counts as run.
    pub(super) fn stand_still(&mut self, at: Timestamp) {
        let ran = u64::try_from(at.since(self.since).as_micros()).unwrap_or(u64::MAX);
        self.ran = self.ran.saturating_add(ran);
        self.since = at;
    }
}

impl OpenStep {
    pub(super) fn new(message: Arc<Message>, seq: u64) -> Self {
        let calls = message.tool_calls().count();
        Self { message, seq, results: vec![None; calls], started: vec![false; calls] }
    }

    /// Whether at least one call waits, and each result answers its call.
    pub(super) fn is_open(&self) -> bool {
        let fits = self
            .message
            .tool_calls()
            .zip(&self.results)
            .all(|(call, result)| result.as_ref().is_none_or(|result| result.call == call.id));
        let calls = self.message.tool_calls().count();
        let sized = self.results.len() == calls && self.started.len() == calls;
        fits && sized && self.results.iter().any(Option::is_none)
    }

    /// Each call that has no result, with the error result that tells the model why.
    pub(crate) fn close(&self, why: Closing<'_>) -> Vec<(usize, ToolResult)> {
        let calls = self.message.tool_calls().enumerate();
        let open = calls.filter(|(index, _)| self.results.get(*index).is_some_and(Option::is_none));
        open.map(|(index, call)| (index, ToolResult::error(call, self.why(index, why)))).collect()
    }

    fn why(&self, index: usize, why: Closing<'_>) -> String {
        let started = self.started.get(index).copied().unwrap_or(false);
        match (why, started) {
            (Closing::Cancelled, true) => "cancelled while it ran; its outcome is unknown".to_owned(),
            (Closing::Cancelled, false) => "cancelled before it ran".to_owned(),
            (Closing::Failed(error), true) => {
                format!("cut off while it ran; its outcome is unknown: {error}")
            }
            (Closing::Failed(error), false) => format!("not run, since the run failed: {error}"),
            (Closing::Ended(reason), true) => {
                format!("cut off while it ran; its outcome is unknown: {reason}")
            }
            (Closing::Ended(reason), false) => format!("not run: {reason}"),
            (Closing::Abandoned, true) => {
                "the run was abandoned while it ran; its outcome is unknown".to_owned()
            }
            (Closing::Abandoned, false) => "not run: the run was abandoned".to_owned(),
        }
    }
}
