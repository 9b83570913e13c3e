//! Payloads of the events, one struct for each kind.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Digest, ErrorRecord, Money, RequestId, RunId, SessionId, Timestamp, Usage,
    base::{ApprovalId, BudgetLimits, Charge, EffectKey, Pause, RunAbove, Todo, json},
    message::{Arguments, Message, ToolResult},
    outcome::Outcome,
    permission::Decision,
    provider::{Finish, Restart, WarningKind},
    spec::{Labels, Repeat},
};

macro_rules! payload {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[non_exhaustive]
        pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }

        impl $name {
            /// Creates it from its fields, in their order.
            #[must_use]
            pub fn new($($field: $type),*) -> Self {
                Self { $($field),* }
            }
        }
    };
}

pub(super) use payload;

/// A prompt was accepted and a run began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunStarted {
    /// The version of the stored form.
    pub format: u32,
    /// The agent's own name.
    pub agent: Arc<str>,
    /// The prompt.
    pub prompt: Arc<Message>,
    /// Number of the event that queued the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued: Option<u64>,
    /// Budget of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetLimits>,
    /// Time at which the run is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// Title of the session if it has none yet; `None` for the prompt's first words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Arc<str>>,
    /// True if keys and approval ids of its calls follow from the run's id. Older versions took the session's alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub named_by_run: bool,
    /// The run that asked for this one, in a session below another one. Runs of older versions lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<Arc<RunAbove>>,
    /// Labels of the prompt, and of what the session above had read.
    #[serde(default = "Labels::all")]
    pub labels: Labels,
}

payload! {
    /// A run goes on in another process, or after a pause.
    RunResumed {
        /// Number of times that the run was resumed, this one included.
        count: u32,
    }
}

/// A model is about to be called. Of the request it has digests; the session holds each content once.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelStarted {
    /// The step of the run, from 1.
    pub step: u32,
    /// The service.
    pub provider: Arc<str>,
    /// The model's name there.
    pub model: Arc<str>,
    /// Id of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
    /// Template that the instructions were rendered from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Arc<str>>,
    /// Reservation for the call in the run's budget, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Charge>,
    /// Set for an effect of a hand-written agent; its messages are not part of the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<EffectKey>,
    /// Digest of the instructions. `None` for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Digest>,
    /// Digest of the JSON list of the offered tools. `None` for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Digest>,
    /// Digest of the JSON of `tool_choice`, `output`, `params` without `metadata` and `extra`. `None` for defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Digest>,
    /// Digest of the JSON list of the messages, in pieces. `None` if they are the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Digest>,
    /// Texts of those digests that no earlier call of the session had. `None` if the contents are not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<BTreeMap<Digest, String>>,
}

impl ModelStarted {
    /// Creates the start of a call whose request is not recorded.
    #[must_use]
    pub fn new(step: u32, provider: Arc<str>, model: Arc<str>) -> Self {
        Self { step, provider, model, ..Self::default() }
    }
}

payload! {
    /// An attempt at a model call failed, and another one begins.
    ModelRestarted {
        /// The step of the run, from 1.
        step: u32,
        /// Id of the call.
        request: RequestId,
        /// The attempt that begins, with the error of the one before.
        restart: Restart,
        /// As in [`ModelStarted`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<EffectKey>,
    }
}

/// A model's reply ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelFinished {
    /// The step of the run, from 1.
    pub step: u32,
    /// The reply, as far as it came.
    pub message: Arc<Message>,
    /// Reason for the end of the reply.
    pub finish: Finish,
    /// Tokens of the attempt that gave the reply.
    pub usage: Usage,
    /// Tokens of the failed attempts before it, as far as their services reported them.
    #[serde(default, skip_serializing_if = "Usage::is_unknown")]
    pub wasted: Usage,
    /// Cost of all attempts; `None` means unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
    /// The model that really answered, if the service reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
    /// The service's id of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Box<str>>,
    /// The service's id of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_request: Option<Box<str>>,
    /// Id of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
    /// Number of the attempt that gave the reply, from 1.
    #[serde(default = "first", skip_serializing_if = "is_first")]
    pub attempt: u32,
    /// Time from the call to the end of the reply, in microseconds.
    pub micros: u64,
    /// Error of the call, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorRecord>,
    /// As in [`ModelStarted`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<EffectKey>,
}

impl ModelFinished {
    /// Creates the end of a first attempt, without what its service told beside the reply.
    #[must_use]
    pub fn new(step: u32, message: Arc<Message>, finish: Finish, usage: Usage) -> Self {
        let (cost, model, response, service_request) = (None, None, None, None);
        let (wasted, attempt, micros) = (Usage::default(), first(), 0);
        let (request, error, key) = (None, None, None);
        Self {
            step,
            message,
            finish,
            usage,
            wasted,
            cost,
            model,
            response,
            service_request,
            request,
            attempt,
            micros,
            error,
            key,
        }
    }
}

payload! {
    /// A tool call is about to run.
    ToolStarted {
        /// Position of the call in its message, from 0.
        index: usize,
        /// Id of the call.
        call: Arc<str>,
        /// Name of the tool.
        tool: Arc<str>,
        /// Repetition that a resume may do if no result is recorded.
        repeat: Repeat,
        /// The rule, or other authority, that allowed the call.
        allowed_by: Cow<'static, str>,
        /// Arguments that an approver gave it in place of the model's, or of a hand-written agent's call from outside.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        edited: Option<Arguments>,
        /// Set for an effect of a hand-written agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<EffectKey>,
    }
}

/// A tool call has its result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolFinished {
    /// Position of the call in its message, from 0.
    pub index: usize,
    /// Result as the model is shown it. It names the real tool, also where the model called that through another one.
    pub result: Arc<ToolResult>,
    /// True if the turn ends with this result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stop_turn: bool,
    /// True if permission to run the call was refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub denied: bool,
    /// Data for programs, not shown to the model.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "json::option")]
    pub metadata: Option<Value>,
    /// Labels of the result.
    #[serde(default = "Labels::all")]
    pub labels: Labels,
    /// Running time in microseconds; 0 if the call was not run.
    pub micros: u64,
    /// A failure that ends the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fatal: Option<ErrorRecord>,
    /// Set for an effect of a hand-written agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<EffectKey>,
}

impl ToolFinished {
    /// Creates the end of the call at `index` of its message, with its result alone.
    #[must_use]
    pub fn new(index: usize, result: Arc<ToolResult>) -> Self {
        let (stop_turn, denied, metadata, labels) = (false, false, None, Labels::empty());
        let (micros, fatal, key) = (0, None, None);
        Self { index, result, stop_turn, denied, metadata, labels, micros, fatal, key }
    }
}

payload! {
    /// An approver answered.
    ApprovalDecided {
        /// Id of the question.
        id: ApprovalId,
        /// Decision of the approver.
        decision: Decision,
        /// Digest of the call that the decision is bound to.
        digest: Digest,
        /// Name of who decided, if it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Arc<str>>,
        /// Text of the approver's failure, which counts as a refusal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Arc<str>>,
    }
}

payload! {
    /// An agent started a child.
    ChildStarted {
        /// The child's session.
        child: SessionId,
        /// The child's name.
        agent: String,
        /// Run of that session, if several runs follow each other in it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<RunId>,
        /// Key of the effect.
        key: EffectKey,
    }
}

payload! {
    /// An agent observed the outcome of a child.
    ChildFinished {
        /// The child's session; `None` when the wait timed out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        child: Option<SessionId>,
        /// Outcome of the child.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome>,
        /// Key of the effect.
        key: EffectKey,
    }
}

payload! {
    /// A durable wait began.
    WaitStarted {
        /// Time at which the wait ends by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
        /// Name of the awaited signal. Such a wait is recorded when it begins, and once more when its signal has come.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<String>,
        /// Key of the effect.
        key: EffectKey,
    }
}

payload! {
    /// A value that a hand-written agent observed.
    Observed {
        /// The value.
        #[serde(deserialize_with = "json::value")]
        value: Value,
        /// Key of the effect.
        key: EffectKey,
    }
}

payload! {
    /// A signal to a session.
    Signal {
        /// Name of the signal.
        name: String,
        /// Value that it carries.
        #[serde(deserialize_with = "json::value")]
        value: Value,
    }
}

payload! {
    /// A queued prompt: it waits for the end of another run, or for that run's next step.
    PromptQueued {
        /// The run that the prompt begins, or the one that it joins.
        run: RunId,
        /// The agent that will answer.
        agent: Arc<str>,
        /// The prompt.
        prompt: Arc<Message>,
        /// True if the prompt joins the active run at its next step instead of beginning a run of its own.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        steer: bool,
        /// Budget of its own run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget: Option<BudgetLimits>,
        /// Time at which its own run is stopped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
        /// Labels of the prompt, which the session has once it reads it.
        #[serde(default = "Labels::all")]
        labels: Labels,
    }
}

payload! {
    /// A queued prompt was dropped: its run ended before it began.
    PromptDropped {
        /// Number of the event that queued the prompt.
        queued: u64,
        /// Reason that the prompt was dropped.
        error: ErrorRecord,
    }
}

payload! {
    /// A message joined the conversation between two steps.
    MessageAdded {
        /// The message.
        message: Arc<Message>,
        /// Number of the event that queued the message, if it is a prompt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queued: Option<u64>,
    }
}

payload! {
    /// The session reads text of labels that no result of a tool in it has.
    LabelsAdded {
        /// The labels.
        labels: Labels,
    }
}

payload! {
    /// The session has a title.
    Titled {
        /// Title: one line of at most 50 characters.
        title: Arc<str>,
    }
}

payload! {
    /// The todo list was replaced.
    TodosChanged {
        /// The whole new list.
        todos: Vec<Todo>,
    }
}

payload! {
    /// The session's mode changed: its next run works in it.
    ModeChanged {
        /// Id of the mode.
        mode: Arc<str>,
    }
}

payload! {
    /// Origin of a forked session.
    Forked {
        /// The session that it was forked from.
        session: SessionId,
        /// Number of the last event taken over from that session.
        seq: u64,
    }
}

payload! {
    /// A setting, tool or part could not be honoured.
    WarningRaised {
        /// Subject area.
        #[serde(default, rename = "about")]
        kind: WarningKind,
        /// The setting, tool or part concerned, such as `top_k`; may be empty.
        #[serde(default)]
        subject: Box<str>,
        /// Explanation of the problem, and of what was done instead.
        text: Box<str>,
        /// Id of the model call concerned, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<RequestId>,
    }
}

payload! {
    /// The run was paused.
    RunPaused {
        /// Input that the run waits for.
        pause: Pause,
    }
}

payload! {
    /// The run is over.
    RunFinished {
        /// Outcome of the run.
        outcome: Outcome,
        /// True if a newer prompt took the place of a run that was paused or left. Its outcome is cancelled then.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        abandoned: bool,
    }
}

payload! {
    /// A tool reported its progress, or a runner that of its parts.
    Progress {
        /// Id of the call; of a runner, its name for the part, or empty.
        call: String,
        /// Text for people.
        text: String,
    }
}

fn first() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_first(attempt: &u32) -> bool {
    *attempt == 1
}
