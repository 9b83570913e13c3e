//! The todo list of a run: its session's own, or the list of the run that started it.

use std::sync::Arc;

use super::Journal;
use crate::event::Origin;

/// A todo list, by its owner: the session that keeps it, and the run there.
#[derive(Debug, Clone)]
pub(crate) struct TodoList {
    pub(crate) journal: Arc<Journal>,
    pub(crate) origin: Arc<Origin>,
}

impl TodoList {
    pub(crate) fn new(journal: &Arc<Journal>, origin: &Arc<Origin>) -> Self {
        Self { journal: Arc::clone(journal), origin: Arc::clone(origin) }
    }
}
