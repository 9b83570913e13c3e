//! A journal and the store's copy of its session: how it is read, and the check that both are still equal.

use std::sync::Arc;

use entourage_core::{
    Error, Result, RunId, SessionId, Timestamp,
    event::RunAbove,
    session::{Lease, SessionFilter, SessionInfo, SharedStore},
};

use crate::{
    env::Env,
    session::journal::{Journal, fold::Fold},
};

impl Journal {
    /// Returns the session as the store lists it; `None` when the store does not know it.
    pub(crate) async fn look_up(env: &Env, id: &SessionId) -> Result<Option<SessionInfo>> {
        Self::in_store(env.store.as_ref(), id).await
    }

    async fn in_store(store: Option<&SharedStore>, id: &SessionId) -> Result<Option<SessionInfo>> {
        match store {
            Some(store) => Ok(store.query(&SessionFilter::id(id.clone())).await?.pop()),
            None => Ok(None),
        }
    }

    /// Reads a session that the store knows, from its newest checkpoint on; `None` for any other.
    pub(crate) async fn find(env: &Env, id: &SessionId) -> Result<Option<Arc<Self>>> {
        // In a box of its own: it takes kilobytes, which would otherwise be part of every run's task and be moved with
        // it.
        let read = async {
            match Self::look_up(env, id).await? {
                Some(info) => Self::read_from_store(env, info).await.map(Some),
                None => Ok(None),
            }
        };
        Box::pin(read).await
    }

    /// Reads the session that the store lists as `info`, from its newest checkpoint on.
    pub(crate) async fn read_from_store(env: &Env, info: SessionInfo) -> Result<Arc<Self>> {
        let SessionInfo { record, head, lease, .. } = info;
        let store = env.store.as_ref().ok_or_else(|| Error::no_session(&record.id))?;
        let fold = Box::pin(Fold::newest(store, &record.id, head.checkpoint, |_| true)).await?;
        Ok(Self::with(env, record, Box::new(fold.state), fold.recorded, lease))
    }

    /// Refuses to continue here what belongs to a session of the same id that was created at another time.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](entourage_core::ErrorKind::Conflict).
    pub(crate) fn check_created(&self, known: Option<Timestamp>) -> Result<()> {
        match known {
            Some(created) if created != self.record.created => Err(Error::made_anew(&self.record.id)),
            _ => Ok(()),
        }
    }

    /// Checks that no other process has taken the session's run over since this one had its lease.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](entourage_core::ErrorKind::Conflict) when one has, the store's.
    pub(crate) async fn check_held(&self) -> Result<()> {
        let stored = Self::in_store(self.store.as_ref(), self.session()).await?;
        let held = self.lock().lease;
        match stored.and_then(|info| info.lease).filter(|lease| lease.owner != self.owner) {
            Some(lease) if held.is_none_or(|held| held.generation < lease.generation) => {
                let error = Error::fenced(self.session(), lease.generation);
                self.refused(&error);
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Returns how sessions below this one name its run `run`; `None` before its first event.
    pub(crate) fn as_above(&self, run: RunId) -> Option<Arc<RunAbove>> {
        let (first, created) =
            (self.read(entourage_core::session::SessionState::first_run)?, self.record.created);
        Some(Arc::new(RunAbove { run, first, created }))
    }

    /// True if a session below names this very session: no other one that had its id.
    pub(crate) fn is_above(&self, above: &RunAbove) -> bool {
        above.created == self.record.created
            && self.read(entourage_core::session::SessionState::first_run) == Some(above.first)
    }

    /// True while something is being written here.
    pub(crate) fn is_writing(&self) -> bool {
        let inner = self.lock();
        !inner.staged.is_empty() || inner.aloft
    }

    /// True while something is being written here, or this process holds the lease.
    pub(crate) fn is_in_use(&self, now: Timestamp) -> bool {
        let inner = self.lock();
        let held = |lease: Lease| lease.owner == self.owner && lease.is_live(now);
        self.store.is_none()
            || !inner.staged.is_empty()
            || inner.aloft
            // A child's lease is its parent's run's, which writes in a journal of its own.
            || (self.record.parent.is_none() && inner.lease.is_some_and(held))
    }

    /// True when the store has the session as it is here: nobody else appended to it, took its lease, or deleted it.
    pub(crate) fn is_current(&self, stored: Option<&SessionInfo>) -> bool {
        let inner = self.lock();
        match stored {
            None => inner.committed == 0,
            Some(info) => {
                info.record == self.record && info.head.seq == inner.committed && info.lease == inner.lease
            }
        }
    }
}
