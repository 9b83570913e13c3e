//! Reading back what was moved, as the next process would. Nothing is sealed or deleted that was not found again.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    session::{MemoryStore, ReadRange, Row, SessionFilter, SessionInfo, SessionStore, SharedStore},
};

use super::{ActiveStore, ArchiveStore, HybridStore, is_missing};
use crate::SqliteStore;

const OPERATION: &str = "store.archive";
/// Events that are compared in one go.
const EVENTS: usize = 500;

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

#[async_trait]
impl ArchiveStore for MemoryStore {
    async fn afresh(&self) -> Result<Option<SharedStore>> {
        Ok(None)
    }
}

impl<A: ActiveStore + 'static, B: ArchiveStore + 'static> HybridStore<A, B> {
    /// Fails unless the archive has every event of these sessions, byte for byte. It may have more of one that is sealed.
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

    async fn check_copy(&self, archive: &dyn SessionStore, info: &SessionInfo) -> Result<()> {
        let session = &info.record.id;
        let there = archive.query(&SessionFilter::id(session.clone())).await?;
        if there.first().is_none_or(|copy| copy.head.seq < info.head.seq || copy.record != info.record) {
            return match self.active.batches(session, 0, 1).await {
                // Somebody else removed it.
                Err(error) if is_missing(&error) => Ok(()),
                _ => Err(lacking(info)),
            };
        }
        let mut at = 0;
        while at < info.head.seq {
            let mut rows = match self.active.batches(session, at, EVENTS).await {
                // Somebody else removed it.
                Err(error) if is_missing(&error) => return Ok(()),
                batches => batches?.into_iter().flat_map(|batch| batch.rows).collect::<Vec<_>>(),
            };
            // Who appends meanwhile is noticed when the session is sealed.
            rows.retain(|row| row.seq() <= info.head.seq);
            let copies = archive.read(session, ReadRange::after(at).take(rows.len())).await?;
            at = match rows.last() {
                Some(last) if same(&rows, &copies)? => last.seq(),
                _ => return Err(lacking(info)),
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

fn lacking(info: &SessionInfo) -> Error {
    Error::new(
        ErrorKind::Store,
        "the archive lacks events of a session that was copied to it; its file is kept: use the archive that it was \
         moved to, or delete the session",
    )
    .during(OPERATION)
    .with("session", info.record.id.as_str())
}
