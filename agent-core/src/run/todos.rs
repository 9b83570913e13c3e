//! The list of what is to be done that a run works on: its session's own, or one that it shares with whoever started it.

use std::{fmt, sync::Arc};

use super::{Journal, RunContext};
use crate::{
    Result,
    event::{Event, Origin, TodosChanged},
    team::Todo,
};

/// Whose list it is: the session that keeps it, and the run there.
#[derive(Clone)]
pub(crate) struct TodoList {
    journal: Arc<Journal>,
    origin: Arc<Origin>,
}

impl TodoList {
    pub(crate) fn new(journal: &Arc<Journal>, origin: &Arc<Origin>) -> Self {
        Self { journal: Arc::clone(journal), origin: Arc::clone(origin) }
    }
}

impl fmt::Debug for TodoList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TodoList({})", self.origin.session)
    }
}

impl RunContext {
    /// What is to be done, as whoever shares the list left it last.
    #[must_use]
    pub fn todos(&self) -> Vec<Todo> {
        self.todo_list().journal.read(|state| state.todos().to_vec())
    }

    /// Replaces the whole list. When this returns it is stored, and everybody who shares the list sees it (CW07).
    ///
    /// # Errors
    /// The store's.
    pub async fn set_todos(&self, todos: Vec<Todo>) -> Result<()> {
        let list = self.todo_list();
        let owner = &list.origin;
        let origin = Arc::new(Origin::new(owner.session.clone(), owner.run, self.agent()));
        let changed = Event::TodosChanged(Arc::new(TodosChanged { todos }));
        list.journal.stage(&origin, self.clock(), changed);
        list.journal.commit(self.emitter()).await
    }
}
