//! Files in a directory that is held open: found by name, and read within bounds. Blocking.
//!
//! Everything is opened through a handle on the directory, name by name, and no link is followed. Shared by the
//! families that read folders of texts.

use std::{
    ffi::OsString,
    io::{self, Read},
    path::Path,
};

use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::fs::{Dir, FileType, OpenOptions};

use crate::invisible::line;

/// A file that was read.
pub(crate) struct Content {
    pub(crate) start: Vec<u8>,
    /// Size of the whole file in bytes.
    pub(crate) size: u64,
}

/// The reason why a file was not read.
#[derive(Debug)]
pub(crate) enum Fault {
    Link,
    NoFile,
    System(io::Error),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Link => f.write_str("it is a link, which is not followed; put a file in its place"),
            Self::NoFile => f.write_str("it is no regular file; put a file in its place"),
            Self::System(error) => write!(f, "it cannot be read: {error}; change its permissions"),
        }
    }
}

/// The first `most` bytes of a file right in `dir`, and one more where there is more.
pub(crate) fn content(dir: &Dir, name: &Path, most: usize) -> Result<Content, Fault> {
    let found = dir.symlink_metadata(name).map_err(Fault::System)?;
    if found.is_symlink() {
        return Err(Fault::Link);
    }
    // Opening a device can have an effect.
    if !found.is_file() {
        return Err(Fault::NoFile);
    }
    // If it became a pipe since, opening must not wait for a writer.
    let mut options = OpenOptions::new();
    options.read(true).nonblock(true).follow(FollowSymlinks::No);
    let file = dir.open_with(name, &options).map_err(Fault::System)?;
    let metadata = file.metadata().map_err(Fault::System)?;
    if !metadata.is_file() {
        return Err(Fault::NoFile);
    }
    let mut start = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut start).map_err(Fault::System)?;
    Ok(Content { start, size: metadata.len() })
}

/// The entries of a directory by name, without hidden ones. `None` if there are more than `left`, from which those that
/// were looked at are taken: the order in which the system lists them is arbitrary.
pub(crate) fn entries(dir: &Dir, left: &mut usize) -> io::Result<Option<Vec<(OsString, FileType)>>> {
    let mut found = Vec::new();
    for entry in dir.entries()? {
        let Some(fewer) = left.checked_sub(1) else { return Ok(None) };
        *left = fewer;
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        let kind = entry.file_type().or_else(|_| entry.metadata().map(|it| it.file_type()));
        if let Ok(kind) = kind
            && !name.to_string_lossy().starts_with('.')
        {
            found.push((name, kind));
        }
    }
    found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(Some(found))
}

/// A path for people, as one line.
pub(crate) fn shown(path: &Path) -> String {
    line(&path.to_string_lossy())
}
