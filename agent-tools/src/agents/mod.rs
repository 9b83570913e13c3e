//! Files that describe agents: found in folders of the user and of a project, and read strictly.
//!
//! It reads and checks the form. What a description means, and what it may have, is decided by the program that makes
//! an agent of it: names of tools and models are texts here.

mod context;
mod document;
mod folders;

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use entourage_core::{Error, ErrorKind, Result};
use serde_json::{Map, Value};

/// Folders with files that describe agents.
///
/// The file `reviewer.md` describes the agent `reviewer`. It begins with front matter, and the text behind that is the
/// agent's instructions; `reviewer.toml` has the same keys, and the text under `instructions`.
///
/// ```text
/// ---
/// description: Reviews a change and lists what is wrong with it.
/// model: small
/// tools: [view, grep]
/// ---
/// You review changes. …
/// ```
///
/// # Contract
/// - A name has at most 48 small letters, digits, `-` and `_`, and begins with a letter. A key `name` repeats it.
/// - Files of a project override those of the user by name, and a later folder an earlier one of the same kind. A file
///   that cannot be read overrides too: its agent is then the problem, never another file. The same holds for two
///   files of one name in a folder, and for all agents of earlier folders where a folder is there and cannot be read.
///   `README.md`, hidden files, folders and other kinds of files are passed over.
/// - A file has at most 64 KiB, a folder 1,000 entries and 200 agents. One with more entries cannot be read; files
///   beyond 200 agents cannot be read either, and override by their names. No link below a folder is followed, and
///   nothing but a regular file is opened.
/// - Front matter has lines `key: text` and lists of texts; tables need TOML. Characters that nobody sees are left out
///   of instructions and descriptions, and refused elsewhere. Line ends become `\n`.
/// - The key `context` lists files whose text joins the instructions, see [`AgentFolders::complete`].
///
/// ```
/// use entourage_tools::agents::AgentFolders;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> entourage_core::Result<()> {
/// # let home = tempfile::tempdir().unwrap();
/// # let home = home.path();
/// # std::fs::create_dir_all(home.join("agents")).unwrap();
/// std::fs::write(home.join("agents/scout.md"), "---\ndescription: Looks around.\n---\nYou look around.").unwrap();
/// let folders = AgentFolders::new().with_user(home.join("agents")).with_project(".", [".agents"]);
/// let found = folders.read().await?;
/// assert_eq!(found.agents["scout"].as_ref().unwrap().instructions, "You look around.");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "folders do nothing until `read`"]
pub struct AgentFolders {
    user: Vec<PathBuf>,
    /// The root of the project, and the folders in it.
    project: Option<(PathBuf, Vec<PathBuf>)>,
}

/// What was read of some folders.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct FoundAgents {
    /// The descriptions by name; or the problem of a file, for the user, with the next step.
    pub agents: BTreeMap<String, std::result::Result<AgentFile, String>>,
    /// The problems of folders, and of files whose names name no agent.
    pub problems: Vec<String>,
}

/// The description of one agent, as it was written.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AgentFile {
    /// Its name.
    pub name: String,
    /// The path of its file, as one line.
    pub path: String,
    /// True for one that comes with the project.
    pub from_project: bool,
    /// Its keys but `instructions`. Those of front matter are texts and lists of texts.
    pub settings: Map<String, Value>,
    /// Its instructions.
    pub instructions: String,
}

impl AgentFile {
    /// Creates the description of an agent of the user, with no settings.
    #[must_use]
    pub fn new(name: impl Into<String>, path: impl Into<String>, instructions: impl Into<String>) -> Self {
        let (name, path, instructions) = (name.into(), path.into(), instructions.into());
        Self { name, path, from_project: false, settings: Map::new(), instructions }
    }
}

impl AgentFolders {
    /// No folders.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a folder of the user. One that does not exist has no agents.
    pub fn with_user(mut self, folder: impl Into<PathBuf>) -> Self {
        self.user.push(folder.into());
        self
    }

    /// Sets the project by its root, and the folders in it, such as `.agents`, by their paths in it. They need not
    /// exist. No link leads out of the project.
    ///
    /// Whoever wrote the project wrote these files: they tell an agent what to do. Give its folders when the user
    /// trusts it, or give agents of projects little scope.
    pub fn with_project<P: AsRef<Path>>(
        mut self,
        root: impl Into<PathBuf>,
        folders: impl IntoIterator<Item = P>,
    ) -> Self {
        self.project = Some((root.into(), folders.into_iter().map(|it| it.as_ref().to_owned()).collect()));
        self
    }

    /// Reads all files. Reading goes on to its bounds when the future is dropped. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if reading breaks off, which is a defect. All else is among the problems.
    pub async fn read(&self) -> Result<FoundAgents> {
        let folders = self.clone();
        off_thread(move || folders::read(&folders.user, folders.project.as_ref())).await
    }

    /// Returns the instructions of `file` with the text of the files that its key `context` lists, sorted by path.
    /// Files that do not exist are left out. A file counts with 64 KiB at most, all together with 256 KiB.
    ///
    /// A file of a project names texts in it, by relative paths that end in `.md`, `.mdx`, `.txt`, `.rst` or `.adoc`,
    /// and no link is followed: a foreign project may name a secret. A file of the user may name any file or directory,
    /// also with `~` and variables, as `ProjectOptions` of the feature `project` reads them; a relative path is one of
    /// the project, or of the current directory where no project is set.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for another path in a project's file, for one that cannot be read there, for a value
    /// that is no list of at most 200 texts, and for a root that cannot be opened.
    pub async fn complete(&self, file: &AgentFile) -> Result<String> {
        let (file, root) = (file.clone(), self.project.as_ref().map(|(root, _)| root.clone()));
        off_thread(move || context::complete(&file, root.as_deref())).await?
    }
}

async fn off_thread<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(read).await.map_err(|error| {
        Error::new(ErrorKind::Internal, "reading files of agents broke off; this is a defect")
            .during("agents.read")
            .caused_by(error)
    })
}
