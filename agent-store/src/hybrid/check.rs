//! Reads copies back as the next process would. No session is sealed or deleted whose copy was not found again.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    session::{ReadRange, Row, SessionFilter, SessionInfo, SessionStore, SharedStore},
};

use super::{HybridStore, Known, is_missing};
use crate::{
    SqliteStore,
    tiers::{ActiveStore, ArchiveStore},
};

const OPERATION: &str = "store.archive";
/// Number of events after which a page to compare may end.
const EVENTS: usize = 500;
/// Maximum number of sealed sessions that a list looks up in the archive one by one. There are none except while trees
/// move.
const LOOKS: usize = 8;

#[async_trait]
impl ArchiveStore for SqliteStore {
    async fn afresh(&self) -> Result<Option<SharedStore>> {
        let path = self.path();
        if path == Path::new(":memory:") {
            return Ok(None);
        }
        if !path.is_file() {
            return Err(Error::new(
                ErrorKind::Store,
                "the archive's file is gone; put it back and open the store again. What was to be moved is still active",
            )
            .during(OPERATION)
            .with("path", path.display().to_string()));
        }
        Ok(Some(Arc::new(Self::builder(path).open_to_look().await?)))
    }
}

impl<A: ActiveStore + 'static, B: ArchiveStore + 'static> HybridStore<A, B> {
    /// Fails unless the archive has every event of these sessions, byte for byte. It may have more events of a sealed
    /// one.
    pub(super) async fn check_copies(&self, moved: &[&SessionInfo]) -> Result<()> {
        let fresh = self.archive.afresh().await?;
        let archive: &dyn SessionStore = match &fresh {
            Some(fresh) => &**fresh,
            None => &*self.archive,
        };
        for info in moved {
            self.check_copy(archive, info).await?;
        }
        Ok(())
    }

    /// Fails while a sealed file is left of a session of this id that the archive lacks: a new session there would be
    /// taken for the old one.
    pub(super) async fn check_born(&self, session: &SessionId) -> Result<()> {
        if !self.is_active(session).await? && self.is_lost(session).await? {
            return Err(lacking(session));
        }
        Ok(())
    }

    /// Returns an error for the first moved session that the archive, which listed `found`, does not have.
    pub(super) async fn lost_move(&self, known: &Known, found: &[SessionInfo]) -> Result<Option<Error>> {
        let sealed = known.sessions.values().filter(|held| held.sealed).map(|held| &held.info.record.id);
        let unseen = sealed.filter(|id| !found.iter().any(|info| info.record.id == **id));
        for session in unseen.take(LOOKS) {
            if self.is_lost(session).await? {
                return Ok(Some(lacking(session)));
            }
        }
        Ok(None)
    }

    /// Returns true if a file is left of an inactive session that the archive does not have.
    async fn is_lost(&self, session: &SessionId) -> Result<bool> {
        let filter = SessionFilter::id(session.clone());
        for _ in 0..2 {
            match self.active.batches(session, 0, 1).await {
                Err(error) if is_missing(&error) => return Ok(false),
                found => drop(found?),
            }
            if !self.archive.query(&filter).await?.is_empty() {
                return Ok(false);
            }
            // Checked once more, as the session may just be deleted.
        }
        Ok(true)
    }

    async fn check_copy(&self, archive: &dyn SessionStore, info: &SessionInfo) -> Result<()> {
        let session = &info.record.id;
        let there = archive.query(&SessionFilter::id(session.clone())).await?;
        if there.first().is_none_or(|copy| copy.head.seq < info.head.seq || copy.record != info.record) {
            return match self.active.batches(session, 0, 1).await {
                // Somebody else removed it.
                Err(error) if is_missing(&error) => Ok(()),
                _ if there.first().is_some_and(|copy| copy.record != info.record) => Err(another(session)),
                _ => Err(lacking(session)),
            };
        }
        let mut at = 0;
        while at < info.head.seq {
            let mut rows = match self.active.batches(session, at, EVENTS).await {
                // Somebody else removed it.
                Err(error) if is_missing(&error) => return Ok(()),
                batches => batches?.into_iter().flat_map(|batch| batch.rows).collect::<Vec<_>>(),
            };
            // An append meanwhile is noticed when the session is sealed.
            rows.retain(|row| row.seq() <= info.head.seq);
            let copies = archive.read(session, ReadRange::after(at).with_limit(rows.len())).await?;
            at = match rows.last() {
                Some(last) if same(&rows, &copies)? => last.seq(),
                _ => return Err(lacking(session)),
            };
        }
        Ok(())
    }
}

fn same(rows: &[Row], copies: &[Row]) -> Result<bool> {
    if rows.len() != copies.len() {
        return Ok(false);
    }
    for (row, copy) in rows.iter().zip(copies) {
        if row.columns() != copy.columns() || row.body()? != copy.body()? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn lacking(session: &SessionId) -> Error {
    Error::new(
        ErrorKind::Store,
        "the archive lacks events of a session that was copied to it; its file is kept: use the archive that it was \
         moved to, or delete the session",
    )
    .during(OPERATION)
    .with("session", session.as_str())
}

/// Returns the error for a session whose id another one has in the archive.
pub(super) fn another(session: &SessionId) -> Error {
    Error::new(
        ErrorKind::Conflict,
        "the archive has another session of this id, so this one is not moved there; save what you need of it, and move its \
         file away with `active().set_aside`, which deletes nothing",
    )
    .during(OPERATION)
    .with("session", session.as_str())
}
