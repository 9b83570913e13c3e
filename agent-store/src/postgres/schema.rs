//! The versions of the tables, their migrations, and the check that a schema belongs to this store. The check never
//! writes: a refused schema stays as it was.

use entourage_core::{Error, ErrorKind};
use sqlx::{Connection, PgConnection, Row};

use super::{error::is_taken, views};
use crate::sql::Failure;

/// Each entry takes the tables from version `index` to version `index + 1`.
const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/postgres/0001_sessions_and_events.sql"),
    include_str!("../../migrations/postgres/0002_views.sql"),
    include_str!("../../migrations/postgres/0003_views_of_any_body.sql"),
    include_str!("../../migrations/postgres/0004_views_of_what_is_open.sql"),
    include_str!("../../migrations/postgres/0005_views_of_requests.sql"),
    include_str!("../../migrations/postgres/0006_views_of_what_waits.sql"),
];

/// The version that this library writes.
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;

/// First half of the key of the advisory lock that migrations of one schema take ("Entg").
const LOCK: i32 = i32::from_be_bytes(*b"Entg");

/// The version that a schema claims, and the names in use there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Label {
    /// Version of the store's tables; `None` without the table `entourage_schema`.
    version: Option<i64>,
    /// True if a table or any other relation has the name of one of the store's tables.
    used: bool,
}

impl Label {
    /// Reads the label of the current schema.
    async fn read(connection: &mut PgConnection) -> Result<Self, Failure> {
        let row = sqlx::query(
            "SELECT count(*) FILTER (WHERE relname = 'entourage_schema') > 0, \
             count(*) FILTER (WHERE relname <> 'entourage_schema') > 0 FROM pg_class \
             WHERE relnamespace = to_regnamespace(quote_ident(current_schema())) \
             AND relname IN ('entourage_schema', 'sessions', 'events')",
        )
        .fetch_one(&mut *connection)
        .await?;
        let (labelled, used): (bool, bool) = (row.try_get(0)?, row.try_get(1)?);
        if !labelled {
            return Ok(Self { version: None, used });
        }
        let version: Option<i64> =
            sqlx::query_scalar("SELECT max(version) FROM entourage_schema").fetch_one(connection).await?;
        Ok(Self { version: Some(version.unwrap_or_default()), used })
    }

    /// Checks that this library may use the schema.
    fn judge(self) -> Result<(), Error> {
        match self.version {
            None if self.used => Err(taken()),
            Some(version) if version > VERSION => Err(Error::new(
                ErrorKind::NewerVersion,
                format!(
                    "the database was written by a newer version of entourage-store (its tables have version {version}, \
                     this library knows {VERSION}); update to use it"
                ),
            )),
            Some(version) if version < 1 || !self.used => Err(Error::new(
                ErrorKind::Corrupt,
                format!("the tables claim to have version {version} and are not whole; restore a backup"),
            )),
            _ => Ok(()),
        }
    }

    /// The migrations that are still needed, oldest first, each with the version that it leads to.
    fn pending(self) -> impl Iterator<Item = (i64, &'static str)> {
        let done = self.version.unwrap_or_default();
        (1..).zip(MIGRATIONS.iter().copied()).filter(move |(version, _)| *version > done)
    }
}

fn taken() -> Error {
    Error::new(
        ErrorKind::Store,
        "this schema belongs to another program; choose another one for the sessions (`PostgresBuilder::schema`)",
    )
}

/// Brings the tables of `schema`, or of the connection's own, up to date.
///
/// Any number of processes may do so at once: one migrates, the others wait for it.
pub(super) async fn prepare(connection: &mut PgConnection, schema: Option<&str>) -> Result<(), Failure> {
    check_encoding(connection).await?;
    if exists(connection, schema).await? {
        let label = Label::read(connection).await?;
        label.judge()?;
        if label.pending().next().is_none() {
            return Ok(());
        }
    }
    migrate(connection, schema).await.map_err(
        |failure| {
            if is_taken(&failure) { taken().into() } else { failure }
        },
    )
}

/// Applies the pending migrations in one transaction. Reads the label again under the lock, because another process may
/// have migrated meanwhile.
async fn migrate(connection: &mut PgConnection, schema: Option<&str>) -> Result<(), Failure> {
    let mut transaction = connection.begin().await?;
    lock(&mut transaction, schema).await?;
    if !exists(&mut transaction, schema).await? {
        create(&mut transaction, schema).await?;
    }
    let label = Label::read(&mut transaction).await?;
    label.judge()?;
    // Migrating a large table may take longer than other statements are given.
    sqlx::query("SET LOCAL statement_timeout = 0").execute(&mut *transaction).await?;
    if label.version.is_some() && label.pending().next().is_some() {
        // Their texts are for the tables as they were.
        views::drop_all(&mut transaction).await?;
    }
    for (version, sql) in label.pending() {
        sqlx::raw_sql(sql).execute(&mut *transaction).await?;
        sqlx::query("INSERT INTO entourage_schema (version) VALUES ($1)")
            .bind(version)
            .execute(&mut *transaction)
            .await?;
    }
    Ok(transaction.commit().await?)
}

/// Waits for the lock of those who change the tables or views of `schema`, or of the connection's own. It is held until
/// the transaction ends.
pub(super) async fn lock(connection: &mut PgConnection, schema: Option<&str>) -> Result<(), Failure> {
    sqlx::query("SELECT pg_advisory_xact_lock($1, hashtext(coalesce($2, current_schema())))")
        .bind(LOCK)
        .bind(schema)
        .execute(connection)
        .await?;
    Ok(())
}

async fn exists(connection: &mut PgConnection, schema: Option<&str>) -> Result<bool, Failure> {
    let statement = sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = coalesce($1, current_schema()))",
    );
    Ok(statement.bind(schema).fetch_one(connection).await?)
}

async fn create(connection: &mut PgConnection, schema: Option<&str>) -> Result<(), Failure> {
    let Some(schema) = schema else {
        return Err(Error::new(
            ErrorKind::Store,
            "this user's search path names no schema that exists; choose one (`PostgresBuilder::schema`)",
        )
        .into());
    };
    // Names cannot be parameters here. The builder admits letters, digits and underscores only.
    let sql = sqlx::AssertSqlSafe(format!("CREATE SCHEMA \"{schema}\""));
    sqlx::raw_sql(sql).execute(connection).await?;
    Ok(())
}

/// Refuses a database whose encoding is not UTF-8: with any other, text is not read back byte for byte.
async fn check_encoding(connection: &mut PgConnection) -> Result<(), Failure> {
    let encoding: String =
        sqlx::query_scalar("SELECT current_setting('server_encoding')").fetch_one(connection).await?;
    if encoding == "UTF8" {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Store,
        "the database cannot hold every text; create one with the encoding UTF8 for the sessions",
    )
    .with("encoding", encoding)
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(version: Option<i64>, used: bool) -> Result<(), ErrorKind> {
        Label { version, used }.judge().map_err(|error| error.kind())
    }

    #[test]
    fn only_own_and_empty_schemas_are_used() {
        assert_eq!(judge(None, false), Ok(()));
        assert_eq!(judge(Some(1), true), Ok(()));
        assert_eq!(judge(Some(VERSION), true), Ok(()));
        assert_eq!(judge(Some(VERSION + 1), true), Err(ErrorKind::NewerVersion));
        assert_eq!(judge(Some(0), true), Err(ErrorKind::Corrupt));
        assert_eq!(judge(Some(VERSION), false), Err(ErrorKind::Corrupt));
        assert_eq!(judge(None, true), Err(ErrorKind::Store));
    }

    #[test]
    fn a_schema_gets_the_migrations_that_it_lacks() {
        let versions = |version| {
            let label = Label { version, used: version.is_some() };
            label.pending().map(|(version, _)| version).collect::<Vec<_>>()
        };
        assert_eq!(versions(None), (1..=VERSION).collect::<Vec<_>>());
        assert_eq!(versions(Some(1)), (2..=VERSION).collect::<Vec<_>>());
        assert!(versions(Some(VERSION)).is_empty() && versions(Some(VERSION + 1)).is_empty());
    }
}
