//! The versions of the tables, their migrations, and the check that a file belongs to this store.
//!
//! A database carries the application id and the version of its tables. The check never writes: a refused file stays as
//! it was.

use entourage_core::{Error, ErrorKind};
use sqlx::{Row, SqliteConnection};

use crate::sql::Failure;

/// Marks a database as one of this store ("Entg").
const APPLICATION_ID: i64 = 1_164_866_663;

/// Each entry takes the tables from version `index` to version `index + 1`.
const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/sqlite/0001_sessions_and_events.sql"),
    include_str!("../../migrations/sqlite/0002_leases_and_views.sql"),
    include_str!("../../migrations/sqlite/0003_views_of_any_body.sql"),
    include_str!("../../migrations/sqlite/0004_views_of_what_is_open.sql"),
    include_str!("../../migrations/sqlite/0005_views_of_requests.sql"),
    include_str!("../../migrations/sqlite/0006_views_of_what_waits.sql"),
];

/// The version that this library writes.
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;

/// The application id and the table version of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) application_id: i64,
    pub(super) version: i64,
    /// True if it has tables, indexes or anything else. `of_header` takes that for granted if the id or the version is
    /// set.
    pub(super) used: bool,
}

impl Label {
    /// Reads the label through an open connection.
    pub(super) async fn read(connection: &mut SqliteConnection) -> Result<Self, Failure> {
        let row = sqlx::query(
            "SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version), \
             EXISTS (SELECT 1 FROM sqlite_schema)",
        )
        .fetch_one(connection)
        .await?;
        Ok(Self {
            application_id: row.try_get(0)?,
            version: row.try_get(1)?,
            used: row.try_get::<i64, _>(2)? != 0,
        })
    }

    /// Reads the label of a database whose schema may be unreadable.
    pub(super) async fn of_header(connection: &mut SqliteConnection) -> Result<Self, Failure> {
        let application_id = sqlx::query_scalar("PRAGMA application_id").fetch_one(&mut *connection).await?;
        let version = sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut *connection).await?;
        let used = match (application_id, version) {
            (0, 0) => {
                let used = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM sqlite_schema)");
                used.fetch_one(connection).await?
            }
            _ => true,
        };
        Ok(Self { application_id, version, used })
    }

    /// Checks that this library may use the database.
    pub(super) fn judge(self) -> Result<(), Error> {
        if self.application_id != APPLICATION_ID {
            if self.application_id == 0 && self.version == 0 && !self.used {
                return Ok(());
            }
            return Err(Error::new(
                ErrorKind::Store,
                "this SQLite database belongs to another program; choose another path for the sessions",
            ));
        }
        if self.version > VERSION {
            return Err(Error::new(
                ErrorKind::NewerVersion,
                format!(
                    "the database was written by a newer version of entourage-store (its tables have version {}, this \
                     library knows {VERSION}); update to use it",
                    self.version
                ),
            ));
        }
        if self.version < 1 {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!(
                    "the tables claim to have version {}, which never existed; restore a backup",
                    self.version
                ),
            ));
        }
        Ok(())
    }
}

/// The migrations that a database of this label still needs, oldest first.
pub(super) fn pending(label: Label) -> &'static [&'static str] {
    usize::try_from(label.version).ok().and_then(|done| MIGRATIONS.get(done..)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(application_id: i64, version: i64, used: bool) -> Result<(), ErrorKind> {
        Label { application_id, version, used }.judge().map_err(|error| error.kind())
    }

    #[test]
    fn only_own_and_empty_databases_are_used() {
        assert_eq!(judge(0, 0, false), Ok(()));
        assert_eq!(judge(APPLICATION_ID, VERSION, true), Ok(()));
        assert_eq!(judge(APPLICATION_ID, VERSION + 1, true), Err(ErrorKind::NewerVersion));
        assert_eq!(judge(APPLICATION_ID, 0, true), Err(ErrorKind::Corrupt));
        assert_eq!(judge(APPLICATION_ID, -1, true), Err(ErrorKind::Corrupt));
        assert_eq!(judge(0, 0, true), Err(ErrorKind::Store));
        assert_eq!(judge(0, 7, false), Err(ErrorKind::Store));
        assert_eq!(judge(1, 0, false), Err(ErrorKind::Store));
    }

    #[test]
    fn each_migration_names_its_version_and_the_application() {
        for (index, sql) in MIGRATIONS.iter().enumerate() {
            assert!(
                sql.contains(&format!("PRAGMA user_version = {};", index + 1)),
                "migration {}",
                index + 1
            );
        }
        assert!(MIGRATIONS[0].contains(&format!("PRAGMA application_id = {APPLICATION_ID};")));
        assert_eq!(APPLICATION_ID, i64::from(i32::from_be_bytes(*b"Entg")));
    }

    #[test]
    fn a_database_gets_the_migrations_that_it_lacks() {
        let label = |version| Label { application_id: APPLICATION_ID, version, used: true };
        assert_eq!(pending(label(0)).len(), MIGRATIONS.len());
        assert!(pending(label(VERSION)).is_empty());
        assert!(pending(label(VERSION + 1)).is_empty());
    }
}
