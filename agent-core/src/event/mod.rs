//! The one event type and its envelope. The same events are stored, streamed, traced and shown.
//!
//! A session's state is a fold over its stored events. Deltas and progress are only streamed; finished replies and
//! results are stored.

mod checkpoint;
pub(crate) mod compaction;
mod display;
mod payload;
mod record;
pub(crate) mod versions;

pub use crate::base::{
    EffectKey, RunAbove,
    shown::{Shown, plain_line},
};
pub use checkpoint::Checkpoint;
pub use compaction::{Compacted, CompactionFailed, CompactionStarted, OutputsCleared};
pub use payload::{
    ApprovalDecided, ChildFinished, ChildStarted, Forked, LabelsAdded, MessageAdded, ModeChanged,
    ModelFinished, ModelRestarted, ModelStarted, Observed, Progress, PromptDropped, PromptQueued,
    RunFinished, RunPaused, RunResumed, RunStarted, Signal, Titled, TodosChanged, ToolFinished, ToolStarted,
    WaitStarted, WarningRaised,
};
pub use record::{Kept, Record, Recorded, weigh_plain};
pub use versions::FORMAT;

use versions::newer;

use std::{borrow::Cow, fmt, sync::Arc};

use serde::{Serialize, Serializer, de::DeserializeOwned, ser, ser::SerializeStruct};

use crate::{
    Error, ErrorKind, Result, RunId, SessionId, Timestamp, base::bound::is_readable, message::Message,
    permission::ApprovalRequest, provider::Delta, spec::Labels,
};

impl RunStarted {
    /// Creates the start of a run of the agent of this name, without bounds.
    #[must_use]
    pub fn new(agent: Arc<str>, prompt: Arc<Message>) -> Self {
        let (queued, budget, deadline, title, above) = (None, None, None, None, None);
        let (format, named_by_run, labels) = (FORMAT, true, Labels::empty());
        Self { format, agent, prompt, queued, budget, deadline, title, named_by_run, above, labels }
    }
}

/// Origin of an event: session, run and agent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Origin {
    /// The session that the event belongs to.
    pub session: SessionId,
    /// The run.
    pub run: RunId,
    /// Names of the agents from the root down, joined by `/`.
    pub agent: Arc<str>,
}

impl Origin {
    /// An origin.
    #[must_use]
    pub fn new(session: SessionId, run: RunId, agent: impl Into<Arc<str>>) -> Self {
        Self { session, run, agent: agent.into() }
    }
}

/// An event with its origin, number and time. Cloning shares the large parts.
// This order also holds in memory: the event's tag, whose niches encode `None` and `Pending`, is then not the first
// word. After a first word of four bytes the rest is copied in overlapping pieces, and each load of one waits for the
// stores before it: some nanoseconds for every delta.
#[repr(C)]
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Envelope {
    /// Origin of the event.
    pub origin: Arc<Origin>,
    /// Number of the event in its session, from 1. An event that is only streamed has the number of the stored event
    /// before it.
    pub seq: u64,
    /// Time of the event. Deltas that arrived together share one reading of the clock.
    pub at: Timestamp,
    /// The event itself.
    pub event: Event,
}

impl Envelope {
    /// Wraps an event.
    #[must_use]
    pub fn new(origin: Arc<Origin>, seq: u64, at: Timestamp, event: Event) -> Self {
        Self { origin, seq, at, event }
    }
}

/// Sees every event of every run of a runtime, streamed ones included.
///
/// # Contract
/// Quick, and never blocks: it is called from within the run.
///
/// An observer that panics is not called again, and the panic hook of the process reports it, once. The run, the stored
/// events and the other observers are not affected.
pub trait Observer: Send + Sync + fmt::Debug {
    /// An event happened.
    fn on_event(&self, event: &Envelope);
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

macro_rules! events {
    (
        stored { $($(#[$doc:meta])* $name:ident($payload:ty) = $kind:literal,)* }
        streamed { $($(#[$sdoc:meta])* $sname:ident($spayload:ty) = $skind:literal,)* }
    ) => {
        /// One thing that happened in a session.
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub enum Event {
            $($(#[$doc])* $name($payload),)*
            $($(#[$sdoc])* $sname($spayload),)*
            /// An agent recorded a value of its own.
            Recorded(Recorded),
        }

        impl Event {
            /// The kinds of stored events; a recorded value has a kind of its own.
            pub const STORED_KINDS: &'static [&'static str] = &[$($kind,)*];

            /// The stable name, as stored. A recorded value has [its own](Recorded::kind).
            #[must_use]
            pub fn kind(&self) -> &str {
                self.fixed_kind().unwrap_or_else(Recorded::kind)
            }

            /// The kind for a column.
            pub(crate) fn column(&self) -> Cow<'static, str> {
                self.fixed_kind().map_or_else(Recorded::column, Cow::Borrowed)
            }

            /// The kind, unless it is that of a recorded value.
            fn fixed_kind(&self) -> Result<&'static str, &Recorded> {
                match self {
                    $(Self::$name(_) => Ok($kind),)*
                    $(Self::$sname(_) => Ok($skind),)*
                    Self::Recorded(it) => Err(it),
                }
            }

            /// True for events that are stored; the others are only streamed.
            #[must_use]
            pub fn is_stored(&self) -> bool {
                !matches!(self, $(Self::$sname(_))|*)
            }

            /// The stored form, without the kind.
            ///
            /// # Errors
            /// [`ErrorKind::Internal`] when a value does not serialize, or nests deeper than readers accept.
            pub fn to_json(&self) -> Result<String> {
                let json = match self {
                    Self::Recorded(it) => it.body()?,
                    _ => serde_json::to_string(&Data(self)).map_err(|error| {
                        Error::new(ErrorKind::Internal, "an event does not serialize").caused_by(error)
                    })?,
                };
                // Values are bounded at their source. A value that was missed must not end a session, so it is refused
                // here.
                if self.must_be_read() && !is_readable(&json) {
                    let text = "an event nests deeper than 127 levels, and could never be read again";
                    return Err(Error::new(ErrorKind::Internal, text).with("kind", self.kind().to_owned()));
                }
                Ok(json)
            }

            /// Reads the stored form.
            ///
            /// # Errors
            /// [`ErrorKind::NewerVersion`] for a kind or a stored form that this version does not know,
            /// [`ErrorKind::Corrupt`] for damaged JSON.
            pub fn from_json(kind: &str, json: &str) -> Result<Self> {
                let event = match kind {
                    $($kind => Self::$name(read(kind, json)?),)*
                    _ => Self::Recorded(Recorded::stored(kind, json).ok_or_else(|| {
                        newer(&format!("events of kind `{kind}` are unknown here"))
                    })??),
                };
                match &event {
                    Self::RunStarted(run) if run.format > FORMAT => {
                        Err(newer(&format!("the run is stored in form {}, and forms up to {FORMAT} are known here", run.format)))
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
                    Event::Recorded(it) => it.raw().map_err(ser::Error::custom)?.serialize(serializer),
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
        /// An attempt at a model call failed, and another one begins.
        ModelRestarted(Arc<ModelRestarted>) = "model_restarted",
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
        /// An agent started a child.
        ChildStarted(Arc<ChildStarted>) = "child_started",
        /// An agent observed the outcome of a child.
        ChildFinished(Arc<ChildFinished>) = "child_finished",
        /// A durable wait began: it survives a restart.
        WaitStarted(Arc<WaitStarted>) = "wait_started",
        /// A hand-written agent observed a value: the time, an id, a signal.
        Observed(Arc<Observed>) = "observed",
        /// A signal was sent to the session.
        SignalReceived(Arc<Signal>) = "signal_received",
        /// A prompt was queued while another run was active.
        PromptQueued(Arc<PromptQueued>) = "prompt_queued",
        /// A queued prompt was dropped: it will not be answered.
        PromptDropped(Arc<PromptDropped>) = "prompt_dropped",
        /// A message joined the conversation during a run.
        MessageAdded(Arc<MessageAdded>) = "message_added",
        /// A compaction of the context began.
        CompactionStarted(Arc<CompactionStarted>) = "compaction_started",
        /// A summary took the place of the older messages.
        Compacted(Arc<Compacted>) = "compacted",
        /// A compaction failed; the context stays as it is.
        CompactionFailed(Arc<CompactionFailed>) = "compaction_failed",
        /// Old results of tools are no longer shown to the model.
        OutputsCleared(Arc<OutputsCleared>) = "outputs_cleared",
        /// The session reads text of more labels: a prompt's, or an agent's below.
        LabelsAdded(LabelsAdded) = "labels_added",
        /// The session has a title.
        Titled(Arc<Titled>) = "titled",
        /// The todo list was replaced.
        TodosChanged(Arc<TodosChanged>) = "todos_changed",
        /// The session's mode changed: its next run works in it.
        ModeChanged(Arc<ModeChanged>) = "mode_changed",
        /// Snapshot of the fold of all events before this one.
        Checkpoint(Arc<Checkpoint>) = "checkpoint",
        /// A setting, tool or part could not be honoured; the run goes on.
        WarningRaised(Arc<WarningRaised>) = "warning",
        /// The run was paused and can be resumed.
        RunPaused(Arc<RunPaused>) = "run_paused",
        /// The run is over.
        RunFinished(Arc<RunFinished>) = "run_finished",
    }
    streamed {
        /// A piece of a reply.
        Delta(Delta) = "delta",
        /// A tool reported its progress.
        Progress(Arc<Progress>) = "progress",
    }
}

impl Event {
    /// True unless the session can be read without this event. A checkpoint repeats the events before it, except one
    /// with which a session begins.
    fn must_be_read(&self) -> bool {
        !matches!(self, Self::Checkpoint(checkpoint) if checkpoint.forked.is_none() && !checkpoint.given)
    }

    /// The recorded value, if it is a `T`.
    ///
    /// # Errors
    /// Those of [`Recorded::get`].
    pub fn record<T: Record>(&self) -> Result<Option<Arc<T>>> {
        match self {
            Self::Recorded(recorded) => recorded.get(),
            _ => Ok(None),
        }
    }

    /// Key of the hand-written agent's effect that the event belongs to.
    pub fn effect_key(&self) -> Option<EffectKey> {
        match self {
            Self::ModelStarted(it) => it.key,
            Self::ModelRestarted(it) => it.key,
            Self::ModelFinished(it) => it.key,
            Self::ToolStarted(it) => it.key,
            Self::ToolFinished(it) => it.key,
            Self::ChildStarted(it) => Some(it.key),
            Self::ChildFinished(it) => Some(it.key),
            Self::WaitStarted(it) => Some(it.key),
            Self::Observed(it) => Some(it.key),
            Self::Recorded(it) => it.key(),
            _ => None,
        }
    }
}

fn read<T: DeserializeOwned>(kind: &str, json: &str) -> Result<T> {
    serde_json::from_str(json).map_err(|error| {
        Error::new(ErrorKind::Corrupt, "a stored event cannot be read")
            .with("kind", kind.to_owned())
            .caused_by(error)
    })
}
