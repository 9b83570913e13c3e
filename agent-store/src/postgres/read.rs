//! Reads windows and lists, and deletes whole trees.

use entourage_core::{
    SessionId,
    session::{ReadRange, Row, SessionFilter, SessionInfo},
};
use sqlx::{Connection, PgConnection, Postgres, QueryBuilder, Row as _, postgres::PgRow};

use super::{rows, text::unescape};
use crate::sql::{self, Failure, SESSION_COLUMNS, clamped};

/// Returns the window, or `None` if there is no such session. One statement, so that both are seen at one moment: a
/// session that is created or deleted meanwhile is not seen in part.
pub(super) async fn window(
    db: &mut PgConnection,
    session: &SessionId,
    range: ReadRange,
) -> Result<Option<Vec<Row>>, Failure> {
    let found = sqlx::query(
        "SELECT event.* FROM (SELECT id FROM sessions WHERE id = $1) AS session LEFT JOIN LATERAL \
         (SELECT seq, at, kind, run, agent, body FROM events \
         WHERE session = $1 AND seq > $2 ORDER BY seq LIMIT $3) AS event ON true ORDER BY seq",
    )
    .bind(session.as_str())
    .bind(clamped(range.after))
    .bind(range.limit.map(clamped))
    .fetch_all(db)
    .await?;
    match found.first() {
        None => return Ok(None),
        // The session exists, without events in the window.
        Some(row) if row.try_get::<Option<i64>, _>(0)?.is_none() => return Ok(Some(Vec::new())),
        Some(_) => {}
    }
    let mut rows = Vec::with_capacity(found.len());
    for (expected, row) in (range.after.saturating_add(1)..=u64::MAX).zip(found) {
        let row = rows::event(&row)?;
        if row.seq() != expected {
            return Err(Failure::damaged(format!("event {} where event {expected} belongs", row.seq())));
        }
        rows.push(row);
    }
    Ok(Some(rows))
}

pub(super) async fn list(db: &mut PgConnection, filter: &SessionFilter) -> Result<Vec<SessionInfo>, Failure> {
    // No id holds NUL, and no parameter may.
    if filter.prefix.as_ref().is_some_and(|prefix| prefix.contains('\0')) {
        return Ok(Vec::new());
    }
    let found = statement(filter).build().fetch_all(db).await?;
    let read =
        |row: &PgRow| sql::session(row, unescape).map_err(|failure| failure.of_session(row.try_get(0).ok()));
    found.iter().map(read).collect()
}

fn statement(filter: &SessionFilter) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::new("");
    if let Some(root) = &filter.tree {
        query
            .push("WITH RECURSIVE tree (id) AS (SELECT id FROM sessions WHERE id = ")
            .push_bind(root.as_str());
        query.push(" UNION SELECT child.id FROM sessions AS child JOIN tree ON child.parent = tree.id) ");
    }
    query.push("SELECT ").push(SESSION_COLUMNS).push(" FROM sessions WHERE true");
    if filter.tree.is_some() {
        query.push(" AND id IN (SELECT id FROM tree)");
    }
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
        // Ids are ASCII, so what begins with the prefix lies below the prefix and any larger character: a range of
        // the key's index.
        query.push(" AND id >= ").push_bind(prefix.clone());
        query.push(" AND id < ").push_bind(format!("{prefix}\u{80}"));
    }
    query.push(" ORDER BY updated DESC, id LIMIT ").push_bind(filter.limit.map(clamped));
    query.push(" OFFSET ").push_bind(clamped(filter.offset));
    query
}

/// Deletes a tree and returns the number of its sessions.
pub(super) async fn remove(db: &mut PgConnection, session: &SessionId) -> Result<u64, Failure> {
    let mut transaction = db.begin().await?;
    // Nobody creates a session below a locked one: once a pass finds no more than the one before, the tree is complete
    // and stays so. Rows are locked in one order, so that two deletions cannot deadlock.
    let mut known = 0;
    loop {
        let locked = sqlx::query(
            "WITH RECURSIVE tree (id) AS (SELECT id FROM sessions WHERE id = $1 UNION \
             SELECT child.id FROM sessions AS child JOIN tree ON child.parent = tree.id) \
             SELECT 1 FROM sessions WHERE id IN (SELECT id FROM tree) ORDER BY id FOR UPDATE",
        )
        .bind(session.as_str())
        .execute(&mut *transaction)
        .await?;
        if locked.rows_affected() == known {
            break;
        }
        known = locked.rows_affected();
    }
    // A session that was created since is locked by nobody: deleted now, it would take children with it that are not
    // counted.
    if known == 0 {
        return Ok(0);
    }
    // All levels in one statement: left to the foreign key, each level would be one more call on the server's stack.
    let deleted = sqlx::query(
        "WITH RECURSIVE tree (id) AS (SELECT id FROM sessions WHERE id = $1 UNION \
         SELECT child.id FROM sessions AS child JOIN tree ON child.parent = tree.id) \
         DELETE FROM sessions WHERE id IN (SELECT id FROM tree)",
    )
    .bind(session.as_str())
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(deleted.rows_affected())
}
