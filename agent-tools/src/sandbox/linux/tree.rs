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
    fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

/// All that is kept below one path, by the place below the root. Each directory comes before what it holds.
pub(super) type Tree = BTreeMap<PathBuf, Kept>;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Directory {
        mode: u32,
        /// True for a directory of Git, of which [`RUNS`] alone is compared.
        is_git: bool,
    },
    File {
        content: Vec<u8>,
        mode: u32,
        /// Number of its names: by another one its content could be changed later.
        names: u64,
    },
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
    fn spent(path: &Path) -> Error {
        let message = format!(
            "`{}` holds more than can be kept for a comparison (4,096 entries and 16 MiB in all protected paths); look at \
             it, use bubblewrap, or `unprotected`",
            path.display()
        );
        Error::new(ErrorKind::TooLarge, message)
    }
}

/// Names in a directory of Git that make it run something, or that lead to more such names. All others change as
/// commands work, and run nothing.
pub(super) const RUNS: &[&str] = &[
    "hooks",
    "info",
    "config",
    "config.worktree",
    "commondir",
    "gitdir",
    "modules",
    "worktrees",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
];

/// Refuses a path that is not plainly below the root.
pub(super) fn check(path: &Path) -> Result<(), Error> {
    if is_plain(path) {
        return Ok(());
    }
    let message = format!(
        "the protected path `{}` is not below the root; give it relative to the root, without `..`",
        path.display()
    );
    Err(Error::new(ErrorKind::InvalidInput, message))
}

/// True for a path of names alone, with one at least.
pub(super) fn is_plain(path: &Path) -> bool {
    path.components().next().is_some() && path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// The one way to resolve a path here: without links, so that none leads out of the root.
const BELOW: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

pub(super) fn open(root: &OwnedFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), BELOW)?)
}

/// The directory that holds a path, and the path's name in it.
pub(super) fn parent<'p>(root: &OwnedFd, path: &'p Path) -> io::Result<(OwnedFd, &'p Path)> {
    let name = path.file_name().map(Path::new).ok_or(io::ErrorKind::InvalidInput)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((open(root, parent, OFlags::PATH | OFlags::DIRECTORY)?, name))
}

/// The kind, the permissions and the size of what is at a path, links not followed.
pub(super) fn stat(root: &OwnedFd, path: &Path) -> io::Result<Option<(FileType, u32, u64)>> {
    let (parent, name) = match parent(root, path) {
        Ok(found) => found,
        Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => {
            let size = u64::try_from(found.st_size).unwrap_or(u64::MAX);
            Ok(Some((FileType::from_raw_mode(found.st_mode), found.st_mode & 0o7777, size)))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The number of names that a file has.
pub(super) fn names_of(root: &OwnedFd, path: &Path) -> io::Result<u64> {
    let (parent, name) = parent(root, path)?;
    let found = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    #[allow(clippy::useless_conversion, reason = "its type differs between architectures")]
    Ok(u64::from(found.st_nlink))
}

pub(super) fn look(root: &OwnedFd, path: &Path) -> io::Result<Found> {
    Ok(match stat(root, path)? {
        None => Found::Nothing,
        Some((FileType::Directory, ..)) => Found::Directory,
        Some((FileType::RegularFile, ..)) => Found::File,
        Some(_) => Found::Other,
    })
}

/// Reads what is at and below a path; `is_git` tells that Git's own files lie there.
pub(super) fn read(root: &OwnedFd, path: &Path, is_git: bool, bounds: &mut Bounds) -> Result<Tree, Error> {
    let mut tree = Tree::new();
    let mut left = vec![path.to_owned()];
    while let Some(at) = left.pop() {
        let shown = |error| failed(&at, error);
        let Some((kind, mode, _)) = stat(root, &at).map_err(shown)? else { continue };
        bounds.entries = bounds.entries.saturating_sub(1);
        if bounds.entries == 0 {
            return Err(Bounds::spent(&at));
        }
        let kept = match kind {
            FileType::Directory => {
                let of_git = is_git && at == path || is_git_dir(root, &at);
                if of_git {
                    left.extend(RUNS.iter().map(|name| at.join(name)));
                } else {
                    let names = names(root, &at, bounds.entries).map_err(shown)?;
                    left.extend(names.ok_or_else(|| Bounds::spent(&at))?);
                }
                Kept::Directory { mode, is_git: of_git }
            }
            FileType::RegularFile => {
                let content = content(root, &at, bounds.bytes).map_err(shown)?;
                bounds.bytes = bounds.bytes.saturating_sub(content.len() as u64);
                if bounds.bytes == 0 {
                    return Err(Bounds::spent(&at));
                }
                Kept::File { content, mode, names: names_of(root, &at).map_err(shown)? }
            }
            FileType::Symlink => Kept::Link(link(root, &at).map_err(shown)?),
            _ => Kept::Other,
        };
        tree.insert(at, kept);
    }
    Ok(tree)
}

/// True for a `.git`, and for what looks like the directory of a submodule or of a further working tree.
fn is_git_dir(root: &OwnedFd, at: &Path) -> bool {
    let has = |name: &str| look(root, &at.join(name)).is_ok_and(|found| found != Found::Nothing);
    at.file_name().is_some_and(|name| name == ".git") || has("HEAD") && (has("objects") || has("commondir"))
}

pub(super) fn is_empty(root: &OwnedFd, at: &Path) -> io::Result<bool> {
    Ok(names(root, at, 0)?.is_some())
}

/// The entries of a directory; `None` if there are more than `most`.
pub(super) fn names(root: &OwnedFd, at: &Path, most: usize) -> io::Result<Option<Vec<PathBuf>>> {
    let directory = open(root, at, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            if names.len() >= most {
                return Ok(None);
            }
            names.push(at.join(std::ffi::OsStr::from_bytes(name)));
        }
    }
    Ok(Some(names))
}

/// The start of a file, one byte more than `most` if it goes on.
pub(super) fn content(root: &OwnedFd, at: &Path, most: u64) -> io::Result<Vec<u8>> {
    // What became a pipe since must not make this wait.
    let file = File::from(open(root, at, OFlags::RDONLY | OFlags::NONBLOCK)?);
    let mut content = Vec::new();
    if file.metadata()?.is_file() {
        file.take(most.saturating_add(1)).read_to_end(&mut content)?;
    }
    Ok(content)
}

pub(super) fn link(root: &OwnedFd, at: &Path) -> io::Result<PathBuf> {
    let link = open(root, at, OFlags::PATH | OFlags::NOFOLLOW)?;
    let target = rustix::fs::readlinkat(link, "", Vec::new())?;
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(target.to_bytes())))
}

pub(super) fn failed(path: &Path, error: io::Error) -> Error {
    let shown = path.to_string_lossy();
    let message = format!(
        "the protected path `{}` cannot be compared or restored; look at it before you use what it holds",
        shown.escape_debug()
    );
    Error::new(ErrorKind::Io, message).caused_by(error)
}
