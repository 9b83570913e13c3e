//! Settings of compaction: when a conversation is made smaller, and what of it stays.

use std::sync::Arc;

use super::Instructions;
use crate::{
    base::setters,
    provider::{Model, ModelSlot},
};

/// Bytes below which a result is never cleared: the note that takes its place would be as long.
const LEAST: u64 = 256;

/// Settings for compaction: how a conversation is made smaller when it nears the model's window.
///
/// Before each model call, the tokens of the newest step (prompt and reply) are compared with the window. Compaction
/// is due when a window of more than 200,000 tokens has 20,000 or fewer left, a smaller one 20% or less. Tool results
/// that came since that step are estimated; it is also due when they leave half of that reserve or less. With an
/// unknown window, or one of 0, compaction waits until the service refuses a request for its length. After such a
/// refusal the conversation is made smaller and the step is tried again, at most twice in a row.
///
/// - First, old tool outputs are replaced by notes, if that alone frees enough.
/// - Otherwise a model writes a summary, in a child session of this one. The summary, the todo list and the current
///   task, word for word, replace the older messages. A call is never separated from its results. A summary that is
///   empty, refused or not smaller than the messages it replaces is discarded. Another is tried only after the context
///   has grown by a tenth or the next run has begun.
///
/// The store keeps every message. If the run is cancelled meanwhile, the conversation stays unchanged.
///
/// ```
/// use entourage_core::context::Compaction;
/// use entourage_runners::ReactAgent;
/// use entourage_testkit::ScriptedProvider;
///
/// let (large, small) = (ScriptedProvider::new(), ScriptedProvider::new());
/// let agent = ReactAgent::builder("coder", large.model())
///     .compaction(Compaction::new().with_model(small.model()).keep_messages(6))
///     .build()
///     .unwrap();
/// ```
#[derive(Debug, Clone, Default)]
pub struct Compaction {
    model: Option<ModelSlot>,
    keep: Option<usize>,
    clearing: Clearing,
    focus: Option<Arc<str>>,
    prompt: Option<Instructions>,
}

/// Selects the tool outputs that are cleared before anything is summarised.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clearing {
    /// Nothing is cleared.
    Never,
    /// Those outside the newest messages are cleared.
    Old {
        /// Number of newest messages whose outputs stay.
        keep: usize,
        /// Bytes below which an output stays.
        least: u64,
    },
}

impl Default for Clearing {
    fn default() -> Self {
        Self::Old { keep: 8, least: 1_024 }
    }
}

impl Compaction {
    /// Default settings. The agent's own model writes the summary. The newest step stays word for word if it takes at
    /// most a quarter of the window. Tool outputs of at least 1,024 bytes are cleared first, except in the newest 8
    /// messages.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Sets the model that writes the summary, for example a cheaper one. Messages that do not fit its window are
        /// left out; tool outputs go first.
        with_model(model: impl Into<ModelSlot>) => Some(model.into());
        /// Keeps at most so many of the newest messages word for word, as far as they fit a quarter of the window; 0
        /// keeps none. A call and its results stay together. Unanswered prompts always stay.
        keep_messages(keep: usize) => Some(keep);
        /// Tells the model that writes the summary what else matters, such as `Keep the names of all customers`.
        with_focus(focus: impl Into<Arc<str>>) => Some(focus.into());
        /// Replaces the built-in prompt that asks for the summary, `entourage/summary`. What follows it stays: the
        /// focus, and the list of what is to be done.
        with_prompt(prompt: impl Into<Instructions>) => Some(prompt.into());
    }

    /// Sets the tool results that are cleared first: those before the newest `keep` messages with at least `least`
    /// bytes (never less than 256). A file counts as 65,536 bytes.
    #[must_use]
    pub fn clear_outputs(self, keep: usize, least: u64) -> Self {
        Self { clearing: Clearing::Old { keep, least: least.max(LEAST) }, ..self }
    }

    /// Disables clearing: compaction always summarises.
    #[must_use]
    pub fn without_clearing(self) -> Self {
        Self { clearing: Clearing::Never, ..self }
    }

    /// Returns what of old tool outputs is cleared.
    #[must_use]
    pub fn clearing(&self) -> Clearing {
        self.clearing
    }

    /// Returns the number of messages that a summary leaves as they are; `None` for the newest step.
    #[must_use]
    pub fn kept_messages(&self) -> Option<usize> {
        self.keep
    }

    /// Returns the model that writes summaries for an agent whose own model is `own`.
    #[must_use]
    pub fn summariser(&self, own: &Model) -> Model {
        self.model.as_ref().map_or_else(|| own.clone(), ModelSlot::model)
    }

    /// Returns what a summary is asked to keep above all.
    #[must_use]
    pub fn focus_text(&self) -> Option<&str> {
        self.focus.as_deref()
    }

    /// Returns the prompt that replaces the built-in one.
    #[must_use]
    pub fn prompt(&self) -> Option<&Instructions> {
        self.prompt.as_ref()
    }
}
