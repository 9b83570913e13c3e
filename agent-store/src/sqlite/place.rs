//! The database's file and the connections to it. They are replaced together: a connection to a file that has left its
//! path reads and writes data that nobody else will ever see.

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use entourage_core::{Error, ErrorKind, RetryStatus};
use sqlx::{Sqlite, SqlitePool};

use super::{
    SqliteBuilder,
    file::{FileId, beside, gone, mixed, unreadable},
    open::{Access, Purpose},
};
use crate::sql::{Failure, held::Held};

/// The database of a store: its path and the current connections to it.
pub(super) struct Place {
    pub(super) path: Arc<Path>,
    /// Opens the file that takes the place of a replaced one; `None` in memory, where nothing does.
    builder: Option<(SqliteBuilder, Purpose)>,
    current: Mutex<Arc<Connections>>,
    /// Held while connections are replaced or closed.
    changing: tokio::sync::Mutex<()>,
}

/// The connections to one file: one that writes and a few that read.
pub(super) struct Connections {
    of: Of,
    /// The log beside the file while these connections are open, as last seen.
    log: Mutex<Option<FileId>>,
    writer: SqlitePool,
    readers: SqlitePool,
}

/// The database that connections lead to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Of {
    Memory,
    File(FileId),
    /// None yet: the first operation opens the database that is there then.
    #[cfg_attr(not(feature = "hybrid"), allow(dead_code, reason = "only an archive may be opened later"))]
    Nothing,
}

impl Connections {
    pub(super) fn new(of: Of, writer: SqlitePool, readers: SqlitePool) -> Self {
        Self { of, log: Mutex::default(), writer, readers }
    }

    async fn take(&self, access: Access) -> Result<Held<Sqlite>, Failure> {
        let pool = match access {
            Access::Write => &self.writer,
            Access::Look | Access::Read => &self.readers,
        };
        let held = Held::take(pool).await?;
        Ok(if matches!(self.of, Of::Memory) { held.only() } else { held })
    }

    /// Waits for operations in flight; waiters for a connection fail at once. The writer closes last and writes the log
    /// back.
    async fn close(&self) {
        let (readers, writer) = (self.readers.close(), self.writer.close());
        readers.await;
        writer.await;
    }
}

fn is_closed(failure: &Failure) -> bool {
    matches!(failure, Failure::Driver(sqlx::Error::PoolClosed))
}

impl Place {
    pub(super) fn new(
        path: Arc<Path>,
        builder: Option<(SqliteBuilder, Purpose)>,
        connections: Connections,
    ) -> Self {
        let current = Mutex::new(Arc::new(connections));
        Self { path, builder, current, changing: tokio::sync::Mutex::default() }
    }

    /// Waits for the connection that writes to the file now at the path.
    pub(super) async fn writer(&self) -> Result<(Arc<Connections>, Held<Sqlite>), Failure> {
        self.take(Access::Write).await
    }

    /// Waits for a connection that reads from that file.
    pub(super) async fn reader(&self) -> Result<Held<Sqlite>, Failure> {
        self.take(Access::Read).await.map(|(_, held)| held)
    }

    async fn take(&self, access: Access) -> Result<(Arc<Connections>, Held<Sqlite>), Failure> {
        loop {
            let connections = self.connections().await?;
            match connections.take(access).await {
                // Closed because they were replaced while this call waited for one of them.
                Err(failure) if is_closed(&failure) && !Arc::ptr_eq(&connections, &self.current()) => {}
                taken => return Ok((connections, taken?)),
            }
        }
    }

    /// Returns the connections to the file now at the path, and opens them if the file was replaced.
    async fn connections(&self) -> Result<Arc<Connections>, Failure> {
        let current = self.current();
        if self.is_in_use(&current)? { Ok(current) } else { self.replace().await }
    }

    /// Fails unless the data just written through `connections` is in the file at the path.
    pub(super) fn check(&self, connections: &Connections) -> Result<(), Failure> {
        if self.is_here(connections)? {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Store,
            "another file took the database's place while it was written; try again, a batch that was stored is not \
             stored twice",
        )
        .with_retry(RetryStatus::Temporary)
        .into())
    }

    pub(super) async fn close(&self) {
        let _alone = self.changing.lock().await;
        self.current().close().await;
    }

    async fn replace(&self) -> Result<Arc<Connections>, Failure> {
        let _alone = self.changing.lock().await;
        let current = self.current();
        let Some((builder, purpose)) = &self.builder else { return Ok(current) };
        if self.is_in_use(&current)? {
            return Ok(current);
        }
        // SQLite applies a log to whichever file it lies beside.
        let log = *current.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.is_some() && log == FileId::of(&beside(&self.path, "-wal")).ok() {
            return Err(mixed().into());
        }
        let opened = Arc::new(builder.connections(&self.path, *purpose).await?);
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&opened);
        // Operations in flight on the old file end by themselves, and nobody waits for them.
        tokio::spawn(async move { current.close().await });
        Ok(opened)
    }

    fn current(&self) -> Arc<Connections> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns true if these are the connections to use: their file is at the path, or the store was closed and stays
    /// so.
    fn is_in_use(&self, connections: &Connections) -> Result<bool, Failure> {
        Ok(connections.writer.is_closed() || self.is_here(connections)?)
    }

    fn is_here(&self, connections: &Connections) -> Result<bool, Failure> {
        let file = match connections.of {
            Of::Memory => return Ok(true),
            Of::File(file) => Some(file),
            Of::Nothing => None,
        };
        match FileId::of(&self.path) {
            Ok(found) if Some(found) == file => {
                if let Ok(log) = FileId::of(&beside(&self.path, "-wal")) {
                    *connections.log.lock().unwrap_or_else(PoisonError::into_inner) = Some(log);
                }
                Ok(true)
            }
            Ok(_) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(gone().into()),
            Err(error) => Err(unreadable(error).into()),
        }
    }
}
