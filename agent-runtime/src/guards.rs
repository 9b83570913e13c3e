//! Guards on prompts: the program's own code, which each prompt from outside passes through. They are held here; the
//! sessions call them.

use std::{fmt, sync::Arc};

use entourage_core::{Result, message::Message};

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
