//! The in-memory store: the reference for others, used by tests and `ask`.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, SessionId, Timestamp,
    session::{Batch, Lease, ReadRange, Row, SessionFilter, SessionInfo, SessionStore},
};

/// Store that keeps sessions in memory. Nothing is serialized.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use entourage_core::session::{SessionFilter, SessionStore};
/// use entourage_runtime::MemoryStore;
///
/// let store = MemoryStore::default();
/// assert!(store.query(&SessionFilter::roots()).await.unwrap().is_empty());
/// # });
/// ```
#[derive(Debug, Default)]
pub struct MemoryStore {
    sessions: Mutex<HashMap<SessionId, Box<Stored>>>,
}

#[derive(Debug)]
struct Stored {
    info: SessionInfo,
    rows: Vec<Row>,
    /// Writers, each with the number of its first row: a batch that is sent again is recognised by them.
    writers: Vec<(u64, u64)>,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Box<Stored>>> {
        // A panic cannot leave a half-written session: every change below is made of infallible steps.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl SessionStore for MemoryStore {
    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        batch.check(session, expected)?;
        let mut sessions = self.lock();
        if let Some(record) = batch.create {
            match sessions.get(session) {
                Some(stored) => return repeated(stored, session, expected, &batch.rows, batch.writer),
                None if record.parent.as_ref().is_some_and(|parent| !sessions.contains_key(parent)) => {
                    return Err(Error::new(ErrorKind::NotFound, "the parent session does not exist")
                        .during("store.append")
                        .with("session", session.as_str()));
                }
                None => {
                    let writers = vec![(1, batch.writer)];
                    let info = SessionInfo::new(record, batch.head).leased(batch.lease);
                    let seq = info.head.seq;
                    sessions.insert(session.clone(), Box::new(Stored { info, rows: batch.rows, writers }));
                    return Ok(seq);
                }
            }
        }
        let stored = sessions.get_mut(session).ok_or_else(|| Error::no_session(session))?;
        stored.check_created(session, batch.created)?;
        if stored.info.head.seq != expected {
            return repeated(stored, session, expected, &batch.rows, batch.writer);
        }
        if let Some(lease) = batch.lease {
            stored.take(session, lease)?;
        }
        if stored.writers.last().is_none_or(|(_, writer)| *writer != batch.writer) {
            stored.writers.push((expected + 1, batch.writer));
        }
        stored.rows.extend(batch.rows);
        stored.info.head = batch.head;
        Ok(stored.info.head.seq)
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        let sessions = self.lock();
        let stored = sessions.get(session).ok_or_else(|| Error::no_session(session))?;
        let after = usize::try_from(range.after).unwrap_or(usize::MAX);
        Ok(stored.rows.iter().skip(after).take(range.limit.unwrap_or(usize::MAX)).cloned().collect())
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        let sessions = self.lock();
        let mut found: Vec<_> = match &filter.id {
            Some(id) => sessions.get(id).into_iter().map(|stored| &stored.info).collect(),
            None => sessions.values().map(|stored| &stored.info).collect(),
        };
        let tree = filter.tree.as_ref().map(|root| below(&sessions, root));
        let inside = |id: &SessionId| tree.as_ref().is_none_or(|tree| tree.contains(id));
        found.retain(|info| filter.admits(info) && inside(&info.record.id));
        found.sort_by(|a, b| b.head.updated.cmp(&a.head.updated).then_with(|| a.record.id.cmp(&b.record.id)));
        Ok(found.into_iter().skip(filter.offset).take(filter.limit.unwrap_or(usize::MAX)).cloned().collect())
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        let mut sessions = self.lock();
        sessions.get_mut(session).ok_or_else(|| Error::no_session(session))?.take(session, lease)
    }

    async fn delete(&self, session: &SessionId) -> Result<u64> {
        let mut sessions = self.lock();
        let doomed = below(&sessions, session);
        Ok(doomed.iter().map(|id| u64::from(sessions.remove(id).is_some())).sum())
    }
}

impl Stored {
    fn check_created(&self, session: &SessionId, known: Option<Timestamp>) -> Result<()> {
        match known {
            Some(created) if created != self.info.record.created => Err(Error::made_anew(session)),
            _ => Ok(()),
        }
    }

    fn take(&mut self, session: &SessionId, lease: Lease) -> Result<()> {
        self.check_created(session, lease.created)?;
        match &self.info.lease {
            Some(held) if !lease.replaces(Some(held)) => Err(Error::fenced(session, held.generation)),
            _ => {
                self.info.lease = Some(lease);
                Ok(())
            }
        }
    }
}

/// Ids of a session and of all sessions below it.
fn below(sessions: &HashMap<SessionId, Box<Stored>>, root: &SessionId) -> HashSet<SessionId> {
    let mut children: HashMap<&SessionId, Vec<&SessionId>> = HashMap::new();
    for record in sessions.values().map(|it| &it.info.record) {
        if let Some(parent) = &record.parent {
            children.entry(parent).or_default().push(&record.id);
        }
    }
    let (mut found, mut waiting) = (HashSet::new(), vec![root]);
    while let Some(id) = waiting.pop() {
        if found.insert(id.clone()) {
            waiting.extend(children.get(id).into_iter().flatten());
        }
    }
    found
}

/// Accepts a batch that is already stored; any other is a conflict.
fn repeated(stored: &Stored, session: &SessionId, expected: u64, rows: &[Row], writer: u64) -> Result<u64> {
    let last = expected.saturating_add(rows.len() as u64);
    let writer_of =
        |seq: u64| stored.writers.iter().rev().find(|(first, _)| *first <= seq).map(|(_, writer)| *writer);
    let same = last <= stored.info.head.seq
        && (expected.saturating_add(1)..=last).all(|seq| writer_of(seq) == Some(writer));
    if same {
        Ok(stored.info.head.seq)
    } else {
        Err(Error::append_conflict(session, expected, stored.info.head.seq))
    }
}
