//! A run's access to its todo list.

use std::sync::Arc;

use super::Todo;
use crate::{
    Result,
    event::{Event, Origin, TodosChanged},
    run::RunContext,
};

impl RunContext {
    /// Returns the todo list as it was last set, by any run that shares it.
    #[must_use]
    pub fn todos(&self) -> Vec<Todo> {
        self.todo_list().journal.read(|state| state.todos().to_vec())
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
