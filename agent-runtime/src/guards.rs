//! Guards on prompts: the program's own code, which each prompt from outside passes through. They are held here; the
//! sessions call them. Guards on answers belong to agents; the record of them is here, since the runtime ends runs that
//! no agent ends.

use std::{fmt, sync::Arc};

use entourage_core::{
    Result,
    event::{Kept, Record, weigh_plain},
    message::Message,
    session::SessionState,
};
use serde::{Deserialize, Serialize};

type Guard = dyn Fn(Message) -> Result<Message> + Send + Sync;

/// The guards of a runtime, in the order in which they are called.
#[derive(Clone, Default)]
pub(crate) struct PromptGuards(Vec<Arc<Guard>>);

impl PromptGuards {
    /// Adds a guard after the others.
    pub(crate) fn add(&mut self, guard: impl Fn(Message) -> Result<Message> + Send + Sync + 'static) {
        self.0.push(Arc::new(guard));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Guard> {
        self.0.iter().map(|guard| &**guard)
    }
}

impl fmt::Debug for PromptGuards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PromptGuards({})", self.0.len())
    }
}

/// Record of a run whose text guards look at before it ends. If the run is cut off instead, as by a cancel, a deadline,
/// a budget or an error, its outcome has no text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AnswersGuarded {}

impl AnswersGuarded {
    /// Creates the record.
    #[must_use]
    pub fn new() -> Self {
        Self {}
    }

    /// True if the open run has recorded it.
    #[must_use]
    pub fn is_in(state: &SessionState) -> bool {
        let of_run = state.kept().iter().rev().take_while(|kept| !matches!(kept, Kept::Prompt(_)));
        of_run.into_iter().any(|kept| matches!(kept, Kept::Value(value) if value.name() == Self::KIND))
    }
}

impl Record for AnswersGuarded {
    const KIND: &'static str = "answers.guarded";
    const KEPT: bool = true;

    fn summary(&self) -> String {
        "guards look at the answer".to_owned()
    }

    fn weigh(&self) -> Result<usize> {
        weigh_plain(self)
    }
}
