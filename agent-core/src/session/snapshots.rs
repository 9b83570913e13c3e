//! Snapshots of what prompts change outside of their session.

use std::fmt;

use async_trait::async_trait;

use crate::{Result, RunId, SessionId};

/// Keeps what the prompts of sessions change outside of the record, such as the files of a directory, as it was before
/// each of them, so that it can be restored.
#[async_trait]
pub trait Snapshots: Send + Sync + fmt::Debug {
    /// Keeps what there is, before `run` of the root session `session` changes anything. The first snapshot of a run
    /// holds: a later call for it changes nothing. A call that is dropped leaves a whole snapshot or none.
    ///
    /// # Errors
    /// Those of the medium; what asked for the change does not happen then.
    async fn take(&self, session: &SessionId, run: RunId) -> Result<()>;

    /// Restores what there was before the first of `runs`, which are in order, that has a snapshot. After an error or
    /// a drop, call it again: it goes on with what is not restored yet.
    ///
    /// # Errors
    /// Those of the medium.
    async fn restore(&self, session: &SessionId, runs: &[RunId]) -> Result<Restored>;
}

/// What a restoration changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Restored {
    /// The run whose snapshot was restored; `None` if no run had one, since none of them changed anything.
    pub run: Option<RunId>,
    /// Places that were written, as people name them.
    pub written: Vec<String>,
    /// Places that were removed.
    pub removed: Vec<String>,
}
