//! Trees of sessions that another process took over.
//!
//! A process that was overtaken cancels its runs. If they stored that, the process that goes on with them would take it
//! for their ends. So nothing of the whole tree is stored any more, as soon as one of its sessions was refused.
//!
//! A store knows nothing of trees: it takes the events of a session below, and new sessions, also from a process that
//! has lost the top. So that process looks at the top before it creates a session below. If it stood still until its
//! lease of the top was over, which it sees by its own clock, it looks before it stores anything below, and again once
//! that is stored, before it acts on it.

use std::sync::{Arc, OnceLock, Weak};

use entourage_core::{Clock, Error, ErrorKind, ErrorRecord, Result, Timestamp};

use crate::{
    env::Env,
    session::journal::{Inner, Journal},
};

/// The sessions of the runs that began below one of another session.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// The refusal that one of them got.
    refusal: OnceLock<ErrorRecord>,
    /// The session above all, and the clock by which its lease ends.
    top: Option<(Weak<Journal>, Arc<dyn Clock>)>,
}

impl Journal {
    /// Makes this session part of the tree of the one above it.
    pub(crate) fn join(&self, above: &Arc<Self>, env: &Env) {
        let begin = || {
            let top = Some((Arc::downgrade(above), Arc::clone(&env.clock)));
            Arc::new(Tree { top, ..Tree::default() })
        };
        let tree = Arc::clone(above.lock().tree.get_or_insert_with(begin));
        self.lock().tree = Some(tree);
    }

    /// Looks at the session above all, if this process's lease of it is over or `anyway`, and notes a refusal.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when another process has it now, the store's.
    pub(super) async fn confirm(&self, anyway: bool) -> Result<()> {
        let tree = self.lock().tree.clone();
        let Some((top, clock)) = tree.as_ref().and_then(|tree| tree.top.as_ref()) else { return Ok(()) };
        match top.upgrade().filter(|top| !std::ptr::eq(&**top, self)) {
            Some(top) if anyway || top.is_lease_over(clock.now()) => top.check_held().await,
            _ => Ok(()),
        }
    }

    fn is_lease_over(&self, now: Timestamp) -> bool {
        self.lock().acknowledged.is_some_and(|until| until <= now)
    }

    /// Notes that another process has the session, if that is the error.
    pub(crate) fn refused(&self, error: &Error) {
        self.lock().refused(&error.record());
    }

    /// True if another process was faster with the first event that was to be stored from here.
    pub(crate) fn came_second(&self) -> bool {
        let inner = self.lock();
        let is_taken = |error: &ErrorRecord| error.kind == ErrorKind::Conflict;
        !inner.wrote && inner.overtaken().is_none() && inner.broken.as_ref().is_some_and(is_taken)
    }

    /// Returns the error of a session in whose tree another process works.
    pub(crate) fn overtaken(&self) -> Option<Error> {
        self.lock().overtaken().map(ErrorRecord::to_error)
    }

    /// True if another process has begun the open run, and has not given its lease back: it may work on.
    pub(crate) fn may_be_worked_on(&self) -> bool {
        let inner = self.lock();
        let is_theirs =
            inner.lease.is_some_and(|lease| lease.owner != self.owner && lease.until > Timestamp::default());
        is_theirs && inner.state.run().is_some()
    }
}

impl Inner {
    pub(super) fn refused(&mut self, error: &ErrorRecord) {
        if error.kind == ErrorKind::Conflict {
            // The first one says who came.
            let _ = self.tree.get_or_insert_with(Arc::default).refusal.set(error.clone());
        }
    }

    fn overtaken(&self) -> Option<&ErrorRecord> {
        self.tree.as_ref()?.refusal.get()
    }

    /// Breaks the journal, if its tree was overtaken.
    pub(super) fn heed(&mut self) {
        if let Some(error) = self.overtaken().cloned() {
            self.broken.get_or_insert(error);
        }
    }
}
