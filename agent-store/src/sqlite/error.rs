//! Maps failures of the database to the core's error. Nothing outside this file reads a result code.

use std::path::Path;

use entourage_core::{Error, ErrorKind, RetryStatus, SessionId};

use crate::{os, sql::Failure};

/// Explains a failure by SQLite's result codes.
pub(super) trait Explain: Sized {
    /// Returns the error that the caller sees. `operation` is the one of the trait.
    fn explain(self, operation: &'static str, path: &Path) -> Error;

    /// Returns the same error with the session's id.
    fn explain_session(self, operation: &'static str, path: &Path, session: &SessionId) -> Error {
        self.explain(operation, path).with("session", session.as_str())
    }

    /// Returns true if another connection is in the way, so that a retry can help.
    fn is_busy(&self) -> bool;

    /// Returns true if the database must be recovered by a connection that may write.
    fn needs_writer(&self) -> bool;
}

impl Explain for Failure {
    fn explain(self, operation: &'static str, path: &Path) -> Error {
        let error = match &self {
            Self::Driver(error) if result_code(error) == Some(14) => no_file_left(path),
            _ => None,
        };
        let error = error.unwrap_or_else(|| self.into_error(from_driver));
        error.during(operation).with("path", path.display().to_string())
    }

    fn is_busy(&self) -> bool {
        matches!(self, Self::Driver(error) if matches!(result_code(error), Some(5 | 6)))
    }

    fn needs_writer(&self) -> bool {
        matches!(self, Self::Driver(error) if result_code(error) == Some(8))
    }
}

/// Returns the primary result code, such as 5 for `SQLITE_BUSY`.
fn result_code(error: &sqlx::Error) -> Option<i32> {
    let extended: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(extended & 0xff)
}

/// Returns true if SQLite does not take a statement: it cannot be read, or names what is not there.
pub(super) fn refuses_text(error: &sqlx::Error) -> bool {
    result_code(error) == Some(1)
}

/// Returns the error for too many open files, which SQLite reports like a missing file. The file itself is not tried:
/// closing any handle of it drops the locks that this process has on it.
fn no_file_left(path: &Path) -> Option<Error> {
    let error = std::fs::read_dir(path.parent()?).err().filter(os::is_too_many_files)?;
    let (text, retry) = os::explain(&error);
    Some(Error::new(ErrorKind::Store, text).with_retry(retry).caused_by(error))
}

fn from_driver(error: sqlx::Error) -> Error {
    let (kind, retry, text) = match &error {
        sqlx::Error::Database(_) => match result_code(&error) {
            Some(5 | 6) => (
                ErrorKind::Store,
                RetryStatus::Temporary,
                "the database is locked by another connection; try again",
            ),
            Some(8) => (
                ErrorKind::Store,
                RetryStatus::Permanent,
                "the database is write-protected; give this process leave to write",
            ),
            Some(10) => (
                ErrorKind::Store,
                RetryStatus::Permanent,
                "the database file cannot be read or written; check the disk, its limits, and that the file system is mounted",
            ),
            Some(11) => (
                ErrorKind::Corrupt,
                RetryStatus::Permanent,
                "the database is damaged; restore it from a backup",
            ),
            Some(13) => {
                (ErrorKind::Store, RetryStatus::Permanent, "the disk is full; free some space and try again")
            }
            Some(14) => (
                ErrorKind::Store,
                RetryStatus::Permanent,
                "the database cannot be opened; check that this process may read and write the file and its directory",
            ),
            Some(18) => (
                ErrorKind::TooLarge,
                RetryStatus::Permanent,
                "a value is larger than a database row may be (1 GB)",
            ),
            Some(19) => (
                ErrorKind::Corrupt,
                RetryStatus::Permanent,
                "the tables contradict each other; restore the database from a backup",
            ),
            Some(26) => (
                ErrorKind::Corrupt,
                RetryStatus::Permanent,
                "this is no SQLite database; move the file away or choose another path",
            ),
            _ => {
                let text = format!(
                    "the database refused a statement; check that nobody changed its tables: {error}"
                );
                return Error::new(ErrorKind::Store, text).caused_by(error);
            }
        },
        sqlx::Error::PoolTimedOut => {
            (ErrorKind::Store, RetryStatus::Temporary, "all connections to the database are busy; try again")
        }
        sqlx::Error::PoolClosed => {
            (ErrorKind::Store, RetryStatus::Permanent, "the store was closed; open it again")
        }
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::ColumnNotFound(_) => (
            ErrorKind::Corrupt,
            RetryStatus::Permanent,
            "a column does not hold what this store writes; restore the database from a backup",
        ),
        sqlx::Error::Io(cause) => {
            let (text, retry) = os::explain(cause);
            return Error::new(ErrorKind::Store, text).with_retry(retry).caused_by(error);
        }
        _ => {
            let text = format!("the database cannot be used: {error}");
            return Error::new(ErrorKind::Store, text).caused_by(error);
        }
    };
    Error::new(kind, text).with_retry(retry).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_pool_is_temporary_and_a_closed_one_is_not() {
        let path = Path::new("team.db");
        let busy = Failure::from(sqlx::Error::PoolTimedOut).explain("store.append", path);
        assert_eq!((busy.kind(), busy.retry()), (ErrorKind::Store, RetryStatus::Temporary));
        let closed = Failure::from(sqlx::Error::PoolClosed).explain("store.append", path);
        assert_eq!((closed.kind(), closed.retry()), (ErrorKind::Store, RetryStatus::Permanent));
        assert!(closed.to_string().contains("path: team.db"), "{closed}");
    }

    #[test]
    fn a_damaged_value_names_itself() {
        let error = Failure::damaged("event -1").explain("store.read", Path::new("team.db"));
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("event -1"), "{error}");
    }
}
