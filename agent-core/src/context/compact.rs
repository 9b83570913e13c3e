//! When a conversation is made smaller, and what of it stays. Pure; [`crate::agent::ReactAgent`] acts on it.

mod fit;
mod gauge;
mod plan;
mod prompt;

pub(crate) use fit::fitted;
pub(crate) use gauge::Gauge;
pub(crate) use plan::{Frame, Plan, Room, plan, summary_plan};
pub(crate) use prompt::{instruction, summary_message};

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    message::{Content, Message, Part, ToolResult},
    provider::{Model, ModelSlot},
};

/// Why a conversation is made smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CompactionCause {
    /// The context is nearly full (CS01).
    Threshold,
    /// The service refused a request for its length.
    Overflow,
    /// Somebody asked for it.
    Asked,
}

/// Results of fewer bytes are never cleared: the note that stands in their place would be as long.
const LEAST: u64 = 256;

/// How a conversation is made smaller when it nears the model's window.
///
/// Before a model call, the newest step's tokens (prompt and reply) are held against the window: of a window over
/// 200,000 tokens at least 20,000 must remain free, of a smaller one 20% (CS01). What tools returned since that step is
/// estimated, and the half of this room that is for the reply is kept free of it. When the window is unknown or 0,
/// nothing happens before a service refuses a request for its length; then the conversation is made smaller and the
/// step is tried again, at most twice in a row.
///
/// - First, old tool outputs are replaced by notes, when that frees enough by itself.
/// - Otherwise a model writes a summary, in a session of its own below this one. The summary, with the task under way
///   word for word and the list of what is to be done, takes the place of the older messages. A call is never parted
///   from its results. A summary that is empty, refused or not smaller than what it stands for is not taken, and none
///   is tried again before the context has grown by a tenth or the next run begins.
///
/// The store keeps every message. When the run is cancelled meanwhile, the conversation stays what it was.
///
/// ```
/// # #[cfg(feature = "testkit")] {
/// use entourage_core::{agent::ReactAgent, context::Compaction, testkit::ScriptedProvider};
///
/// let (large, small) = (ScriptedProvider::new(), ScriptedProvider::new());
/// let agent = ReactAgent::builder("coder", large.model())
///     .compaction(Compaction::new().model(small.model()).keep_messages(6))
///     .build()
///     .unwrap();
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Compaction {
    model: Option<ModelSlot>,
    keep: Option<usize>,
    clearing: Clearing,
    focus: Option<Arc<str>>,
}

/// Which tool outputs are cleared before anything is summarised.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Clearing {
    Never,
    Old { keep: usize, least: u64 },
}

impl Default for Clearing {
    fn default() -> Self {
        Self::Old { keep: 8, least: 1_024 }
    }
}

impl Compaction {
    /// The agent's own model writes the summary, and the newest step stays word for word when it takes at most a
    /// quarter of the window. Tool outputs of at least 1,024 bytes are cleared first, those in the newest 8 messages
    /// excepted.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets this model write the summary, a cheaper one for example. What does not fit its window is left out, and
    /// tool outputs go first.
    #[must_use]
    pub fn model(mut self, model: impl Into<ModelSlot>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Keeps at most the newest `count` messages word for word, as far as they take a quarter of the window; 0 keeps
    /// none. A call and its results stay together, on one side. Prompts that were not answered yet always stay.
    #[must_use]
    pub fn keep_messages(mut self, count: usize) -> Self {
        self.keep = Some(count);
        self
    }

    /// Clears results of tools first that are older than the newest `keep` messages and have at least `least` bytes
    /// (never less than 256). A file counts as 65,536 bytes.
    #[must_use]
    pub fn clear_outputs(mut self, keep: usize, least: u64) -> Self {
        self.clearing = Clearing::Old { keep, least: least.max(LEAST) };
        self
    }

    /// Never clears tool outputs alone.
    #[must_use]
    pub fn without_clearing(mut self) -> Self {
        self.clearing = Clearing::Never;
        self
    }

    /// Tells the model that writes the summary what else matters, such as `Keep the names of all customers`.
    #[must_use]
    pub fn focus(mut self, text: impl Into<Arc<str>>) -> Self {
        self.focus = Some(text.into());
        self
    }

    /// The model that writes the summary where the agent's own is `own`.
    pub(crate) fn summariser(&self, own: &Model) -> Model {
        self.model.as_ref().map_or_else(|| own.clone(), ModelSlot::model)
    }

    pub(crate) fn focus_text(&self) -> Option<&str> {
        self.focus.as_deref()
    }
}

/// The message with each tool result of at least `least` bytes of text replaced by a note of its size.
pub(crate) fn cleared(message: &Arc<Message>, least: u64) -> Arc<Message> {
    let size = |result: &ToolResult| result.content.iter().map(size_of).fold(0, u64::saturating_add);
    if message.tool_results().all(|result| size(result) < least) {
        return Arc::clone(message);
    }
    let part = |part: &Part| match part {
        Part::ToolResult(result) if size(result) >= least => {
            let note = format!(
                "[{} bytes, cleared to save room; call the tool again if you need them]",
                size(result)
            );
            let mut result = (**result).clone();
            result.content = vec![Content::Text(note)];
            Part::ToolResult(Arc::new(result))
        }
        other => other.clone(),
    };
    Arc::new(Message::new(message.role(), message.parts().iter().map(part).collect()))
}

fn size_of(content: &Content) -> u64 {
    match content {
        Content::Text(text) => u64::try_from(text.len()).unwrap_or(u64::MAX),
        // What a file takes is not known; it is never small.
        Content::Media(_) => 1 << 16,
    }
}
