//! The contracts of the two stores that a [`HybridStore`] moves sessions between.

use std::fmt;

use async_trait::async_trait;
use entourage_core::{
    Result, SessionId,
    session::{Batch, SessionInfo, SessionStore, SharedStore},
};

#[cfg(doc)]
use crate::HybridStore;
#[cfg(doc)]
use entourage_core::ErrorKind;

/// A store that [`HybridStore`] can move sessions out of.
///
/// The seal is the turning point of a session's move. From then on [`SessionStore`]'s methods do not find the session
/// ([`ErrorKind::NotFound`], not listed, no parent to anybody), but for `delete`, which removes it without counting it.
/// Its children that are not sealed stay.
///
/// Before a session is copied, a note is stored: as long as it exists, the archive has a mere copy, which does not
/// count. The seal deletes the note, and so does `delete`. A note outlives the session's file, should that be lost.
#[async_trait]
pub trait ActiveStore: SessionStore {
    /// Returns everything that has data here, as of one moment.
    async fn held(&self) -> Result<Holdings>;

    /// Returns a page of batches with events after `after`, as they were appended and in order; the first one of a
    /// session carries its record. The page has at least one if there is one, and may end once it holds `events`
    /// events. Sealed sessions can be read until they are removed.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when there is no such session.
    async fn batches(&self, session: &SessionId, after: u64, events: usize) -> Result<Vec<Batch>>;

    /// Stores, durably, the note that the archive has a mere copy of the session.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when there is no such session or it is sealed.
    async fn note_copy(&self, session: &SessionId) -> Result<()>;

    /// Returns true if there is such a note, and the session is not sealed.
    async fn is_copy(&self, session: &SessionId) -> Result<bool>;

    /// Seals the session if its newest event and its lease are still those of `expected`. Compares and seals in one
    /// step, and is durable like an append.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when something happened, [`ErrorKind::NotFound`] when there is no such session or it is
    /// sealed.
    async fn seal(&self, expected: &SessionInfo) -> Result<()>;

    /// Takes leave to move or delete sessions. Nobody else has it until it is dropped, in this process or in another.
    /// Waits for its holder, for a while.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] when somebody else has it for too long.
    async fn leave(&self) -> Result<Leave>;

    /// Removes sealed sessions for good, in this order; those already gone are skipped.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] for one that is not sealed.
    async fn remove(&self, sealed: &[SessionId]) -> Result<()>;
}

/// Leave to move or delete sessions. Ends when it is dropped, and with its process.
#[must_use = "it is over when it is dropped"]
pub struct Leave {
    _held: Box<dyn Send + Sync>,
}

impl Leave {
    /// Creates a leave that lasts as long as `held` is kept, such as a lock.
    pub fn new(held: impl Send + Sync + 'static) -> Self {
        Self { _held: Box::new(held) }
    }
}

impl fmt::Debug for Leave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Leave")
    }
}

/// A store that [`HybridStore`] can move sessions into.
#[async_trait]
pub trait ArchiveStore: SessionStore {
    /// Opens the same data through a new handle, as the next process would: data that it cannot show is not stored.
    /// `None` for a store that has no other way to its data.
    ///
    /// # Errors
    /// As opening the store, and if the data to open is not there.
    async fn afresh(&self) -> Result<Option<SharedStore>>;
}

/// All data of an [`ActiveStore`]: its sessions and its notes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Holdings {
    /// Every session, sealed ones too, in any order.
    pub sessions: Vec<Held>,
    /// Sessions that have a note of a copy and are not sealed, readable or not.
    pub copies: Vec<SessionId>,
}

impl Holdings {
    /// Creates the holdings of an [`ActiveStore`].
    #[must_use]
    pub fn new(sessions: Vec<Held>, copies: Vec<SessionId>) -> Self {
        Self { sessions, copies }
    }
}

/// A session that an [`ActiveStore`] has data of.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// The session as lists show it.
    pub info: SessionInfo,
    /// True if the session was moved and only waits to be deleted.
    pub sealed: bool,
}

impl Held {
    /// Creates an entry for a session of an [`ActiveStore`].
    #[must_use]
    pub fn new(info: SessionInfo, sealed: bool) -> Self {
        Self { info, sealed }
    }
}
