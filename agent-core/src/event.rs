//! What happened: the one event type and its envelope. What is stored is what is streamed, traced and shown.
//!
//! A session's state is a fold over its stored events. Deltas and progress are streamed only; what they add up to is
//! stored.

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
    sync::Arc,
};

use serde::{Deserialize, Serialize, Serializer, de::DeserializeOwned, ser::SerializeStruct};
use serde_json::Value;

use crate::{
    Error, ErrorKind, ErrorRecord, Money, Result, RunId, SessionId, Timestamp, Usage,
    digest::Digest,
    message::{Message, ToolResult},
    permission::{ApprovalId, ApprovalRequest, Decision},
    provider::{Delta, Finish},
    run::{Outcome, Pause},
    tool::Repeat,
};

/// Version of the stored form of events. A store written by a newer version is refused, never guessed at.
pub const FORMAT: u32 = 1;

/// Where an event comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Origin {
    /// The session that it belongs to.
    pub session: SessionId,
    /// The run.
    pub run: RunId,
    /// The agents from the root down, joined by `/`.
    pub agent: Arc<str>,
}

impl Origin {
    /// An origin.
    #[must_use]
    pub fn new(session: SessionId, run: RunId, agent: impl Into<Arc<str>>) -> Self {
        Self { session, run, agent: agent.into() }
    }
}

/// An event with where and when it happened. Cloning shares what is large.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Envelope {
    /// Where it comes from.
    pub origin: Arc<Origin>,
    /// Its number in the session, from 1. An event that is streamed only has the number of the stored event before it.
    pub seq: u64,
    /// When it happened. Deltas that arrived together share one reading of the clock.
    pub at: Timestamp,
    /// What happened.
    pub event: Event,
}

impl Envelope {
    /// Wraps an event.
    #[must_use]
    pub fn new(origin: Arc<Origin>, seq: u64, at: Timestamp, event: Event) -> Self {
        Self { origin, seq, at, event }
    }
}

impl Serialize for Envelope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Envelope", 7)?;
        out.serialize_field("session", &self.origin.session)?;
        out.serialize_field("run", &self.origin.run)?;
        out.serialize_field("agent", &self.origin.agent)?;
        out.serialize_field("seq", &self.seq)?;
        out.serialize_field("at", &self.at)?;
        out.serialize_field("kind", self.event.kind())?;
        out.serialize_field("data", &Data(&self.event))?;
        out.end()
    }
}

/// Names an effect of an agent that somebody wrote by hand: its ordinal in the run and the digest of what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EffectKey {
    /// Position among the effects of the run, from 0.
    pub ordinal: u64,
    /// Digest of the effect.
    pub digest: Digest,
}

impl EffectKey {
    /// The key of effect number `ordinal`.
    #[must_use]
    pub fn new(ordinal: u64, digest: Digest) -> Self {
        Self { ordinal, digest }
    }
}

macro_rules! events {
    (
        stored { $($(#[$doc:meta])* $name:ident($payload:ty) = $kind:literal,)* }
        streamed { $($(#[$sdoc:meta])* $sname:ident($spayload:ty) = $skind:literal,)* }
    ) => {
        /// What happened.
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub enum Event {
            $($(#[$doc])* $name($payload),)*
            $($(#[$sdoc])* $sname($spayload),)*
        }

        impl Event {
            /// The stable name, as stored.
            #[must_use]
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => $kind,)*
                    $(Self::$sname(_) => $skind,)*
                }
            }

            /// Whether it is stored; the others are streamed only.
            #[must_use]
            pub fn is_stored(&self) -> bool {
                match self {
                    $(Self::$name(_) => true,)*
                    $(Self::$sname(_) => false,)*
                }
            }

            /// The stored form, without the kind.
            ///
            /// # Errors
            /// [`ErrorKind::Internal`] when a value does not serialize.
            pub fn to_json(&self) -> Result<String> {
                serde_json::to_string(&Data(self))
                    .map_err(|error| Error::new(ErrorKind::Internal, "an event does not serialize").caused_by(error))
            }

            /// Reads the stored form.
            ///
            /// # Errors
            /// [`ErrorKind::NewerVersion`] for a kind or a stored form that this version does not know,
            /// [`ErrorKind::Corrupt`] for damaged JSON.
            pub fn from_json(kind: &str, json: &str) -> Result<Self> {
                let event = match kind {
                    $($kind => Self::$name(read(kind, json)?),)*
                    _ => return Err(newer(format!("events of kind `{kind}` are unknown here"))),
                };
                match &event {
                    Self::RunStarted(run) if run.format > FORMAT => {
                        Err(newer(format!("the run is stored in form {}, and forms up to {FORMAT} are known here", run.format)))
                    }
                    _ => Ok(event),
                }
            }
        }

        struct Data<'a>(&'a Event);

        impl Serialize for Data<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self.0 {
                    $(Event::$name(payload) => payload.serialize(serializer),)*
                    $(Event::$sname(payload) => payload.serialize(serializer),)*
                }
            }
        }
    };
}

events! {
    stored {
        /// A prompt was accepted and a run began.
        RunStarted(Arc<RunStarted>) = "run_started",
        /// A run that a process left unfinished goes on.
        RunResumed(RunResumed) = "run_resumed",
        /// A model is about to be called.
        ModelStarted(Arc<ModelStarted>) = "model_started",
        /// A model's reply ended, well or not.
        ModelFinished(Arc<ModelFinished>) = "model_finished",
        /// A tool call was admitted and is about to run: claimed.
        ToolStarted(Arc<ToolStarted>) = "tool_started",
        /// A tool call has its result: settled.
        ToolFinished(Arc<ToolFinished>) = "tool_finished",
        /// An approver was asked.
        ApprovalRequested(Arc<ApprovalRequest>) = "approval_requested",
        /// An approver answered.
        ApprovalDecided(Arc<ApprovalDecided>) = "approval_decided",
        /// An agent started another one.
        ChildStarted(Arc<ChildStarted>) = "child_started",
        /// An agent took note of another one's outcome.
        ChildFinished(Arc<ChildFinished>) = "child_finished",
        /// A wait began that survives a restart.
        WaitStarted(Arc<WaitStarted>) = "wait_started",
        /// A hand-written agent observed a value: the time, an id, a signal.
        Observed(Arc<Observed>) = "observed",
        /// Somebody sent the session a signal.
        SignalReceived(Arc<Signal>) = "signal_received",
        /// Something could not be honoured; the run goes on.
        Warning(Arc<Warning>) = "warning",
        /// The run waits for somebody and can be resumed.
        RunPaused(Arc<RunPaused>) = "run_paused",
        /// The run is over.
        RunFinished(Arc<RunFinished>) = "run_finished",
    }
    streamed {
        /// A piece of a reply.
        Delta(Delta) = "delta",
        /// A tool says how far it has come.
        Progress(Arc<Progress>) = "progress",
    }
}

fn newer(what: String) -> Error {
    let text = format!("{what}; the session was written by a newer version of entourage, update to read it");
    Error::new(ErrorKind::NewerVersion, text)
}

fn read<T: DeserializeOwned>(kind: &str, json: &str) -> Result<T> {
    serde_json::from_str(json).map_err(|error| {
        Error::new(ErrorKind::Corrupt, "a stored event cannot be read")
            .with("kind", kind.to_owned())
            .caused_by(error)
    })
}

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
        /// Set for an effect of a hand-written agent; its messages are not part of the conversation.
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
        /// Tokens.
        usage: Usage,
        /// What it cost; `None` means unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<Money>,
        /// The model that really answered, when the service says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<Box<str>>,
        /// The service's id of the response.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        response: Option<Box<str>>,
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
        #[serde(default, skip_serializing_if = "Option::is_none")]
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
        /// The signal that ended it: such a wait is recorded once its signal has come.
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
        value: Value,
    }
}

payload! {
    /// Something could not be honoured.
    Warning {
        /// What, and what was done instead.
        text: String,
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

impl RunStarted {
    pub(crate) fn new(agent: Arc<str>, prompt: Arc<Message>) -> Self {
        Self { format: FORMAT, agent, prompt }
    }
}

impl fmt::Display for Envelope {
    /// One line for a terminal or a log; a text delta with its layout. What models and tools say cannot command the
    /// terminal: control and hidden characters are shown as escapes, in a text delta they are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keep_layout = matches!(self.event, Event::Delta(_));
        self.show(&mut Harmless { out: f, keep_layout })
    }
}

impl Envelope {
    fn show(&self, f: &mut Harmless<'_, '_>) -> fmt::Result {
        let agent = &self.origin.agent;
        match &self.event {
            Event::Delta(Delta::Text(text)) => f.write_str(text),
            Event::Delta(_) => Ok(()),
            Event::RunStarted(run) => write!(f, "{agent}: {}", one_line(&run.prompt.text())),
            Event::RunResumed(_) => write!(f, "{agent}: resumed"),
            Event::ModelStarted(call) => write!(f, "{agent}: asks {}:{}", call.provider, call.model),
            Event::ModelFinished(reply) => match &reply.error {
                Some(error) => write!(f, "{agent}: the model failed: {}", error.message),
                None => write!(f, "{agent}: replied ({})", reply.usage),
            },
            Event::ToolStarted(call) => write!(f, "{agent}: runs {}", call.tool),
            Event::ToolFinished(call) => {
                let verb = if call.result.is_error { "failed" } else { "returned" };
                write!(f, "{agent}: {} {verb}: {}", call.result.name, one_line(&call.result.to_text()))
            }
            Event::ApprovalRequested(request) => {
                write!(f, "{agent}: asks leave to run {} {}", request.tool, request.arguments.as_str())
            }
            Event::ApprovalDecided(answer) => write!(f, "{agent}: {:?} for {}", answer.decision, answer.id),
            Event::ChildStarted(child) => write!(f, "{agent}: starts {}", child.agent),
            Event::ChildFinished(child) => match &child.child {
                Some(child) => write!(f, "{agent}: {child} is done"),
                None => write!(f, "{agent}: waited in vain"),
            },
            Event::WaitStarted(wait) => match &wait.signal {
                Some(signal) => write!(f, "{agent}: takes the signal {signal}"),
                None => write!(f, "{agent}: waits"),
            },
            Event::Observed(_) => write!(f, "{agent}: took note"),
            Event::SignalReceived(signal) => write!(f, "{agent}: received the signal {}", signal.name),
            Event::Warning(warning) => write!(f, "{agent}: warning: {}", warning.text),
            Event::Progress(progress) => write!(f, "{agent}: {}", one_line(&progress.text)),
            Event::RunPaused(paused) => write!(f, "{agent}: {}", paused.pause),
            Event::RunFinished(end) => write!(f, "{agent}: {}", end.outcome),
        }
    }
}

fn one_line(text: &str) -> String {
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() > 100 {
        line = line.chars().take(99).chain(['…']).collect();
    }
    line
}

/// Passes text on without the characters that command a terminal or hide what is said.
struct Harmless<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    /// Line breaks and tabs stay, what is harmful goes without a trace; else there is one line with escapes.
    keep_layout: bool,
}

impl fmt::Write for Harmless<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if !text.contains(is_harmful) {
            return self.out.write_str(text);
        }
        text.chars().try_for_each(|c| match c {
            c if !is_harmful(c) => self.out.write_char(c),
            '\n' | '\t' if self.keep_layout => self.out.write_char(c),
            _ if self.keep_layout => Ok(()),
            '\n' | '\r' | '\t' => self.out.write_char(' '),
            c => write!(self.out, "{}", c.escape_unicode()),
        })
    }
}

/// Control characters, and those that reorder text or cannot be seen. Joiners stay: scripts and emoji need them.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{feff}'
        )
        || matches!(c, '\u{2060}'..='\u{2064}' | '\u{2066}'..='\u{206f}' | '\u{e0000}'..='\u{e007f}')
}
