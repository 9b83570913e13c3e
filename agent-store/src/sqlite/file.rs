//! Inspects and creates database files without SQLite. An inspection reads a few bytes and changes nothing.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Read},
    path::{Path, PathBuf},
};

use entourage_core::{Error, ErrorKind};

use super::schema::Label;
use crate::os;

/// Length in bytes of a database's header, as the file format defines it.
const HEADER: usize = 100;
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Content of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing, or an empty file: a new database may be made here.
    Nothing,
    /// Something that starts like a database of this store or an unlabelled one.
    Database,
}

/// Inspects `path`, which is absolute.
pub(super) fn inspect(path: &Path) -> Result<Found, Error> {
    let refuse = |kind, text: &'static str| Err(Error::new(kind, text));
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return inspect_parent(path),
        Err(error) => return Err(unreadable(error)),
    };
    if metadata.is_dir() {
        return refuse(ErrorKind::Store, "the path is a directory; name a file in it, such as `sessions.db`");
    }
    if !metadata.is_file() {
        return refuse(ErrorKind::Store, "the path is no regular file; choose another path");
    }
    if metadata.permissions().readonly() {
        return refuse(
            ErrorKind::Store,
            "the file is write-protected; make it writable or choose another path",
        );
    }
    if metadata.len() == 0 {
        return Ok(Found::Nothing);
    }
    // Closing any handle of a file drops all locks that this process has on it; another process could then delete the
    // log of a store that is open here. Beside an open database lies the index of its log, and SQLite itself judges it.
    if beside(path, "-shm").exists() {
        return Ok(Found::Database);
    }
    let mut header = Vec::with_capacity(HEADER);
    let read = File::open(path).and_then(|file| file.take(HEADER as u64).read_to_end(&mut header));
    read.map_err(unreadable)?;
    judge_header(&header, metadata.len(), has_journal(path))?;
    Ok(Found::Database)
}

fn inspect_parent(path: &Path) -> Result<Found, Error> {
    match path.parent().map(fs::metadata) {
        Some(Ok(parent)) if parent.is_dir() => Ok(Found::Nothing),
        Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(unreadable(error)),
        _ => Err(Error::new(
            ErrorKind::Store,
            "the directory of the database does not exist; create it first or choose another path",
        )),
    }
}

/// Identity of a file, whatever its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId {
    #[cfg(unix)]
    device: u64,
    #[cfg(unix)]
    number: u64,
}

impl FileId {
    /// Returns the identity of the file at `path`.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            Ok(Self { device: metadata.dev(), number: metadata.ino() })
        }
        // Elsewhere nobody may move or delete a file that is open.
        #[cfg(not(unix))]
        Ok(metadata.is_file()).map(|_| Self {})
    }
}

/// Creates an empty file that only this user may read; SQLite gives its logs the same mode. Never touches an existing
/// file.
pub(super) fn create(path: &Path) -> Result<(), Error> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if os::is_too_many_files(&error) => Err(unreadable(error)),
        Err(error) => Err(Error::new(
            ErrorKind::Store,
            "the database cannot be opened; check that this process may read and write the file and its directory",
        )
        .caused_by(error)),
    }
}

/// The error of an open store whose file is missing from its path.
pub(super) fn gone() -> Error {
    Error::new(
        ErrorKind::Store,
        "the database file is gone; put it back, with the log beside it, or remove what is left of the log (`-wal`, \
         `-shm`) and restore a backup",
    )
}

/// The error of an open store with another file at its path, beside the log of its own one.
pub(super) fn mixed() -> Error {
    Error::new(
        ErrorKind::Store,
        "another file took the database's place, but the log of the one before still lies beside it and would be applied \
         to it; put the first file back, or remove `-wal` and `-shm` and then restore a backup",
    )
}

pub(super) fn unreadable(error: io::Error) -> Error {
    let (text, retry) = os::explain(&error);
    Error::new(ErrorKind::Store, text).with_retry(retry).caused_by(error)
}

/// Returns true if a log beside the file may hold newer pages than the file itself.
fn has_journal(path: &Path) -> bool {
    ["-wal", "-journal"]
        .iter()
        .any(|suffix| fs::metadata(beside(path, suffix)).is_ok_and(|log| log.len() > 0))
}

/// Returns the path of the file that SQLite keeps beside the database under this suffix.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Refuses a file by its header alone. The header may be older than a log beside the file, so passing here is not yet
/// an admission.
fn judge_header(header: &[u8], length: u64, journal: bool) -> Result<(), Error> {
    if !header.starts_with(header_start(header)) || header.is_empty() {
        return Err(Error::new(
            ErrorKind::Corrupt,
            "this is no SQLite database; move the file away or choose another path",
        ));
    }
    if header.len() < HEADER {
        return Err(truncated());
    }
    let number = |offset: usize| {
        let bytes = header.get(offset..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
    };
    let pages = number(28);
    let page_size = match header.get(16..18) {
        Some(&[0, 1]) => 65_536,
        Some(&[high, low]) => u64::from(u16::from_be_bytes([high, low])),
        _ => return Err(truncated()),
    };
    // The page count counts only when the last writer kept it: then the two change counters agree.
    let counted = number(24) == number(92) && pages > 0;
    if counted && !journal && length < u64::from(pages) * page_size {
        return Err(truncated());
    }
    // Both numbers are signed in the format. What is 0 here may be set in the log.
    match (i64::from(number(68).cast_signed()), i64::from(number(60).cast_signed())) {
        (0, _) | (_, 0) => Ok(()),
        (application_id, version) => Label { application_id, version, used: true }.judge(),
    }
}

/// The part of the magic text that a file of this length can show.
fn header_start(header: &[u8]) -> &'static [u8] {
    MAGIC.get(..header.len().min(MAGIC.len())).unwrap_or(MAGIC)
}

fn truncated() -> Error {
    Error::new(ErrorKind::Corrupt, "the database file was cut short; restore it from a backup")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(pages: u32, version: u32, application_id: u32) -> Vec<u8> {
        let mut header = vec![0; HEADER];
        header[..16].copy_from_slice(MAGIC);
        header[16..18].copy_from_slice(&4096_u16.to_be_bytes());
        header[28..32].copy_from_slice(&pages.to_be_bytes());
        header[60..64].copy_from_slice(&version.to_be_bytes());
        header[68..72].copy_from_slice(&application_id.to_be_bytes());
        header
    }

    fn kind(header: &[u8], length: u64, journal: bool) -> Option<ErrorKind> {
        judge_header(header, length, journal).err().map(|error| error.kind())
    }

    const OURS: u32 = u32::from_be_bytes(*b"Entg");

    #[test]
    fn attack_08_a_file_shorter_than_its_header_says_is_refused_unless_a_log_completes_it() {
        let header = header(3, 1, OURS);
        assert_eq!(kind(&header, 3 * 4096, false), None);
        assert_eq!(kind(&header, 3 * 4096 - 1, false), Some(ErrorKind::Corrupt));
        assert_eq!(kind(&header, 3 * 4096 - 1, true), None);
        for length in 1..HEADER {
            assert_eq!(
                kind(&header[..length], length as u64, true),
                Some(ErrorKind::Corrupt),
                "{length} bytes"
            );
        }
    }

    #[test]
    fn other_files_and_other_programs_are_refused() {
        assert_eq!(kind(b"hello, this is a text file", 26, false), Some(ErrorKind::Corrupt));
        assert_eq!(kind(&header(1, 1, 77), 4096, false), Some(ErrorKind::Store));
        assert_eq!(kind(&header(1, 99, OURS), 4096, false), Some(ErrorKind::NewerVersion));
        assert_eq!(kind(&header(1, 0, 0), 4096, false), None);
    }
}
