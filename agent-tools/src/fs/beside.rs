//! Files that lie beside others for a moment, and what a killed program left of them.
//!
//! Who writes one holds its lock, which the system takes back when the program dies, however it dies. So one whose lock
//! is free belongs to nobody.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt};
use cap_std::fs::{Dir, File, OpenOptions, Permissions};

/// Most entries of a directory among which leftovers are looked for.
#[cfg(unix)]
const ENTRIES: usize = 10_000;
/// Most directories of which is remembered that nothing is left over in them.
const DIRECTORIES: usize = 10_000;

/// When a content is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// Before its file takes a place.
    Synced,
    /// At a later call.
    Later,
}

/// A file beside the one to write, removed unless it takes that one's place.
pub(super) struct Beside<'a> {
    dir: &'a Dir,
    name: OsString,
    /// Open, and so locked, as long as it has this name.
    file: File,
}

impl<'a> Beside<'a> {
    /// Writes a content, of which nobody may read more than `permissions` allow.
    pub(super) fn write(
        names: &Names,
        dir: &'a Dir,
        content: &[u8],
        permissions: Option<Permissions>,
        durability: Durability,
    ) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).follow(FollowSymlinks::No);
        let mut beside = loop {
            let name = OsString::from(names.next());
            match dir.open_with(&name, &options) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                opened => {
                    let beside = Self { dir, name, file: opened? };
                    if beside.hold()? {
                        break beside;
                    }
                }
            }
        };
        if let Some(permissions) = permissions {
            beside.file.set_permissions(permissions)?;
        }
        beside.file.write_all(content)?;
        if durability == Durability::Synced {
            beside.file.sync_data()?;
        }
        Ok(beside)
    }

    /// Takes its lock. Returns false if somebody took it for a leftover before.
    #[cfg(unix)]
    fn hold(&self) -> io::Result<bool> {
        use std::{fs::TryLockError, os::unix::fs::MetadataExt};
        let file = self.file.try_clone()?.into_std();
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(false),
            // Without locks nobody can take it for a leftover.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(file.metadata()?.nlink() > 0),
        }
    }

    #[cfg(not(unix))]
    fn hold(&self) -> io::Result<bool> {
        Ok(true)
    }

    /// Takes the place of a file in `dir`.
    pub(super) fn replace(self, dir: &Dir, name: &Path) -> io::Result<()> {
        self.dir.rename(&self.name, dir, name)
    }

    /// Takes a free place.
    pub(super) fn put(self, name: &Path) -> io::Result<()> {
        match self.dir.hard_link(&self.name, self.dir, name) {
            Err(error) if !matches!(error.kind(), io::ErrorKind::AlreadyExists) => {
                // Some file systems have no links.
                if self.dir.symlink_metadata(name).is_ok() {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                self.dir.rename(&self.name, self.dir, name)
            }
            linked => linked,
        }
    }
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        // After a rename there is nothing left of it.
        drop(self.dir.remove_file(&self.name));
    }
}

/// Names for files that lie beside others for a moment.
#[derive(Debug, Default)]
pub(super) struct Names {
    count: AtomicU64,
    /// Directories in which nothing is left over.
    clean: Mutex<HashSet<PathBuf>>,
}

impl Names {
    pub(super) fn next(&self) -> String {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        format!(".entourage-{:x}-{:x}-{count:x}.tmp", std::process::id(), now.as_nanos())
    }

    /// Removes what killed programs left in `dir`, which is called `path`, when it is first written to.
    pub(super) fn clean(&self, dir: &Dir, path: &Path) {
        let mut clean = self.clean.lock().unwrap_or_else(PoisonError::into_inner);
        if clean.len() >= DIRECTORIES {
            clean.clear();
        }
        if clean.insert(path.to_owned()) {
            drop(clean);
            sweep(dir);
        }
    }
}

/// Removes the files with names of ours in `dir` whose writers are gone. Those that cannot be removed stay.
#[cfg(unix)]
pub(super) fn sweep(dir: &Dir) {
    use cap_fs_ext::OpenOptionsSyncExt;
    let Ok(entries) = dir.entries() else { return };
    let names = entries.take(ENTRIES).filter_map(|entry| Some(entry.ok()?.file_name()));
    for name in names.filter(|name| is_beside(name)) {
        let mut options = OpenOptions::new();
        // A pipe of this name must not keep anybody waiting.
        let opened = dir.open_with(&name, options.read(true).nonblock(true).follow(FollowSymlinks::No));
        let Ok(file) = opened.map(File::into_std) else { continue };
        if file.metadata().is_ok_and(|it| it.is_file()) && file.try_lock().is_ok() {
            drop(dir.remove_file(&name));
        }
    }
}

/// Without locks that end with their process it is not known whose a file is.
#[cfg(not(unix))]
pub(super) fn sweep(_: &Dir) {}

/// True for a name that [`Names::next`] makes.
pub(super) fn is_beside(name: &OsStr) -> bool {
    let middle = name.to_str().and_then(|name| name.strip_prefix(".entourage-")?.strip_suffix(".tmp"));
    let is_hex = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    middle.is_some_and(|middle| middle.split('-').count() == 3 && middle.split('-').all(is_hex))
}

#[cfg(all(test, unix))]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use cap_std::ambient_authority;

    use super::*;

    #[test]
    fn issue_14_only_files_of_ours_whose_writer_is_gone_are_removed() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(temp.path(), ambient_authority()).unwrap();
        let names = Names::default();
        let held = Beside::write(&names, &dir, b"half", None, Durability::Later).unwrap();
        let kept =
            [".entourage-1-2.tmp", ".entourage-1-2-g.tmp", ".entourage-1-2-3.tmp.bak", "entourage-1-2-3.tmp"];
        for name in kept {
            fs::write(temp.path().join(name), "of a person").unwrap();
        }
        symlink("a", temp.path().join(".entourage-1-2-4.tmp")).unwrap();
        fs::create_dir(temp.path().join(".entourage-1-2-5.tmp")).unwrap();
        for name in [".entourage-1-2-3.tmp", ".entourage-ff-18f-0.tmp"] {
            fs::write(temp.path().join(name), "half").unwrap();
        }
        names.clean(&dir, Path::new(""));
        let mut left: Vec<_> = fs::read_dir(temp.path())
            .unwrap()
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut expected = [&kept[..], &[".entourage-1-2-4.tmp", ".entourage-1-2-5.tmp"]].concat();
        let own = held.name.to_str().unwrap().to_owned();
        expected.push(&own);
        expected.sort_unstable();
        assert_eq!(left, expected);
        drop(held);
        fs::write(temp.path().join(".entourage-1-2-3.tmp"), "half").unwrap();
        names.clean(&dir, Path::new(""));
        assert!(temp.path().join(".entourage-1-2-3.tmp").exists(), "a directory is looked through once");
        sweep(&dir);
        assert!(!temp.path().join(".entourage-1-2-3.tmp").exists());
    }
}
