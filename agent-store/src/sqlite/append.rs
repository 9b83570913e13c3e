//! Writes within a transaction, which stores a batch entirely or not at all.

use entourage_core::{SessionId, session::SessionRecord};
use sqlx::SqliteConnection;

use super::rows::Encoded;
use crate::sql::{
    Failure, LeaseColumns, clamped, unsigned,
    write::{Appended, Leased, TAKE_LEASE, bind_lease, insert_session, update_head},
};

pub(super) async fn append(
    db: &mut SqliteConnection,
    session: &SessionId,
    batch: Encoded,
) -> Result<Appended, Failure> {
    if batch.create.is_none() && replace_head(db, session, &batch).await? {
        return insert_events(db, session, batch).await;
    }
    match (at(db, session).await?, &batch.create) {
        (Some((_, _, created)), None) if batch.created.is_some_and(|known| known != created) => {
            Ok(Appended::MadeAnew)
        }
        (Some((seq, held, _)), None) if seq == batch.expected => {
            Ok(Appended::Fenced(unsigned("lease_generation", held.unwrap_or_default())?))
        }
        (Some((seq, ..)), _) => {
            let seq = unsigned("seq", seq)?;
            Ok(if stored_before(db, session, &batch).await? {
                Appended::Before(seq)
            } else {
                Appended::TooLate(seq)
            })
        }
        (None, None) => Ok(Appended::NoSession),
        (None, Some(record)) => {
            if let Some(parent) = &record.parent
                && at(db, parent).await?.is_none()
            {
                return Ok(Appended::NoParent);
            }
            insert_session(db, record, &batch).await?;
            insert_events(db, session, batch).await
        }
    }
}

pub(super) async fn take_lease(
    db: &mut SqliteConnection,
    session: &SessionId,
    lease: LeaseColumns,
) -> Result<Leased, Failure> {
    let statement = bind_lease(Some(lease), sqlx::query(TAKE_LEASE).bind(session.as_str()));
    let statement = statement.bind(lease.created);
    if statement.execute(&mut *db).await?.rows_affected() == 1 {
        return Ok(Leased::Taken);
    }
    match at(db, session).await? {
        Some((_, _, created)) if lease.created.is_some_and(|known| known != created) => Ok(Leased::MadeAnew),
        Some((_, held, _)) => Ok(Leased::Fenced(unsigned("lease_generation", held.unwrap_or_default())?)),
        None => Ok(Leased::NoSession),
    }
}

/// Deletes a tree and returns the number of its sessions.
pub(super) async fn remove(db: &mut SqliteConnection, session: &SessionId) -> Result<u64, Failure> {
    let tree: Vec<String> = sqlx::query_scalar(
        "WITH RECURSIVE tree (id) AS (SELECT id FROM sessions WHERE id = ?1 UNION \
         SELECT child.id FROM sessions AS child JOIN tree ON child.parent = tree.id) SELECT id FROM tree",
    )
    .bind(session.as_str())
    .fetch_all(&mut *db)
    .await?;
    // The deepest first: SQLite bounds how deep one delete may cascade.
    for id in tree.iter().rev() {
        sqlx::query("DELETE FROM sessions WHERE id = ?1").bind(id.as_str()).execute(&mut *db).await?;
    }
    Ok(clamped(tree.len()).unsigned_abs())
}

/// Returns the number of the newest event, the generation of the lease, and the creation time of the session.
async fn at(
    db: &mut SqliteConnection,
    session: &SessionId,
) -> Result<Option<(i64, Option<i64>, i64)>, Failure> {
    let statement = sqlx::query_as("SELECT seq, lease_generation, created FROM sessions WHERE id = ?1");
    Ok(statement.bind(session.as_str()).fetch_optional(db).await?)
}

/// Replaces the head. Returns false, and changes nothing, if the session is not the one that the batch is for, is not
/// at the expected event, or has a lease that fences the batch off.
async fn replace_head(
    db: &mut SqliteConnection,
    session: &SessionId,
    batch: &Encoded,
) -> Result<bool, Failure> {
    let statement = batch.bind_head(sqlx::query(update_head!("$20")), session);
    Ok(statement.bind(batch.expected).bind(batch.created).execute(db).await?.rows_affected() == 1)
}

async fn insert_session(
    db: &mut SqliteConnection,
    record: &SessionRecord,
    batch: &Encoded,
) -> Result<(), Failure> {
    let statement = sqlx::query(concat!(
        insert_session!(),
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)"
    ));
    batch
        .bind_head(statement, &record.id)
        .bind(record.parent.as_ref().map(SessionId::as_str))
        .bind(&*record.role)
        .bind(record.created.as_micros())
        .execute(db)
        .await?;
    Ok(())
}

async fn insert_events(
    db: &mut SqliteConnection,
    session: &SessionId,
    batch: Encoded,
) -> Result<Appended, Failure> {
    let seq = unsigned("seq", batch.seq())?;
    for event in batch.events {
        let statement = sqlx::query(
            "INSERT INTO events (session, writer, seq, at, kind, run, agent, body) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        );
        event.bind(statement.bind(session.as_str()).bind(batch.writer)).execute(&mut *db).await?;
    }
    Ok(Appended::Stored(seq))
}

/// Returns true if all events of the batch are stored and are this writer's.
async fn stored_before(
    db: &mut SqliteConnection,
    session: &SessionId,
    batch: &Encoded,
) -> Result<bool, Failure> {
    let known: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM events WHERE session = ?1 AND seq > ?2 AND seq <= ?3 AND writer = ?4",
    )
    .bind(session.as_str())
    .bind(batch.expected)
    .bind(batch.seq())
    .bind(batch.writer)
    .fetch_one(db)
    .await?;
    Ok(known == clamped(batch.events.len()))
}
