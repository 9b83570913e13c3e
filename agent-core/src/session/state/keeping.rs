//! Values that the state keeps for the agent of a task.

use std::sync::Arc;

use super::SessionState;
use crate::{
    event::{Kept, Recorded, RunStarted},
    message::Message,
};

impl SessionState {
    /// Prompts and values that the agent of the open or abandoned task keeps.
    #[must_use]
    pub fn kept(&self) -> &[Kept] {
        &self.kept
    }

    /// Prompt of the open run.
    #[must_use]
    pub fn prompt(&self) -> Option<&Arc<Message>> {
        self.run.as_ref().map(|run| &run.prompt)
    }

    pub(super) fn keep(&mut self, value: &Recorded) {
        let Some(run) = &mut self.run else { return };
        if !value.is_kept() {
            // A resume reads such values from the start of the run on.
            run.keyed = true;
            return;
        }
        if self.kept.is_empty() {
            self.kept.push(Kept::Prompt(Arc::clone(&run.prompt)));
        }
        self.kept.push(Kept::Value(value.clone()));
    }

    /// Begins a run: what is kept belongs to the agent that kept it.
    pub(super) fn keep_prompt(&mut self, started: &RunStarted) {
        if self.head.agent != started.agent {
            self.kept.clear();
        }
        if !self.kept.is_empty() {
            self.kept.push(Kept::Prompt(Arc::clone(&started.prompt)));
        }
    }
}
