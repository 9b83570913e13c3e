//! The sandbox of Linux: preparing its rules once, and starting commands under them.
//!
//! With Landlock, a thread takes the rules on itself, starts the command and ends. Both the rules and the filter belong
//! to a thread and to all that it starts, so the other threads of this program stay free.

mod arguments;
mod bubblewrap;
mod filter;
mod git;
mod held;
mod keeper;
mod landlock;
mod limits;
mod listener;
mod places;
mod proxy;
mod restore;
mod started;
mod tree;
mod watch;

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Write},
    path::Path,
    sync::Arc,
    thread,
    time::Duration,
};

use ::landlock::RulesetCreated;
use entourage_core::{Error, ErrorKind};
use rustix::{
    fs::OFlags,
    process::{Pid, Signal},
};
use seccompiler::BpfProgram;
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    runtime::Handle,
    sync::oneshot,
};

use self::{
    arguments::{GATED, Gate, Ready},
    bubblewrap::Bubblewrap,
    filter::Open,
    held::Held,
    started::Started,
    watch::Plan,
};
use super::{
    Backend, Enforced,
    resolved::{Base, Place, Places},
    settings::{Level, Network, Settings},
};

pub(super) use self::{
    keeper::Keeper,
    watch::{Shared, Watch},
};

/// Enough for a thread that starts one program.
const STACK: usize = 256 << 10;

/// Places of the program that begins a session.
const SETSID: &[&str] = &["/usr/bin/setsid", "/bin/setsid"];

/// Time for which a command waits until no other sandbox's command runs in its root, and between two looks.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

/// State that all commands of a sandbox share.
pub(super) struct Prepared {
    confinement: Confinement,
    filter: BpfProgram,
    /// The filter as a file in memory.
    filter_file: File,
    /// The private directory of the commands. Removed with the sandbox.
    temp: TempDir,
    /// `PATH` without directories that the commands cannot read. A shell would find programs there, and stop at them.
    path: Option<OsString>,
    base: Arc<Base>,
}

/// A command that may begin.
#[derive(Default)]
struct Begun {
    plan: Option<Plan>,
    ready: Ready,
    held: Option<Held>,
}

enum Confinement {
    Landlock(RulesetCreated),
    Bubblewrap(Bubblewrap),
}

impl Prepared {
    fn new(settings: &Settings, base: Arc<Base>) -> Result<Self, Error> {
        let unusable = |error| {
            Error::new(ErrorKind::Io, "the sandbox's temporary directory cannot be made").caused_by(error)
        };
        let temp = tempfile::Builder::new().prefix("entourage-").tempdir().map_err(unusable)?;
        let at = std::fs::canonicalize(temp.path()).map_err(unusable)?;
        let confinement = choose(settings, base.places(settings)?, &Place { name: at.clone(), at })?;
        // Bubblewrap gives the command memory to share of its own.
        let memory = settings.unix_sockets || matches!(confinement, Confinement::Bubblewrap(_));
        let network = settings.network != Network::None;
        let filter = filter::program(Open { network, unix: settings.unix_sockets, memory })?;
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let mut filter_file = File::from(
            rustix::fs::memfd_create("sandbox-filter", flags).map_err(|error| unusable(error.into()))?,
        );
        filter_file.write_all(&filter::bytes(&filter)).map_err(unusable)?;
        let path = std::env::var_os("PATH").map(|path| places::readable_path(settings, &path));
        Ok(Self { confinement, filter, filter_file, temp, path, base })
    }

    /// Looks at the protected paths of a workspace that may be written, and opens the places that are mounted. `None`
    /// if a command of another sandbox runs in the root. Blocks.
    fn begin(&self, settings: &Settings) -> Result<Option<Begun>, Error> {
        let mut begun = Begun::default();
        let Begun { plan, ready, held } = &mut begun;
        if let (Level::WorkspaceWrite(_), Some(root)) = (&settings.level, &self.base.places(settings)?.root) {
            let opened = root.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
            let mounts = matches!(self.confinement, Confinement::Bubblewrap(_));
            let looked = watch::plan(&root.at, opened, &settings.protected, mounts, &self.base.shared)?;
            let Some(looked) = looked else { return Ok(None) };
            *plan = Some(looked);
        }
        let Confinement::Bubblewrap(found) = &self.confinement else { return Ok(Some(begun)) };
        *ready = found.ready()?;
        if let (Some(plan), Some(root)) = (&*plan, settings.level.root()) {
            ready.mount("--bind-fd", root, &plan.above)?;
            ready.mount("--ro-bind-fd", root, &plan.mounted)?;
            plan.masked.iter().for_each(|path| ready.empty(&root.join(path)));
            *held = Held::of(root, plan)?;
        }
        ready.filter(&self.filter_file)?;
        // An interpreter that opens a listener waits for this program too.
        if found.opener.is_empty() {
            ready.waiting()?;
        }
        Ok(Some(begun))
    }

    /// The program that begins a session without a terminal, where the rules on files do not close the terminal.
    fn session(&self, settings: &Settings) -> Option<&'static Path> {
        let is_open = settings.level == Level::Full && matches!(self.confinement, Confinement::Landlock(_));
        SETSID.iter().map(Path::new).find(|program| is_open && program.is_file())
    }

    /// The beginning of a command, whether another program comes before it, and its gate.
    fn command(
        &self,
        settings: &Settings,
        program: OsString,
        ready: Ready,
    ) -> Result<(Command, bool, Option<Gate>), Error> {
        let limits = limits::script(settings);
        let session = self.session(settings);
        let begin = |program: &OsStr| {
            let mut command = Command::new(session.map_or(program, Path::as_os_str));
            match session {
                Some(_) => command.arg(program),
                // Who leads a group cannot begin a session, which would have a group of its own.
                None => command.process_group(0),
            };
            command
        };
        let limited = |program: &OsStr| {
            if limits.is_empty() {
                return begin(program);
            }
            let mut command = begin(limits::SHELL.as_ref());
            command.arg("-c").arg(format!("{limits}exec \"$@\"")).arg("sh").arg(program);
            command
        };
        match &self.confinement {
            Confinement::Landlock(_) => {
                Ok((limited(&program), session.is_some() || !limits.is_empty(), None))
            }
            Confinement::Bubblewrap(found) => {
                let mut command = limited(found.program.as_os_str());
                let gate = ready.give(command.as_std_mut())?;
                let before = if found.opener.is_empty() { &GATED[..] } else { &found.opener };
                command.arg("--").args(before).arg(program);
                Ok((command, true, gate))
            }
        }
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("temp", &self.temp.path()).finish_non_exhaustive()
    }
}

/// Takes the backend that the settings demand, or the one that can hold more.
fn choose(settings: &Settings, places: &Places, temp: &Place) -> Result<Confinement, Error> {
    let landlock = || landlock::rules(settings, places, temp).map(Confinement::Landlock);
    let bubblewrap = || bubblewrap::find(settings, places, temp).map(Confinement::Bubblewrap);
    let absent = |error: Error| if error.kind() == ErrorKind::Unsupported { Ok(error) } else { Err(error) };
    match settings.backend {
        Backend::Landlock => landlock(),
        Backend::Bubblewrap => bubblewrap(),
        Backend::Any if matches!(settings.level, Level::WorkspaceWrite(_)) => {
            bubblewrap().or_else(|error| absent(error).and_then(|_| landlock()))
        }
        Backend::Any => landlock().or_else(|error| absent(error).and_then(|_| bubblewrap())),
    }
}

/// Resolves the settings, on a thread of its own.
pub(super) async fn prepare(settings: &Settings, base: &Arc<Base>) -> Result<Prepared, Error> {
    let (settings, base) = (settings.clone(), Arc::clone(base));
    let (sender, receiver) = oneshot::channel();
    on_thread(move || drop(sender.send(Prepared::new(&settings, base))))?;
    receiver.await.map_err(|_| ended())?
}

pub(super) async fn spawn(
    settings: &Settings,
    prepared: &Arc<Prepared>,
    program: OsString,
    set: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<(Child, Enforced), Error> {
    let Begun { plan, ready, held } = begin(settings, prepared).await?;
    let (mut command, indirect, gate) = prepared.command(settings, program, ready)?;
    if let Some(root) = settings.level.root() {
        command.current_dir(root);
    }
    let inside = matches!(prepared.confinement, Confinement::Bubblewrap(_)) && settings.level != Level::Full;
    command.env("TMPDIR", if inside { Path::new("/tmp") } else { prepared.temp.path() });
    if let Some(path) = &prepared.path {
        command.env("PATH", path);
    }
    if matches!(settings.network, Network::Hosts(_)) {
        proxy::announce(&mut command);
    }
    let _ = set(&mut command);
    if indirect {
        limits::check_variables(&command)?;
    }
    let enforced = enforced(settings, prepared, plan);
    let (handle, prepared) = (Handle::current(), Arc::clone(prepared));
    let (best_effort, network) = (settings.best_effort, settings.network.clone());
    let (sender, receiver) = oneshot::channel();
    let mut started = Started { child: None, enforced: Some(enforced), held };
    on_thread(move || {
        let result = start(&mut started, &mut command, &prepared, &handle, best_effort);
        // It holds the descriptors of all places, and this thread may stay.
        drop(command);
        let result = result.and_then(|()| open(network, gate, &mut started, &handle));
        let kept = started.keep();
        // Bubblewrap ends with the thread that started it, and takes its filter from this program.
        let is_bubblewrap = matches!(prepared.confinement, Confinement::Bubblewrap(_));
        let guard = if is_bubblewrap { started.guard() } else { None };
        // A confined thread could not remove the private directory, so it must not be the last that has it.
        let _kept_open = is_bubblewrap.then_some(prepared);
        let (result, _proxy) = result.map_or_else(|error| (Err(error), None), |proxy| (Ok(started), proxy));
        drop(sender.send(result));
        if let Some(kept) = kept {
            kept.serve();
        }
        if let Some(guard) = guard {
            guard.serve();
        }
    })?;
    receiver.await.map_err(|_| ended())??.release()
}

/// Begins a command, once no other sandbox keeps it from its root.
async fn begin(settings: &Settings, prepared: &Arc<Prepared>) -> Result<Begun, Error> {
    let mut waited = Duration::ZERO;
    loop {
        let (begun, known) = (Arc::clone(prepared), settings.clone());
        let begun = tokio::task::spawn_blocking(move || begun.begin(&known)).await.map_err(|_| ended())??;
        match (begun, settings.level.root()) {
            (Some(begun), _) => return Ok(begun),
            (None, Some(root)) if waited >= PATIENCE => return Err(occupied(root)),
            (None, _) => {}
        }
        tokio::time::sleep(PAUSE).await;
        waited += PAUSE;
    }
}

fn occupied(root: &Path) -> Error {
    let message = format!(
        "a command of another sandbox runs in `{}`, and with Landlock one could hide its changes of protected paths \
         behind the other; wait for it, start both by clones of one `Sandbox`, or use bubblewrap for both",
        root.display()
    );
    Error::new(ErrorKind::Conflict, message).during("sandbox.spawn")
}

/// The record, without the parts that only the kernel can tell.
fn enforced(settings: &Settings, prepared: &Arc<Prepared>, plan: Option<Plan>) -> Enforced {
    let bubblewrap = matches!(prepared.confinement, Confinement::Bubblewrap(_));
    let (read_only, watched, watch) = match plan {
        None => Default::default(),
        Some(plan) => plan.split(),
    };
    Enforced {
        backend: if bubblewrap { Backend::Bubblewrap } else { Backend::Landlock },
        landlock_abi: None,
        level: settings.level.name().to_owned(),
        root: settings.level.root().map(Path::to_owned),
        temp: prepared.temp.path().to_owned(),
        network: settings.network == Network::All,
        hosts: settings.network.hosts(),
        unix_sockets: settings.unix_sockets,
        signals_confined: bubblewrap,
        metadata_confined: bubblewrap && settings.level != Level::Full,
        memory: settings.memory,
        processes: settings.processes,
        processes_confined: settings.processes.is_some() && !rustix::process::geteuid().is_root(),
        file_size: settings.file_size,
        read_only,
        watched,
        gaps: Vec::new(),
        refused: Default::default(),
        replaced: Default::default(),
        watch,
        keeper: None,
        _prepared: Some(Arc::clone(prepared)),
    }
}

/// Starts the command; with Landlock, confines this thread first.
fn start(
    started: &mut Started,
    command: &mut Command,
    prepared: &Prepared,
    handle: &Handle,
    best_effort: bool,
) -> Result<(), Error> {
    let held = started.enforced.as_mut().ok_or_else(ended)?;
    if let Confinement::Landlock(rules) = &prepared.confinement {
        let rules = rules.try_clone().map_err(|error| {
            Error::new(ErrorKind::Io, "the rules of the sandbox cannot be copied").caused_by(error)
        })?;
        let kernel = landlock::restrict(rules, best_effort)?;
        seccompiler::apply_filter(&prepared.filter).map_err(|error| {
            let message =
                "this kernel does not take the sandbox's filter of system calls; nothing was started";
            Error::new(ErrorKind::Unsupported, message).caused_by(error)
        })?;
        held.landlock_abi = Some(kernel.abi);
        held.signals_confined = kernel.abi >= 6;
        held.gaps = kernel.gaps;
    }
    let _entered = handle.enter();
    let child = command.spawn().map_err(|error| {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
            _ => ErrorKind::Io,
        };
        let program = command.as_std().get_program().to_string_lossy();
        let message = format!(
            "the program `{program}` cannot be started in the sandbox; is it in a place it may read?"
        );
        Error::new(kind, message).during("sandbox.spawn").caused_by(error)
    })?;
    started.child = Some(child);
    Ok(())
}

/// Lets a command of bubblewrap begin; one whose network is limited to some hosts gets its way to them.
fn open(
    network: Network,
    gate: Option<Gate>,
    started: &mut Started,
    handle: &Handle,
) -> Result<Option<proxy::Proxy>, Error> {
    if let Some(mut gate) = gate {
        // What ended before tells by its status.
        if gate.wait()? {
            started.keep_first()?;
            gate.open();
        }
    }
    let (Network::Hosts(scope), Some(child)) = (network, &mut started.child) else { return Ok(None) };
    let taken = listener::take(child)?;
    started.keep_first()?;
    let listener = taken.begin()?;
    let refused = started.enforced.as_ref().map(|enforced| enforced.refused.clone()).unwrap_or_default();
    let _entered = handle.enter();
    proxy::serve(listener, scope, refused).map(Some)
}

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

pub(super) fn kill_tree(id: u32) {
    if let Some(group) = pid(id) {
        // A group that has ended is what was wanted; a leader may not have made its group yet.
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
        let _ = rustix::process::kill_process(group, Signal::KILL);
    }
}

fn on_thread(work: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let started = thread::Builder::new().name("sandbox".into()).stack_size(STACK).spawn(work);
    started
        .map(drop)
        .map_err(|error| Error::new(ErrorKind::Io, "no thread could be started").caused_by(error))
}

fn ended() -> Error {
    Error::new(ErrorKind::Internal, "the thread that starts commands ended early; report this")
}
