//! The one writer of a session: stages events, folds them into the session's state, and commits them to the store.
//!
//! What is staged is part of the state at once, and is committed before any effect leaves the process. So a step
//! with one tool costs two transactions.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Mutex as AsyncMutex;
use uuid::Uuid;

use super::{Emitter, Outcome};
use crate::{
    ErrorRecord, Result, SessionId, Timestamp,
    event::{Envelope, Event, Origin},
    session::{Batch, ReadRange, Row, SessionFilter, SessionHead, SessionRecord, SessionState, SharedStore},
};

/// Rows that are read at once when a session is opened.
const WINDOW: usize = 1_000;

#[derive(Debug)]
pub(crate) struct Journal {
    /// `None` for a session that ends with its handle: its state lives here alone.
    store: Option<SharedStore>,
    record: SessionRecord,
    writer: u64,
    committing: AsyncMutex<()>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: SessionState,
    staged: VecDeque<Envelope>,
    /// An empty buffer, kept between commits.
    spare: VecDeque<Envelope>,
    /// Number of the newest event that the store has.
    committed: u64,
    /// A commit whose answer was never seen, since its future was dropped: exactly these rows are sent again.
    attempt: Option<Attempt>,
    broken: Option<ErrorRecord>,
    /// The events of the run that has no end, as found when the session was opened.
    recorded: Vec<Event>,
}

/// A commit that was begun.
#[derive(Debug)]
struct Attempt {
    count: usize,
    /// The head after these rows; kept once a later event changes the state's own.
    head: Option<Box<SessionHead>>,
}

impl Journal {
    /// A session that the store does not know yet; the first commit creates it.
    pub(crate) fn create(store: Option<SharedStore>, record: SessionRecord) -> Self {
        Self::with(store, record, SessionState::default(), Vec::new())
    }

    /// A session that the store knows.
    pub(crate) async fn find(store: Option<SharedStore>, id: &SessionId) -> Result<Option<Self>> {
        let Some(store) = store else { return Ok(None) };
        let Some(info) = store.query(&SessionFilter::id(id.clone())).await?.pop() else { return Ok(None) };
        let mut state = SessionState::default();
        let mut recorded = Vec::new();
        let mut after = 0;
        loop {
            let rows = store.read(id, ReadRange::after(after).take(WINDOW)).await?;
            let full = rows.len() == WINDOW;
            for row in rows {
                let envelope = row.into_envelope(id)?;
                after = envelope.seq;
                state.apply(&envelope);
                if matches!(envelope.event, Event::RunStarted(_)) {
                    recorded.clear();
                }
                match state.run() {
                    Some(_) => recorded.push(envelope.event),
                    None => recorded.clear(),
                }
            }
            if !full {
                return Ok(Some(Self::with(Some(store), info.record, state, recorded)));
            }
        }
    }

    fn with(
        store: Option<SharedStore>,
        record: SessionRecord,
        state: SessionState,
        recorded: Vec<Event>,
    ) -> Self {
        let committed = state.head().seq;
        let inner = Inner {
            state,
            staged: VecDeque::new(),
            spare: VecDeque::new(),
            committed,
            attempt: None,
            broken: None,
            recorded,
        };
        Self {
            store,
            record,
            writer: Uuid::new_v4().as_u64_pair().0,
            committing: AsyncMutex::new(()),
            inner: Mutex::new(inner),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn session(&self) -> &SessionId {
        &self.record.id
    }

    /// Reads the state.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&SessionState) -> T) -> T {
        read(&self.lock().state)
    }

    /// Takes the oldest signal of this name.
    pub(crate) fn take_signal(&self, name: &str) -> Option<serde_json::Value> {
        self.lock().state.take_signal(name)
    }

    pub(crate) fn recorded(&self) -> Vec<Event> {
        self.lock().recorded.clone()
    }

    pub(crate) fn forget_recorded(&self) {
        self.lock().recorded = Vec::new();
    }

    /// Whether another process may have appended, or the store failed: the session must be opened again.
    pub(crate) fn is_broken(&self) -> bool {
        self.lock().broken.is_some()
    }

    /// What the unfinished run has spent so far, for an outcome of a run that did not get to make one.
    pub(crate) fn spent(&self) -> Outcome {
        self.lock().state.spent()
    }

    /// What the session's newest run ended with, if it has ended.
    pub(crate) async fn last_outcome(&self) -> Result<Option<Outcome>> {
        let newest = self.seq().saturating_sub(1);
        let Some(store) = &self.store else { return Ok(None) };
        let rows = store.read(&self.record.id, ReadRange::after(newest)).await?;
        for row in rows {
            if let Event::RunFinished(end) = row.into_envelope(&self.record.id)?.event {
                return Ok(Some(end.outcome.clone()));
            }
        }
        Ok(None)
    }

    /// Adds an event to the state; it is stored by the next commit. Returns its number.
    pub(crate) fn stage(&self, origin: &Arc<Origin>, at: Timestamp, event: Event) -> u64 {
        let mut inner = self.lock();
        let seq = inner.state.head().seq + 1;
        let envelope = Envelope::new(Arc::clone(origin), seq, at, event);
        inner.keep_attempted_head();
        inner.state.apply(&envelope);
        inner.staged.push_back(envelope);
        seq
    }

    /// Number of the newest event, staged ones included.
    pub(crate) fn seq(&self) -> u64 {
        self.lock().state.head().seq
    }

    /// Stores what is staged, then shows it to whoever watches.
    ///
    /// Cancel-safe: a commit whose future is dropped is sent again, unchanged, by the next one.
    pub(crate) async fn commit(&self, emitter: &Emitter) -> Result<()> {
        let Some(store) = &self.store else {
            self.show(usize::MAX, emitter);
            return Ok(());
        };
        let _one_at_a_time = self.committing.lock().await;
        loop {
            let Some((expected, count, batch)) = self.next_batch()? else { return Ok(()) };
            let stored = store.append(&self.record.id, expected, batch).await;
            let mut inner = self.lock();
            inner.attempt = None;
            if let Err(error) = stored {
                inner.broken = Some(error.record());
                return Err(error);
            }
            inner.committed = expected.saturating_add(count as u64);
            drop(inner);
            self.show(count, emitter);
        }
    }

    /// Hands the oldest `count` staged events over to whoever watches.
    fn show(&self, count: usize, emitter: &Emitter) {
        let mut inner = self.lock();
        let count = count.min(inner.staged.len());
        let mut events = std::mem::take(&mut inner.spare);
        events.extend(inner.staged.drain(..count));
        drop(inner);
        emitter.emit(&mut events);
        events.clear();
        self.lock().spare = events;
    }

    fn next_batch(&self) -> Result<Option<(u64, usize, Batch)>> {
        let mut inner = self.lock();
        if let Some(error) = &inner.broken {
            return Err(error.to_error());
        }
        if inner.staged.is_empty() {
            return Ok(None);
        }
        let attempt = inner.attempt.get_or_insert(Attempt { count: usize::MAX, head: None });
        let head = attempt.head.as_deref().cloned();
        let count = attempt.count.min(inner.staged.len());
        if let Some(attempt) = &mut inner.attempt {
            attempt.count = count;
        }
        let head = head.unwrap_or_else(|| inner.state.head().clone());
        let rows = inner.staged.iter().take(count).cloned().map(Row::live).collect();
        let batch = Batch::new(self.writer, rows, head);
        let batch = if inner.committed == 0 { batch.creating(self.record.clone()) } else { batch };
        Ok(Some((inner.committed, count, batch)))
    }
}

impl Inner {
    fn keep_attempted_head(&mut self) {
        if let Some(Attempt { head: head @ None, .. }) = &mut self.attempt {
            *head = Some(Box::new(self.state.head().clone()));
        }
    }
}
