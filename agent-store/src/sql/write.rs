//! Writes on any SQL engine: the compare-and-set statements, their parameters and their results.
//!
//! Parameters are written `$1`, which both engines read. Each engine inserts events and explains refusals by itself:
//! one in a transaction, the other in a single statement.

use std::borrow::Cow;

use entourage_core::{Error, ErrorKind, Result, SessionId};
use sqlx::{Database, Encode, Type, query::Query};

use super::{HeadColumns, LeaseColumns};

pub(crate) type Statement<'q, DB> = Query<'q, DB, <DB as Database>::Arguments>;

/// Result of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Appended {
    /// The number of the newest event.
    Stored(u64),
    /// The same batch had been stored before; the number of the newest event.
    Before(u64),
    /// The number of the newest event, which is not the one that the batch expects.
    TooLate(u64),
    /// The stored lease is of this generation, and the batch's does not replace it.
    Fenced(u64),
    /// The batch is for a session that was deleted, and another one has its id.
    MadeAnew,
    NoSession,
    NoParent,
}

impl Appended {
    /// Converts this to the result that the caller of the append gets.
    pub(crate) fn told(self, operation: &'static str, session: &SessionId, expected: u64) -> Result<u64> {
        match self {
            Self::Stored(seq) | Self::Before(seq) => Ok(seq),
            Self::TooLate(actual) => Err(Error::append_conflict(session, expected, actual)),
            Self::Fenced(held) => Err(Error::fenced(session, held)),
            Self::MadeAnew => Err(Error::made_anew(session)),
            Self::NoSession => Err(Error::no_session(session).during(operation)),
            Self::NoParent => Err(Error::new(
                ErrorKind::NotFound,
                "the parent session does not exist; create it first, or start the session as a root",
            )
            .during(operation)
            .with("session", session.as_str())),
        }
    }
}

/// Result of a request for a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leased {
    Taken,
    /// The stored lease is of this generation, and the requested one does not replace it.
    Fenced(u64),
    /// The lease is for a session that was deleted, and another one has its id.
    MadeAnew,
    NoSession,
}

impl Leased {
    /// Converts this to the result that the caller gets.
    pub(crate) fn told(self, operation: &'static str, session: &SessionId) -> Result<()> {
        match self {
            Self::Taken => Ok(()),
            Self::Fenced(held) => Err(Error::fenced(session, held).during(operation)),
            Self::MadeAnew => Err(Error::made_anew(session).during(operation)),
            Self::NoSession => Err(Error::no_session(session).during(operation)),
        }
    }
}

/// The condition under which the lease of these parameters replaces the stored one: see `Lease::replaces`.
macro_rules! replaces {
    ($owner:literal, $generation:literal) => {
        concat!(
            "(lease_generation IS NULL OR lease_generation < ",
            $generation,
            " OR (lease_generation = ",
            $generation,
            " AND lease_owner = ",
            $owner,
            "))"
        )
    };
}

/// The condition that the session was created at this time; true for `NULL`.
macro_rules! is_known {
    ($created:literal) => {
        concat!("(", $created, " IS NULL OR created = ", $created, ")")
    };
}

/// Replaces the head if the session is the one that the batch is for, its newest event is the expected one, and the
/// batch's lease, if any, may be stored. Parameters 1 to 18 are [`HeadColumns::bind`]'s, the next one is the number of
/// the expected event; `$created` is the creation time of the session that the batch is for.
macro_rules! update_head {
    ($created:literal) => {
        concat!(
            "UPDATE sessions SET seq = $2, status = $3, run = $4, agent = $5, title = $6, messages = $7, \
             input_tokens = $8, output_tokens = $9, cache_read_tokens = $10, cache_write_tokens = $11, \
             reasoning_tokens = $12, cost_pico = $13, updated = $14, checkpoint = $15, \
             lease_owner = coalesce($16, lease_owner), lease_generation = coalesce($17, lease_generation), \
             lease_until = coalesce($18, lease_until) WHERE id = $1 AND seq = $19 AND ",
            $crate::sql::write::is_known!($created),
            " AND ($17 IS NULL OR ",
            $crate::sql::write::replaces!("$16", "$17"),
            ")"
        )
    };
}

/// Begins the statement that creates a session from the parameters of [`HeadColumns::bind`] and three more columns.
macro_rules! insert_session {
    () => {
        "INSERT INTO sessions (id, seq, status, run, agent, title, messages, input_tokens, output_tokens, \
         cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_pico, updated, checkpoint, \
         lease_owner, lease_generation, lease_until, parent, role, created) "
    };
}

pub(crate) use {insert_session, is_known, replaces, update_head};

/// Stores a lease if it is for this session and replaces the stored one. Parameters: the session, those of
/// [`bind_lease`], and the creation time of the session.
pub(crate) const TAKE_LEASE: &str = concat!(
    "UPDATE sessions SET lease_owner = $2, lease_generation = $3, lease_until = $4 WHERE id = $1 AND ",
    is_known!("$5"),
    " AND ",
    replaces!("$2", "$3")
);

/// Binds three parameters: the owner, the generation and the expiry; all `NULL` without a lease.
pub(crate) fn bind_lease<'q, DB>(
    lease: Option<LeaseColumns>,
    statement: Statement<'q, DB>,
) -> Statement<'q, DB>
where
    DB: Database,
    Option<i64>: Encode<'q, DB> + Type<DB>,
{
    statement
        .bind(lease.map(|lease| lease.owner))
        .bind(lease.map(|lease| lease.generation))
        .bind(lease.map(|lease| lease.until))
}

impl HeadColumns {
    /// Binds parameters 1 to 18: the session, its head and the writer's lease. `text` escapes what the engine cannot
    /// store.
    pub(crate) fn bind<'q, DB>(
        &'q self,
        statement: Statement<'q, DB>,
        session: &'q SessionId,
        lease: Option<LeaseColumns>,
        text: fn(&'q str) -> Cow<'q, str>,
    ) -> Statement<'q, DB>
    where
        DB: Database,
        &'q str: Encode<'q, DB> + Type<DB>,
        Option<&'q str>: Encode<'q, DB> + Type<DB>,
        Cow<'q, str>: Encode<'q, DB> + Type<DB>,
        i64: Encode<'q, DB> + Type<DB>,
        Option<i64>: Encode<'q, DB> + Type<DB>,
    {
        let Self { seq, status, run, agent, title, messages, usage, cost, updated, checkpoint } = self;
        let [input, output, cache_read, cache_write, reasoning] = *usage;
        let statement = statement
            .bind(session.as_str())
            .bind(*seq)
            .bind(*status)
            .bind(run.as_deref())
            .bind(text(agent))
            .bind(text(title))
            .bind(*messages)
            .bind(input)
            .bind(output)
            .bind(cache_read)
            .bind(cache_write)
            .bind(reasoning)
            .bind(*cost)
            .bind(*updated)
            .bind(*checkpoint);
        bind_lease(lease, statement)
    }
}
