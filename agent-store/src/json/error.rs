//! Maps failures of files to the core's error and to the problems of a report.

use std::{
    io,
    path::{Path, PathBuf},
};

use entourage_core::{Error, ErrorKind, RetryStatus, SessionId, session::SessionRecord};

use crate::os;

/// Failure of an operation on files. Separate from the core's error, so that each text is written once.
#[derive(Debug)]
pub(super) enum Failure {
    Io(io::Error),
    /// The file holds what this store never writes.
    Damaged(String),
    /// The file has this newer format.
    Newer(u64),
    /// Somebody else did not release the lock in time.
    Locked,
    /// There is no such file.
    Missing,
    /// The session has moved to another store; its file only waits to be deleted.
    Sealed,
    /// The core's own error.
    Refused(Error),
    /// A failure of this file, which is not the one that was asked for.
    At(PathBuf, Box<Self>),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            _ => Self::Io(error),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl Failure {
    pub(super) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged(what.into())
    }

    /// Returns the failure of a file that holds another session than its name says.
    pub(super) fn misplaced(record: &SessionRecord) -> Self {
        Self::Damaged(format!("it holds the session {}, which belongs in another file", record.id))
    }

    /// Returns the same failure about a file of the whole directory. An absence or a lock keeps its meaning.
    pub(super) fn at(self, path: &Path) -> Self {
        match self {
            Self::Damaged(_) => {
                let text = "a file that the store needs in its directory is a link or no regular file; remove it while nobody \
                            uses the store";
                Self::At(path.to_owned(), Box::new(Self::Refused(Error::new(ErrorKind::Store, text))))
            }
            Self::Io(_) => Self::At(path.to_owned(), Box::new(self)),
            failure => failure,
        }
    }

    /// Returns true if the failure says that something is not there.
    pub(super) fn is_absence(&self) -> bool {
        match self {
            Self::Missing | Self::Sealed => true,
            Self::Refused(error) => error.kind() == ErrorKind::NotFound,
            _ => false,
        }
    }

    /// Returns the error that the caller sees. `operation` is the one of the trait.
    pub(super) fn into_error(self, operation: &'static str, path: &Path) -> Error {
        let error = match self {
            Self::Refused(error) => error,
            Self::Damaged(what) => Error::new(
                ErrorKind::Corrupt,
                format!("the file is damaged: {what}; restore it from a backup, or set it aside"),
            ),
            Self::Newer(format) => Error::new(
                ErrorKind::NewerVersion,
                format!("the file is of format {format}, which a newer version wrote; use that version"),
            ),
            Self::Locked => Error::new(ErrorKind::Store, "another process holds the file's lock; try again")
                .with_retry(RetryStatus::Temporary),
            Self::Missing | Self::Sealed => Error::new(
                ErrorKind::Store,
                "a file or directory of the store is gone; check that nobody removes files of it",
            ),
            Self::Io(error) => {
                let (text, retry) = os::explain(&error);
                Error::new(ErrorKind::Store, text).with_retry(retry).caused_by(error)
            }
            Self::At(path, failure) => return failure.into_error(operation, &path),
        };
        error.during(operation).with("path", path.display().to_string())
    }

    pub(super) fn into_session_error(
        self,
        operation: &'static str,
        path: &Path,
        session: &SessionId,
    ) -> Error {
        match self {
            Self::Missing | Self::Sealed => Error::no_session(session).during(operation),
            // It is about the batch, not about the file.
            Self::Refused(error) if error.context().any(|(name, _)| name == "session") => {
                error.during(operation)
            }
            failure => failure.into_error(operation, path).with("session", session.as_str()),
        }
    }
}

/// A file in the directory of a [`JsonStore`](super::JsonStore) that needs attention.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileProblem {
    /// Path of the file.
    pub path: PathBuf,
    /// Session that the file is named after, if the name spells it out.
    pub session: Option<SessionId>,
    /// Kind of the problem.
    pub kind: FileProblemKind,
    /// Description for people, in one line.
    pub detail: String,
}

/// Kind of a problem with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileProblemKind {
    /// A crash cut a write short. Its torn bytes were moved to `aside`; the session goes on without them.
    Torn {
        /// Path of the file with the torn bytes.
        aside: PathBuf,
        /// Number of torn bytes.
        bytes: u64,
    },
    /// The file cannot be read as a session. It is still where it was.
    Damaged,
    /// The file was damaged and was moved to `aside`, so that the session is no longer here.
    SetAside {
        /// New path of the file.
        aside: PathBuf,
    },
    /// A newer version of this library wrote it.
    NewerVersion,
    /// The name is none of this store's; the file is left alone.
    Foreign,
    /// The file cannot be opened or read.
    Unreadable,
}

impl FileProblem {
    pub(super) fn new(
        path: PathBuf,
        session: Option<SessionId>,
        kind: FileProblemKind,
        detail: impl Into<String>,
    ) -> Self {
        Self { path, session, kind, detail: detail.into() }
    }

    pub(super) fn of_failure(path: PathBuf, session: Option<SessionId>, failure: Failure) -> Self {
        let kind = match &failure {
            Failure::Damaged(_) => FileProblemKind::Damaged,
            Failure::Newer(_) => FileProblemKind::NewerVersion,
            _ => FileProblemKind::Unreadable,
        };
        let detail = failure.into_error("store.problems", &path).message().to_owned();
        Self { path, session, kind, detail }
    }
}
