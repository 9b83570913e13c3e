//! The todo list of a run: its session's own, or the list of the run that started it.

use std::{fmt, sync::Arc};

use super::{Journal, RunContext};
use crate::{
    Result,
    event::{Event, MessageAdded, Origin, TodosChanged},
    message::Message,
    team::Todo,
};

const REMINDER: &str = "<reminder>The list of what is to be done is empty. If this takes three steps or more, keep one \
    with the tool `todos`; otherwise go on without. Do not mention this reminder.</reminder>";

/// A todo list, by its owner: the session that keeps it, and the run there.
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
    /// Returns the todo list as it was last set, by any run that shares it.
    #[must_use]
    pub fn todos(&self) -> Vec<Todo> {
        self.todo_list().journal.read(|state| state.todos().to_vec())
    }

    /// Reminds the model of an empty list, once per run and in root sessions only. `recorded` holds the events that the
    /// run stored before it was interrupted.
    pub(crate) fn remind_of_todos(&self, recorded: &[Event]) {
        let told = |event: &Event| matches!(event, Event::MessageAdded(it) if it.queued.is_none());
        if self.journal().parent().is_some() || recorded.iter().any(told) || !self.todos().is_empty() {
            return;
        }
        let message = Arc::new(Message::user(REMINDER));
        let added = MessageAdded { message, queued: None };
        // A run that is over has no model call to remind: its first effect is refused.
        drop(self.stage(self.clock(), Event::MessageAdded(Arc::new(added))));
    }

    /// Replaces the whole list. When this returns, it is stored, and every run that shares the list sees it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) when this run is over, the store's.
    pub async fn set_todos(&self, todos: Vec<Todo>) -> Result<()> {
        let list = self.todo_list();
        let owner = &list.origin;
        let origin = Arc::new(Origin::new(owner.session.clone(), owner.run, self.agent()));
        let changed = Event::TodosChanged(Arc::new(TodosChanged { todos }));
        list.journal.stage_in(self.life(), &origin, self.clock(), changed)?;
        list.journal.commit(self.emitter()).await
    }
}
