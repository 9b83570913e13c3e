//! Facts about a project for prompt templates: its directory, git, the platform, the date, context files.
//!
//! The core's templates read nothing from the machine; this module does. A repository is untrusted: none of its
//! programs is run, and no link in it leads a read out of it.

mod date;
mod expand;
mod files;
mod git;
mod init;

#[cfg(test)]
mod tests;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use entourage_core::{
    Error, ErrorKind, Result, Timestamp,
    context::{ContextFile, GitFacts, PromptFacts},
};

use expand::Expander;
use files::Files;

use crate::invisible::{line, visible};

#[cfg(feature = "agents")]
pub(crate) use files::is_prose;
pub use init::Init;

/// The default context files: a file for agents, and a directory of notes.
pub const DEFAULT_CONTEXT_PATHS: [&str; 2] = ["AGENTS.md", ".agents/memory"];

/// Returns the value of an environment variable.
type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Settings for `ProjectFacts::gather`.
///
/// # Paths of context files
/// - `~` and `~/` at the start stand for the home directory, `$NAME` and `${NAME}` for variables. A path with an unset
///   variable is left out. Values are not expanded again.
/// - A relative path stays in the project, wherever links lead: files outside are left out, since a foreign repository
///   may hold a link to a secret. Within it a link is followed to texts alone (`.md`, `.mdx`, `.txt`, `.rst`,
///   `.adoc`), in a directory that it leads to as well. Name a file outside by its absolute path, which is trusted.
/// - A directory is walked at all levels; hidden entries and links in it are left out.
#[derive(Clone)]
#[must_use = "options do nothing until `ProjectFacts::gather`"]
pub struct ProjectOptions {
    context: Vec<String>,
    global: Vec<String>,
    now: Timestamp,
    platform: String,
    git: bool,
    lookup: Arc<Lookup>,
}

impl ProjectOptions {
    /// Default settings: [`DEFAULT_CONTEXT_PATHS`], no global context files, git, this system, and the date of `now`
    /// in UTC.
    pub fn new(now: Timestamp) -> Self {
        Self {
            context: DEFAULT_CONTEXT_PATHS.map(str::to_owned).into(),
            global: Vec::new(),
            now,
            platform: std::env::consts::OS.to_owned(),
            git: true,
            lookup: Arc::new(|name| std::env::var(name).ok()),
        }
    }

    /// Sets the project's context files and directories, instead of the default ones.
    pub fn with_context_paths(mut self, paths: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.context = paths.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the user's own context files and directories, such as `~/.config/agents`.
    pub fn with_global_context_paths(mut self, paths: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.global = paths.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the name of the platform, for example that of the machine where commands will run.
    pub fn with_platform(mut self, name: impl Into<String>) -> Self {
        self.platform = name.into();
        self
    }

    /// Leaves git out.
    pub fn without_git(mut self) -> Self {
        self.git = false;
        self
    }

    /// Reads variables in paths, and the home directory (`HOME`, then `USERPROFILE`), from `lookup` instead of from
    /// the process's environment.
    pub fn with_variables(mut self, lookup: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        self.lookup = Arc::new(lookup);
        self
    }
}

impl fmt::Debug for ProjectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProjectOptions")
            .field("context", &self.context)
            .field("global", &self.global)
            .field("now", &self.now)
            .field("platform", &self.platform)
            .field("git", &self.git)
            .finish_non_exhaustive()
    }
}

/// The gathered facts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProjectFacts {
    /// The directory, absolute.
    pub working_dir: PathBuf,
    /// The state of the repository that contains the directory. `None` without a repository or the `git` program, and
    /// if git refuses or does not answer within 2 seconds.
    pub git: Option<GitFacts>,
    /// The operating system: `linux`, `macos`, `windows` and the like.
    pub platform: String,
    /// The date in UTC, as `2026-01-31`.
    pub date: String,
    /// The project's context files, by path.
    pub context_files: Vec<ContextFile>,
    /// The user's own context files, by path, without those of the project.
    pub global_context_files: Vec<ContextFile>,
}

impl ProjectFacts {
    /// Gathers the facts of the project in `dir`.
    ///
    /// # Contract
    /// - **Context files** are sorted by path; two paths of the same file, or that differ in case alone, count once.
    ///   Files that are unreadable, contain a NUL or are not regular are left out silently. A file is cut at 64 KiB,
    ///   with a line that says so; a list has at most 256 KiB and 200 files, the first by path. A walk ends before the
    ///   directory with the 10,001st entry, and after 16 levels.
    /// - **Git** gets 2 seconds in total, with no variables but `PATH` and those of the home directory. It takes no
    ///   locks, changes nothing, reaches no server and runs no program that a repository's configuration names.
    ///   Filters are such programs, so a file under one may be shown as changed.
    /// - Nothing is kept open. Dropping the future kills git; reading files ends at its bounds.
    ///
    /// Needs a tokio runtime with I/O and time, unless git is left out.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if `dir` does not exist, [`ErrorKind::InvalidInput`] if it is not a directory or cannot
    /// be opened.
    pub async fn gather(dir: impl AsRef<Path>, options: ProjectOptions) -> Result<Self> {
        let ProjectOptions { context, global, now, platform, git, lookup } = options;
        let given = dir.as_ref().to_owned();
        let read = tokio::task::spawn_blocking(move || -> Result<_> {
            let root = absolute(&given)?;
            let mut files = Files::open(&root).map_err(|error| unusable(&given, error))?;
            let expander = Expander::new(&*lookup);
            let context_files = files.read(&context, &expander);
            let global_context_files = files.read(&global, &expander);
            Ok((root, context_files, global_context_files))
        });
        let (working_dir, context_files, global_context_files) = read.await.map_err(|error| {
            Error::new(ErrorKind::Internal, "reading context files broke off; this is a defect")
                .caused_by(error)
        })??;
        let git = if git { git::ask(&working_dir).await } else { None };
        let date = date::utc(now);
        Ok(Self { working_dir, git, platform, date, context_files, global_context_files })
    }

    /// Converts into the facts of a prompt. Facts that the machine does not know, such as the model, have to be added.
    #[must_use]
    pub fn into_prompt(self) -> PromptFacts {
        PromptFacts::new()
            .with_working_dir(self.working_dir.to_string_lossy())
            .with_git(self.git)
            .with_platform(self.platform)
            .with_date(self.date)
            .with_context_files(self.context_files)
            .with_global_context_files(self.global_context_files)
    }
}

/// The facts as a text to append to instructions: directory, platform, date and git in a few lines, then each context
/// file in a block with its path, which the file cannot end.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use entourage_core::Timestamp;
/// use entourage_tools::project::{ProjectFacts, ProjectOptions};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// std::fs::write(dir.join("AGENTS.md"), "Run `cargo test` before you answer.")?;
/// let facts = ProjectFacts::gather(dir, ProjectOptions::new(Timestamp::now())).await?;
/// assert!(facts.to_string().contains("AGENTS.md\">\nRun `cargo test` before you answer.\n</file>"));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
impl fmt::Display for ProjectFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (dir, platform, date) = (self.working_dir.display(), &self.platform, &self.date);
        writeln!(f, "You work in the directory `{dir}` on {platform}. Today is {date} (UTC).")?;
        if let Some(git) = &self.git {
            writeln!(f, "It is a git repository on {}, with the status:\n{}", git.branch, git.status)?;
            git.commits.iter().try_for_each(|commit| writeln!(f, "last commit: {commit}"))?;
        }
        self.global_context_files.iter().chain(&self.context_files).try_for_each(|file| {
            // A file of a project may hold what a person does not see and a model reads.
            let path = line(&file.path).replace(['"', '<', '>'], "_");
            let content = visible(&file.content).replace("</file", "< /file");
            writeln!(f, "\n<file path=\"{path}\">\n{content}\n</file>")
        })
    }
}

/// Reads the context files at `paths`, relative ones in the project at `root`, as [`ProjectFacts::gather`] does.
///
/// # Errors
/// As there.
#[cfg(feature = "agents")]
pub(crate) fn context_files(root: &Path, paths: &[String]) -> Result<Vec<ContextFile>> {
    let full = absolute(root)?;
    let mut files = Files::open(&full).map_err(|error| unusable(root, error))?;
    Ok(files.read(paths, &Expander::new(&|name| std::env::var(name).ok())))
}

fn absolute(dir: &Path) -> Result<PathBuf> {
    let found = std::fs::metadata(dir).map_err(|error| unusable(dir, error))?;
    if !found.is_dir() {
        return Err(unusable(dir, std::io::ErrorKind::NotADirectory.into()));
    }
    let full = std::path::absolute(dir).map_err(|error| unusable(dir, error))?;
    // `..` after a link is not the directory before the link: only the system can resolve it.
    if full.components().any(|part| part == std::path::Component::ParentDir) {
        return std::fs::canonicalize(dir).map_err(|error| unusable(dir, error));
    }
    Ok(full.components().collect())
}

fn unusable(dir: &Path, error: std::io::Error) -> Error {
    let shown = dir.display();
    let (kind, message) = match error.kind() {
        std::io::ErrorKind::NotFound => {
            (ErrorKind::NotFound, format!("the directory `{shown}` does not exist; name another"))
        }
        _ => (
            ErrorKind::InvalidInput,
            format!("`{shown}` cannot be opened as a directory: {error}; name another"),
        ),
    };
    Error::new(kind, message).during("project.gather").caused_by(error)
}
