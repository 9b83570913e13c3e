//! A store that depends on its callers: one kind of operation blocks all others while it is not polled, or after it
//! was dropped.

use std::{future::Future, time::Duration};

use tokio::sync::{Semaphore, oneshot};

use super::*;

/// The operation that depends on its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leans {
    Append,
    Lease,
    Delete,
    List,
    Window,
    /// Completes by itself, but keeps the lane forever if its caller is gone by then.
    DroppedAppend,
}

pub(super) const LEANS: [(Leans, &str); 7] = [
    (Leans::Append, "an_append_that_is_cut_holds_up_nobody"),
    (Leans::Append, "a_creation_that_is_cut_holds_up_nobody"),
    (Leans::Lease, "a_lease_that_is_cut_holds_up_nobody"),
    (Leans::Delete, "a_delete_that_is_cut_holds_up_nobody"),
    (Leans::List, "a_list_that_is_cut_holds_up_nobody"),
    (Leans::Window, "a_window_that_is_cut_holds_up_nobody"),
    (Leans::DroppedAppend, "an_append_that_is_cut_holds_up_nobody"),
];

/// The reference store behind one lane.
#[derive(Debug)]
pub(super) struct Leaning {
    inner: Arc<MemoryStore>,
    lane: Arc<Semaphore>,
    on: Leans,
}

impl Leaning {
    pub(super) fn new(on: Leans) -> Self {
        Self { inner: Arc::default(), lane: Arc::new(Semaphore::new(1)), on }
    }

    async fn through<T>(&self, operation: Leans, work: impl Future<Output = T>) -> T {
        let _lane = self.lane.acquire().await.unwrap();
        if operation == self.on {
            tokio::task::yield_now().await;
        }
        work.await
    }

    async fn append_in_a_task(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        let lane = Arc::clone(&self.lane).acquire_owned().await.unwrap();
        let (inner, session) = (Arc::clone(&self.inner), session.clone());
        let (tell, told) = oneshot::channel();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let stored = inner.append(&session, expected, batch).await;
            if tell.is_closed() {
                lane.forget();
            }
            let _ = tell.send(stored);
        });
        told.await.unwrap()
    }
}

#[async_trait]
impl SessionStore for Leaning {
    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        if self.on == Leans::DroppedAppend {
            return self.append_in_a_task(session, expected, batch).await;
        }
        self.through(Leans::Append, self.inner.append(session, expected, batch)).await
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        self.through(Leans::Window, self.inner.read(session, range)).await
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        self.through(Leans::List, self.inner.query(filter)).await
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        self.through(Leans::Lease, self.inner.lease(session, lease)).await
    }

    async fn delete(&self, session: &SessionId) -> Result<u64> {
        self.through(Leans::Delete, self.inner.delete(session)).await
    }
}
