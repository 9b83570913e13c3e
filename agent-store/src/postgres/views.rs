//! Installs views of others beside those of the store. The label of an installed view is its comment.

use entourage_core::{Error, ErrorKind};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use super::{
    error::{is_needed, refuses_text},
    schema::lock,
};
use crate::sql::{
    Failure,
    views::{Found, Label, Step, ViewSet, quoted, unmade},
};

/// Returns everything in the current schema that has the name of a relation.
async fn found(db: &mut PgConnection) -> Result<Vec<Found>, Failure> {
    let rows = sqlx::query(
        "SELECT relname::text, CASE relkind WHEN 'v' THEN obj_description(oid, 'pg_class') END FROM pg_class \
         WHERE relnamespace = to_regnamespace(quote_ident(current_schema()))",
    );
    let found = rows.fetch_all(db).await?.into_iter().map(|row| {
        let label = row.try_get::<Option<&str>, _>(1)?.and_then(Label::within);
        Ok(Found { name: row.try_get(0)?, label })
    });
    found.collect()
}

/// Makes the views of a set in place of those that are installed, unless these are newer. Returns the version that is
/// there. Of several processes one does it, the others wait for it.
pub(super) async fn install(db: &mut PgConnection, set: &ViewSet) -> Result<u32, Failure> {
    if let Step::Keep(version) = set.step(&found(db).await?)? {
        return Ok(version);
    }
    let mut transaction = db.begin().await?;
    lock(&mut transaction, None).await?;
    let found = found(&mut transaction).await?;
    let installed = match set.step(&found)? {
        Step::Keep(version) => return Ok(version),
        Step::Replace(installed) => installed,
    };
    drop_views(&mut transaction, &installed).await?;
    for (name, text) in set.views() {
        let made = [
            format!("CREATE VIEW {} AS\n{text}", quoted(name)),
            format!("COMMENT ON VIEW {} IS '{}'", quoted(name), set.label()),
        ];
        for sql in made {
            execute(&mut transaction, sql).await.map_err(|error| {
                let is_its_text = refuses_text(&error);
                unmade(name, error, is_its_text)
            })?;
        }
    }
    transaction.commit().await?;
    Ok(set.version())
}

/// Drops the installed views of all sets.
pub(super) async fn drop_all(db: &mut PgConnection) -> Result<(), Failure> {
    let found = found(db).await?;
    let installed: Vec<_> =
        found.iter().filter(|found| found.label.is_some()).map(|found| found.name.as_str()).collect();
    drop_views(db, &installed).await
}

/// Drops views by one statement, since they read each other.
async fn drop_views(db: &mut PgConnection, names: &[&str]) -> Result<(), Failure> {
    if names.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = names.iter().map(|name| quoted(name)).collect();
    execute(db, format!("DROP VIEW {}", names.join(", "))).await.map_err(|error| {
        if !is_needed(&error) {
            return error.into();
        }
        let text = "a view of yours reads installed views that are to be replaced; drop it, and create it again after \
                    that";
        Error::new(ErrorKind::Conflict, text).caused_by(error).into()
    })
}

/// Executes a statement that this file makes of names in quotes and of texts that the program has at compile time.
async fn execute(db: &mut PgConnection, sql: String) -> Result<(), sqlx::Error> {
    sqlx::query(AssertSqlSafe(sql)).execute(db).await.map(drop)
}
