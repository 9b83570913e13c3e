//! The stores of snapshots: a folder, by digest, or the objects of the workspace's own git repository.

use std::{
    collections::HashMap,
    io::{self, Read, Write},
    path::Path,
    sync::{Mutex, PoisonError},
};

use cap_std::{
    ambient_authority,
    fs::{Dir, OpenOptions},
};
use entourage_core::{Digest, RunId, SessionId};

use super::{
    git::Git,
    tree::{Content, Tree},
};
use crate::fs::{
    beside::{Beside, Durability, Names},
    history::{self, History},
    private,
    seen::digest_of,
    workspace::Workspace,
};

/// A snapshot while it is kept: contents first, and then the tree, with which it is there.
pub(super) enum Keeping<'a> {
    Folder { folder: &'a Folder, workspace: &'a Workspace },
    Git { folder: &'a Folder, import: Box<super::git::Import<'a>> },
}

impl Keeping<'_> {
    /// True if a content is kept, so that it need not be read.
    pub(super) fn has(&self, content: Content) -> bool {
        match self {
            Self::Folder { folder, .. } => folder.history.has(content.0),
            Self::Git { import, .. } => import.has(content),
        }
    }

    pub(super) fn add(&mut self, content: Content, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Folder { folder, .. } => folder.history.keep_unsynced((bytes, content.0)),
            Self::Git { import, .. } => import.add(content, bytes),
        }
    }

    /// Ends it. Before this returns, the snapshot is whole on the disk. Returns the objects of a repository that hold
    /// its contents.
    fn finish(self, tree: &Tree, of: &Of) -> io::Result<HashMap<Content, String>> {
        match self {
            Self::Folder { folder, workspace } => {
                folder.finish(tree, of, &workspace.names().next()).map(|()| HashMap::new())
            }
            Self::Git { folder, import } => import.finish(tree, of, |digest| folder.note(of, digest)),
        }
    }
}

/// The name of a snapshot: the run before whose first change it was taken.
#[derive(Debug, Clone)]
pub(super) struct Of {
    /// Digest of the session's id, which may be any text.
    pub(super) session: Digest,
    pub(super) run: RunId,
}

impl Of {
    pub(super) fn new(session: &SessionId, run: RunId) -> Self {
        Self { session: Digest::of([session.as_str().as_bytes()]), run }
    }
}

/// Snapshots in a folder of their own.
pub(super) struct Folder {
    history: History,
    snapshots: Dir,
    /// The digests of the trees that lie in a repository, which commands may write to.
    noted: Dir,
}

impl Folder {
    pub(super) fn open(dir: &Path) -> Result<Self, entourage_core::Error> {
        let history = History::open(dir)?;
        let open = || {
            let dir = Dir::open_ambient_dir(dir, ambient_authority())?;
            Ok((private::open(&dir, "snapshots")?, private::open(&dir, "noted")?))
        };
        let (snapshots, noted) = open().map_err(|error: io::Error| entourage_core::Error::from(error))?;
        Ok(Self { history, snapshots, noted })
    }

    /// Notes the digest of a tree that is about to be kept in a repository.
    fn note(&self, of: &Of, tree: Digest) -> io::Result<()> {
        let names = Names::default();
        let text = tree.to_string();
        Beside::write(&names, &self.noted, text.as_bytes(), None, Durability::Synced)?
            .replace(&self.noted, Path::new(&Self::name(of)))
    }

    /// The digest of a tree in a repository. Without one, what is there by its name is somebody else's.
    fn noted(&self, of: &Of) -> io::Result<Option<Digest>> {
        match self.noted.read_to_string(Self::name(of)) {
            Ok(text) => history::digest(text).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn name(of: &Of) -> String {
        format!("{}-{}.json", of.session, of.run)
    }

    pub(super) fn has(&self, of: &Of) -> bool {
        self.snapshots.symlink_metadata(Self::name(of)).is_ok()
    }

    pub(super) fn load(&self, of: &Of) -> io::Result<Option<Tree>> {
        let mut json = Vec::new();
        match self.snapshots.open(Self::name(of)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?.read_to_end(&mut json)?,
        };
        Tree::from_json(&json).map(Some)
    }

    pub(super) fn content(&self, content: Content) -> io::Result<Vec<u8>> {
        self.history.content(content.0)
    }

    fn finish(&self, tree: &Tree, of: &Of, beside: &str) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = self.snapshots.open_with(beside, options.write(true).create_new(true))?;
        file.write_all(&tree.to_json()?)?;
        self.history.sync(&file, tree.contents().map(|content| content.0))?;
        self.snapshots.rename(beside, &self.snapshots, Self::name(of))
    }
}

/// Both places: a repository where there is one that can be used, else the folder.
pub(super) struct Store {
    pub(super) folder: Folder,
    /// Objects of the repository that hold contents, as far as this process knows them.
    objects: Mutex<HashMap<Content, String>>,
}

impl Store {
    pub(super) fn new(folder: Folder) -> Self {
        Self { folder, objects: Mutex::default() }
    }

    /// True if a snapshot is kept.
    pub(super) fn has(&self, workspace: &Workspace, of: &Of) -> io::Result<bool> {
        if self.folder.has(of) {
            return Ok(true);
        }
        match Git::of(workspace) {
            Some(git) => Ok(self.folder.noted(of)?.is_some() && git.has(of)?),
            None => Ok(false),
        }
    }

    /// Keeps what `fill` adds and returns. Where the repository does not take it, the folder does.
    pub(super) fn keep(
        &self,
        workspace: &Workspace,
        of: &Of,
        fill: impl Fn(&mut Keeping<'_>) -> io::Result<Tree>,
    ) -> io::Result<()> {
        if let Some(git) = Git::of(workspace) {
            let known = self.objects.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let import = Box::new(git.import(known));
            let mut keeping = Keeping::Git { folder: &self.folder, import };
            match fill(&mut keeping) {
                Ok(tree) => {
                    if let Ok(objects) = keeping.finish(&tree, of) {
                        *self.objects.lock().unwrap_or_else(PoisonError::into_inner) = objects;
                        return Ok(());
                    }
                }
                // The program ended.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                // A tree that cannot be read cannot be kept elsewhere either.
                Err(error) => return Err(error),
            }
        }
        let mut keeping = Keeping::Folder { folder: &self.folder, workspace };
        let tree = fill(&mut keeping)?;
        keeping.finish(&tree, of).map(drop)
    }

    /// Loads a snapshot, and what its contents are read with.
    pub(super) fn load<'a>(
        &'a self,
        workspace: &'a Workspace,
        of: &Of,
    ) -> io::Result<Option<(Tree, Contents<'a>)>> {
        if let Some(tree) = self.folder.load(of)? {
            return Ok(Some((tree, Contents::Folder(&self.folder))));
        }
        let Some(git) = Git::of(workspace) else { return Ok(None) };
        let Some(noted) = self.folder.noted(of)? else { return Ok(None) };
        let Some((tree, objects)) = git.load(of, noted)? else { return Ok(None) };
        Ok(Some((tree, Contents::Git { reader: Box::new(git.reader()?), objects })))
    }
}

/// The contents of one snapshot.
pub(super) enum Contents<'a> {
    Folder(&'a Folder),
    Git { reader: Box<super::git::Reader>, objects: HashMap<Content, String> },
}

impl Contents<'_> {
    pub(super) fn read(&mut self, content: Content) -> io::Result<Vec<u8>> {
        let bytes = match self {
            Self::Folder(folder) => return folder.content(content),
            Self::Git { reader, objects } => {
                let missing = || io::Error::new(io::ErrorKind::InvalidData, "the snapshot lacks a content");
                reader.read(objects.get(&content).ok_or_else(missing)?)?
            }
        };
        if digest_of(&bytes) == content.0 {
            return Ok(bytes);
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "a kept content is damaged"))
    }
}
