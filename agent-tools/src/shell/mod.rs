//! Tools that run command lines: [`Shell`] has `bash`, `job_output` and `job_kill`.
//!
//! A command line is read before it runs, so that rules and people judge each command in it, and so that one that only
//! reads is known. A program that is allowed to run may do what the system lets it do; with the feature
//! `sandbox`, `Shell::with_sandbox` confines it.

mod bash;
mod confine;
mod job;
mod jobs;
mod judge;
mod output;
mod parse;
mod report;
mod repository;
mod running;
mod watchdog;

use std::{
    ffi::OsString,
    fmt,
    path::{Component, Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use entourage_core::{
    Error, ErrorKind,
    tool::{Access, Footprint, Labels, Tool, ToolError, ToolSpec, normal_path},
};

use crate::process::{disk::Disk, spawn::Program};
use jobs::Jobs;
use running::After;
use watchdog::Watchdog;

/// Bytes that commands leave free.
const FREE_SPACE: u64 = 128 << 20;

/// Runs command lines of models in a directory. Clones share its jobs.
///
/// # Contract
/// - A command line runs in a process group of its own, without input, in the root or a directory below it that the
///   call names. When its call is cancelled or dropped, the whole group is killed. So is what a command leaves behind
///   when it ends: a program that shall go on is a job. A program that leaves the group, as `setsid` does, ends with
///   its command in a sandbox; without one it is not found, and goes on.
/// - A command that takes longer than [`Shell::with_background_after`] becomes a job of its session, as does one that
///   the model starts in the background. At most 50 jobs are kept, and those that ended for 8 hours.
/// - All jobs are killed by [`Shell::close`], and when the last clone of the shell and the last of its tools is
///   dropped. Where this program itself is killed, a small shell that watches over it kills the groups of its commands
///   (on Unix); one that left its group goes on, but for those under bubblewrap.
/// - The environment is that of the program without secrets and without variables that change what commands mean.
///   [`Shell::with_env`] adds to it.
/// - Of an output of more than 30,000 characters the first and the last 15,000 are kept.
/// - A command that fails is no error result: what it printed is followed by its exit code. The metadata of a result
///   has `exit_code`, `signal`, `aborted` (the reason for which it was stopped), `duration_ms`, `dropped_bytes`, `job`
///   and `judged` (what rules judged), and with a sandbox `sandbox` (its record), `refused` and `restored`.
/// - Each simple command of a line is a subject for rules. A line that only reads files below the root, by commands
///   and options that are known to do that alone, declares read access; any other one write, execute and network
///   access.
///
/// # Rules
/// No command is refused by the tool itself: rules decide, and a sandbox confines. Where models shall not change the
/// machine or talk to others, deny that by rules, which hold for each command wherever it is in a line. A line that
/// cannot be read with certainty is treated as if it ran all of them.
///
/// ```
/// use entourage_runtime::permission::Policy;
/// use entourage_tools::shell::Shell;
///
/// # fn main() -> Result<(), entourage_core::Error> {
/// let shell = Shell::open(".")?.with_env("CI", "1");
/// let policy = Policy::new()
///     .allow("bash:cargo test*")
///     .deny("bash:sudo *")
///     .deny("bash:curl *");
/// assert_eq!(shell.tools().len(), 3);
/// # let _ = policy;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Shell {
    settings: Arc<Settings>,
    jobs: Arc<Jobs>,
    watchdog: Arc<Watchdog>,
}

#[derive(Clone)]
struct Settings {
    /// The names of the root; the first is canonical.
    roots: Vec<PathBuf>,
    program: Program,
    added: Vec<(OsString, OsString)>,
    time_limit: Duration,
    background_after: Duration,
    sandbox: Option<confine::Sandbox>,
    free_space: u64,
    look: Option<Look>,
    /// Labels of the files that commands show.
    labels: Labels,
}

/// A look at what there is before a command. Blocks.
type Look = Arc<dyn Fn() -> After + Send + Sync>;

impl Shell {
    /// Opens the directory `root`, in which commands run. Blocks for the time of a few file system calls.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it does not exist, [`ErrorKind::InvalidInput`] if it is no directory,
    /// [`ErrorKind::Config`] if this machine has neither `bash` nor `sh`.
    pub fn open(root: impl AsRef<Path>) -> Result<Self, Error> {
        let root = root.as_ref();
        let shown = root.display();
        let canonical = std::fs::canonicalize(root).map_err(|error| {
            let text = format!("the directory `{shown}` cannot be opened; create it or name another one");
            Error::new(ErrorKind::NotFound, text).during("shell.open").caused_by(error)
        })?;
        if !canonical.is_dir() {
            let text = format!("`{shown}` is no directory; name the one that holds it");
            return Err(Error::new(ErrorKind::InvalidInput, text).during("shell.open"));
        }
        let program = Program::find(std::env::var_os("PATH")).ok_or_else(|| {
            Error::new(ErrorKind::Config, "there is neither `bash` nor `sh`; install one")
                .during("shell.open")
        })?;
        let mut roots = vec![canonical];
        let plain = !root.components().any(|part| part == Component::ParentDir);
        let given = std::path::absolute(root).ok().filter(|_| plain).map(|full| normal_path(&full));
        roots.extend(given.filter(|given| !roots.contains(given)));
        let settings = Settings {
            roots,
            program,
            added: Vec::new(),
            time_limit: Duration::from_secs(3_600),
            background_after: Duration::from_secs(60),
            sandbox: None,
            free_space: FREE_SPACE,
            look: None,
            labels: Labels::empty(),
        };
        Ok(Self { settings: Arc::new(settings), jobs: Arc::default(), watchdog: Arc::default() })
    }

    /// The same shell with a variable in the environment of its commands, whatever its name and value are. Tools that
    /// were made before do not have it.
    #[must_use]
    pub fn with_env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        Arc::make_mut(&mut self.settings).added.push((name.into(), value.into()));
        self
    }

    /// The same shell with a limit on the time of each command, in the background as well; 1 hour by default. Then its
    /// process group is killed.
    #[must_use]
    pub fn with_time_limit(mut self, limit: Duration) -> Self {
        Arc::make_mut(&mut self.settings).time_limit = limit;
        self
    }

    /// The same shell with another time after which a command becomes a job, unless the call names one; 60 seconds by
    /// default, and 10 minutes at most.
    #[must_use]
    pub fn with_background_after(mut self, time: Duration) -> Self {
        Arc::make_mut(&mut self.settings).background_after = time.min(bash::LONGEST);
        self
    }

    /// The same shell with another number of bytes that its commands leave free on the root's file system; 128 MiB by
    /// default. A command that leaves less is killed, and its result says so. Where less is free from the start, it is
    /// killed once it has used up half of that.
    #[must_use]
    pub fn with_free_space(mut self, bytes: u64) -> Self {
        Arc::make_mut(&mut self.settings).free_space = bytes;
        self
    }

    /// The same shell, whose results have these labels too: for a directory with files that strangers wrote, as
    /// `Workspace::with_labels` is. Tools that were made before do not have them.
    #[must_use]
    pub fn with_labels(mut self, labels: Labels) -> Self {
        Arc::make_mut(&mut self.settings).labels |= labels;
        self
    }

    /// The same shell, whose results list in their metadata, as `changed`, the places that their command `created`,
    /// `modified` and `deleted` below the root of `workspace`: at most 100, and the number of `more`.
    ///
    /// The workspace is looked at before and after each command that may change something; what another program changes
    /// meanwhile is listed too, and what ignore files name is not. The list is null where it is not known: when the
    /// workspace has more than 50,000 places or cannot be read.
    #[cfg(feature = "fs")]
    #[must_use]
    pub fn listing_changes(mut self, workspace: &crate::fs::Workspace) -> Self {
        let workspace = workspace.clone();
        let look = move || -> After {
            let (workspace, before) = (workspace.clone(), crate::fs::Places::of(&workspace));
            Box::new(move || {
                let changes =
                    before.and_then(|before| Some(before.changes_to(&crate::fs::Places::of(&workspace)?)));
                serde_json::to_value(changes).unwrap_or_default()
            })
        };
        Arc::make_mut(&mut self.settings).look = Some(Arc::new(look));
        self
    }

    /// The same shell with its commands in a sandbox. Without one they can do what the program's user can.
    ///
    /// What the sandbox enforces is in the metadata of each result, as `sandbox`. If it cannot be set up, each call
    /// fails and ends its run: nothing runs without it. What a command changed at protected paths is taken back when
    /// it ends, and the model is told.
    ///
    /// With a sandbox, a run whose scope is limited to some hosts or roots can run commands: its commands reach at most
    /// the hosts of the scope, as by [`Sandbox::hosts`](crate::sandbox::Sandbox::hosts). Where the sandbox opens more
    /// than the roots of the scope, system directories aside, the tools are out of scope: models are not offered them.
    /// Sockets of services count as all files, and are an error result where the scope is limited to hosts. The places
    /// of the sandbox are looked up when the tools are made, so they have to exist.
    #[cfg(feature = "sandbox")]
    #[must_use]
    pub fn with_sandbox(mut self, sandbox: crate::sandbox::Sandbox) -> Self {
        Arc::make_mut(&mut self.settings).sandbox = Some(sandbox);
        self
    }

    /// The directory in which commands run.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.settings.root()
    }

    /// Runs command lines.
    #[must_use]
    pub fn bash(&self) -> Arc<dyn Tool> {
        Arc::new(bash::Bash::new(self.clone()))
    }

    /// Shows what a job has printed, and if it still runs.
    #[must_use]
    pub fn job_output(&self) -> Arc<dyn Tool> {
        Arc::new(job::JobOutput::new(self.clone()))
    }

    /// Ends a job.
    #[must_use]
    pub fn job_kill(&self) -> Arc<dyn Tool> {
        Arc::new(job::JobKill::new(self.clone()))
    }

    /// All tools: `bash`, `job_output` and `job_kill`.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        vec![self.bash(), self.job_output(), self.job_kill()]
    }

    /// Kills all commands of this shell and its clones, and waits for their end, for 5 seconds at most. Later calls of
    /// `bash` are error results. May be called again.
    pub async fn close(&self) {
        self.jobs.close().await;
    }
}

impl fmt::Debug for Shell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shell").field("root", &self.root()).finish_non_exhaustive()
    }
}

impl Shell {
    /// The declarations of a tool that does no more than the commands of this shell.
    fn confining(&self, spec: ToolSpec) -> ToolSpec {
        match &self.settings.sandbox {
            Some(sandbox) => spec.confining(sandbox.reached(self.settings.root())),
            None => spec,
        }
    }
}

impl Settings {
    /// Access of a command that may do more than read.
    fn most(&self) -> Access {
        let is_alone = self.sandbox.as_ref().is_some_and(confine::Sandbox::is_without_network);
        if is_alone { judge::FULL - Access::NETWORK } else { judge::FULL }
    }

    fn disk(&self) -> Disk {
        Disk { place: self.root().to_owned(), floor: self.free_space }
    }

    fn root(&self) -> &Path {
        self.roots.first().map_or(Path::new("."), PathBuf::as_path)
    }

    /// The place below the root that a call names, by its name alone.
    fn inside(&self, dir: Option<&str>) -> Result<PathBuf, ToolError> {
        let dir = dir.unwrap_or(".");
        let full = normal_path(&self.root().join(dir));
        let inside = self.roots.iter().find_map(|root| full.strip_prefix(root).ok());
        let inside = inside.filter(|_| !dir.contains('\0') && dir.len() <= 4_096);
        inside.map(Path::to_owned).ok_or_else(|| outside(dir))
    }

    /// That place with links resolved, if it exists.
    fn canonical(&self, inside: PathBuf) -> PathBuf {
        let real = std::fs::canonicalize(self.root().join(&inside)).ok();
        let below = real.as_deref().and_then(|real| real.strip_prefix(self.root()).ok());
        below.map_or(inside, Path::to_owned)
    }

    /// The footprint with the places to which the links in its paths lead. What only reads, and is led out of the root,
    /// does more than that. Resolves links on the file system.
    fn without_links(&self, mut footprint: Footprint) -> Footprint {
        let reads = footprint.reads.clone().into_iter().map(|path| (path, false));
        let writes = footprint.writes.clone().into_iter().map(|path| (path, true));
        for (path, written) in reads.chain(writes).collect::<Vec<_>>() {
            let full = self.root().join(&path);
            let named =
                full.parent().and_then(|dir| Some(std::fs::canonicalize(dir).ok()?.join(full.file_name()?)));
            let Some(real) = std::fs::canonicalize(&full).ok().or(named) else { continue };
            let below = real.strip_prefix(self.root()).ok();
            if below.is_none() && footprint.access.is_read_only() {
                footprint.access = judge::FULL;
            }
            let real = below.unwrap_or(&real);
            if self.root().join(real) != normal_path(&full) {
                let naming = if written { Footprint::writing } else { Footprint::reading };
                footprint = footprint.naming_path(naming, real, None);
            }
        }
        footprint
    }

    /// The directory of that place, with links resolved. Blocks.
    fn resolved(&self, inside: &Path) -> Result<PathBuf, ToolError> {
        let shown = inside.display();
        let full = std::fs::canonicalize(self.root().join(inside)).map_err(|error| {
            ToolError::tell(format!(
                "the directory `{shown}` cannot be opened: {error}; name one that exists"
            ))
        })?;
        if !full.starts_with(self.root()) {
            return Err(outside(&inside.to_string_lossy()));
        }
        if !full.is_dir() {
            return Err(ToolError::tell(format!("`{shown}` is no directory; name the one that holds it")));
        }
        Ok(full)
    }
}

fn outside(dir: &str) -> ToolError {
    let dir: String = dir.chars().take(200).collect();
    ToolError::tell(format!(
        "the directory `{dir}` is outside the workspace; give one relative to its root, without a way out through `..` \
         or a link"
    ))
}
