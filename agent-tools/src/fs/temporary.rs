//! Workspaces for a moment: a directory that is removed with its last use, or by the next program if this one is
//! killed.
//!
//! A locked file beside each directory tells the living ones from what was left over: the lock ends with its process.

use std::{
    ffi::OsStr,
    fmt,
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use entourage_core::{Error, ErrorKind, tool::Labels};

use super::{Workspace, private};

/// Most entries of the root that one sweep looks at.
const ENTRIES: usize = 100_000;

/// Names that are tried for a new directory.
const TRIES: u32 = 100;

const PREFIX: &str = "entourage-place-";
const LOCK: &str = "lock";

/// A workspace in a directory of its own, which is removed when this value is dropped: after an answer, an error, a
/// cancel and a panic alike. Clones of the workspace and its tools may outlive it; they find nothing then.
///
/// A killed program leaves its directories: [`TemporaryWorkspace::sweep`] removes them, and none that a living program
/// uses. All methods block for a few calls of the file system, and so does the drop.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use entourage_tools::fs::TemporaryWorkspace;
///
/// # let data = tempfile::tempdir()?;
/// # let data = data.path().join("places");
/// TemporaryWorkspace::sweep(&data)?; // once, when the program starts
/// let place = TemporaryWorkspace::create(&data)?;
/// std::fs::write(place.path().join("page.md"), "# News")?;
/// let tools = place.workspace().read_tools();
/// let path = place.path().to_owned();
/// drop((tools, place));
/// assert!(!path.exists());
/// # Ok(())
/// # }
/// ```
pub struct TemporaryWorkspace {
    workspace: Workspace,
    place: Place,
}

/// The directory and its lock. Both are removed on drop.
struct Place {
    dir: PathBuf,
    lock: PathBuf,
    /// Held as long as the place: the lock ends with it.
    _held: File,
}

impl TemporaryWorkspace {
    /// Creates a directory in `root`, which is created where it is missing, and opens it. On Unix nobody but the user
    /// can look into it.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when the system refuses it, with the path; those of [`Workspace::open`].
    pub fn create(root: impl AsRef<Path>) -> Result<Self, Error> {
        let root = root.as_ref();
        let place = fs::create_dir_all(root).and_then(|()| Place::create(root));
        let place = place.map_err(|error| unusable(root, &error))?;
        // It holds what was fetched.
        let workspace = Workspace::open(&place.dir)?.with_labels(Labels::UNTRUSTED);
        Ok(Self { workspace, place })
    }

    /// Removes the directories in `root` that killed programs left. Those of living programs, and anything else there,
    /// stay. Links are removed and never followed. Returns the number of directories removed; a `root` that does not
    /// exist has none. What cannot be removed stays for the next sweep.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when `root` cannot be read.
    pub fn sweep(root: impl AsRef<Path>) -> Result<usize, Error> {
        let root = root.as_ref();
        let entries = match fs::read_dir(root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            entries => entries.map_err(|error| unusable(root, &error))?,
        };
        let locks = entries.take(ENTRIES).filter_map(|entry| Some(entry.ok()?.path()));
        let locks = locks.filter(|path| path.file_name().is_some_and(is_lock));
        Ok(locks.filter(|lock| remove_leftover(lock)).count())
    }

    /// Returns the workspace.
    #[must_use]
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// Returns the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.place.dir
    }
}

impl fmt::Debug for TemporaryWorkspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TemporaryWorkspace").field("path", &self.place.dir).finish_non_exhaustive()
    }
}

impl Place {
    fn create(root: &Path) -> io::Result<Self> {
        for attempt in 0..TRIES {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let name = format!("{PREFIX}{:x}-{:x}-{attempt:x}", std::process::id(), now.as_nanos());
            let dir = root.join(name);
            let lock = dir.with_extension(LOCK);
            let held = match OpenOptions::new().write(true).create_new(true).open(&lock) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                held => held?,
            };
            // Without locks nobody can take it for a leftover.
            let taken = matches!(held.try_lock(), Err(TryLockError::WouldBlock));
            // A sweep may have removed the file before it was locked.
            if taken || fs::symlink_metadata(&lock).is_err() {
                continue;
            }
            let place = Self { dir, lock, _held: held };
            private::builder().create(&place.dir)?;
            return Ok(place);
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "no free name was found"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Of a directory that cannot be removed, the lock stays: a sweep tries again.
        if is_removed(&self.dir) {
            drop(fs::remove_file(&self.lock));
        }
    }
}

/// Removes a directory by its lock, if nobody holds that. Returns true if there was one and it is gone.
fn remove_leftover(lock: &Path) -> bool {
    // The link would be followed to a file that is none of ours.
    if !fs::symlink_metadata(lock).is_ok_and(|it| it.is_file()) {
        return false;
    }
    let Ok(held) = File::open(lock) else { return false };
    if held.try_lock().is_err() {
        return false;
    }
    let dir = lock.with_extension("");
    let was_there = fs::symlink_metadata(&dir).is_ok();
    let removed = is_removed(&dir);
    if removed {
        drop(fs::remove_file(lock));
    }
    was_there && removed
}

/// Removes a directory with all in it. Returns true if it is not there afterwards.
fn is_removed(dir: &Path) -> bool {
    match fs::remove_dir_all(dir) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn is_lock(name: &OsStr) -> bool {
    let middle = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(".lock"));
    let is_hex = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    middle.is_some_and(|middle| middle.split('-').count() == 3 && middle.split('-').all(is_hex))
}

fn unusable(root: &Path, error: &io::Error) -> Error {
    let text = format!(
        "no temporary workspace in `{}`: {error}; name a directory that the program may write to",
        root.display()
    );
    Error::new(ErrorKind::Io, text)
}

#[cfg(test)]
mod tests {
    use std::{fs, panic, time::Duration};

    use super::TemporaryWorkspace;

    fn entries(root: &std::path::Path) -> Vec<String> {
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<_> = fs::read_dir(root).unwrap().map(name).collect();
        names.sort();
        names
    }

    #[tokio::test(start_paused = true)]
    async fn ai07_a_place_is_gone_after_a_drop_a_panic_and_a_cancel() {
        let data = tempfile::tempdir().unwrap();
        let root = data.path().join("places");
        let work = || {
            let place = TemporaryWorkspace::create(&root).unwrap();
            fs::create_dir(place.path().join("pages")).unwrap();
            fs::write(place.path().join("pages/one.md"), "# One").unwrap();
            assert_eq!(entries(&root).len(), 2, "the directory and its lock");
            place
        };
        drop(work());
        assert!(entries(&root).is_empty());
        let panicked = panic::catch_unwind(panic::AssertUnwindSafe(|| {
            let _place = work();
            panic!("oh");
        }));
        assert!(panicked.is_err() && entries(&root).is_empty());
        let hangs = async {
            let _place = work();
            std::future::pending::<()>().await;
        };
        assert!(tokio::time::timeout(Duration::from_secs(1), hangs).await.is_err());
        assert!(entries(&root).is_empty());
    }

    #[test]
    fn ai07_a_sweep_removes_what_is_left_over_and_nothing_that_lives() {
        let data = tempfile::tempdir().unwrap();
        let root = data.path();
        assert_eq!(TemporaryWorkspace::sweep(root.join("nowhere")).unwrap(), 0);
        let alive = TemporaryWorkspace::create(root).unwrap();
        for left in ["entourage-place-1-2-0", "entourage-place-1-3-0"] {
            fs::create_dir(root.join(left)).unwrap();
            fs::write(root.join(left).join("page.md"), "old").unwrap();
            fs::write(root.join(left).with_extension("lock"), "").unwrap();
        }
        // A lock whose directory was never made, and what is none of ours.
        fs::write(root.join("entourage-place-1-4-0.lock"), "").unwrap();
        let others =
            ["entourage-place-.lock", "entourage-place-1-2-x.lock", "notes.lock", "entourage-place-9-9-9"];
        for other in others {
            fs::write(root.join(other), "keep").unwrap();
        }
        assert_eq!(TemporaryWorkspace::sweep(root).unwrap(), 2);
        let mut expected: Vec<_> = others.map(str::to_owned).to_vec();
        let name = alive.path().file_name().unwrap().to_str().unwrap().to_owned();
        expected.extend([format!("{name}.lock"), name]);
        expected.sort();
        assert_eq!(entries(root), expected);
        assert_eq!(TemporaryWorkspace::sweep(root).unwrap(), 0);
        drop(alive);
        assert_eq!(entries(root).len(), others.len());
    }

    #[cfg(unix)]
    #[test]
    fn ai07_links_are_removed_and_not_followed() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let data = tempfile::tempdir().unwrap();
        let (root, outside) = (data.path().join("places"), data.path().join("outside"));
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept.md"), "kept").unwrap();
        let place = TemporaryWorkspace::create(&root).unwrap();
        let mode = fs::metadata(place.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "nobody else looks into it");
        symlink(&outside, place.path().join("out")).unwrap();
        drop(place);
        symlink(&outside, root.join("entourage-place-1-2-0")).unwrap();
        fs::write(root.join("entourage-place-1-2-0.lock"), "").unwrap();
        symlink(outside.join("kept.md"), root.join("entourage-place-1-3-0.lock")).unwrap();
        TemporaryWorkspace::sweep(&root).unwrap();
        assert_eq!(entries(&outside), ["kept.md"]);
        assert_eq!(fs::read_to_string(outside.join("kept.md")).unwrap(), "kept");
    }
}
