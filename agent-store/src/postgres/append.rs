//! Writes in one statement, which stores a batch entirely or not at all.
//!
//! A statement is a transaction of its own, so a batch costs one round trip. Only if it stored nothing, another one
//! asks for the reason.

use entourage_core::{SessionId, session::SessionRecord};
use sqlx::{PgConnection, Row};

use super::{error::lacks_parent, rows::Encoded, text::escape};
use crate::sql::{
    Failure, LeaseColumns, unsigned,
    write::{Appended, Leased, TAKE_LEASE, bind_lease, insert_session, update_head},
};

/// Inserts the events of parameters 19 to 25 for the session that the statement before returned as `written`.
macro_rules! events {
    () => {
        ", stored AS (INSERT INTO events (session, seq, at, kind, run, agent, writer, body) \
         SELECT written.id, $19 + event.n, event.at, event.kind, event.run, event.agent, $20, event.body \
         FROM written, unnest($21, $22, $23, $24, $25) WITH ORDINALITY AS event (at, kind, run, agent, body, n)) \
         SELECT id FROM written"
    };
}

/// Replaces the head and inserts the events. A row lock makes the second of two writers wait; it then compares with the
/// row that the first one left.
const APPEND: &str = concat!("WITH written AS (", update_head!("$26"), " RETURNING id)", events!());

const CREATE: &str = concat!(
    "WITH written AS (",
    insert_session!(),
    "SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $26, $27, $28 \
     WHERE $26 IS NULL OR EXISTS (SELECT 1 FROM sessions WHERE id = $26) \
     ON CONFLICT (id) DO NOTHING RETURNING id)",
    events!()
);

/// Stores a batch. `None` if nothing was stored and the reason is gone since, so that the caller may retry.
pub(super) async fn append(
    db: &mut PgConnection,
    session: &SessionId,
    batch: &Encoded,
) -> Result<Option<Appended>, Failure> {
    let stored = match &batch.create {
        None => {
            let statement = batch.bind_head(sqlx::query(APPEND), session);
            batch.bind_events(statement).bind(batch.created).fetch_optional(&mut *db).await?
        }
        Some(record) => match create(db, record, batch).await {
            // The parent was deleted while its child was written.
            Err(failure) if lacks_parent(&failure) => return Ok(Some(Appended::NoParent)),
            written => written?,
        },
    };
    match stored {
        Some(_) => Ok(Some(Appended::Stored(unsigned("seq", batch.seq())?))),
        None => explain(db, session, batch).await,
    }
}

async fn create(
    db: &mut PgConnection,
    record: &SessionRecord,
    batch: &Encoded,
) -> Result<Option<sqlx::postgres::PgRow>, Failure> {
    let statement = batch.bind_head(sqlx::query(CREATE), &record.id);
    let statement = batch
        .bind_events(statement)
        .bind(record.parent.as_ref().map(SessionId::as_str))
        .bind(escape(&record.role))
        .bind(record.created.as_micros());
    Ok(statement.fetch_optional(db).await?)
}

/// Returns the reason that nothing was stored; `None` if it is gone since.
async fn explain(
    db: &mut PgConnection,
    session: &SessionId,
    batch: &Encoded,
) -> Result<Option<Appended>, Failure> {
    let parent = batch.create.as_ref().and_then(|record| record.parent.as_ref());
    let found = sqlx::query(
        "SELECT seq, lease_owner, lease_generation, (SELECT count(*) FROM events \
         WHERE session = $1 AND events.seq > $2 AND events.seq <= $3 AND writer = $4), \
         $5 IS NULL OR EXISTS (SELECT 1 FROM sessions WHERE id = $5), created \
         FROM (SELECT 1) AS one LEFT JOIN sessions ON id = $1",
    )
    .bind(session.as_str())
    .bind(batch.expected)
    .bind(batch.seq())
    .bind(batch.writer)
    .bind(parent.map(SessionId::as_str))
    .fetch_one(db)
    .await?;
    let (seq, held): (Option<i64>, _) = (found.try_get(0)?, (found.try_get(1)?, found.try_get(2)?));
    let (known, parented): (i64, bool) = (found.try_get(3)?, found.try_get(4)?);
    let created: Option<i64> = found.try_get(5)?;
    Ok(match (seq, &batch.create) {
        (Some(_), None) if is_another(batch.created, created) => Some(Appended::MadeAnew),
        (Some(seq), _) if seq != batch.expected => {
            let seq = unsigned("seq", seq)?;
            Some(if known == batch.len() { Appended::Before(seq) } else { Appended::TooLate(seq) })
        }
        (Some(_), _) => fence(batch.lease, held)?.map(Appended::Fenced),
        (None, None) => Some(Appended::NoSession),
        (None, Some(_)) if parented => None,
        (None, Some(_)) => Some(Appended::NoParent),
    })
}

/// Stores a lease. `None` if it was not stored and the reason is gone since, so that the caller may retry.
pub(super) async fn take_lease(
    db: &mut PgConnection,
    session: &SessionId,
    lease: LeaseColumns,
) -> Result<Option<Leased>, Failure> {
    let statement = bind_lease(Some(lease), sqlx::query(TAKE_LEASE).bind(session.as_str()));
    let statement = statement.bind(lease.created);
    if statement.execute(&mut *db).await?.rows_affected() == 1 {
        return Ok(Some(Leased::Taken));
    }
    let found = sqlx::query_as("SELECT lease_owner, lease_generation, created FROM sessions WHERE id = $1")
        .bind(session.as_str())
        .fetch_optional(db)
        .await?;
    let Some((owner, generation, created)) = found else { return Ok(Some(Leased::NoSession)) };
    if is_another(lease.created, created) {
        return Ok(Some(Leased::MadeAnew));
    }
    Ok(fence(Some(lease), (owner, generation))?.map(Leased::Fenced))
}

/// Returns true if the session was not created at the `known` time.
fn is_another(known: Option<i64>, created: Option<i64>) -> bool {
    known.is_some() && known != created
}

/// Returns the generation of the held lease, given by owner and generation, if `lease` does not replace it.
fn fence(lease: Option<LeaseColumns>, held: (Option<i64>, Option<i64>)) -> Result<Option<u64>, Failure> {
    match (lease, held) {
        (Some(lease), (owner, Some(generation)))
            if (generation, owner) != (lease.generation, Some(lease.owner))
                && generation >= lease.generation =>
        {
            Ok(Some(unsigned("lease_generation", generation)?))
        }
        _ => Ok(None),
    }
}
