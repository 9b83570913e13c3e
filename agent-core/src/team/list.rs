//! A run's access to its todo list.

use super::Todo;
use crate::{Result, run::RunContext};

impl RunContext {
    /// Returns the todo list as it was last set, by any run that shares it.
    #[must_use]
    pub fn todos(&self) -> Vec<Todo> {
        self.effects().todos()
    }

    /// Replaces the whole list. When this returns, it is stored, and every run that shares the list sees it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) when this run is over, the store's.
    pub async fn set_todos(&self, todos: Vec<Todo>) -> Result<()> {
        self.effects().set_todos(self, todos).await
    }
}
