//! Maps failures of the database to the core's error. Nothing outside this file reads an SQLSTATE.

use std::io;

use entourage_core::{Error, ErrorKind, RetryStatus};

use sqlx::postgres::{PgDatabaseError, PgSeverity};

use crate::sql::Failure;

/// The retry that a failure allows, without a decision of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// The statement was undone because of concurrent ones; retry on the same connection.
    Again,
    /// The connection is lost, and perhaps the answer with it; retry on another one.
    Reconnect,
    /// No retry: the caller gets the error.
    Tell,
}

impl Remedy {
    pub(super) fn of(failure: &Failure) -> Self {
        let Failure::Driver(error) = failure else { return Self::Tell };
        match error {
            sqlx::Error::Io(error) if error.kind() == io::ErrorKind::TimedOut => Self::Tell,
            // A truncated answer can look like another protocol.
            sqlx::Error::Io(_) | sqlx::Error::Protocol(_) => Self::Reconnect,
            sqlx::Error::Database(_) => match state(error).as_deref() {
                Some("40001" | "40P01") => Self::Again,
                Some("57P01" | "57P02" | "57P03" | "57P05") => Self::Reconnect,
                Some(code) if code.starts_with("08") => Self::Reconnect,
                _ => Self::Tell,
            },
            _ => Self::Tell,
        }
    }
}

/// Returns true if the connection must not be reused. After a driver's error it is reusable only if the server reported
/// the error in full and kept the session alive.
pub(super) fn breaks_connection(failure: &Failure) -> bool {
    let Failure::Driver(error) = failure else { return false };
    match error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>()) {
        Some(error) => {
            Remedy::of(failure) == Remedy::Reconnect
                || matches!(error.severity(), PgSeverity::Fatal | PgSeverity::Panic)
        }
        None => true,
    }
}

/// The failure of a server that did not answer in time, not even that its own timeout expired.
pub(super) fn no_answer() -> Failure {
    Failure::Driver(sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")))
}

/// Returns true if a session was created below a parent that does not exist.
pub(super) fn lacks_parent(failure: &Failure) -> bool {
    let Failure::Driver(sqlx::Error::Database(error)) = failure else { return false };
    error.constraint() == Some("sessions_parent_exists")
}

/// Returns true if a migration met tables, views or indexes of another program.
pub(super) fn is_taken(failure: &Failure) -> bool {
    let Failure::Driver(error) = failure else { return false };
    // Duplicate table (also views and indexes), object, function, or a type of a table's name.
    matches!(state(error).as_deref(), Some("42P07" | "42710" | "42723" | "42809"))
}

/// Returns true if the server does not take the text of a statement: it cannot be read, or names what is not there.
pub(super) fn refuses_text(error: &sqlx::Error) -> bool {
    let state = state(error).unwrap_or_default();
    state.starts_with("42") && state != "42501"
}

/// Returns true if something else depends on what was to be dropped.
pub(super) fn is_needed(error: &sqlx::Error) -> bool {
    state(error).as_deref() == Some("2BP01")
}

fn state(error: &sqlx::Error) -> Option<String> {
    error.as_database_error()?.code().map(std::borrow::Cow::into_owned)
}

/// A driver's error as the caller sees it. The cause is kept: neither servers nor the driver repeat a password.
pub(super) fn from_driver(error: sqlx::Error) -> Error {
    let (kind, retry, text) = match &error {
        sqlx::Error::Database(_) => from_state(state(&error).as_deref().unwrap_or_default()),
        sqlx::Error::Io(cause) if cause.kind() == io::ErrorKind::TimedOut => (
            ErrorKind::Timeout,
            RetryStatus::Temporary,
            "the database did not answer in time; try again, a batch that was stored is not stored twice",
        ),
        sqlx::Error::Io(_) => LOST,
        sqlx::Error::PoolTimedOut => (
            ErrorKind::Store,
            RetryStatus::Temporary,
            "no connection to the database became free or could be made in time; check that the server is up, try again, \
             or allow more connections",
        ),
        sqlx::Error::PoolClosed => {
            (ErrorKind::Store, RetryStatus::Permanent, "the store was closed; connect again")
        }
        sqlx::Error::Tls(_) => (
            ErrorKind::Transport,
            RetryStatus::Permanent,
            "no encrypted connection to the database could be made; see the cause, and check `sslmode` and the \
             certificates in the URL",
        ),
        sqlx::Error::Protocol(_) => (
            ErrorKind::Protocol,
            RetryStatus::Temporary,
            "the server broke off or does not speak PostgreSQL's protocol; try again, and check host and port",
        ),
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::ColumnNotFound(_) => (
            ErrorKind::Corrupt,
            RetryStatus::Permanent,
            "a column does not hold what this store writes; restore the database from a backup",
        ),
        _ => (ErrorKind::Store, RetryStatus::Permanent, "the database cannot be used; see the cause"),
    };
    Error::new(kind, text).with_retry(retry).caused_by(error)
}

type Verdict = (ErrorKind, RetryStatus, &'static str);

const LOST: Verdict = (
    ErrorKind::Transport,
    RetryStatus::Temporary,
    "the connection to the database broke; try again, a batch that was stored is not stored twice",
);

/// Classifies an SQLSTATE ("Appendix A. PostgreSQL Error Codes"). Single codes are matched before their classes.
fn from_state(code: &str) -> Verdict {
    use {ErrorKind as Kind, RetryStatus as May};
    match (code, code.get(..2).unwrap_or_default()) {
        ("40001" | "40P01" | "55P03", _) => {
            (Kind::Store, May::Temporary, "other connections were in the way all the time; try again")
        }
        ("57014", _) => (
            Kind::Timeout,
            May::Temporary,
            "the statement took longer than its timeout; try again, or allow more time",
        ),
        ("57P01" | "57P02" | "57P03" | "57P05", _) | (_, "08") => LOST,
        ("53100", _) => {
            (Kind::Store, May::Permanent, "the server's disk is full; free some space and try again")
        }
        ("53300", _) => (
            Kind::Store,
            May::Temporary,
            "the server has no connection left; try again, or allow this store fewer connections",
        ),
        (_, "53") => {
            (Kind::Store, May::Temporary, "the server is out of resources; see the cause, and try again")
        }
        (_, "28") => {
            (Kind::Authentication, May::Permanent, "the server refused user and password; check the URL")
        }
        ("42501", _) => (
            Kind::PermissionDenied,
            May::Permanent,
            "this user may not do that; grant it the right to use (and, the first time, create) the tables",
        ),
        ("25006", _) => (
            Kind::Store,
            May::Permanent,
            "the server only lets read, as standbys do; connect to the one that may be written",
        ),
        ("3D000", _) => {
            (Kind::Store, May::Permanent, "there is no such database on the server; create it first")
        }
        ("42P01" | "42703", _) => (
            Kind::Corrupt,
            May::Permanent,
            "a table or column of the store is missing; restore the database from a backup",
        ),
        (_, "54") => (Kind::TooLarge, May::Permanent, "a value is larger than a database row may be (1 GB)"),
        (_, "23") => (
            Kind::Corrupt,
            May::Permanent,
            "the tables contradict each other; restore the database from a backup",
        ),
        (_, "XX") => (Kind::Corrupt, May::Permanent, "the database is damaged; restore it from a backup"),
        _ => (
            Kind::Store,
            May::Permanent,
            "the database refused a statement; see the cause, and check that nobody changed its tables",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_pool_is_temporary_and_a_closed_one_is_not() {
        let judge = |error| {
            let error = from_driver(error);
            (error.kind(), error.retry())
        };
        assert_eq!(judge(sqlx::Error::PoolTimedOut), (ErrorKind::Store, RetryStatus::Temporary));
        assert_eq!(judge(sqlx::Error::PoolClosed), (ErrorKind::Store, RetryStatus::Permanent));
        let io = |kind| sqlx::Error::Io(io::Error::from(kind));
        assert_eq!(judge(io(io::ErrorKind::ConnectionReset)), (ErrorKind::Transport, RetryStatus::Temporary));
        assert_eq!(judge(io(io::ErrorKind::TimedOut)), (ErrorKind::Timeout, RetryStatus::Temporary));
    }

    #[test]
    fn codes_are_judged_before_their_classes() {
        for (code, kind, retry) in [
            ("40P01", ErrorKind::Store, RetryStatus::Temporary),
            ("57014", ErrorKind::Timeout, RetryStatus::Temporary),
            ("08006", ErrorKind::Transport, RetryStatus::Temporary),
            ("53100", ErrorKind::Store, RetryStatus::Permanent),
            ("53200", ErrorKind::Store, RetryStatus::Temporary),
            ("28P01", ErrorKind::Authentication, RetryStatus::Permanent),
            ("42P01", ErrorKind::Corrupt, RetryStatus::Permanent),
            ("42601", ErrorKind::Store, RetryStatus::Permanent),
            ("", ErrorKind::Store, RetryStatus::Permanent),
        ] {
            let (found, may, _) = from_state(code);
            assert_eq!((found, may), (kind, retry), "{code}");
        }
    }

    #[test]
    fn only_what_can_help_is_tried_again() {
        let remedy = |error: sqlx::Error| Remedy::of(&Failure::from(error));
        let io = |kind| sqlx::Error::Io(io::Error::from(kind));
        assert_eq!(remedy(io(io::ErrorKind::UnexpectedEof)), Remedy::Reconnect);
        assert_eq!(Remedy::of(&no_answer()), Remedy::Tell);
        assert_eq!(remedy(sqlx::Error::PoolTimedOut), Remedy::Tell);
        assert_eq!(Remedy::of(&Failure::damaged("seq = -1")), Remedy::Tell);
    }
}
