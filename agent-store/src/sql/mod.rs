//! Shared by the SQL stores: a batch's head in the types of columns, rows in the core's types, and failures. Nothing
//! here knows an engine's dialect or its result codes.

pub(crate) mod held;
pub(crate) mod views;
pub(crate) mod write;

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind, Money, Result, RunId, SessionId, Timestamp, Usage,
    session::{Lease, SessionHead, SessionInfo, SessionRecord, SessionStatus},
};
use sqlx::{ColumnIndex, Decode, Row, Type};

/// Failure of an operation. Separate from the core's error, so that each text is written once.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The driver or the database reported it.
    Driver(sqlx::Error),
    /// A value in the database is one that this store never writes.
    Damaged(String),
    /// The error that the caller gets, unchanged.
    Refused(Error),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Driver(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl Failure {
    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged(what.into())
    }

    /// Names the session that a listed row belongs to.
    pub(crate) fn of_session(self, id: Option<&str>) -> Self {
        match (self, id) {
            (Self::Damaged(what), Some(id)) => Self::Damaged(format!("{what} in session {id}")),
            (failure, _) => failure,
        }
    }

    /// Returns the error that the caller sees; `driver` reads an engine's codes.
    pub(crate) fn into_error(self, driver: fn(sqlx::Error) -> Error) -> Error {
        match self {
            Self::Driver(error) => driver(error),
            Self::Refused(error) => error,
            Self::Damaged(what) => Error::new(
                ErrorKind::Corrupt,
                format!(
                    "the database holds what no version of this store writes: {what}; restore it from a backup"
                ),
            ),
        }
    }
}

/// Returns true if the error says that the store was closed, which is the caller's doing and no damage.
#[cfg(feature = "hybrid")]
pub(crate) fn says_closed(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<sqlx::Error>());
    matches!(cause, Some(sqlx::Error::PoolClosed))
}

/// A head in the types of its columns. A figure too large for its column is clamped, because it must not end the
/// session; the events hold the exact value. `seq` is never clamped: a number too large is refused.
#[derive(Debug)]
pub(crate) struct HeadColumns {
    pub(crate) seq: i64,
    pub(crate) status: &'static str,
    pub(crate) run: Option<String>,
    pub(crate) agent: Arc<str>,
    pub(crate) title: Arc<str>,
    pub(crate) messages: i64,
    /// Tokens: input, output, cache read, cache write, reasoning.
    pub(crate) usage: [Option<i64>; 5],
    pub(crate) cost: Option<i64>,
    pub(crate) updated: i64,
    pub(crate) checkpoint: i64,
}

impl HeadColumns {
    pub(crate) fn new(head: SessionHead) -> Result<Self> {
        let Usage { input, output, cache_read, cache_write, reasoning, .. } = head.usage;
        Ok(Self {
            seq: signed(head.seq)?,
            status: head.status.as_str(),
            run: head.run.map(|run| run.to_string()),
            messages: clamped(head.messages),
            usage: [input, output, cache_read, cache_write, reasoning].map(|count| count.map(clamped)),
            cost: head.cost.map(|cost| clamped(cost.as_pico())),
            updated: head.updated.as_micros(),
            checkpoint: clamped(head.checkpoint),
            agent: head.agent,
            title: head.title,
        })
    }
}

/// A lease in the types of its columns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseColumns {
    /// The bits of the owner's number: databases have no unsigned integers.
    pub(crate) owner: i64,
    pub(crate) generation: i64,
    pub(crate) until: i64,
    /// Creation time of the session that the lease is for: compared, not stored.
    pub(crate) created: Option<i64>,
}

impl LeaseColumns {
    pub(crate) fn new(lease: Lease) -> Result<Self> {
        let generation = signed(lease.generation)?;
        let (owner, until) = (lease.owner.cast_signed(), lease.until.as_micros());
        Ok(Self { owner, generation, until, created: lease.created.map(Timestamp::as_micros) })
    }
}

/// Converts a number to a column's type. One that is too large is refused.
pub(crate) fn signed(number: u64) -> Result<i64> {
    i64::try_from(number).map_err(|_| {
        Error::new(
            ErrorKind::TooLarge,
            "numbers in a database end at 9,223,372,036,854,775,807; this one is larger",
        )
        .with("number", number.to_string())
    })
}

/// Clamps a number to a column's maximum. A window or a page that asks for more than a database can count wants all of
/// it.
pub(crate) fn clamped(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// Converts a column to an unsigned number. A negative one is damage.
pub(crate) fn unsigned(column: &'static str, number: i64) -> Result<u64, Failure> {
    u64::try_from(number).map_err(|_| Failure::damaged(format!("{column} = {number}")))
}

pub(crate) fn run(text: &str) -> Result<RunId, Failure> {
    RunId::parse(text).map_err(|_| Failure::damaged("a run id that is no UUID"))
}

fn session_id(text: &str) -> Result<SessionId, Failure> {
    SessionId::new(text)
        .map_err(|_| Failure::damaged("a session id with other characters than those allowed"))
}

/// The columns that [`session`] reads, in its order.
pub(crate) const SESSION_COLUMNS: &str = "id, parent, role, created, seq, status, run, agent, title, messages, \
     input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_pico, updated, \
     lease_owner, lease_generation, lease_until, checkpoint";

/// Reads [`SESSION_COLUMNS`]. `text` undoes the engine's escapes.
pub(crate) fn session<'r, R>(
    row: &'r R,
    text: fn(&str) -> Result<Arc<str>, Failure>,
) -> Result<SessionInfo, Failure>
where
    R: Row,
    usize: ColumnIndex<R>,
    &'r str: Decode<'r, R::Database> + Type<R::Database>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
{
    let id = session_id(row.try_get(0)?)?;
    let mut record = SessionRecord::root(id, Timestamp::from_micros(row.try_get(3)?));
    record.parent = row.try_get::<Option<&str>, _>(1)?.map(session_id).transpose()?;
    record.role = text(row.try_get(2)?)?;

    let status: &str = row.try_get(5)?;
    let tokens = |name: &'static str, index: usize| -> Result<Option<u64>, Failure> {
        row.try_get::<Option<i64>, _>(index)?.map(|count| unsigned(name, count)).transpose()
    };
    let mut head = SessionHead::default();
    head.seq = unsigned("seq", row.try_get(4)?)?;
    head.status =
        SessionStatus::from_name(status).ok_or_else(|| Failure::damaged(format!("status {status:?}")))?;
    head.run = row.try_get::<Option<&str>, _>(6)?.map(run).transpose()?;
    head.agent = text(row.try_get(7)?)?;
    head.title = text(row.try_get(8)?)?;
    head.messages = unsigned("messages", row.try_get(9)?)?;
    head.usage.input = tokens("input_tokens", 10)?;
    head.usage.output = tokens("output_tokens", 11)?;
    head.usage.cache_read = tokens("cache_read_tokens", 12)?;
    head.usage.cache_write = tokens("cache_write_tokens", 13)?;
    head.usage.reasoning = tokens("reasoning_tokens", 14)?;
    head.cost = tokens("cost_pico", 15)?.map(Money::from_pico);
    head.updated = Timestamp::from_micros(row.try_get(16)?);
    let lease = lease([row.try_get(17)?, row.try_get(18)?, row.try_get(19)?])?;
    head.checkpoint = unsigned("checkpoint", row.try_get(20)?)?;
    Ok(SessionInfo::new(record, head).leased(lease))
}

fn lease(columns: [Option<i64>; 3]) -> Result<Option<Lease>, Failure> {
    match columns {
        [None, None, None] => Ok(None),
        [Some(owner), Some(generation), Some(until)] => Ok(Some(Lease::new(
            owner.cast_unsigned(),
            unsigned("lease_generation", generation)?,
            Timestamp::from_micros(until),
        ))),
        _ => Err(Failure::damaged("a lease by half")),
    }
}
