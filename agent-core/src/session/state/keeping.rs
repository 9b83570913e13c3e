//! Values that the state keeps for the agent of a task.

use std::sync::Arc;

use super::SessionState;
use crate::{
    Digest, RunId,
    event::{Kept, Recorded, RunAbove, RunStarted},
    message::Message,
};

impl SessionState {
    /// Returns the run of its first event, which no other session of its id has. `None` before that event, and after
    /// a checkpoint of an older version.
    #[must_use]
    pub fn first_run(&self) -> Option<RunId> {
        self.first
    }

    /// Sets the run of the session's first event, which checkpoints of older versions lack.
    pub fn set_first_run(&mut self, run: Option<RunId>) {
        self.first = run;
    }

    /// Returns the run above that asked for its newest run. `None` for a root, and for runs of older versions.
    #[must_use]
    pub fn above(&self) -> Option<RunAbove> {
        self.above.as_deref().copied()
    }

    /// Prompts and values that the agent of the open or abandoned task keeps.
    #[must_use]
    pub fn kept(&self) -> &[Kept] {
        &self.kept
    }

    /// True if the session holds this content of its model calls' requests.
    #[must_use]
    pub fn holds(&self, content: &Digest) -> bool {
        self.contents.as_ref().is_some_and(|contents| contents.contains(content))
    }

    /// Prompt of the open run.
    #[must_use]
    pub fn prompt(&self) -> Option<&Arc<Message>> {
        self.run.as_ref().map(|run| &run.prompt)
    }

    pub(crate) fn keep(&mut self, value: &Recorded) {
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
    pub(crate) fn keep_prompt(&mut self, started: &RunStarted) {
        if self.head.agent != started.agent {
            self.kept.clear();
        }
        if !self.kept.is_empty() {
            self.kept.push(Kept::Prompt(Arc::clone(&started.prompt)));
        }
    }
}
