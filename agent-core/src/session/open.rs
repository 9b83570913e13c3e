//! Open parts of a session: a run without an end, a message whose calls wait for results, queued prompts.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    Money, RequestId, RunId, Timestamp, Usage,
    base::{BudgetLimits, CallId, EffectKey, Pause, Spend},
    event::{PromptQueued, RunFinished, RunStarted},
    message::{Message, ToolCall, ToolResult},
    outcome::Outcome,
    permission::ApprovalRequest,
    spec::Labels,
};

/// A prompt in a session's queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QueuedPrompt {
    /// Number of the event that queued the prompt.
    pub seq: u64,
    /// That event's payload.
    pub queued: Arc<PromptQueued>,
}

/// A question to an approver that has no final answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OpenQuestion {
    /// Time at which it was first asked.
    pub since: Timestamp,
    /// The question.
    pub request: Arc<ApprovalRequest>,
}

/// A call that was handed out and has no result yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OpenCall {
    /// Its id.
    pub id: CallId,
    /// Time at which it was handed out.
    pub since: Timestamp,
    /// Position of the call in its message, from 0.
    pub index: usize,
    /// The call.
    pub call: ToolCall,
    /// Set for an effect of a hand-written agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<EffectKey>,
}

/// A run that has not ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OpenRun {
    /// Its id.
    pub id: RunId,
    /// Name of its agent.
    pub agent: Arc<str>,
    /// Its prompt.
    pub prompt: Arc<Message>,
    /// Number of the event that started the run.
    pub seq: u64,
    /// Number of times that it was resumed.
    pub resumed: u32,
    /// Budget of the run.
    pub budget: Option<BudgetLimits>,
    /// Time at which the run is stopped.
    pub deadline: Option<Timestamp>,
    /// True once effects of a hand-written agent are recorded: a resume needs all of them.
    pub keyed: bool,
    /// True once the run's own model calls make up the conversation.
    pub(super) converses: bool,
    /// Tokens of its model calls that have ended.
    pub usage: Usage,
    /// Cost of its model calls; `None` when that of one is unknown.
    pub cost: Option<Money>,
    /// Number of its model calls that have ended.
    pub steps: u32,
    /// Number of claimed tool calls.
    pub tool_calls: u32,
    /// True while a model call has begun and none has ended since.
    pub calling: bool,
    /// Model calls that have begun and not ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) calls: Vec<RequestId>,
    /// Cost of the session's calls that have ended, while the cost of all is unknown since others have not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ended_cost: Option<Money>,
    /// Mode of the run, to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Arc<str>>,
    /// Number of messages in the conversation right after its prompt joined.
    #[serde(default)]
    pub messages_before: u64,
    /// Spend of the session's calls when the run began.
    #[serde(default)]
    pub spent_before: Spend,
    /// Running time in microseconds before it was last resumed.
    pub ran: u64,
    /// Time at which it was last started or resumed.
    pub since: Timestamp,
    /// The newest message with text.
    pub text: Option<Arc<Message>>,
    /// As in [`RunStarted`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub named_by_run: bool,
    /// Input that it waits for, while it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// True once an answer that fits the pause came.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub answered: bool,
}

/// A run that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EndedRun {
    /// Its id.
    pub id: RunId,
    /// Number of messages in the conversation right after its prompt joined.
    pub messages_before: u64,
    /// Its end.
    pub end: Arc<RunFinished>,
}

/// An assistant message whose calls wait for results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OpenStep {
    /// The message.
    pub message: Arc<Message>,
    /// Number of the event that holds the message.
    pub seq: u64,
    /// Results of its calls, in their order; `None` for a call that has not ended.
    pub results: Vec<Option<Arc<ToolResult>>>,
    /// True for each call that began to run.
    pub started: Vec<bool>,
    /// Labels of what the model had read.
    #[serde(default = "Labels::all")]
    pub labels: Labels,
}

/// Reason that open calls get an error result now.
#[derive(Debug, Clone, Copy)]
pub enum Closing<'a> {
    /// The run was cancelled.
    Cancelled,
    /// The run failed, with this error.
    Failed(&'a str),
    /// The run ended for this reason.
    Ended(&'a str),
    /// A run above ended without this one.
    Abandoned,
}

impl OpenRun {
    /// Adds the totals of the run's own calls to an outcome without any: a hand-written agent need not count.
    pub fn count(&self, outcome: &mut Outcome) {
        if outcome.steps == 0 && self.steps > 0 {
            let cost = self.cost.filter(|_| !self.is_calling());
            (outcome.usage, outcome.cost, outcome.steps) = (self.usage, cost, self.steps);
        }
    }

    /// True while the cost of a model call is not known yet, or never will be.
    pub(crate) fn is_calling(&self) -> bool {
        self.calling || !self.calls.is_empty()
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
            calls: Vec::new(),
            ended_cost: None,
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

    /// Adds the time up to `at` to the running time.
    pub(super) fn stand_still(&mut self, at: Timestamp) {
        let ran = u64::try_from(at.since(self.since).as_micros()).unwrap_or(u64::MAX);
        self.ran = self.ran.saturating_add(ran);
        self.since = at;
    }
}

impl OpenStep {
    pub(super) fn new(message: Arc<Message>, seq: u64, labels: Labels) -> Self {
        let calls = message.tool_calls().count();
        Self { message, seq, results: vec![None; calls], started: vec![false; calls], labels }
    }

    /// True if at least one call waits, and each result belongs to its call.
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

    /// Error results for all calls without a result, each with the call's index and the reason in words for the model.
    pub fn close(&self, why: Closing<'_>) -> Vec<(usize, ToolResult)> {
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
                format!("interrupted while it ran; its outcome is unknown: {error}")
            }
            (Closing::Failed(error), false) => format!("not run, since the run failed: {error}"),
            (Closing::Ended(reason), true) => {
                format!("interrupted while it ran; its outcome is unknown: {reason}")
            }
            (Closing::Ended(reason), false) => format!("not run: {reason}"),
            (Closing::Abandoned, true) => {
                "the run was abandoned while the call ran; its outcome is unknown".to_owned()
            }
            (Closing::Abandoned, false) => "not run: the run was abandoned".to_owned(),
        }
    }
}
