//! What each kind of event carries.

use std::{borrow::Cow, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{EffectKey, FORMAT};
use crate::{
    ErrorRecord, Money, RequestId, RunId, SessionId, Timestamp, Usage,
    context::CompactionCause,
    digest::Digest,
    layers::{BudgetLimits, Charge},
    message::{Message, ToolResult},
    permission::{ApprovalId, Decision},
    plain,
    provider::{Finish, Restart, WarningKind},
    run::{Outcome, Pause},
    session::SessionState,
    team::Todo,
    tool::Repeat,
};

macro_rules! payload {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[non_exhaustive]
        pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }
    };
}

payload! {
    /// A prompt was accepted and a run began.
    RunStarted {
        /// The version of the stored form.
        format: u32,
        /// The agent's own name.
        agent: Arc<str>,
        /// What it was asked.
        prompt: Arc<Message>,
        /// Number of the event that queued the prompt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queued: Option<u64>,
        /// What it may use.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget: Option<BudgetLimits>,
        /// When it is stopped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
        /// What the session is called when it has no title yet; `None` for the prompt's first words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<Arc<str>>,
        /// Whether what names its calls outside, idempotency keys and questions, follows from the run's id. Those of older
        /// runs follow from the session's alone: they keep the names that they were begun with.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        named_by_run: bool,
    }
}

payload! {
    /// A run goes on in another process, or after a pause.
    RunResumed {
        /// How many times it was resumed, this one included.
        count: u32,
    }
}

payload! {
    /// A model is about to be called.
    ModelStarted {
        /// The step of the run, from 1.
        step: u32,
        /// The service.
        provider: Arc<str>,
        /// The model's name there.
        model: Arc<str>,
        /// Names the call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<RequestId>,
        /// The template that the instructions were made of (CW17).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        template: Option<Arc<str>>,
        /// What was set aside for it in the run's budget, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reserved: Option<Charge>,
        /// Set for an effect of a hand-written agent; its messages are not part of the conversation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<EffectKey>,
    }
}

payload! {
    /// An attempt at a model call failed, and another one begins.
    ModelRestarted {
        /// The step of the run, from 1.
        step: u32,
        /// Names the call.
        request: RequestId,
        /// Which attempt begins, and why.
        restart: Restart,
        /// As in [`ModelStarted`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<EffectKey>,
    }
}

payload! {
    /// A model's reply ended.
    ModelFinished {
        /// The step of the run, from 1.
        step: u32,
        /// What came, as far as it came.
        message: Arc<Message>,
        /// Why it ended.
        finish: Finish,
        /// Tokens of the attempt that gave the reply.
        usage: Usage,
        /// Tokens of the attempts before it, as far as their services said.
        #[serde(default, skip_serializing_if = "Usage::is_unknown")]
        wasted: Usage,
        /// What all attempts cost; `None` means unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<Money>,
        /// The model that really answered, when the service says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<Box<str>>,
        /// The service's id of the response.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        response: Option<Box<str>>,
        /// The service's id of the request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        service_request: Option<Box<str>>,
        /// Names the call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<RequestId>,
        /// Which attempt gave the reply, from 1.
        #[serde(default = "first", skip_serializing_if = "is_first")]
        attempt: u32,
        /// From the call to the end of the reply, in microseconds.
        micros: u64,
        /// Why it failed, if it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ErrorRecord>,
        /// As in [`ModelStarted`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<EffectKey>,
    }
}

payload! {
    /// A tool call is about to run.
    ToolStarted {
        /// Position of the call in its message, from 0.
        index: usize,
        /// The id of the call.
        call: Arc<str>,
        /// The tool.
        tool: Arc<str>,
        /// What resume may do when no result is recorded.
        repeat: Repeat,
        /// The rule, or who else allowed it.
        allowed_by: Cow<'static, str>,
        /// Set for an effect of a hand-written agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<EffectKey>,
    }
}

payload! {
    /// A tool call has its result.
    ToolFinished {
        /// Position of the call in its message, from 0.
        index: usize,
        /// What the model is shown.
        result: Arc<ToolResult>,
        /// Whether the turn ends here.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stop_turn: bool,
        /// Whether leave to run it was refused.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        denied: bool,
        /// For programs.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "plain::option")]
        metadata: Option<Value>,
        /// How long it ran, in microseconds; 0 when it was not run.
        micros: u64,
        /// A failure that ends the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fatal: Option<ErrorRecord>,
        /// Set for an effect of a hand-written agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<EffectKey>,
    }
}

payload! {
    /// An approver answered.
    ApprovalDecided {
        /// The question.
        id: ApprovalId,
        /// The answer.
        decision: Decision,
        /// What the answer is bound to.
        digest: Digest,
    }
}

payload! {
    /// An agent started another one.
    ChildStarted {
        /// The child's session.
        child: SessionId,
        /// The child's name.
        agent: String,
        /// Which run of that session it is, when there are several that follow each other.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<RunId>,
        /// Which effect it was.
        key: EffectKey,
    }
}

payload! {
    /// An agent took note of another one's outcome.
    ChildFinished {
        /// The child's session; `None` when the wait timed out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        child: Option<SessionId>,
        /// What it ended with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome>,
        /// Which effect it was.
        key: EffectKey,
    }
}

payload! {
    /// A wait began.
    WaitStarted {
        /// When it ends by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
        /// The signal that it waits for. Such a wait is recorded when it begins, and once more when its signal has come.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<String>,
        /// Which effect it was.
        key: EffectKey,
    }
}

payload! {
    /// A value that a hand-written agent observed.
    Observed {
        /// The value.
        #[serde(deserialize_with = "plain::value")]
        value: Value,
        /// Which effect it was.
        key: EffectKey,
    }
}

payload! {
    /// A signal to a session.
    Signal {
        /// Its name.
        name: String,
        /// What it carries.
        #[serde(deserialize_with = "plain::value")]
        value: Value,
    }
}

payload! {
    /// A prompt that waits for the end of another run, or for its next step.
    PromptQueued {
        /// The run that it begins, or the one that it is added to.
        run: RunId,
        /// The agent that will answer.
        agent: Arc<str>,
        /// What it says.
        prompt: Arc<Message>,
        /// Whether it joins the run under way at its next step (CM11) instead of beginning its own.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        steer: bool,
        /// What its own run may use.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget: Option<BudgetLimits>,
        /// When its own run is stopped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
    }
}

payload! {
    /// A queued prompt was dropped: its run ends before it began (CM12).
    PromptDropped {
        /// Number of the event that queued it.
        queued: u64,
        /// Why.
        error: ErrorRecord,
    }
}

payload! {
    /// A message joined the conversation between two steps.
    MessageAdded {
        /// The message.
        message: Arc<Message>,
        /// Number of the event that queued it, if it is a prompt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queued: Option<u64>,
    }
}

payload! {
    /// The context is about to be made smaller.
    CompactionStarted {
        /// Why.
        cause: CompactionCause,
        /// The session in which the summary is written; its model calls are there.
        child: SessionId,
        /// About how many tokens the conversation takes.
        tokens: u64,
    }
}

payload! {
    /// A summary took the place of the older messages, which the store keeps.
    Compacted {
        /// What the model sees first from now on: a user message.
        summary: Arc<Message>,
        /// How many of the newest messages stay after it, word for word.
        kept: u64,
        /// About how many tokens the conversation took.
        before: u64,
        /// About how many it takes now.
        after: u64,
        /// Tokens of the summary, as the service counted them or as estimated.
        output: u64,
    }
}

payload! {
    /// No summary was made; the conversation is what it was.
    CompactionFailed {
        /// Why.
        error: ErrorRecord,
    }
}

payload! {
    /// Results of tools before a point are shown to the model as a note that they were cleared.
    OutputsCleared {
        /// How many messages from the oldest on are concerned.
        before: u64,
        /// Results of fewer bytes stay as they are.
        least: u64,
        /// About how many tokens the conversation takes now.
        after: u64,
    }
}

payload! {
    /// The session has a title.
    Titled {
        /// One line of at most 50 characters.
        title: Arc<str>,
    }
}

payload! {
    /// The list of what is to be done was replaced.
    TodosChanged {
        /// All of it.
        todos: Vec<Todo>,
    }
}

payload! {
    /// The session's mode changed: its next run works in it.
    ModeChanged {
        /// The mode's id.
        mode: Arc<str>,
    }
}

payload! {
    /// What all events before this one add up to: reading a session begins at its newest checkpoint.
    Checkpoint {
        /// The fold.
        state: SessionState,
        /// Where the session was forked from, if this is its first event.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        forked: Option<Forked>,
    }
}

payload! {
    /// Where a session comes from.
    Forked {
        /// The session that it was taken from.
        session: SessionId,
        /// After which of its events.
        seq: u64,
    }
}

payload! {
    /// Something could not be honoured.
    Warning {
        /// What it is about.
        #[serde(default, rename = "about")]
        kind: WarningKind,
        /// The setting, tool or part that it is about, such as `top_k`; may be empty.
        #[serde(default)]
        subject: Box<str>,
        /// What, and what was done instead.
        text: Box<str>,
        /// The model call that it is about, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<RequestId>,
    }
}

payload! {
    /// The run waits for somebody.
    RunPaused {
        /// For whom.
        pause: Pause,
    }
}

payload! {
    /// The run is over.
    RunFinished {
        /// How it ended.
        outcome: Outcome,
    }
}

payload! {
    /// How far a tool has come.
    Progress {
        /// The id of the call.
        call: String,
        /// For people.
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

impl RunStarted {
    pub(crate) fn new(agent: Arc<str>, prompt: Arc<Message>) -> Self {
        let (queued, budget, deadline, title) = (None, None, None, None);
        Self { format: FORMAT, agent, prompt, queued, budget, deadline, title, named_by_run: true }
    }
}
