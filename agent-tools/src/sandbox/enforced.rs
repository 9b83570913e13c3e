//! The confinement that holds for a command, as a value for records.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use entourage_core::{Error, ErrorKind};
use serde::{Deserialize, Serialize};

use super::linux::{Keeper, Prepared, Watch};

/// The mechanism that confines a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Backend {
    /// The one that can hold more: bubblewrap for a sandbox that writes to a workspace, Landlock for the others; the
    /// other one where the first is missing.
    #[default]
    Any,
    /// Landlock rules and a seccomp filter on the command itself. Nothing has to be installed.
    Landlock,
    /// The program `bwrap`: namespaces in which nothing else exists, and a seccomp filter.
    Bubblewrap,
}

/// Most different refusals of the proxy that are kept for one command, and most characters of each.
const REFUSALS: usize = 5;
const REFUSAL: usize = 300;

/// The refusals of the proxy for one command.
#[derive(Debug, Clone, Default)]
pub(super) struct Refused(Arc<Mutex<Vec<String>>>);

impl Refused {
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "the proxy is one of Linux"))]
    pub(super) fn note(&self, text: &str) {
        let text: String = text.chars().take(REFUSAL).collect();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < REFUSALS && !known.contains(&text) {
            known.push(text);
        }
    }
}

/// The protected paths that others replaced while a command ran.
#[derive(Debug, Clone, Default)]
pub(super) struct Replaced(Arc<Mutex<Vec<PathBuf>>>);

impl Replaced {
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "mounts are those of Linux"))]
    pub(super) fn note(&self, paths: Vec<PathBuf>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = paths;
    }
}

/// The confinement that a sandbox enforced on one command.
///
/// It is serializable, so that a program can store it beside the command. A value that was read back cannot
/// [`restore`](Enforced::restore) anything.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Enforced {
    /// The mechanism in use, never [`Backend::Any`].
    pub backend: Backend,
    /// The version of Landlock's interface that the kernel and this crate both know; absent with bubblewrap.
    pub landlock_abi: Option<u32>,
    /// `read_only`, `workspace_write` or `full`.
    pub level: String,
    /// The root of the workspace, with links resolved; absent for `full`.
    pub root: Option<PathBuf>,
    /// The command's private directory for temporary files. It is removed with the last clone of the sandbox and of
    /// this value.
    pub temp: PathBuf,
    /// True if the command may use the network without limits.
    pub network: bool,
    /// Hosts that the command reaches through a proxy, and no others. Empty where there is none.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// True if the command may open sockets of the family `AF_UNIX`.
    pub unix_sockets: bool,
    /// True if the command cannot signal processes outside of the sandbox. Then [`restore`](Enforced::restore) also
    /// finds those of its processes that left its group.
    pub signals_confined: bool,
    /// True if the command cannot change modes, owners, times and attributes of files outside of what it may write.
    /// Landlock has no rule for these; the permissions of the system alone hold.
    pub metadata_confined: bool,
    /// The most bytes of address space that each process may have.
    pub memory: Option<u64>,
    /// The most processes and threads that the command's user may have.
    pub processes: Option<u64>,
    /// True if the system holds `processes`. It does not for commands of the user root.
    pub processes_confined: bool,
    /// The most bytes that a file may grow to.
    pub file_size: Option<u64>,
    /// Protected paths below the root that the command cannot write to.
    pub read_only: Vec<PathBuf>,
    /// Protected paths below the root that the command can write to; [`restore`](Enforced::restore) takes its changes
    /// back.
    pub watched: Vec<PathBuf>,
    /// Rules that this kernel cannot enforce, in words. Empty unless the sandbox is a
    /// [best effort](super::Sandbox::best_effort).
    pub gaps: Vec<String>,
    #[serde(skip)]
    pub(super) refused: Refused,
    #[serde(skip)]
    pub(super) replaced: Replaced,
    #[serde(skip)]
    pub(super) watch: Option<Arc<Watch>>,
    /// Reaches all processes of the command.
    #[serde(skip)]
    pub(super) keeper: Option<Keeper>,
    /// Keeps the private directory while the command may use it.
    #[serde(skip)]
    pub(super) _prepared: Option<Arc<Prepared>>,
}

impl Enforced {
    /// Ends what is left of the command, takes back what it changed at protected paths, and returns these paths.
    ///
    /// Call it after the command has ended, each time; with bubblewrap it ends a command that still runs. Where
    /// [`signals_confined`](Enforced::signals_confined) is true, it kills the processes of the command that still run,
    /// also those that left its process group; where it is not, such a process can go on and change what was taken
    /// back.
    ///
    /// # Contract
    /// - What appeared or was changed is moved to the root of the workspace, under a name that begins with
    ///   `removed-by-sandbox-`; nothing is deleted. What was changed or removed is then written anew. A directory that
    ///   cannot be compared, or has many new entries, is moved and written anew as a whole. On a mount below the root,
    ///   its highest directory is the place; a mount itself cannot be moved, which is an error.
    /// - Of a directory of Git the hooks, the configuration, `info`, submodules, working trees and the steps of an
    ///   unfinished rebase are compared; objects, references and the index are not. The directory to which a `.git`
    ///   leads is one too, if it lies below the root. Other repositories below the root are not protected.
    /// - Commands of one sandbox and its clones that run at the same time share one beginning: the state before the
    ///   first of them. Each of them is taken back to it.
    /// - Directories that bubblewrap left as places to mount on are removed if they are empty, with the last command of
    ///   any sandbox in the root.
    /// - If this program ends before, nothing is taken back, and empty directories may stay where bubblewrap mounted.
    ///   The next sandbox in the root removes them, but for those of a command that was just starting.
    /// - Without a call the root stays occupied for sandboxes with Landlock until this program ends.
    /// - A second call takes nothing back. A program that wrote there meanwhile loses its change to the copy that was
    ///   moved.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if a path cannot be compared or written; the others are restored all the same. Also if a
    /// process of the command does not end within 30 seconds, and may still change what was restored.
    pub async fn restore(&self) -> Result<Vec<PathBuf>, Error> {
        let (watch, keeper) = (self.watch.clone(), self.keeper.clone());
        if watch.is_none() && keeper.is_none() {
            return Ok(Vec::new());
        }
        let restore = move || {
            let is_over = keeper.is_none_or(|keeper| keeper.end_all());
            let changed = watch.map_or_else(|| Ok(Vec::new()), |watch| watch.restore())?;
            if is_over { Ok(changed) } else { Err(goes_on()) }
        };
        tokio::task::spawn_blocking(restore).await.map_err(|error| {
            Error::new(ErrorKind::Internal, "the task that restores protected paths failed").caused_by(error)
        })?
    }

    /// The reasons for which the proxy of [`Sandbox::hosts`](super::Sandbox::hosts) refused requests so far: the first
    /// five different ones, in words. Programs that use a proxy seldom show them.
    pub fn refused(&self) -> Vec<String> {
        self.refused.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The [protected](super::Sandbox::protecting) paths that another program replaced or moved while the command ran,
    /// which ended the command: bubblewrap could protect them no longer. Look at what they hold: until its end, which
    /// comes at once, the command could write to what took their place.
    pub fn replaced(&self) -> Vec<PathBuf> {
        self.replaced.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Kills what is left of the command, without waiting for its end.
    #[cfg(feature = "shell")]
    pub(crate) fn order_end(&self) {
        if let Some(keeper) = &self.keeper {
            keeper.order_end();
        }
    }
}

fn goes_on() -> Error {
    let message =
        "a process of the command does not end, and may change protected paths yet; look for it, and at them";
    Error::new(ErrorKind::Io, message).during("sandbox.restore")
}
