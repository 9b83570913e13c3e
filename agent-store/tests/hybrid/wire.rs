//! Stores that count their operations and inject an event at one of them.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    session::{Batch, Lease, ReadRange, Row, SessionFilter, SessionInfo, SessionStore, SharedStore},
};
use entourage_store::{ActiveStore, ArchiveStore, Holdings, HybridStore, JsonStore, Leave, SqliteStore};

type Happening = Box<dyn Fn(usize) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// An event that is injected as an operation begins. The first operation is number 0.
pub(crate) enum Event {
    /// A power cut at this operation: before it, or after it was done but before its result was returned. All later
    /// ones fail too.
    Cut {
        at: usize,
        after: bool,
    },
    /// A panic at this operation.
    Panic(usize),
    /// The work of somebody else before each operation, given its number.
    Beside(Happening),
    Nothing,
}

pub(crate) struct Wire {
    used: AtomicUsize,
    /// Names of the operations, in order.
    log: Mutex<Vec<&'static str>>,
    event: Event,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

impl Wire {
    pub(crate) fn new(event: Event) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), log: Mutex::default(), event })
    }

    pub(crate) fn cutting(at: usize, after: bool) -> Arc<Self> {
        Self::new(Event::Cut { at, after })
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn log(&self) -> Vec<&'static str> {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn store(
        self: &Arc<Self>,
        active: &JsonStore,
        archive: &SqliteStore,
    ) -> HybridStore<Wired<JsonStore>, Wired<SqliteStore>> {
        HybridStore::new(Wired(active.clone(), Arc::clone(self)), Wired(archive.clone(), Arc::clone(self)))
    }

    async fn at<T>(&self, name: &'static str, operation: impl Future<Output = Result<T>>) -> Result<T> {
        let n = self.used.fetch_add(1, Ordering::Relaxed);
        self.log.lock().unwrap().push(name);
        let failed = || Err(Error::new(ErrorKind::Store, "the power is cut"));
        match &self.event {
            Event::Cut { at, after } if n > *at || (n == *at && !after) => failed(),
            Event::Cut { at, .. } if n == *at => {
                operation.await?;
                failed()
            }
            Event::Panic(at) if n == *at => panic!("on purpose"),
            Event::Beside(happen) => {
                happen(n).await;
                operation.await
            }
            _ => operation.await,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Wired<S>(S, Arc<Wire>);

#[async_trait]
impl<S: SessionStore> SessionStore for Wired<S> {
    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        self.1.at("append", self.0.append(session, expected, batch)).await
    }
    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        self.1.at("read", self.0.read(session, range)).await
    }
    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        self.1.at("query", self.0.query(filter)).await
    }
    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        self.1.at("lease", self.0.lease(session, lease)).await
    }
    async fn delete(&self, session: &SessionId) -> Result<u64> {
        self.1.at("delete", self.0.delete(session)).await
    }
}

#[async_trait]
impl<S: ActiveStore> ActiveStore for Wired<S> {
    async fn held(&self) -> Result<Holdings> {
        self.1.at("held", self.0.held()).await
    }
    async fn batches(&self, session: &SessionId, after: u64, events: usize) -> Result<Vec<Batch>> {
        self.1.at("batches", self.0.batches(session, after, events)).await
    }
    async fn note_copy(&self, session: &SessionId) -> Result<()> {
        self.1.at("note_copy", self.0.note_copy(session)).await
    }
    async fn is_copy(&self, session: &SessionId) -> Result<bool> {
        self.1.at("is_copy", self.0.is_copy(session)).await
    }
    async fn seal(&self, expected: &SessionInfo) -> Result<()> {
        self.1.at("seal", self.0.seal(expected)).await
    }
    async fn leave(&self) -> Result<Leave> {
        self.1.at("leave", self.0.leave()).await
    }
    async fn remove(&self, sealed: &[SessionId]) -> Result<()> {
        self.1.at("remove", self.0.remove(sealed)).await
    }
}

#[async_trait]
impl<S: ArchiveStore> ArchiveStore for Wired<S> {
    async fn afresh(&self) -> Result<Option<SharedStore>> {
        self.1.at("afresh", self.0.afresh()).await
    }
}
