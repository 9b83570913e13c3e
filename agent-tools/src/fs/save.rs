//! Writes a file whole, or not at all: beside it first, then in its place by one rename.

use std::{
    io::{self, Read},
    path::{Component, Path, PathBuf},
};

use cap_fs_ext::FollowSymlinks;
use cap_std::fs::{Dir, Permissions};
use entourage_core::{Digest, tool::ToolError};

use super::{
    beside::{Beside, Durability},
    history::Content,
    seen::{Stamp, digest_of},
    sight::Sight,
    stop::{Stop, halted, meanwhile},
    text,
    workspace::Workspace,
};

/// Most bytes of a file that is changed.
pub(super) const LARGEST: u64 = 16 << 20;

/// Directories whose content no tool writes: programs run what lies there.
const PROTECTED: [&str; 1] = [".git"];

/// A place to write to, with links resolved.
pub(super) struct Target<'a> {
    sight: &'a Sight<'a>,
    stop: &'a Stop,
    path: PathBuf,
    /// The place as it is shown to the model.
    pub(super) name: String,
}

/// A file as it was found.
pub(super) struct Current {
    content: Found,
    pub(super) digest: Digest,
    stamp: Stamp,
    permissions: Permissions,
}

/// A content, of which is known if it is text.
enum Found {
    Text(String),
    Other(Vec<u8>),
}

impl Current {
    /// True if both are known to be one file, under two names.
    #[cfg(feature = "lsp")]
    pub(super) fn is_same_file(&self, other: &Self) -> bool {
        self.stamp.is_of_same_file(&other.stamp)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match &self.content {
            Found::Text(text) => text.as_bytes(),
            Found::Other(bytes) => bytes,
        }
    }

    /// The content, if it is UTF-8.
    pub(super) fn text(&self) -> Option<&str> {
        if let Found::Text(text) = &self.content { Some(text) } else { None }
    }
}

impl<'a> Target<'a> {
    /// The place that a call names. Nothing needs to exist there.
    pub(super) fn of(sight: &'a Sight<'a>, path: &str, stop: &'a Stop) -> Result<Self, ToolError> {
        let place = sight.workspace().place(path)?;
        let name = text::echo(&text::show(place.as_path()));
        // What is written is what this finds: no link on the way is followed afterwards.
        let path = sight.resolved(&place);
        sight.check_judged(&path)?;
        if path.file_name().is_none() {
            return Err(ToolError::tell(format!("`{name}` is a directory; name a file")));
        }
        let target = Self { sight, stop, path, name };
        target.check_protected()?;
        Ok(target)
    }

    /// Checks that the call's work may go on.
    pub(super) fn check_time(&self) -> Result<(), ToolError> {
        self.stop.check().map_err(|halt| halted(halt, self.stop))
    }

    fn check_protected(&self) -> Result<(), ToolError> {
        let is_protected =
            |part: &Component<'_>| PROTECTED.iter().any(|name| part.as_os_str().eq_ignore_ascii_case(name));
        match self.path.components().find(is_protected) {
            None => Ok(()),
            Some(part) => Err(ToolError::tell(format!(
                "`{}` lies in `{}`, which these tools do not change",
                self.name,
                text::echo(&part.as_os_str().to_string_lossy())
            ))),
        }
    }

    /// Reads the file; `None` if there is nothing.
    pub(super) fn read(&self) -> Result<Option<Current>, ToolError> {
        let opened = match self.sight.open_plain(&self.path) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.explain(&error)),
        };
        let Some(file) = opened else {
            return Err(ToolError::tell(format!(
                "`{}` is no regular file: a directory, a link that leads nowhere, or a special file; name a file",
                self.name
            )));
        };
        let metadata = file.metadata().map_err(|error| self.explain(&error))?;
        // One byte more, by which a file that has grown is noticed.
        let size = metadata.len().min(LARGEST).saturating_add(1);
        let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        let read = file.take(LARGEST.saturating_add(1)).read_to_end(&mut content);
        read.map_err(|error| self.explain(&error))?;
        if content.len() as u64 > LARGEST {
            return Err(ToolError::tell(format!(
                "`{}` is larger than 16 MiB, which cannot be changed",
                self.name
            )));
        }
        let permissions = kept(&Permissions::from_std(metadata.permissions()));
        let (digest, stamp) = (digest_of(&content), Stamp::of(&metadata));
        let content = String::from_utf8(content);
        let content = content.map_or_else(|error| Found::Other(error.into_bytes()), Found::Text);
        Ok(Some(Current { content, digest, stamp, permissions }))
    }

    /// Checks that the session has seen the file as it is.
    pub(super) fn check_seen(&self, current: &Current) -> Result<(), ToolError> {
        match self.sight.seen(&self.path) {
            None => Err(ToolError::tell(format!(
                "`{}` exists and was not viewed in this session, or not since the program was started; view it, then \
                 change it",
                self.name
            ))),
            Some(known) if known.is(&current.stamp, current.digest) => Ok(()),
            Some(_) => Err(self.stale()),
        }
    }

    fn stale(&self) -> ToolError {
        ToolError::tell(format!(
            "`{}` has changed since it was last viewed; view it again, then change what is still to change",
            self.name
        ))
    }

    /// Writes the content, which has this digest, in the place of what was found, if that is still there; `None` if
    /// nothing was.
    pub(super) fn write(
        &self,
        found: Option<&Current>,
        content: &[u8],
        digest: Digest,
    ) -> Result<(), ToolError> {
        self.replace(found, content)?;
        self.sight.wrote(&self.path, digest);
        Ok(())
    }

    /// Does the same, and leaves it to the caller to note what the session has written.
    fn replace(&self, found: Option<&Current>, content: &[u8]) -> Result<(), ToolError> {
        let explain = |error: io::Error| self.explain(&error);
        if content.len() as u64 > LARGEST {
            return Err(ToolError::tell(format!(
                "`{}` would be larger than 16 MiB, which these tools do not write",
                self.name
            )));
        }
        let (parent, name) = (self.path.parent().unwrap_or(Path::new("")), self.path.file_name());
        let name = name.unwrap_or_default();
        let dir = match found {
            Some(_) => self.sight.plain(parent),
            None => self.made(parent),
        };
        let dir = dir.map_err(explain)?;
        let permissions = found.map(|found| found.permissions.clone());
        let names = self.sight.workspace().names();
        names.clean(&dir, parent);
        let beside = Beside::write(names, &dir, content, permissions, Durability::Synced).map_err(explain)?;
        // From here on the file is changed or not; a call that was dropped changes nothing.
        self.check_time()?;
        match found {
            Some(found) => {
                self.check_unchanged(&dir, Path::new(name), found)?;
                beside.replace(&dir, Path::new(name)).map_err(explain)?;
            }
            None => match beside.put(Path::new(name)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(ToolError::tell(format!(
                        "`{}` was created meanwhile; view it first, then change it",
                        self.name
                    )));
                }
                put => put.map_err(explain)?,
            },
        }
        Ok(())
    }

    /// Makes a change that the history knows of. If it fails, the history knows that too.
    fn perform(&self, change: impl FnOnce() -> Result<(), ToolError>) -> Result<(), ToolError> {
        change().inspect_err(|_| {
            if let (Some(history), Ok(path), Ok(now)) =
                (self.sight.workspace().history(), self.path(), self.read())
            {
                // Where even this cannot be written, the file tells.
                let _ = history.gave_up(self.sight.session(), path, now.map(|now| now.digest));
            }
        })
    }

    /// Writes the content in the place of what was found, and keeps both where there is a history. Returns the
    /// content's digest, and the number of the change's version if it is kept.
    #[cfg(any(feature = "lsp", feature = "web"))]
    pub(super) fn put(
        &self,
        found: Option<&Current>,
        content: &[u8],
    ) -> Result<(Digest, Option<usize>), ToolError> {
        let digest = digest_of(content);
        Ok((digest, self.put_kept(found, content, digest)?))
    }

    /// Does the same, and calls `work` on another thread while the content is on its way to the disk.
    pub(super) fn put_meanwhile<T: Send>(
        &self,
        found: Option<&Current>,
        content: &[u8],
        work: impl Fn() -> T + Sync,
    ) -> Result<(Digest, Option<usize>, T), ToolError> {
        if self.sight.workspace().history().is_none() {
            let work = || (digest_of(content), work());
            let ((digest, done), replaced) = meanwhile(work, || self.replace(found, content));
            replaced?;
            self.sight.wrote(&self.path, digest);
            return Ok((digest, None, done));
        }
        // The history names a content by its digest before anything is written.
        let digest = digest_of(content);
        let (done, version) = meanwhile(work, || self.put_kept(found, content, digest));
        Ok((digest, version?, done))
    }

    fn put_kept(
        &self,
        found: Option<&Current>,
        content: &[u8],
        digest: Digest,
    ) -> Result<Option<usize>, ToolError> {
        let version = self.keep(found, (content, digest))?;
        self.perform(|| self.write(found, content, digest))?;
        Ok(version.filter(|_| self.kept(digest)))
    }

    /// Keeps what the history needs before a change, if there is a history, and returns the number that the change's
    /// version will have. The error is for the model.
    fn keep(&self, before: Option<&Current>, after: Content<'_>) -> Result<Option<usize>, ToolError> {
        let Some(history) = self.sight.workspace().history() else { return Ok(None) };
        let before = before.map(|current| (current.bytes(), current.digest));
        let kept = history.before(self.sight.session(), self.path()?, (before, after));
        kept.map(Some).map_err(|error| {
            ToolError::tell(format!(
                "the history of files cannot be written, so nothing was changed: {error}"
            ))
        })
    }

    /// Adds the version that a change made, if there is a history. Returns false if it could not.
    fn kept(&self, after: Digest) -> bool {
        let (Some(history), Ok(path)) = (self.sight.workspace().history(), self.path()) else { return false };
        history.changed(self.sight.session(), path, after).is_ok()
    }

    /// The resolved path as text.
    fn path(&self) -> Result<&str, ToolError> {
        self.path.to_str().ok_or_else(|| {
            ToolError::tell(format!(
                "the name of `{}` is no UTF-8, so its versions cannot be kept",
                self.name
            ))
        })
    }

    /// Takes the session's last change back. Returns true if the file is gone then.
    pub(super) fn undo(&self) -> Result<bool, ToolError> {
        let history = self.sight.workspace().history();
        let history = history.ok_or_else(|| ToolError::tell("no versions of files are kept here"))?;
        let (session, path) = (self.sight.session(), self.path()?);
        let broken =
            |error: io::Error| ToolError::tell(format!("the history of files cannot be used: {error}"));
        let current = self.read()?;
        let digest = current.as_ref().map(|current| current.digest);
        let versions = history.settled(session, path, digest).map_err(broken)?;
        let [.., before, after] = versions.as_slice() else {
            return Err(ToolError::tell(format!(
                "this session has made no change of `{}` that is not undone",
                self.name
            )));
        };
        if digest != *after {
            return Err(ToolError::tell(format!(
                "`{}` has changed since this session's last change, so nothing was undone; view it, and change it by \
                 `edit`",
                self.name
            )));
        }
        history.undoing(session, path, *before).map_err(broken)?;
        match before {
            Some(before) => {
                let content = history.content(*before).map_err(broken)?;
                self.perform(|| self.write(current.as_ref(), &content, *before))?;
            }
            None => self.perform(|| self.remove(current.as_ref()))?,
        }
        history.undone(session, path).map_err(broken)?;
        Ok(before.is_none())
    }

    fn remove(&self, found: Option<&Current>) -> Result<(), ToolError> {
        let explain = |error: io::Error| self.explain(&error);
        let dir = self.sight.plain(self.path.parent().unwrap_or(Path::new(""))).map_err(explain)?;
        let name = Path::new(self.path.file_name().unwrap_or_default());
        self.check_time()?;
        let Some(found) = found else { return Ok(()) };
        self.check_unchanged(&dir, name, found)?;
        dir.remove_file(name).map_err(explain)
    }

    /// Checks that a file is the one that was found, right before it is replaced.
    fn check_unchanged(&self, dir: &Dir, name: &Path, found: &Current) -> Result<(), ToolError> {
        let now = Workspace::open_file(dir, name, FollowSymlinks::No);
        let now = now.and_then(|file| file.map(|file| file.metadata()).transpose());
        match now.map_err(|error| self.explain(&error))? {
            Some(now) if Stamp::of(&now) == found.stamp => Ok(()),
            _ => Err(self.stale()),
        }
    }

    /// Opens a directory, and makes what is missing of it. No link is followed.
    fn made(&self, at: &Path) -> io::Result<Dir> {
        let start = self.sight.plain(Path::new(""))?;
        at.components().try_fold(start, |dir, part| {
            let name = part.as_os_str();
            match cap_fs_ext::DirExt::open_dir_nofollow(&dir, name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    match dir.create_dir(name) {
                        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                        made => made?,
                    }
                    cap_fs_ext::DirExt::open_dir_nofollow(&dir, name)
                }
                opened => opened,
            }
        })
    }

    fn explain(&self, error: &io::Error) -> ToolError {
        let name = &self.name;
        ToolError::Tell(match error.kind() {
            io::ErrorKind::PermissionDenied => format!("the system does not allow changing `{name}`"),
            io::ErrorKind::NotADirectory => {
                format!("a part of the path `{name}` is a file or a link that leads out of the workspace")
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                format!("there is no space left for `{name}`; nothing was changed")
            }
            _ => format!("`{name}` cannot be changed: {error}"),
        })
    }
}

/// The mode that a file's successor has. Its owner may be another one, whom it must not run as.
fn kept(permissions: &Permissions) -> Permissions {
    #[cfg(unix)]
    {
        use cap_std::fs::PermissionsExt;
        Permissions::from_mode(permissions.mode() & 0o777)
    }
    #[cfg(not(unix))]
    permissions.clone()
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use entourage_core::SessionId;
    use tempfile::TempDir;

    use super::*;

    fn tree() -> (TempDir, Workspace, SessionId) {
        let dir = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(dir.path()).unwrap();
        fs::write(dir.path().join("a"), "one").unwrap();
        (dir, workspace, SessionId::new("writer").unwrap())
    }

    #[test]
    fn cx05_what_changed_since_it_was_read_is_not_replaced() {
        let (dir, workspace, session) = tree();
        let (stop, sight) = (Stop::after(Duration::from_secs(60)), Sight::whole(&workspace, &session));
        let path = dir.path().join("a");
        let changes: [&dyn Fn(); 4] = [
            &|| fs::write(&path, "two").unwrap(),
            &|| fs::remove_file(&path).unwrap(),
            &|| {
                fs::write(dir.path().join("b"), "one").unwrap();
                fs::rename(dir.path().join("b"), &path).unwrap();
            },
            &|| {
                fs::remove_file(&path).unwrap();
                fs::create_dir(&path).unwrap();
            },
        ];
        for change in changes {
            fs::write(&path, "one").unwrap();
            let target = Target::of(&sight, "a", &stop).unwrap();
            let current = target.read().unwrap();
            change();
            let error =
                target.write(current.as_ref(), b"three", digest_of(b"three")).unwrap_err().to_string();
            assert!(error.contains("changed since") || error.contains("cannot be changed"), "{error}");
            assert_ne!(fs::read(&path).unwrap_or_default(), b"three");
        }
        let names: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["a"], "nothing is left beside it");
    }

    #[test]
    fn cx06_what_was_created_meanwhile_is_not_replaced() {
        let (dir, workspace, session) = tree();
        let (stop, sight) = (Stop::after(Duration::from_secs(60)), Sight::whole(&workspace, &session));
        let target = Target::of(&sight, "new", &stop).unwrap();
        assert!(target.read().unwrap().is_none());
        fs::write(dir.path().join("new"), "mine").unwrap();
        let error = target.write(None, b"yours", digest_of(b"yours")).unwrap_err().to_string();
        assert!(error.contains("created meanwhile"), "{error}");
        assert_eq!(fs::read(dir.path().join("new")).unwrap(), b"mine");
    }

    #[test]
    fn a_call_that_was_dropped_changes_nothing() {
        let (dir, workspace, session) = tree();
        let (stop, sight) = (Stop::after(Duration::ZERO), Sight::whole(&workspace, &session));
        let target = Target::of(&sight, "a", &stop).unwrap();
        let current = target.read().unwrap();
        target.write(current.as_ref(), b"two", digest_of(b"two")).unwrap_err();
        Target::of(&sight, "b/c", &stop).unwrap().write(None, b"two", digest_of(b"two")).unwrap_err();
        assert_eq!(fs::read(dir.path().join("a")).unwrap(), b"one");
        assert_eq!(fs::read_dir(dir.path().join("b")).unwrap().count(), 0);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
