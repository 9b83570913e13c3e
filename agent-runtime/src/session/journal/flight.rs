//! Operations of a journal in its store. Once begun, an operation runs to its end, also when its caller is dropped.
//!
//! It is polled once where it begins, which suffices for a store in memory. If it is not done then, it continues in a
//! task of its own.

use std::{
    collections::VecDeque,
    future::{poll_fn, ready},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use entourage_core::{Error, ErrorKind, Result, Timestamp, event::Envelope, session::Lease};
use futures_util::future::BoxFuture;
use tokio::{runtime::Handle, sync::oneshot};

use crate::{
    Caught,
    session::{
        delivery::{bus::Undelivered, emit::Emitter},
        journal::{Inner, Journal},
    },
};

/// The one operation that a journal has in flight. Dropped with events aboard, as when the tokio runtime ends, it
/// leaves the journal broken: nobody knows if they are stored.
struct Flight {
    journal: Arc<Journal>,
    /// Number of events that the store was given and has not acknowledged.
    aboard: usize,
    /// An emptied buffer, for the journal's next events.
    spare: VecDeque<Envelope>,
}

impl Journal {
    /// Stores the staged events, then delivers them to the run's handle, subscribers and observers.
    ///
    /// Events that are staged when this is polled are stored and delivered, also if it is not polled again.
    pub(crate) async fn commit(self: &Arc<Self>, emitter: &Emitter) -> Result<()> {
        let mut work = if self.store.is_none() { self.hand_over(emitter) } else { None };
        loop {
            if let Some(work) = work.take() {
                send_off(work, emitter).await;
            }
            if !self.wants_more()? {
                break;
            }
            match self.take_off() {
                Some(flight) => work = Some(Box::pin(flight.journey(emitter.clone()))),
                None => self.settled().await,
            }
        }
        // A run whose model, tools and store are always ready must yield to other tasks.
        tokio::task::consume_budget().await;
        Ok(())
    }

    /// Gives back a lease that was kept, unless it is held again.
    pub(crate) async fn return_lease(self: &Arc<Self>, emitter: &Emitter) -> Result<()> {
        self.send_lease(emitter, |inner| self.lease_to_return(inner)).await
    }

    /// Renews the lease of a run that stored nothing for at least a third of `time`, the lease's duration.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when another process took the session over, the store's.
    pub(crate) async fn renew_lease(
        self: &Arc<Self>,
        emitter: &Emitter,
        now: Timestamp,
        time: Duration,
    ) -> Result<()> {
        let renewed = self.send_lease(emitter, |inner| self.lease_to_renew(inner, now, time)).await;
        renewed.inspect_err(|error| self.refused(error))
    }

    /// Takes the session over for `time`; of no time at all, nobody holds it then. Either way, a process that had it
    /// writes nothing more.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when another process was faster, the store's. The session must be opened again then.
    pub(crate) async fn take_over(
        self: &Arc<Self>,
        emitter: &Emitter,
        now: Timestamp,
        time: Duration,
    ) -> Result<()> {
        self.hold_lease(time);
        let taken = self.send_lease(emitter, |inner| self.lease_to_take(inner, now)).await;
        taken.inspect_err(|error| {
            self.lock().broken.get_or_insert_with(|| error.record());
        })
    }

    /// Returns an error of the store about a session that it had stored: one that is not found was deleted.
    fn explained(&self, error: Error) -> Error {
        match error.kind() {
            ErrorKind::NotFound => Error::deleted(&self.record.id).caused_by(error),
            _ => error,
        }
    }

    /// Waits until nothing is in flight.
    pub(crate) async fn settled(&self) {
        let mut landed = std::pin::pin!(self.landed.notified());
        // Enabled here, so that no landing is missed between the look and the wait.
        landed.as_mut().enable();
        let aloft = {
            let mut inner = self.lock();
            inner.awaited |= inner.aloft;
            inner.aloft
        };
        if aloft {
            landed.await;
        }
    }

    /// Delivers all staged events of a session that nothing stores, unless another operation is in flight. Returns the
    /// delivery of those that have to wait for room with a subscriber.
    pub(crate) fn hand_over(self: &Arc<Self>, emitter: &Emitter) -> Option<BoxFuture<'static, ()>> {
        let (mut flight, mut events) = {
            let mut inner = self.lock();
            let count = inner.staged.len();
            if count == 0 || inner.aloft || inner.broken.is_some() {
                return None;
            }
            inner.aloft = true;
            inner.committed = inner.committed.saturating_add(count as u64);
            (Flight::of(self), inner.take_staged(count))
        };
        let left = emitter.emit(&mut events);
        events.clear();
        flight.spare = events;
        let left = left?;
        Some(Box::pin(async move {
            left.arrive().await;
            drop(flight);
        }))
    }

    /// Requests a commit of all that is staged. Returns false when all of it is stored and delivered.
    pub(crate) fn wants_more(&self) -> Result<bool> {
        let mut inner = self.lock();
        inner.heed();
        let newest = inner.staged.back().map_or(0, |event| event.seq);
        inner.wanted = inner.wanted.max(newest);
        match &inner.broken {
            _ if inner.aloft => Ok(true),
            Some(error) => Err(error.to_error()),
            None => Ok(newest > 0),
        }
    }

    fn take_off(self: &Arc<Self>) -> Option<Flight> {
        let mut inner = self.lock();
        let free = !std::mem::replace(&mut inner.aloft, true);
        free.then(|| Flight::of(self))
    }

    /// Stores the lease that `choose` returns, if any.
    async fn send_lease(
        self: &Arc<Self>,
        emitter: &Emitter,
        choose: impl Fn(&mut Inner) -> Option<Lease>,
    ) -> Result<()> {
        let flight = loop {
            match self.take_off() {
                Some(flight) => break flight,
                None => self.settled().await,
            }
        };
        let Some(lease) = choose(&mut self.lock()) else {
            return Ok(());
        };
        let (tell, told) = oneshot::channel();
        let onward = emitter.clone();
        let work = Box::pin(async move {
            // The caller may be gone.
            drop(tell.send(flight.lease(lease).await));
            flight.journey(onward).await;
        });
        send_off(work, emitter).await;
        told.await.unwrap_or_else(|_| Err(unanswered()))
    }
}

impl Flight {
    fn of(journal: &Arc<Journal>) -> Self {
        Self { journal: Arc::clone(journal), aboard: 0, spare: VecDeque::new() }
    }

    /// Continues until all requested events are stored and delivered.
    async fn journey(mut self, emitter: Emitter) {
        while self.board() {
            let journal = Arc::clone(&self.journal);
            let mut stored = journal.confirm(journal.committed() == 0).await;
            if stored.is_ok() {
                stored = self.store().await;
                // Whatever came of the tree, the events are stored: a refusal is noted, and found next.
                drop(journal.confirm(false).await);
            }
            if let Some(left) = self.land(stored, &emitter) {
                left.arrive().await;
            }
        }
    }

    /// Takes the staged events aboard. Returns false when no commit of them was requested, or nothing can be stored any
    /// more.
    fn board(&mut self) -> bool {
        let mut inner = self.journal.lock();
        inner.heed();
        let wanted = inner.staged.front().is_some_and(|event| event.seq <= inner.wanted);
        self.aboard = if wanted && inner.broken.is_none() { inner.staged.len() } else { 0 };
        self.aboard > 0
    }

    /// Stores what is aboard.
    async fn store(&mut self) -> Result<()> {
        let stored = Caught::new(|| self.append()).await.unwrap_or_else(|panic| {
            let text = format!("the store panicked: {panic}");
            Err(Error::new(ErrorKind::Internal, text).during("store.append"))
        });
        stored.map(drop)
    }

    fn append(&mut self) -> BoxFuture<'_, Result<u64>> {
        let Some(store) = &self.journal.store else { return Box::pin(ready(Ok(0))) };
        let (expected, batch) = {
            let mut inner = self.journal.lock();
            (inner.committed, self.journal.batch(&mut inner))
        };
        self.aboard = batch.rows.len();
        store.append(&self.journal.record.id, expected, batch)
    }

    async fn lease(&self, lease: Lease) -> Result<()> {
        let Journal { store, record, .. } = &*self.journal;
        let Some(store) = store else { return Ok(()) };
        let leased = store.lease(&record.id, lease.of(record)).await;
        if leased.is_ok() {
            self.journal.lock().acknowledged = Some(lease.until);
        }
        leased.map_err(|error| self.journal.explained(error))
    }

    /// Takes the store's answer and delivers the stored events. Returns the events that have to wait for room with a
    /// subscriber.
    fn land(&mut self, stored: Result<()>, emitter: &Emitter) -> Option<Box<Undelivered>> {
        let count = std::mem::take(&mut self.aboard);
        let mut inner = self.journal.lock();
        if let Err(error) = stored {
            let stored = inner.committed > 0;
            let error = if stored { self.journal.explained(error) } else { error }.record();
            // Whoever comes second is no part of the tree yet.
            if inner.wrote {
                inner.refused(&error);
            }
            inner.broken = Some(error);
            return None;
        }
        let committed = inner.committed.saturating_add(count as u64);
        (inner.committed, inner.wrote) = (committed, true);
        inner.acknowledged = inner.lease.map(|lease| lease.until);
        inner.parts.iter_mut().for_each(|parts| parts.stored(committed));
        let mut events = inner.take_staged(count);
        drop(inner);
        let left = emitter.emit(&mut events);
        events.clear();
        self.journal.lock().spare = events;
        left
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut inner = self.journal.lock();
        if self.aboard > 0 {
            inner.broken.get_or_insert_with(|| unanswered().record());
        }
        inner.aloft = false;
        if self.spare.capacity() > 0 {
            inner.spare = std::mem::take(&mut self.spare);
        }
        let awaited = std::mem::take(&mut inner.awaited);
        drop(inner);
        if awaited {
            self.journal.landed.notify_waiters();
        }
    }
}

fn unanswered() -> Error {
    let text =
        "the store's operation was ended from outside, and nobody knows what it did; open the session again";
    Error::new(ErrorKind::Internal, text)
}

/// Polls `work` once; if it is not done, it continues in a task of its own.
pub(crate) async fn send_off(mut work: BoxFuture<'static, ()>, emitter: &Emitter) {
    let over = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_ready())).await;
    if over {
        return;
    }
    match Handle::try_current() {
        Ok(tokio) => drop(emitter.env().tasks.spawn_on(work, &tokio)),
        // Outside of tokio nothing else would poll it: its caller has to.
        Err(_) => work.await,
    }
}
