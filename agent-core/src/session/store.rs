//! The contract of a session store, and the batches, rows and filters that it takes.

use std::{borrow::Cow, fmt, sync::Arc};

use async_trait::async_trait;

use super::{Lease, SessionHead, SessionInfo, SessionRecord, SessionStatus};
use crate::{
    Error, ErrorKind, Result, RunId, SessionId, Timestamp,
    base::setters,
    event::{Envelope, Event, Origin},
};

/// A shared store.
pub type SharedStore = Arc<dyn SessionStore>;

/// Storage of sessions.
///
/// # Contract
/// - [`SessionStore::append`] is atomic: all rows and the head, or nothing, also when the future is dropped or the
///   process dies. Once it returned `Ok` the rows survive a crash (as far as the medium can promise it).
/// - Of several writers that append to one session with the same `expected` number, exactly one succeeds; the others
///   get [`ErrorKind::Conflict`] and nothing of theirs is stored.
/// - A lease that comes with a batch must replace the stored one ([`Lease::replaces`]); else the batch is refused like
///   any other that came too late. A batch without a lease leaves the stored one as it is.
/// - An id may be used again after a delete. A batch or a lease that names when its session was created
///   ([`Batch::created`], [`Lease::created`]) is for that session: of another one under the id nothing changes
///   ([`Error::made_anew`]), whatever its numbers and generations are.
/// - Rows come back in order, each once, byte for byte.
/// - An operation that was polled once completes, or is undone, without its caller: a future that is kept and not
///   polled, or dropped at any poll, holds no lock, lane, connection or transaction that others wait for. A store that
///   awaits anything within an operation runs it in a task of its own.
/// - An id of one session never touches another, whatever it looks like.
/// - Damaged or newer data is a typed error for its session; other sessions still load.
///
/// `testkit::store` holds the suite that every store passes.
#[async_trait]
pub trait SessionStore: Send + Sync + fmt::Debug {
    /// Appends `batch` if the newest event of the session has the number `expected`, and returns the new number.
    ///
    /// A session is created by an append that expects 0 and carries its record. Appending the same batch again
    /// (same writer, same numbers) after it succeeded is `Ok` and stores nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when the number differs, another owner holds the lease ([`Error::fenced`]) or the
    /// session was made anew ([`Error::made_anew`]), [`ErrorKind::NotFound`] when the session (or the parent named by
    /// its record) does not exist.
    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64>;

    /// Reads a window of a session's events.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when there is no such session.
    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>>;

    /// Lists sessions, newest update first, ties by id.
    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>>;

    /// Stores `lease` if it replaces the session's: renews it, gives it back, or takes it over. Appends nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when it does not replace the stored one ([`Error::fenced`]) or the session was made anew
    /// ([`Error::made_anew`]), [`ErrorKind::NotFound`] when there is no such session.
    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()>;

    /// Bytes of event bodies that one append is sure to accept. A writer leaves out a larger checkpoint, and splits a
    /// larger batch into several appends.
    ///
    /// Only a single event may be larger, up to twice the default. If the store refuses it with
    /// [`ErrorKind::TooLarge`], nothing of it is stored.
    fn largest_batch(&self) -> usize {
        96 << 20
    }

    /// Deletes a session and everything below it, and returns the number of deleted sessions. Deleting a missing
    /// session succeeds with 0.
    async fn delete(&self, session: &SessionId) -> Result<u64>;
}

/// One append: rows, the head after them, and their writer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Batch {
    /// Record of a session to create; only with `expected` 0.
    pub create: Option<SessionRecord>,
    /// The events, numbered from `expected + 1` without gaps.
    pub rows: Vec<Row>,
    /// The head after them.
    pub head: SessionHead,
    /// Id of the writer: a random number per open session. With an event's number it identifies the event for good.
    pub writer: u64,
    /// The writer's lease, if it holds one: stored together with the rows.
    pub lease: Option<Lease>,
    /// When the session that the writer knows was created, for a batch that creates none. `None` compares nothing.
    pub created: Option<Timestamp>,
}

impl Batch {
    /// A batch of `rows` by `writer`.
    #[must_use]
    pub fn new(writer: u64, rows: Vec<Row>, head: SessionHead) -> Self {
        Self { create: None, rows, head, writer, lease: None, created: None }
    }

    setters! {
        /// The same batch of a writer that holds `lease`.
        leased(lease: Lease) => Some(lease);
        /// The same batch, creating the session first.
        creating(create: SessionRecord) => Some(create);
    }

    /// The same batch, for the session of this record alone: not for one that is made later under its id.
    #[must_use]
    pub fn of(mut self, record: &SessionRecord) -> Self {
        self.created = Some(record.created);
        self
    }

    /// Checks the invariants that every store may rely on. Stores call it before they write.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when the batch is empty, its numbers do not follow `expected`, or it creates a
    /// session that has events.
    pub fn check(&self, session: &SessionId, expected: u64) -> Result<()> {
        let numbers = expected.saturating_add(1)..=u64::MAX;
        let numbered = numbers.zip(&self.rows).all(|(seq, row)| row.seq() == seq);
        let created = self.create.as_ref().is_none_or(|record| expected == 0 && record.id == *session);
        let head = expected.saturating_add(self.rows.len() as u64) == self.head.seq;
        if self.rows.is_empty() || !numbered || !created || !head {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "a batch must hold events numbered from the expected one on",
            )
            .during("store.append")
            .with("session", session.as_str()));
        }
        Ok(())
    }
}

/// Errors of a store.
impl Error {
    /// A conflict between `expected` and the `actual` number of the newest event.
    #[must_use]
    pub fn append_conflict(session: &SessionId, expected: u64, actual: u64) -> Self {
        Self::new(
            ErrorKind::Conflict,
            format!("another writer, maybe a process that resumed its run, was first (it is at event {actual}, not {expected}); open it again"),
        )
        .during("store.append")
        .with("session", session.as_str())
    }

    /// A conflict with another owner, who holds the session's lease in generation `held`.
    #[must_use]
    pub fn fenced(session: &SessionId, held: u64) -> Self {
        Self::new(
            ErrorKind::Conflict,
            format!("another process took the session over (generation {held}); open it again"),
        )
        .during("store.append")
        .with("session", session.as_str())
    }

    /// A conflict of whoever writes in a session that was deleted, and whose id another one has since.
    #[must_use]
    pub fn made_anew(session: &SessionId) -> Self {
        let text =
            "the session was deleted, and another one has its id; open that one if you want to go on in it";
        Self::new(ErrorKind::Conflict, text).during("store.append").with("session", session.as_str())
    }

    /// An error for a session that is gone although it was stored.
    pub fn deleted(session: &SessionId) -> Self {
        let text = "the session was deleted, and what was under way or waited in it with it; begin a new one";
        Self::new(ErrorKind::NotFound, text).with("session", session.as_str())
    }

    /// An error for a session that does not exist.
    #[must_use]
    pub fn no_session(session: &SessionId) -> Self {
        let text = "there is no such session; list the sessions to see their ids, or open the store that it was made in";
        Self::new(ErrorKind::NotFound, text).with("session", session.as_str())
    }
}

/// One event as a store sees it: columns for its tables, and an opaque body.
#[derive(Debug, Clone)]
pub struct Row(Repr);

#[derive(Debug, Clone)]
enum Repr {
    Live(Envelope),
    Stored(Box<Columns>, String),
}

/// Columns that a store may index. Their names are stable.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Columns {
    /// Number in the session, from 1.
    pub seq: u64,
    /// Time of the event.
    pub at: Timestamp,
    /// The kind of event.
    pub kind: Cow<'static, str>,
    /// The run.
    pub run: RunId,
    /// Names of the agents from the root down, joined by `/`.
    pub agent: Arc<str>,
}

impl Columns {
    /// The columns of an event.
    #[must_use]
    pub fn new(
        seq: u64,
        at: Timestamp,
        kind: impl Into<Cow<'static, str>>,
        run: RunId,
        agent: impl Into<Arc<str>>,
    ) -> Self {
        Self { seq, at, kind: kind.into(), run, agent: agent.into() }
    }
}

impl Row {
    /// A row of a live event. Nothing is serialized until a store asks for the body.
    #[must_use]
    pub fn live(envelope: Envelope) -> Self {
        Self(Repr::Live(envelope))
    }

    /// A row as it was stored.
    #[must_use]
    pub fn stored(columns: Columns, body: String) -> Self {
        Self(Repr::Stored(Box::new(columns), body))
    }

    /// Number of the event.
    #[must_use]
    pub fn seq(&self) -> u64 {
        match &self.0 {
            Repr::Live(envelope) => envelope.seq,
            Repr::Stored(columns, _) => columns.seq,
        }
    }

    /// The columns of the row.
    #[must_use]
    pub fn columns(&self) -> Columns {
        match &self.0 {
            Repr::Live(it) => {
                Columns::new(it.seq, it.at, it.event.column(), it.origin.run, Arc::clone(&it.origin.agent))
            }
            Repr::Stored(columns, _) => (**columns).clone(),
        }
    }

    /// The body, JSON text.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the event does not serialize.
    pub fn body(&self) -> Result<Cow<'_, str>> {
        match &self.0 {
            Repr::Live(envelope) => Ok(Cow::Owned(envelope.event.to_json()?)),
            Repr::Stored(_, body) => Ok(Cow::Borrowed(body)),
        }
    }

    /// The event.
    ///
    /// # Errors
    /// [`ErrorKind::NewerVersion`] or [`ErrorKind::Corrupt`], naming session and number.
    pub fn into_envelope(self, session: &SessionId) -> Result<Envelope> {
        match self.0 {
            Repr::Live(envelope) => Ok(envelope),
            Repr::Stored(columns, body) => {
                let event = Event::from_json(&columns.kind, &body).map_err(|error| {
                    error.with("session", session.as_str()).with("event", columns.seq.to_string())
                })?;
                let origin = Origin::new(session.clone(), columns.run, columns.agent);
                Ok(Envelope::new(Arc::new(origin), columns.seq, columns.at, event))
            }
        }
    }
}

/// A window of a session's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadRange {
    /// Events with a number greater than this.
    pub after: u64,
    /// Maximum number of events.
    pub limit: Option<usize>,
}

impl ReadRange {
    /// All events.
    #[must_use]
    pub fn all() -> Self {
        Self { after: 0, limit: None }
    }

    /// Events with a number greater than `seq`.
    #[must_use]
    pub fn after(seq: u64) -> Self {
        Self { after: seq, limit: None }
    }

    setters! {
        /// The same window, with at most `limit` events.
        with_limit(limit: usize) => Some(limit);
    }
}

/// Filter and page of a list of sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SessionFilter {
    /// Only this session.
    pub id: Option<SessionId>,
    /// Only roots (`Some(None)`) or only the children of one session.
    pub parent: Option<Option<SessionId>>,
    /// Only sessions in this state.
    pub status: Option<SessionStatus>,
    /// Only sessions whose id begins with this text.
    pub prefix: Option<String>,
    /// Only this session and everything below it.
    pub tree: Option<SessionId>,
    /// Number of sessions to skip.
    pub offset: usize,
    /// Maximum number of sessions.
    pub limit: Option<usize>,
}

impl SessionFilter {
    /// Every session.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Only sessions that users started, without their children.
    #[must_use]
    pub fn roots() -> Self {
        Self { parent: Some(None), ..Self::default() }
    }

    /// Only the session `id`.
    #[must_use]
    pub fn id(id: SessionId) -> Self {
        Self { id: Some(id), ..Self::default() }
    }

    /// Only the children of `parent`.
    #[must_use]
    pub fn children_of(parent: SessionId) -> Self {
        Self { parent: Some(Some(parent)), ..Self::default() }
    }

    setters! {
        /// Only sessions in this state.
        with_status(status: SessionStatus) => Some(status);
        /// Only sessions whose id begins with `prefix`, compared byte for byte. Nothing in it is a pattern.
        with_prefix(prefix: impl Into<String>) => Some(prefix.into());
    }

    /// Only `root` and everything below it.
    #[must_use]
    pub fn tree(root: SessionId) -> Self {
        Self { tree: Some(root), ..Self::default() }
    }

    /// A page: skips `offset` sessions, then lists at most `limit`.
    #[must_use]
    pub fn page(mut self, offset: usize, limit: usize) -> Self {
        self.offset = offset;
        self.limit = Some(limit);
        self
    }

    /// True if a session passes the filter, except for its page and its [`SessionFilter::tree`]: a session alone does
    /// not show its ancestors.
    #[must_use]
    pub fn admits(&self, info: &SessionInfo) -> bool {
        self.id.as_ref().is_none_or(|id| *id == info.record.id)
            && self.parent.as_ref().is_none_or(|parent| *parent == info.record.parent)
            && self.status.is_none_or(|status| status == info.head.status)
            && self.prefix.as_ref().is_none_or(|prefix| info.record.id.as_str().starts_with(&**prefix))
    }
}
