//! [`Sandbox`]: the levels and their settings.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fmt,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use entourage_core::{Error, ErrorKind, permission::Scope};
use tokio::{
    process::{Child, Command},
    sync::OnceCell,
};

use super::{Backend, Enforced, linux, resolved::Base};

/// Paths below the root of a workspace that make other programs run something, or that grant rights.
const PROTECTED: &[&str] = &[
    ".agents",
    ".claude",
    ".codex",
    ".cursor",
    ".devcontainer",
    ".entourage",
    ".envrc",
    ".gemini",
    ".git",
    ".husky",
    ".idea",
    ".mcp.json",
    ".vscode",
];

/// A confinement for commands, enforced by the operating system.
///
/// # Contract
/// - There are three levels. [`read_only`](Sandbox::read_only) reads the system and the root, and writes to a private
///   temporary directory alone. [`workspace_write`](Sandbox::workspace_write) also writes below the root.
///   [`full`](Sandbox::full) has all files of the user. Every level is without network and without sockets of the
///   family `AF_UNIX` until these are turned on, and refuses tracing, mounts, namespaces, io_uring, keys, BPF, kernel
///   modules and the like.
/// - Except at `full`, what may be read is a list: system directories, of `/etc` what every user may read, `/proc`,
///   and what [`reading`](Sandbox::reading) and [`writing`](Sandbox::writing) add. Home directories, other temporary
///   files and sockets of services are not on it.
/// - Below the root of `workspace_write` some paths are [protected](Sandbox::protecting).
/// - Processes that the command starts are confined as it is, also in a session of their own.
/// - A backend that is missing, or a kernel that enforces only a part, is an error before anything starts. There is no
///   silent fallback.
/// - Links in paths of the settings are resolved when the first command starts, and none is followed later; what is
///   secret in `/etc` is found once. With Landlock, files and directories are then those that existed; bubblewrap opens
///   what has the name when a command starts. Clones share this; a clone whose settings are changed begins anew.
/// - A path of the settings that is below another one to which commands may write adds nothing. One that may be written
///   and holds the root, or leads into it by another name, is an error.
///
/// It is no boundary against faults of the kernel. What each backend holds is in [`Enforced`].
///
/// ```
/// use entourage_tools::sandbox::{Backend, Sandbox};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # if !cfg!(target_os = "linux") { return Ok(()); }
/// let root = tempfile::tempdir()?;
/// let sandbox = Sandbox::workspace_write(root.path())?.backend(Backend::Landlock);
/// let (mut child, enforced) =
///     sandbox.spawn("sh", |command| command.args(["-c", "echo hello > note; echo no > ../note"])).await?;
/// assert!(!child.wait().await?.success(), "the second file lies outside");
/// assert!(root.path().join("note").exists());
/// assert!(enforced.restore().await?.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Sandbox {
    pub(super) settings: Settings,
    pub(super) base: Arc<Base>,
    prepared: Arc<OnceCell<Arc<linux::Prepared>>>,
}

#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) level: Level,
    pub(super) reading: Vec<PathBuf>,
    pub(super) writing: Vec<PathBuf>,
    pub(super) protected: Vec<PathBuf>,
    pub(super) memory: Option<u64>,
    pub(super) processes: Option<u64>,
    pub(super) file_size: Option<u64>,
    pub(super) network: Network,
    pub(super) unix_sockets: bool,
    pub(super) backend: Backend,
    pub(super) best_effort: bool,
    /// The program of bubblewrap; looked for in `PATH` if it is absent.
    pub(super) bubblewrap: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Level {
    ReadOnly(PathBuf),
    WorkspaceWrite(PathBuf),
    Full,
}

/// The part of the network that a command reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Network {
    None,
    /// The hosts of a scope.
    Hosts(Scope),
    All,
}

impl Network {
    /// The part that a scope with hosts opens.
    fn of(scope: Scope) -> Self {
        if scope.hosts().is_none_or(BTreeSet::is_empty) { Self::None } else { Self::Hosts(scope) }
    }

    pub(super) fn hosts(&self) -> Vec<String> {
        let Self::Hosts(scope) = self else { return Vec::new() };
        scope.hosts().into_iter().flatten().cloned().collect()
    }
}

impl Level {
    pub(super) fn root(&self) -> Option<&Path> {
        match self {
            Self::ReadOnly(root) | Self::WorkspaceWrite(root) => Some(root),
            Self::Full => None,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::ReadOnly(_) => "read_only",
            Self::WorkspaceWrite(_) => "workspace_write",
            Self::Full => "full",
        }
    }
}

impl Sandbox {
    /// A sandbox that reads the system and `root`, and writes nothing that stays.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if `root` does not exist, [`ErrorKind::InvalidInput`] if it is not a directory or holds
    /// the home directory of this program's user.
    pub fn read_only(root: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(Self::new(Level::ReadOnly(resolved(root.as_ref())?)))
    }

    /// A sandbox that reads the system, and reads and writes below `root`, [protected](Sandbox::protecting) paths left
    /// out.
    ///
    /// # Errors
    /// Those of [`read_only`](Sandbox::read_only).
    pub fn workspace_write(root: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(Self::new(Level::WorkspaceWrite(resolved(root.as_ref())?)))
    }

    /// A sandbox without limits on files. Network, system calls, signals and limits are confined as at every level.
    #[must_use]
    pub fn full() -> Self {
        Self::new(Level::Full)
    }

    fn new(level: Level) -> Self {
        let settings = Settings {
            level,
            reading: Vec::new(),
            writing: Vec::new(),
            protected: PROTECTED.iter().map(PathBuf::from).collect(),
            memory: None,
            processes: None,
            file_size: None,
            network: Network::None,
            unix_sockets: false,
            backend: Backend::Any,
            best_effort: false,
            bubblewrap: None,
        };
        Self { settings, base: Arc::default(), prepared: Arc::default() }
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        (self.base, self.prepared) = Default::default();
        self
    }

    /// Also allows reading `path` and, if it is a directory, all below it; for a toolchain in a home directory.
    #[must_use]
    pub fn reading(self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        self.with(|settings| settings.reading.push(path))
    }

    /// Also allows reading the Rust toolchains and packages of this program's user: `RUSTUP_HOME` (else `~/.rustup`),
    /// and of `CARGO_HOME` (else `~/.cargo`) the programs, the packages and the configuration. Its credentials stay out
    /// of reach. What does not exist is left out.
    #[must_use]
    pub fn reading_rust(self) -> Self {
        let home = |variable: &str, name: &str| {
            let own = std::env::var_os(variable).map(PathBuf::from);
            own.or_else(|| Some(std::env::home_dir()?.join(name))).filter(|home| home.is_absolute())
        };
        let cargo = home("CARGO_HOME", ".cargo").into_iter();
        let parts = ["bin", "git", "registry", "config.toml", "config", "env"];
        let cargo = cargo.flat_map(|home| parts.map(|part| home.join(part)));
        let all = cargo.chain(home("RUSTUP_HOME", ".rustup")).filter(|path| path.exists());
        all.fold(self, Self::reading)
    }

    /// Also allows reading and writing `path` and, if it is a directory, all below it; for a cache.
    #[must_use]
    pub fn writing(self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        self.with(|settings| settings.writing.push(path))
    }

    /// Protects a path below the root of [`workspace_write`](Sandbox::workspace_write), given relative to it.
    ///
    /// By default these are protected: `.agents`, `.claude`, `.codex`, `.cursor`, `.devcontainer`, `.entourage`,
    /// `.envrc`, `.gemini`, `.git`, `.husky`, `.idea`, `.mcp.json` and `.vscode`. Programs run what these hold, or take
    /// rights from it.
    ///
    /// # Contract
    /// - With bubblewrap a protected path is read-only, and one that does not exist cannot be created. While a command
    ///   runs, an empty directory stands at each that does not exist; [`Enforced::restore`] removes it. Directories
    ///   above one cannot be renamed, and nothing can be renamed into or out of them. A path that is a link is watched
    ///   as with Landlock. If one becomes a link, or is moved, while a command starts, [`spawn`](Sandbox::spawn) is an
    ///   error or bubblewrap fails, and the command does not begin. If another program replaces or moves one while a
    ///   command runs, the command is killed, and [`Enforced::replaced`] names it; what lies within a protected
    ///   directory may be replaced.
    /// - Landlock cannot except a path below a directory that may be written. There the command can change it, and
    ///   [`Enforced::restore`] takes the change back afterwards. Until then other programs see the change. Commands of
    ///   other sandboxes, in this program or another one, wait up to 60 seconds for the root, those of bubblewrap too;
    ///   those of one sandbox and its clones run side by side.
    /// - Where `.git` is a file or a link that leads to a directory below the root, that directory is protected too,
    ///   and each link below the root that leads there.
    /// - A path that is not relative, or has `..` in it, is an error of [`spawn`](Sandbox::spawn).
    #[must_use]
    pub fn protecting(self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        self.with(|settings| settings.protected.push(path))
    }

    /// Takes a path from those that are [protected](Sandbox::protecting): `.unprotected(".git")` lets commands commit.
    #[must_use]
    pub fn unprotected(self, path: impl AsRef<Path>) -> Self {
        self.with(|settings| settings.protected.retain(|kept| kept != path.as_ref()))
    }

    /// Limits the address space of each process of the command to `bytes`, rounded down to KiB.
    #[must_use]
    pub fn memory(self, bytes: u64) -> Self {
        self.with(|settings| settings.memory = Some(bytes))
    }

    /// Limits how many processes and threads the user of the command may have, those outside of the sandbox counted.
    /// The system does not hold this limit for the user root.
    #[must_use]
    pub fn processes(self, count: u64) -> Self {
        self.with(|settings| settings.processes = Some(count))
    }

    /// Limits the size to which the command can let a file grow, in bytes, rounded down to 512.
    #[must_use]
    pub fn file_size(self, bytes: u64) -> Self {
        self.with(|settings| settings.file_size = Some(bytes))
    }

    /// Allows or refuses the network, which is refused by default. It allows all hosts, this machine's services among
    /// them; raw sockets stay refused. Replaces what [`hosts`](Sandbox::hosts) allowed.
    #[must_use]
    pub fn network(self, allowed: bool) -> Self {
        let network = if allowed { Network::All } else { Network::None };
        self.with(|settings| settings.network = network)
    }

    /// Allows these hosts and no others: names, addresses, or `*.a.example` for all names below `a.example`, without
    /// port and path, and beyond ASCII in their form `xn--…`; any other text allows nothing. Replaces what
    /// [`network`](Sandbox::network) allowed.
    ///
    /// # Contract
    /// - The command has a network of its own, and in it a proxy of this program at `127.0.0.1:3128`, for as long as
    ///   its first process runs. `http_proxy`, `https_proxy` and `all_proxy` name it, in capitals too, unless `set`
    ///   changes this. What does not use the proxy reaches nothing; UDP, among it the lookup of names, is out of reach.
    /// - The proxy takes `CONNECT` to any port and requests for `http://`, at most 64 at a time; more wait. A
    ///   connection of which one side has said all ends once the other one is silent for 5 seconds.
    /// - A host is looked up once, and all its addresses must belong to the internet or be allowed themselves: not
    ///   those of this machine, of private networks, or of a cloud's metadata service. What is refused gets a 403 that
    ///   says why.
    /// - The proxy does not read what goes through a tunnel: one to a host that serves others as well can reach these.
    /// - It needs bubblewrap, and `/usr/bin/perl` or `/usr/bin/python3` for the start of each command; without them
    ///   [`spawn`](Sandbox::spawn) is an error of the kind [`Unsupported`](ErrorKind::Unsupported).
    #[must_use]
    pub fn hosts<S: AsRef<str>>(self, hosts: impl IntoIterator<Item = S>) -> Self {
        let network = Network::of(Scope::all().with_hosts(hosts));
        self.with(|settings| settings.network = network)
    }

    /// True if no command can send anything to another machine, nor to a service of this one.
    #[cfg(feature = "shell")]
    pub(crate) fn is_without_network(&self) -> bool {
        matches!(self.settings.network, Network::None) && !self.settings.unix_sockets
    }

    /// The same sandbox with the hosts of `scope`. Its places are the same ones, and its commands run beside those of
    /// this one.
    #[cfg(feature = "shell")]
    pub(super) fn with_hosts_of(&self, scope: &Scope) -> Self {
        let settings = Settings { network: Network::of(scope.clone()), ..self.settings.clone() };
        Self { settings, base: Arc::clone(&self.base), prepared: Arc::default() }
    }

    /// Allows or refuses sockets of the family `AF_UNIX`, which are refused by default; pairs of connected sockets are
    /// always allowed.
    ///
    /// With Landlock, a command that has them can reach every service whose socket its user may write to, such as
    /// Docker, an agent for keys or the session bus: with most of these it is out of the sandbox. With bubblewrap it
    /// reaches those below the paths that it can read and, with the [network](Sandbox::network), those that are known
    /// by a name without a file.
    ///
    /// With Landlock this also allows memory, semaphores and queues of System V and queues of POSIX, which belong to
    /// the whole machine there; with bubblewrap a command always has its own.
    #[must_use]
    pub fn unix_sockets(self, allowed: bool) -> Self {
        self.with(|settings| settings.unix_sockets = allowed)
    }

    /// Demands a backend. If it is missing, [`spawn`](Sandbox::spawn) is an error.
    #[must_use]
    pub fn backend(self, backend: Backend) -> Self {
        self.with(|settings| settings.backend = backend)
    }

    /// Names the program of bubblewrap, in place of the first `bwrap` in an absolute directory of `PATH`.
    #[must_use]
    pub fn bubblewrap(self, program: impl Into<PathBuf>) -> Self {
        let program = program.into();
        self.with(|settings| settings.bubblewrap = Some(program))
    }

    /// Accepts a kernel whose Landlock is older and enforces only a part; [`Enforced::gaps`] names the rest. A kernel
    /// without Landlock stays an error.
    #[must_use]
    pub fn best_effort(self) -> Self {
        self.with(|settings| settings.best_effort = true)
    }

    /// Starts `program` in the sandbox. `set` adds arguments, variables, standard streams and the directory. It needs a
    /// tokio runtime with time and I/O.
    ///
    /// # Contract
    /// - The command begins in the root, in a process group of its own, with `TMPDIR` set to its private directory and
    ///   `PATH` without directories that it cannot read, unless `set` changes this. Other variables of this program are
    ///   passed on, keys among them, unless `set` clears them. A directory outside of the root gives no right there.
    /// - With limits the child is at first `/bin/sh`, which becomes the program, with bubblewrap `bwrap`, and at
    ///   [`full`](Sandbox::full) with Landlock `setsid`, where it is installed, so that the command has no terminal: a
    ///   program that does not exist ends with exit code 127 instead of an error, and `arg0` has no effect. A command
    ///   that a signal ended has the exit code 128 and more with bubblewrap.
    /// - If the future is dropped, what was started is killed.
    /// - Standard streams and other open files that `set` passes on are not confined.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the backend is missing or enforces only a part, or on other systems than Linux;
    /// [`ErrorKind::NotFound`], [`ErrorKind::InvalidInput`] and, where a link has appeared in one,
    /// [`ErrorKind::Conflict`] for paths of the settings; [`ErrorKind::Conflict`] where one has appeared in a protected
    /// path meanwhile; [`ErrorKind::NotFound`] for a program that does not exist, [`ErrorKind::InvalidInput`] for
    /// variables of the loader and the shell (`LD_…`, `BASH_FUNC_…` and the like) that `set` gives to a command that
    /// another program starts; [`ErrorKind::Conflict`] if another sandbox's command runs in the root for too long,
    /// [`ErrorKind::TooLarge`] if the [protected](Sandbox::protecting) paths hold too much for a comparison;
    /// [`ErrorKind::Io`] otherwise. Nothing was started.
    pub async fn spawn(
        &self,
        program: impl AsRef<OsStr>,
        set: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Result<(Child, Enforced), Error> {
        let prepare = || async { linux::prepare(&self.settings, &self.base).await.map(Arc::new) };
        let prepared = self.prepared.get_or_try_init(prepare).await?;
        linux::spawn(&self.settings, prepared, program.as_ref().to_owned(), set).await
    }

    /// Kills the process group of a child that [`spawn`](Sandbox::spawn) returned, if it was not waited for. With
    /// bubblewrap, that ends all processes of the command. With Landlock, those that made a group of their own go on,
    /// confined, until [`Enforced::restore`].
    pub fn kill_tree(child: &Child) {
        if let Some(id) = child.id() {
            linux::kill_tree(id);
        }
    }
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

/// The root with links resolved.
fn resolved(root: &Path) -> Result<PathBuf, Error> {
    let shown = root.display();
    let canonical = std::fs::canonicalize(root).map_err(|error| {
        let message =
            format!("the root `{shown}` of the sandbox cannot be opened; name a directory that exists");
        Error::new(ErrorKind::NotFound, message).caused_by(error)
    })?;
    if !canonical.is_dir() {
        let message =
            format!("the root `{shown}` of the sandbox is no directory; name the one that holds it");
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    let home = std::env::var_os("HOME").and_then(|home| std::fs::canonicalize(home).ok());
    let holds_home = home.is_some_and(|home| home.starts_with(&canonical));
    if holds_home || !canonical.components().any(|part| matches!(part, Component::Normal(_))) {
        let message = format!(
            "the root `{shown}` of the sandbox holds the home directory, and so its keys and settings; name the \
             directory of a project, or use `Sandbox::full`"
        );
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    Ok(canonical)
}
