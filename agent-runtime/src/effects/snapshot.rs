//! The snapshot that is taken before a root's run, or one below it, changes anything.

use std::sync::Arc;

use entourage_core::{
    RunId, SessionId,
    event::Origin,
    tool::{Access, Footprint, ToolError},
};
use tokio::sync::OnceCell;

use crate::{env::Env, session::journal::Journal};

/// The run of a root, for itself and all runs below it, and whether its snapshot was taken.
#[derive(Debug)]
pub(crate) struct RootRun {
    session: SessionId,
    run: RunId,
    taken: OnceCell<()>,
}

impl RootRun {
    pub(crate) fn of(origin: &Origin) -> Arc<Self> {
        Arc::new(Self { session: origin.session.clone(), run: origin.run, taken: OnceCell::new() })
    }

    /// True if it is over in the store, whoever ended it.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn is_over(&self, env: &Env) -> entourage_core::Result<bool> {
        let stored = Journal::look_up(env, &self.session).await?;
        Ok(stored.is_some_and(|info| info.head.run != Some(self.run)))
    }

    /// True if the runtime takes snapshots and a call of this footprint may change something.
    pub(super) fn is_kept(env: &Env, footprint: &Footprint) -> bool {
        env.snapshots.is_some() && footprint.access.intersects(Access::WRITE | Access::EXECUTE)
    }

    /// Takes the snapshot, unless it was taken.
    ///
    /// # Errors
    /// The text for the model: the call does not run then.
    pub(super) async fn keep(&self, env: &Env) -> Result<(), ToolError> {
        let Some(snapshots) = &env.snapshots else { return Ok(()) };
        let taken = self.taken.get_or_try_init(|| snapshots.take(&self.session, self.run)).await;
        taken.map(|_| ()).map_err(|error| {
            let text = format!("not run, since what it may change could not be kept before: {error}");
            ToolError::Tell(text)
        })
    }
}
