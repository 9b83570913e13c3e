//! Installs views of others beside those of the store. The label of an installed view is a comment in its definition,
//! which SQLite keeps as it was written.

use sqlx::{AssertSqlSafe, Row, SqliteConnection};

use super::error::refuses_text;
use crate::sql::{
    Failure,
    views::{Found, Label, Step, ViewSet, quoted, unmade},
};

/// Returns everything that has a name.
async fn found(db: &mut SqliteConnection) -> Result<Vec<Found>, Failure> {
    let rows = sqlx::query("SELECT name, CASE type WHEN 'view' THEN sql END FROM sqlite_schema");
    let found = rows.fetch_all(db).await?.into_iter().map(|row| {
        let label = row.try_get::<Option<&str>, _>(1)?.and_then(Label::within);
        Ok(Found { name: row.try_get(0)?, label })
    });
    found.collect()
}

/// Returns the version that is installed, unless there is something to do.
pub(super) async fn kept(db: &mut SqliteConnection, set: &ViewSet) -> Result<Option<u32>, Failure> {
    let found = found(db).await?;
    Ok(match set.step(&found)? {
        Step::Keep(version) => Some(version),
        Step::Replace(_) => None,
    })
}

/// Makes the views of a set in place of those that are installed, unless these are newer. Returns the version that is
/// there, and whether anything changed.
pub(super) async fn install(db: &mut SqliteConnection, set: &ViewSet) -> Result<(u32, bool), Failure> {
    let found = found(db).await?;
    let installed = match set.step(&found)? {
        Step::Keep(version) => return Ok((version, false)),
        Step::Replace(installed) => installed,
    };
    for name in installed {
        execute(db, format!("DROP VIEW {}", quoted(name))).await?;
    }
    for (name, text) in set.views() {
        let made = [
            format!("CREATE VIEW {} AS /* {} */\n{text}", quoted(name), set.label()),
            // Only a use of the view looks at what its text names.
            format!("SELECT * FROM {} LIMIT 0", quoted(name)),
        ];
        for sql in made {
            execute(db, sql).await.map_err(|error| {
                let is_its_text = refuses_text(&error);
                unmade(name, error, is_its_text)
            })?;
        }
    }
    Ok((set.version(), true))
}

/// Drops the installed views of all sets.
pub(super) async fn drop_all(db: &mut SqliteConnection) -> Result<(), Failure> {
    for found in found(db).await?.iter().filter(|found| found.label.is_some()) {
        execute(db, format!("DROP VIEW {}", quoted(&found.name))).await?;
    }
    Ok(())
}

/// Executes a statement that this file makes of names in quotes and of texts that the program has at compile time.
async fn execute(db: &mut SqliteConnection, sql: String) -> Result<(), sqlx::Error> {
    sqlx::query(AssertSqlSafe(sql)).execute(db).await.map(drop)
}
