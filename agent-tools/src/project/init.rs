//! A project that no agent has seen: the check, the question, and the flag that answers it for good.

use std::{
    io::{self, Read},
    path::{Component, Path, PathBuf},
};

use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::{
    ambient_authority,
    fs::{Dir, OpenOptions},
};
use entourage_core::{Error, ErrorKind, Result};
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::{absolute, unusable};

/// The file that agents read, unless a program names another.
const TARGET: &str = "AGENTS.md";
/// The directory of the flag, and the flag.
const DATA: &str = ".entourage";
const FLAG: &str = "init";
/// Files that hold rules for agents, in small letters; with `.md` and `.local.md` behind the latter.
const RULES: [&str; 1] = [".cursorrules"];
const STEMS: [&str; 3] = ["agents", "claude", "gemini"];
/// The same below the root.
const BELOW: [&str; 2] = [".cursor/rules", ".github/copilot-instructions.md"];
/// Most entries of the root that are looked at, and most bytes of an ignore file.
const ENTRIES: usize = 10_000;
const IGNORES: u64 = 1 << 20;

/// The first look of an agent at a project, after which a file tells agents how to work there.
///
/// A program asks [`is_needed`](Init::is_needed) when it opens a project, and shows its user the
/// [`question`](Init::question). Whatever the answer, it then calls [`mark`](Init::mark), so that nobody is asked
/// twice. On yes its main agent gets `builtin::init_prompt` as an ordinary prompt, after the mark.
///
/// ```
/// use entourage_tools::project::Init;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> entourage_core::Result<()> {
/// # let root = tempfile::tempdir().unwrap();
/// # std::fs::write(root.path().join("main.rs"), "fn main() {}").unwrap();
/// let init = Init::new(root.path());
/// assert!(init.is_needed().await?);
/// assert!(init.question().contains("`AGENTS.md`"));
/// init.mark().await?;
/// assert!(!init.is_needed().await?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "settings do nothing until `is_needed`"]
pub struct Init {
    root: PathBuf,
    data: PathBuf,
    target: String,
    names: Vec<String>,
}

impl Init {
    /// Creates the settings for the project at `root`: the file `AGENTS.md`, and the flag `.entourage/init`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let (data, target) = (PathBuf::from(DATA), TARGET.to_owned());
        Self { root: root.into(), data, target, names: vec!["entourage".to_owned()] }
    }

    /// Sets the directory that holds the flag `init`: a path in the project, or an absolute one that belongs to this
    /// project alone.
    pub fn with_data_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.data = path.into();
        self
    }

    /// Sets the file that shall be written, by its path in the project.
    pub fn with_target(mut self, path: impl Into<String>) -> Self {
        self.target = path.into();
        self
    }

    /// Sets the name of the program, in place of `entourage`: a project with `NAME.md` or `NAME.local.md` has rules.
    pub fn with_own_name(mut self, name: impl AsRef<str>) -> Self {
        self.names = vec![name.as_ref().to_lowercase()];
        self
    }

    /// Returns the path of the file that shall be written.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Returns the question for the user.
    #[must_use]
    pub fn question(&self) -> String {
        format!(
            "No file tells agents how to work in this project. Shall the agent look through it and write `{}`?",
            self.target
        )
    }

    /// Returns true for a project that is to be looked at: it has no flag and no file with rules for agents, and
    /// something to look at.
    ///
    /// # Contract
    /// - Files with rules are `AGENTS.md`, `CLAUDE.md`, `GEMINI.md`, one of the program's own name and `.local.md` of
    ///   each, `.cursorrules`, `.cursor/rules`, `.github/copilot-instructions.md` and the target. Case does not count.
    ///   A README or a manifest is none.
    /// - Hidden entries of the root, and those that its `.gitignore` or `.ignore` names, are nothing to look at.
    /// - No file is changed, and none is read but the two of ignored names, up to 1 MiB each.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] and [`ErrorKind::InvalidInput`] for a root that cannot be opened;
    /// [`ErrorKind::InvalidInput`] for one that cannot be listed, and for a flag or a file with rules that cannot be
    /// looked up.
    pub async fn is_needed(&self) -> Result<bool> {
        let init = self.clone();
        off_thread(move || init.look()).await
    }

    /// Sets the flag: the question is answered. One that is there stays as it is. Its directory is created in the
    /// project; an absolute one as well.
    ///
    /// # Errors
    /// As [`Init::is_needed`], and [`ErrorKind::InvalidInput`] for a flag that cannot be written.
    pub async fn mark(&self) -> Result<()> {
        let init = self.clone();
        off_thread(move || init.write()).await
    }

    fn look(&self) -> Result<bool> {
        let root = self.open()?;
        if self.is_marked(&root)? {
            return Ok(false);
        }
        for path in BELOW.iter().copied().chain([self.target.as_str()]) {
            if exists(&root, Path::new(path)).map_err(|error| failed(path, &error))? {
                return Ok(false);
            }
        }
        self.has_work(&root).map_err(|error| unusable(&self.root, error))
    }

    fn open(&self) -> Result<Dir> {
        let full = absolute(&self.root)?;
        Dir::open_ambient_dir(full, ambient_authority()).map_err(|error| unusable(&self.root, error))
    }

    fn is_marked(&self, root: &Dir) -> Result<bool> {
        let flag = self.data.join(FLAG);
        let found = match flag.is_absolute() {
            true => present(std::fs::symlink_metadata(&flag)),
            false => exists(root, &flag),
        };
        found.map_err(|error| failed(&flag.to_string_lossy(), &error))
    }

    fn write(&self) -> Result<()> {
        let root = self.open()?;
        let data = match self.data.is_absolute() {
            true => std::fs::create_dir_all(&self.data)
                .and_then(|()| Dir::open_ambient_dir(&self.data, ambient_authority())),
            false => root.create_dir_all(&self.data).and_then(|()| root.open_dir(&self.data)),
        };
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        match data.and_then(|dir| dir.open_with(FLAG, &options)) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && self.is_marked(&root)? => Ok(()),
            Err(error) => Err(failed(&self.data.join(FLAG).to_string_lossy(), &error)),
        }
    }

    /// True if the root has something to look at, and no file with rules.
    fn has_work(&self, root: &Dir) -> io::Result<bool> {
        let ignored = [".gitignore", ".ignore"].map(|name| ignores(root, name));
        let mut has_work = false;
        for (number, entry) in root.entries()?.enumerate() {
            if number >= ENTRIES {
                return Ok(true);
            }
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_dir = entry.file_type()?.is_dir();
            if !is_dir && self.is_rules(&name.to_lowercase()) {
                return Ok(false);
            }
            let is_ignored = || ignored.iter().any(|it| it.matched(&name, is_dir).is_ignore());
            has_work |= !name.starts_with('.') && !is_ignored();
        }
        Ok(has_work)
    }

    /// True for the name, in small letters, of a file with rules for agents.
    fn is_rules(&self, name: &str) -> bool {
        let own = self.names.iter().map(String::as_str);
        let stem = name.strip_suffix(".md").map(|stem| stem.strip_suffix(".local").unwrap_or(stem));
        RULES.contains(&name)
            || name == self.target.to_lowercase()
            || stem.is_some_and(|stem| STEMS.into_iter().chain(own).any(|it| it == stem))
    }
}

fn exists(root: &Dir, path: &Path) -> io::Result<bool> {
    // A path of the program's own: a root or `..` in it is a mistake, which the handle refuses.
    let plain: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
    present(root.symlink_metadata(plain))
}

fn present<T>(found: io::Result<T>) -> io::Result<bool> {
    match found {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// The patterns of an ignore file; none of one that cannot be read.
fn ignores(root: &Dir, name: &str) -> Gitignore {
    let mut options = OpenOptions::new();
    options.read(true).nonblock(true).follow(FollowSymlinks::No);
    let is_file = root.symlink_metadata(name).is_ok_and(|found| found.is_file());
    let mut bytes = Vec::new();
    let file = is_file.then(|| root.open_with(name, &options).ok()).flatten();
    if file.is_none_or(|file| file.take(IGNORES).read_to_end(&mut bytes).is_err()) {
        return Gitignore::empty();
    }
    let mut builder = GitignoreBuilder::new("");
    for line in String::from_utf8_lossy(&bytes).trim_start_matches('\u{feff}').lines() {
        // A line that is no pattern is skipped, as in git.
        let _ = builder.add_line(None, line);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

fn failed(path: &str, error: &io::Error) -> Error {
    let text =
        format!("`{path}` cannot be looked up or written: {error}; change its permissions, or name another");
    Error::new(ErrorKind::InvalidInput, text).during("project.init")
}

async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        Error::new(ErrorKind::Internal, "the look at a project broke off; this is a defect")
            .during("project.init")
            .caused_by(error)
    })?
}
