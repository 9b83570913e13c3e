//! Snapshots of a workspace, to which a session can go back.

mod git;
mod restore;
mod scan;
mod store;
mod tree;

use std::{
    cell::{Cell, RefCell},
    fmt, io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, RunId, SessionId,
    session::{Restored, Snapshots},
};

use super::{rules::Rules, workspace::Workspace};
#[cfg_attr(not(feature = "shell"), allow(unused_imports, reason = "the shell lists changes"))]
pub(super) use scan::{Found, scan};
use scan::{Known, is_rules, link, mode, too_large};
use store::{Folder, Keeping, Of, Store};
use tree::{Entry, Tree};

/// Largest file that is kept, in bytes.
const LARGEST: u64 = 256 << 20;

/// Keeps the files of a [`Workspace`] as they were before each prompt, for `Session::rewind` and `Session::restore`:
/// also what commands changed is taken back.
///
/// # Contract
/// - A snapshot has all files, links and directories below the root, hidden ones too, with the bits of who may read,
///   write and run them. What `.gitignore` and `.ignore` files of the workspace name is no part of it, also where a
///   repository tracks it, nor is `.git`; these files themselves are, even if they name each other. Pipes, sockets,
///   devices, what cannot be read and what is nested in more than 256 directories are left as they are, unless a pipe,
///   socket or device took the place of what the snapshot has.
/// - In the root of a git repository of this program's user, a snapshot is a reference below
///   `refs/entourage/` of it: no branch, tag, stash or index changes, no program of the repository's runs, and nothing
///   is pushed. Elsewhere, and where there is no `git`, it lies in the folder. Contents are kept once each. Nothing is
///   removed: remove a reference or the folder to be rid of them. The folder has the digest of a snapshot that lies in
///   a repository: one that a command changed there is an error, and nothing is restored. One that a command made there
///   is none.
/// - A workspace of more than 200,000 places or 2 GiB, or with a file of more than 256 MiB, is not kept, which is an
///   error of kind [`ErrorKind::InvalidInput`] that names the way out; see [`FileSnapshots::with_most`].
/// - To restore, files are replaced one by one, each whole; what is as it was is not touched. What came since is
///   removed, unless the ignore files of the snapshot name it. No link is followed, so nothing outside of the root
///   changes.
/// - A snapshot is there whole or not at all. Dropping a future does not stop the work that has begun. File tools of
///   this workspace and its clones wait meanwhile; commands do not.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use entourage_core::{RunId, SessionId, session::Snapshots};
/// use entourage_tools::fs::{FileSnapshots, Workspace};
///
/// # let (root, state) = (tempfile::tempdir()?, tempfile::tempdir()?);
/// std::fs::write(root.path().join("a.txt"), "before")?;
/// let workspace = Workspace::open(root.path())?;
/// let snapshots = FileSnapshots::open(&workspace, state.path().join("snapshots"))?;
/// // A runtime does this by itself: `Runtime::builder().snapshots(snapshots)`.
/// let (session, run) = (SessionId::generate(), RunId::generate());
/// snapshots.take(&session, run).await?;
///
/// std::fs::remove_file(root.path().join("a.txt"))?;
/// std::fs::write(root.path().join("b.txt"), "new")?;
/// let restored = snapshots.restore(&session, &[run]).await?;
/// assert_eq!(std::fs::read_to_string(root.path().join("a.txt"))?, "before");
/// assert_eq!((restored.written, restored.removed), (vec!["a.txt".to_owned()], vec!["b.txt".to_owned()]));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct FileSnapshots {
    inner: Arc<Inner>,
    most: Most,
}

/// The largest workspace that is kept.
#[derive(Debug, Clone, Copy)]
struct Most {
    places: usize,
    bytes: u64,
}

/// The size of a workspace, as far as it was looked at.
struct Size {
    places: usize,
    bytes: u64,
    most: Most,
}

impl Size {
    fn count(&mut self, path: &Path, found: &Found) -> io::Result<()> {
        let length = if let Found::File(meta) = found { meta.len() } else { 0 };
        self.places = self.places.saturating_add(1);
        self.bytes = self.bytes.saturating_add(length);
        let fits = self.places <= self.most.places && self.bytes <= self.most.bytes && length <= LARGEST;
        if fits { Ok(()) } else { Err(too_large(path)) }
    }
}

struct Inner {
    workspace: Workspace,
    store: Store,
    known: Mutex<Known>,
}

impl FileSnapshots {
    /// Opens the folder `dir`, which is created where it is missing. Keep it beside the store of the sessions and
    /// outside of the root; it may be that of [`Workspace::with_history`]. Blocks for the time of a few file system
    /// calls.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the folder cannot be opened.
    pub fn open(workspace: &Workspace, dir: impl AsRef<Path>) -> Result<Self> {
        let store = Store::new(Folder::open(dir.as_ref())?);
        let inner = Inner { workspace: workspace.clone(), store, known: Mutex::default() };
        Ok(Self { inner: Arc::new(inner), most: Most { places: 200_000, bytes: 2 << 30 } })
    }

    /// The same snapshots with another bound: the number of places, and the bytes of all files together.
    #[must_use]
    pub fn with_most(mut self, places: usize, bytes: u64) -> Self {
        self.most = Most { places, bytes };
        self
    }

    /// Does blocking work while no file tool changes anything.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner, Most) -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (inner, most) = (Arc::clone(&self.inner), self.most);
        let done = tokio::task::spawn_blocking(move || {
            let _one_at_a_time = inner.workspace.writing();
            work(&inner, most)
        });
        done.await
            .map_err(|error| Error::new(ErrorKind::Internal, "a snapshot broke off").caused_by(error))?
            .map_err(|error| match error.kind() {
                io::ErrorKind::FileTooLarge => Error::new(ErrorKind::InvalidInput, error.to_string()),
                _ => Error::from(error),
            })
    }
}

impl Inner {
    fn take(&self, of: &Of, most: Most) -> io::Result<()> {
        if self.store.has(&self.workspace, of)? {
            return Ok(());
        }
        self.store.keep(&self.workspace, of, |keeping| self.fill(keeping, most))
    }

    /// Reads the workspace, and adds the contents that are not kept yet.
    fn fill(&self, keeping: &mut Keeping<'_>, most: Most) -> io::Result<Tree> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tree = Tree::default();
        let mut size = Size { places: 0, bytes: 0, most };
        let keeping = RefCell::new(keeping);
        let (is_measured, repositories) = (Cell::new(false), RefCell::new(Vec::new()));
        let on_disk = |dir: &Path, above, has: &dyn Fn(&str) -> bool| {
            if has(".git") && !dir.as_os_str().is_empty() {
                repositories.borrow_mut().push(dir.join(".git"));
            }
            Ok(Rules::read(&self.workspace, dir, above, has))
        };
        scan(&self.workspace, on_disk, is_rules, |path, found, dir| {
            size.count(path, &found)?;
            let entry = match found {
                Found::Dir(mode) => Entry::Dir { mode },
                Found::Link => link(dir, path).unwrap_or(Entry::Other),
                Found::Closed | Found::Other => Entry::Other,
                Found::File(meta) => {
                    let add = |content, bytes: &[u8]| {
                        // A repository keeps what was added by a snapshot that then turned out to be too large.
                        if !is_measured.replace(true) {
                            self.measure(most)?;
                        }
                        keeping.borrow_mut().add(content, bytes)
                    };
                    let has = |content| keeping.borrow().has(content);
                    let content = known.content((dir, path, &meta), LARGEST, add, has)?;
                    content.map_or(Entry::Other, |content| Entry::File { mode: mode(&meta), content })
                }
            };
            tree.0.insert(path.to_owned(), entry);
            Ok(())
        })?;
        // Where a repository begins, the rules of the one around it end. The restoration asks the tree.
        tree.0.extend(repositories.into_inner().into_iter().map(|path| (path, Entry::Other)));
        Ok(tree)
    }

    /// Looks if the workspace can be kept, and reads no content.
    fn measure(&self, most: Most) -> io::Result<()> {
        let mut size = Size { places: 0, bytes: 0, most };
        let on_disk =
            |dir: &Path, above, has: &dyn Fn(&str) -> bool| Ok(Rules::read(&self.workspace, dir, above, has));
        scan(&self.workspace, on_disk, is_rules, |path, found, _| size.count(path, &found))
    }

    fn restore(&self, session: &SessionId, runs: &[RunId]) -> io::Result<Restored> {
        for run in runs {
            let of = Of::new(session, *run);
            if let Some((tree, mut contents)) = self.store.load(&self.workspace, &of)? {
                let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                let mut restored =
                    restore::restore(&self.workspace, &tree, &mut contents, (&mut known, LARGEST))?;
                restored.run = Some(*run);
                return Ok(restored);
            }
        }
        Ok(Restored::default())
    }
}

#[async_trait]
impl Snapshots for FileSnapshots {
    async fn take(&self, session: &SessionId, run: RunId) -> Result<()> {
        let of = Of::new(session, run);
        self.blocking(move |inner, most| inner.take(&of, most)).await
    }

    async fn restore(&self, session: &SessionId, runs: &[RunId]) -> Result<Restored> {
        let (session, runs) = (session.clone(), runs.to_owned());
        self.blocking(move |inner, _| inner.restore(&session, &runs)).await
    }
}

impl fmt::Debug for FileSnapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSnapshots").field("root", &self.inner.workspace.root()).finish_non_exhaustive()
    }
}
