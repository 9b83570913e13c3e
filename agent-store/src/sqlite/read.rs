//! Reads windows of events and lists of sessions. A window without gaps is the invariant: a gap is reported as damage.

use entourage_core::{
    SessionId,
    session::{ReadRange, Row, SessionFilter, SessionInfo},
};
use sqlx::{QueryBuilder, Row as _, Sqlite, SqliteConnection, sqlite::SqliteRow};

use super::rows;
use crate::sql::{self, Failure, SESSION_COLUMNS, clamped, unsigned};

/// Returns the window, or `None` if there is no such session.
pub(super) async fn window(
    db: &mut SqliteConnection,
    session: &SessionId,
    range: ReadRange,
) -> Result<Option<Vec<Row>>, Failure> {
    let found = loop {
        let found = sqlx::query(
            "SELECT seq, at, kind, run, agent, body FROM events WHERE session = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
        )
        .bind(session.as_str())
        .bind(clamped(range.after))
        .bind(range.limit.map_or(-1, clamped))
        .fetch_all(&mut *db)
        .await?;
        if !found.is_empty() {
            break found;
        }
        match newest(db, session).await? {
            None => return Ok(None),
            // An append came between the two queries, so this empty window is stale.
            Some(newest) if newest > range.after && range.limit != Some(0) => {}
            Some(_) => break found,
        }
    };
    let rows = found.iter().map(rows::event).collect::<Result<Vec<_>, _>>()?;
    for (expected, row) in (range.after.saturating_add(1)..=u64::MAX).zip(&rows) {
        if row.seq() != expected {
            return Err(Failure::damaged(format!("event {} where event {expected} belongs", row.seq())));
        }
    }
    Ok(Some(rows))
}

pub(super) async fn list(
    db: &mut SqliteConnection,
    filter: &SessionFilter,
) -> Result<Vec<SessionInfo>, Failure> {
    let found = statement(filter).build().fetch_all(db).await?;
    let of_row = |row: &SqliteRow, failure: Failure| failure.of_session(row.try_get("id").ok());
    found
        .iter()
        .map(|row| sql::session(row, |text| Ok(text.into())).map_err(|failure| of_row(row, failure)))
        .collect()
}

fn statement(filter: &SessionFilter) -> QueryBuilder<Sqlite> {
    let mut query = QueryBuilder::<Sqlite>::new("SELECT ");
    query.push(SESSION_COLUMNS).push(" FROM sessions WHERE true");
    if let Some(id) = &filter.id {
        query.push(" AND id = ").push_bind(id.as_str());
    }
    match &filter.parent {
        Some(Some(parent)) => query.push(" AND parent = ").push_bind(parent.as_str()),
        Some(None) => query.push(" AND parent IS NULL"),
        None => &mut query,
    };
    if let Some(status) = filter.status {
        query.push(" AND status = ").push_bind(status.as_str());
    }
    if let Some(prefix) = &filter.prefix {
        // Both comparisons are bytewise, and no id holds the greatest character.
        query.push(" AND id >= ").push_bind(&**prefix);
        query.push(" AND id < ").push_bind(format!("{prefix}{}", char::MAX));
    }
    if let Some(root) = &filter.tree {
        query.push(" AND id IN (WITH RECURSIVE tree (id) AS (SELECT id FROM sessions WHERE id = ");
        query.push_bind(root.as_str());
        query.push(" UNION SELECT child.id FROM sessions AS child JOIN tree ON child.parent = tree.id) ");
        query.push("SELECT id FROM tree)");
    }
    query.push(" ORDER BY updated DESC, id LIMIT ").push_bind(filter.limit.map_or(-1, clamped));
    query.push(" OFFSET ").push_bind(clamped(filter.offset));
    query
}

/// Returns the number of a session's newest event, or `None` if there is no such session.
async fn newest(db: &mut SqliteConnection, session: &SessionId) -> Result<Option<u64>, Failure> {
    let seq: Option<i64> = sqlx::query_scalar("SELECT seq FROM sessions WHERE id = ?1")
        .bind(session.as_str())
        .fetch_optional(db)
        .await?;
    seq.map(|seq| unsigned("seq", seq)).transpose()
}
