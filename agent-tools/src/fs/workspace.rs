//! The one path policy of every file tool: a root, and the handle through which everything below it is opened.
//!
//! Paths are never made canonical and then compared: a link could change in between. They are reduced to plain names,
//! and the handle refuses any link that leads out at the moment of opening.

use std::{
    fmt, io,
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use cap_fs_ext::{DirExt, FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::{
    ambient_authority,
    fs::{Dir, OpenOptions},
};
use entourage_core::{
    Error, ErrorKind,
    tool::{Labels, Tool, ToolError},
};

#[cfg(feature = "web")]
use super::beside::{Beside, Durability};
use super::{
    beside::Names,
    change::{Edit, MultiEdit, Undo, Write},
    glob::Find,
    grep::Grep,
    history::History,
    ls::Ls,
    path::{self, Inside},
    seen::Seen,
    text,
    tool::{FileTool, Place},
    view::View,
};

/// A directory that file tools are confined to. Clones share it.
///
/// # Contract
/// - A path is relative to the root, or absolute and below it. `..` is resolved by name; a path that climbs out is
///   refused.
/// - A link that leads out of the root, or that is absolute, is refused when it is opened, whatever it was before.
///   Links within the root are followed where a path names them, and not when a tree is walked.
/// - Pipes, sockets and devices are never read.
/// - A place that a rule of the run denies is not shown below the place that a call names either, by whichever path or
///   link it is reached; a denied directory is not entered. A place for which a rule requires approval is left out
///   there, and the result says so, unless the same rule covered the call itself: name such a place in a call, and
///   approval is asked for.
/// - Rules are matched against the path as named and against its final place, as they are spelled: write them for the
///   final place. Where the file system ignores case, another spelling of a name is not recognised.
/// - The directory is held open: if it is renamed, the workspace follows it.
///
/// ```
/// # fn main() -> Result<(), entourage_core::Error> {
/// use entourage_tools::fs::Workspace;
///
/// let workspace = Workspace::open(".")?;
/// let tools = [workspace.view(), workspace.grep()];
/// assert_eq!(tools[0].spec().name(), "view");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Workspace(Arc<Inner>, Labels);

struct Inner {
    dir: Dir,
    /// The names of the root in an absolute path; the first is canonical.
    roots: Vec<PathBuf>,
    seen: Seen,
    history: Option<History>,
    names: Names,
    /// Held while a file is looked at and changed.
    writing: Mutex<()>,
}

impl Workspace {
    /// Opens `root`, which must be a directory. Blocks for the time of a few file system calls.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it does not exist, [`ErrorKind::InvalidInput`] if it is not a directory,
    /// [`ErrorKind::PermissionDenied`] if the system refuses it; each names the path.
    pub fn open(root: impl AsRef<Path>) -> Result<Self, Error> {
        let root = root.as_ref();
        let canonical = std::fs::canonicalize(root).map_err(|error| unusable(root, error))?;
        let dir =
            Dir::open_ambient_dir(&canonical, ambient_authority()).map_err(|error| unusable(root, error))?;
        let mut roots = vec![canonical];
        // The program's name for the root may differ where a link leads to it. With `..` in it, it cannot be shortened
        // by name: the part before could be a link.
        let plain = !root.components().any(|part| part == Component::ParentDir);
        let given = std::path::absolute(root).ok().filter(|_| plain).and_then(|full| path::normal(&full));
        roots.extend(given.filter(|given| !roots.contains(given)));
        let (seen, history, names, writing) = Default::default();
        Ok(Self(Arc::new(Inner { dir, roots, seen, history, names, writing }), Labels::PRIVATE))
    }

    /// Keeps the versions of changed files in `dir`, which is created where it is missing, so that
    /// [`undo`](Workspace::undo) can take changes back. Keep it beside the store of the sessions and outside of the
    /// root. Nothing is ever removed from it. What other clones of this workspace have seen is not known to the new
    /// one.
    ///
    /// On Unix nobody but the user can look into the directories in it, from the moment they are made; those that an
    /// older version left open are closed. `dir` itself is made so too, and stays as it is where it exists.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when the directory, or the root again, cannot be opened.
    pub fn with_history(self, dir: impl AsRef<Path>) -> Result<Self, Error> {
        let history = Some(History::open(dir.as_ref())?);
        let root = self.0.dir.try_clone()?;
        let (seen, names, writing) = Default::default();
        let roots = self.0.roots.clone();
        Ok(Self(Arc::new(Inner { dir: root, roots, seen, history, names, writing }), self.1))
    }

    /// Sets the labels of what its tools show. Default: [`Labels::PRIVATE`]. Files that strangers wrote, as those of a
    /// repository that was just cloned, are untrusted as well.
    #[must_use]
    pub fn with_labels(self, labels: Labels) -> Self {
        Self(self.0, labels)
    }

    /// Returns the labels of what its tools show.
    #[must_use]
    pub fn labels(&self) -> Labels {
        self.1
    }

    /// Writes a file of the library's own at the root, whole, in place of an older one. Blocks.
    #[cfg(feature = "web")]
    pub(crate) fn keep(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let dir = &self.0.dir;
        self.0.names.clean(dir, Path::new(""));
        Beside::write(&self.0.names, dir, content, None, Durability::Later)?.replace(dir, Path::new(name))
    }

    /// The root's canonical path at the time it was opened. For people: nothing is opened by it.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.0.roots.first().map_or(Path::new("."), PathBuf::as_path)
    }

    /// Shows lines of a file, or an image. The contract is that of [`view`](super::view()).
    #[must_use]
    pub fn view(&self) -> Arc<dyn Tool> {
        FileTool::<View>::shared(Place::fixed(self))
    }

    /// Lists a directory as a tree. The contract is that of [`ls`](super::ls()).
    #[must_use]
    pub fn ls(&self) -> Arc<dyn Tool> {
        FileTool::<Ls>::shared(Place::fixed(self))
    }

    /// Finds files by name. The contract is that of [`glob`](super::glob()).
    #[must_use]
    pub fn glob(&self) -> Arc<dyn Tool> {
        FileTool::<Find>::shared(Place::fixed(self))
    }

    /// Searches files. The contract is that of [`grep`](super::grep()).
    #[must_use]
    pub fn grep(&self) -> Arc<dyn Tool> {
        FileTool::<Grep>::shared(Place::fixed(self))
    }

    /// All read-only tools: `view`, `ls`, `glob` and `grep`.
    #[must_use]
    pub fn read_tools(&self) -> Vec<Arc<dyn Tool>> {
        vec![self.view(), self.ls(), self.glob(), self.grep()]
    }

    /// Writes a whole file. The contract is that of [`Workspace::write_tools`].
    #[must_use]
    pub fn write(&self) -> Arc<dyn Tool> {
        FileTool::<Write>::shared(Place::fixed(self))
    }

    /// Replaces a text in a file. The contract is that of [`Workspace::write_tools`].
    #[must_use]
    pub fn edit(&self) -> Arc<dyn Tool> {
        FileTool::<Edit>::shared(Place::fixed(self))
    }

    /// Makes several edits of one file. The contract is that of [`Workspace::write_tools`].
    #[must_use]
    pub fn multiedit(&self) -> Arc<dyn Tool> {
        FileTool::<MultiEdit>::shared(Place::fixed(self))
    }

    /// Takes back the last change that the calling session made to a file; of several one after another.
    ///
    /// # Contract
    /// A file that somebody else changed since is not touched. A file that the session created is removed. Each change
    /// can be undone once; also after a restart. Without [`Workspace::with_history`] each call is an error result.
    #[must_use]
    pub fn undo(&self) -> Arc<dyn Tool> {
        FileTool::<Undo>::shared(Place::fixed(self))
    }

    /// All tools that change files: `write`, `edit` and `multiedit`, and with a history `undo`.
    ///
    /// # Contract
    /// - A file that exists is changed only if the calling session has seen it: by `view` of this workspace or its
    ///   clones, or by a change of its own. If its content is another one since, the call is an error result, and
    ///   nothing is changed. This is checked when the call runs, which is after an approval. What a session has seen is
    ///   stored in the [history](Workspace::with_history); without one a file is viewed again after a restart, so give
    ///   one where calls are approved later.
    /// - A file is replaced whole by one rename, or not at all. Its permissions for owner, group and others are kept;
    ///   its owner, the bits that run it as that, access lists, attributes and other names of it (hard links) are not.
    ///   A call that is dropped before the rename changes nothing; a directory that was made for it may stay. A crash
    ///   may leave a file `.entourage-….tmp` beside it, which is removed with the first change in its directory after a
    ///   restart, and a change that was made just before it can be undone.
    /// - Line ends, a byte order mark and what is not replaced are kept byte for byte; new lines end as most do. A file
    ///   that is not UTF-8, or larger than 16 MiB, is not changed.
    /// - No link is followed: the path with its links resolved is judged, and changed if it is still that path. Between
    ///   the last look at a file and its rename, which is microseconds, the change of another program can be lost.
    /// - Nothing in a directory `.git` is changed.
    /// - The metadata of a result has `path`, `created`, the numbers of lines `added` and `removed`, a unified `diff`
    ///   of at most 64 KiB, digests of the content `before` and `after`, and with a history the number of the
    ///   `version`.
    ///
    /// The tools declare [`Access::WRITE`](entourage_core::tool::Access::WRITE), which needs approval unless a rule
    /// allows it. Two workspaces on one directory do not know what the other one's sessions saw.
    #[must_use]
    pub fn write_tools(&self) -> Vec<Arc<dyn Tool>> {
        let undo = self.0.history.as_ref().map(|_| self.undo());
        [self.write(), self.edit(), self.multiedit()].into_iter().chain(undo).collect()
    }

    pub(super) fn history(&self) -> Option<&History> {
        self.0.history.as_ref()
    }

    pub(super) fn seen(&self) -> &Seen {
        &self.0.seen
    }

    /// Names for files that lie beside others for a moment.
    pub(super) fn names(&self) -> &Names {
        &self.0.names
    }

    /// Lets one call at a time look at a file and change it.
    pub(super) fn writing(&self) -> MutexGuard<'_, ()> {
        self.0.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn dir(&self) -> &Dir {
        &self.0.dir
    }

    pub(super) fn roots(&self) -> &[PathBuf] {
        &self.0.roots
    }

    /// The place that a model's path names; nothing needs to exist there.
    pub(super) fn place(&self, path: &str) -> Result<Inside, ToolError> {
        Inside::parse(path, &self.0.roots).map_err(ToolError::Tell)
    }

    /// Subjects for policy patterns: the place, and its resolved path if that differs. So a rule about a file also
    /// holds for a link to it.
    pub(crate) fn subjects(&self, path: &str) -> Vec<String> {
        let Ok(place) = Inside::parse(path, &self.0.roots) else { return vec![path.to_owned()] };
        let mut subjects = vec![text::subject(place.as_path())];
        if let Some(target) = self.resolved(place.names()).map(|target| text::subject(&target))
            && !subjects.contains(&target)
        {
            subjects.push(target);
        }
        subjects
    }

    /// The path of a place with links resolved. If nothing exists there, resolves as many of its directories as exist.
    pub(super) fn resolved(&self, at: &Path) -> Option<PathBuf> {
        at.ancestors().find_map(|above| Some(self.real(above)?.join(at.strip_prefix(above).ok()?)))
    }

    /// The path of a place with links resolved; `None` unless a file or a directory exists there.
    fn real(&self, at: &Path) -> Option<PathBuf> {
        let at = if at.as_os_str().is_empty() { Path::new(".") } else { at };
        // For an unreachable place the handle would return a part of the way. Without `openat2` it opens the place,
        // which must not be a pipe.
        let found = self.0.dir.metadata(at).ok()?;
        let real = self.0.dir.canonicalize(at).ok().filter(|_| found.is_file() || found.is_dir())?;
        Some(real.components().filter(|part| matches!(part, Component::Normal(_))).collect())
    }

    /// Opens a regular file below `dir`, which is the root or a directory in it; `None` if it is not a regular file.
    pub(super) fn open_file(
        dir: &Dir,
        at: &Path,
        follow: FollowSymlinks,
    ) -> io::Result<Option<std::fs::File>> {
        let metadata = match follow {
            FollowSymlinks::Yes => dir.metadata(at)?,
            FollowSymlinks::No => dir.symlink_metadata(at)?,
        };
        // Opening a device can have an effect.
        if metadata.is_file() { Self::open_listed(dir, at, follow) } else { Ok(None) }
    }

    /// Opens what was a regular file a moment ago; `None` if it is none any more.
    pub(super) fn open_listed(
        dir: &Dir,
        at: &Path,
        follow: FollowSymlinks,
    ) -> io::Result<Option<std::fs::File>> {
        // If it became a pipe since, opening must not wait for a writer.
        let file = dir.open_with(at, OpenOptions::new().read(true).nonblock(true).follow(follow))?;
        let file = file.into_std();
        Ok(if file.metadata()?.is_file() { Some(file) } else { None })
    }

    /// Opens a directory name by name; no link is followed.
    pub(super) fn open_plain(&self, at: &Path) -> io::Result<Dir> {
        let start = self.open_dir(Path::new("."), FollowSymlinks::Yes)?;
        at.components()
            .filter(|part| matches!(part, Component::Normal(_)))
            .try_fold(start, |dir, part| dir.open_dir_nofollow(part.as_os_str()))
    }

    /// Opens a directory; with `No` a link as the last part is refused.
    pub(super) fn open_dir(&self, at: &Path, follow: FollowSymlinks) -> io::Result<Dir> {
        match follow {
            FollowSymlinks::Yes => self.0.dir.open_dir(at),
            FollowSymlinks::No => self.0.dir.open_dir_nofollow(at),
        }
    }
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workspace").field("root", &self.root()).finish_non_exhaustive()
    }
}

fn unusable(root: &Path, error: io::Error) -> Error {
    let shown = root.display();
    let (kind, message) = match error.kind() {
        io::ErrorKind::NotFound => (
            ErrorKind::NotFound,
            format!("the workspace `{shown}` does not exist; create it or name another directory"),
        ),
        io::ErrorKind::NotADirectory => (
            ErrorKind::InvalidInput,
            format!("the workspace `{shown}` is no directory; name the one that holds it"),
        ),
        io::ErrorKind::PermissionDenied => (
            ErrorKind::PermissionDenied,
            format!(
                "the system does not allow opening the workspace `{shown}`; change its permissions or name another"
            ),
        ),
        _ => (
            ErrorKind::InvalidInput,
            format!("the workspace `{shown}` cannot be opened: {error}; name a directory that can be read"),
        ),
    };
    Error::new(kind, message).during("workspace.open").caused_by(error)
}
