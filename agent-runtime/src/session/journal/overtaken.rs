//! Trees of sessions that another process took over.
//!
//! A process that was overtaken cancels its runs. If they stored that, the process that goes on with them would take it
//! for their ends. So nothing of the whole tree is stored any more, as soon as one of its sessions was refused.

use std::sync::{Arc, OnceLock};

use entourage_core::{Error, ErrorKind, ErrorRecord, Timestamp};

use crate::session::journal::{Inner, Journal};

/// The refusal that a tree of sessions got, for all of them.
pub(super) type Refusal = Arc<OnceLock<ErrorRecord>>;

impl Journal {
    /// Makes this session part of the tree of the one above it.
    pub(crate) fn join(&self, above: &Self) {
        let tree = Arc::clone(above.lock().tree.get_or_insert_with(Refusal::default));
        self.lock().tree = Some(tree);
    }

    /// Notes that another process has the session, if that is the error.
    pub(crate) fn refused(&self, error: &Error) {
        self.lock().refused(&error.record());
    }

    /// True if another process was faster with the first event that was to be stored from here.
    pub(crate) fn came_second(&self) -> bool {
        let inner = self.lock();
        let is_taken = |error: &ErrorRecord| error.kind == ErrorKind::Conflict;
        !inner.wrote && inner.broken.as_ref().is_some_and(is_taken)
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
            let _ = self.tree.get_or_insert_with(Refusal::default).set(error.clone());
        }
    }

    fn overtaken(&self) -> Option<&ErrorRecord> {
        self.tree.as_ref()?.get()
    }

    /// Breaks the journal, if its tree was overtaken.
    pub(super) fn heed(&mut self) {
        if let Some(error) = self.overtaken().cloned() {
            self.broken.get_or_insert(error);
        }
    }
}
