//! The content of a protected path, read without following links.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Component, Path, PathBuf},
};

use entourage_core::{Error, ErrorKind};
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags},
    io::Errno,
};

use super::watch::{BELOW, failed};

/// All that is kept below one path, by the place below the root.
pub(super) type Tree = BTreeMap<PathBuf, Kept>;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Directory(u32),
    File { content: Vec<u8>, mode: u32 },
    Link(PathBuf),
    Other,
}

/// The content at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    Directory,
    File,
    /// A link, or something that is not a file.
    Other,
}

/// The most that may be read.
#[derive(Debug)]
pub(super) struct Bounds {
    entries: usize,
    bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { entries: 4_096, bytes: 16 << 20 }
    }
}

impl Bounds {
    /// Bounds for what a command left.
    pub(super) fn after() -> Self {
        Self { entries: 8_192, bytes: 32 << 20 }
    }

    fn spent(path: &Path) -> Error {
        let message = format!(
            "`{}` holds more than can be compared (4,096 entries and 16 MiB before a command, twice as much after it); \
             look at it, use bubblewrap, or `unprotected`",
            path.display()
        );
        Error::new(ErrorKind::TooLarge, message)
    }
}

/// Names in a `.git` that commands change as they work, and that run nothing.
const WORK: &[&str] =
    &["objects", "refs", "logs", "lfs", "index", "HEAD", "ORIG_HEAD", "FETCH_HEAD", "packed-refs"];

/// Names in a `.git` that make Git run something, or that lead to more such names.
const RUNS: &[&str] = &["hooks", "info", "config", "config.worktree", "commondir", "modules", "worktrees"];

/// True if an entry of a tree is compared.
fn matters(path: &Path) -> bool {
    let mut parts = path.iter().skip_while(|part| *part != ".git").skip(1).peekable();
    let Some(first) = parts.peek() else { return true };
    RUNS.iter().any(|name| *first == *name) && !parts.any(|part| WORK.iter().any(|name| part == *name))
}

/// Refuses a path that is not plainly below the root.
pub(super) fn check(path: &Path) -> Result<(), Error> {
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    if plain && path.components().next().is_some() {
        return Ok(());
    }
    let message = format!(
        "the protected path `{}` is not below the root; give it relative to the root, without `..`",
        path.display()
    );
    Err(Error::new(ErrorKind::InvalidInput, message))
}

pub(super) fn open(root: &OwnedFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), BELOW)?)
}

/// The kind and the permissions of what is at a path, links not followed.
fn stat(root: &OwnedFd, path: &Path) -> io::Result<Option<(FileType, u32)>> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = match open(root, parent, OFlags::PATH | OFlags::DIRECTORY) {
        Ok(parent) => parent,
        Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some((FileType::from_raw_mode(found.st_mode), found.st_mode & 0o7777))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn look(root: &OwnedFd, path: &Path) -> io::Result<Found> {
    Ok(match stat(root, path)? {
        None => Found::Nothing,
        Some((FileType::Directory, _)) => Found::Directory,
        Some((FileType::RegularFile, _)) => Found::File,
        Some(_) => Found::Other,
    })
}

/// Reads what is at and below a path.
pub(super) fn read(root: &OwnedFd, path: &Path, bounds: &mut Bounds) -> Result<Tree, Error> {
    let mut tree = Tree::new();
    let mut left = vec![path.to_owned()];
    while let Some(at) = left.pop() {
        if !matters(&at) {
            continue;
        }
        let shown = |error| failed(&at, error);
        let Some((kind, mode)) = stat(root, &at).map_err(shown)? else { continue };
        bounds.entries = bounds.entries.saturating_sub(1);
        if bounds.entries == 0 {
            return Err(Bounds::spent(&at));
        }
        let kept = match kind {
            FileType::Directory => {
                left.extend(names(root, &at).map_err(shown)?);
                Kept::Directory(mode)
            }
            FileType::RegularFile => {
                let content = content(root, &at, bounds.bytes).map_err(shown)?;
                bounds.bytes = bounds.bytes.saturating_sub(content.len() as u64);
                if bounds.bytes == 0 {
                    return Err(Bounds::spent(&at));
                }
                Kept::File { content, mode }
            }
            FileType::Symlink => Kept::Link(link(root, &at).map_err(shown)?),
            _ => Kept::Other,
        };
        tree.insert(at, kept);
    }
    Ok(tree)
}

pub(super) fn is_empty(root: &OwnedFd, at: &Path) -> io::Result<bool> {
    Ok(names(root, at)?.is_empty())
}

fn names(root: &OwnedFd, at: &Path) -> io::Result<Vec<PathBuf>> {
    let directory = open(root, at, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(at.join(std::ffi::OsStr::from_bytes(name)));
        }
    }
    Ok(names)
}

/// The start of a file, one byte more than `most` if it goes on.
fn content(root: &OwnedFd, at: &Path, most: u64) -> io::Result<Vec<u8>> {
    // What became a pipe since must not make this wait.
    let file = File::from(open(root, at, OFlags::RDONLY | OFlags::NONBLOCK)?);
    let mut content = Vec::new();
    if file.metadata()?.is_file() {
        file.take(most.saturating_add(1)).read_to_end(&mut content)?;
    }
    Ok(content)
}

fn link(root: &OwnedFd, at: &Path) -> io::Result<PathBuf> {
    let link = open(root, at, OFlags::PATH | OFlags::NOFOLLOW)?;
    let target = rustix::fs::readlinkat(link, "", Vec::new())?;
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(target.to_bytes())))
}
