//! A command between its start and its caller, and what the thread that started it does until its end.

use std::os::fd::{AsFd, OwnedFd};

use entourage_core::{Error, ErrorKind};
use rustix::process::{PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use tokio::process::Child;

use super::{
    ended,
    held::Held,
    keeper::{self, Keeper},
    kill_tree, on_thread, pid,
};
use crate::sandbox::{Enforced, enforced::Replaced};

/// A command on its way to the caller. If it does not arrive, it is killed.
pub(super) struct Started {
    pub(super) child: Option<Child>,
    pub(super) enforced: Option<Enforced>,
    /// The mounts that have to stay.
    pub(super) held: Option<Held>,
}

/// The part of the thread that started a command of bubblewrap.
pub(super) struct Guard {
    command: OwnedFd,
    held: Option<(Held, Keeper, Replaced)>,
}

impl Guard {
    /// Waits until the command has ended, which is the case once a mount is lost.
    pub(super) fn serve(self) {
        if let Some((held, keeper, replaced)) = self.held {
            held.guard(&self.command, &keeper, &replaced);
        }
        wait(&self.command);
    }
}

impl Started {
    /// The guard of a command of bubblewrap.
    pub(super) fn guard(&mut self) -> Option<Guard> {
        let id = pid(self.child.as_ref()?.id()?)?;
        let command = pidfd_open(id, PidfdFlags::empty()).ok()?;
        let enforced = self.enforced.as_ref()?;
        let keeper = enforced.keeper.clone();
        let held = self.held.take().zip(keeper);
        let held = held.map(|(held, keeper)| (held, keeper, enforced.replaced.clone()));
        Some(Guard { command, held })
    }

    /// Gives a command of bubblewrap, once it is set up, a keeper, and looks at its mounts.
    pub(super) fn keep_first(&mut self) -> Result<(), Error> {
        let (Some(bwrap), Some(enforced)) = (self.child.as_ref().and_then(Child::id), &mut self.enforced)
        else {
            return Ok(());
        };
        let message =
            "the processes of the command cannot be found in /proc, so they could outlive it; use Landlock";
        let unknown = || Error::new(ErrorKind::Unsupported, message).during("sandbox.spawn");
        let (keeper, first) = keeper::of_bubblewrap(bwrap).ok_or_else(unknown)?;
        enforced.keeper = Some(keeper);
        self.held.as_ref().map_or(Ok(()), |held| held.check(first))
    }

    /// Gives the command a keeper, whose part this thread has to take over.
    pub(super) fn keep(&mut self) -> Option<keeper::Kept> {
        let enforced = self.enforced.as_mut()?;
        let (keeper, kept) = keeper::pair(enforced.landlock_abi?)?;
        enforced.keeper = Some(keeper);
        Some(kept)
    }

    pub(super) fn release(mut self) -> Result<(Child, Enforced), Error> {
        self.child.take().zip(self.enforced.take()).ok_or_else(ended)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let (child, enforced) = (self.child.take(), self.enforced.take());
        let id = child.as_ref().and_then(Child::id);
        id.into_iter().for_each(kill_tree);
        let (watch, keeper) =
            enforced.map_or((None, None), |mut enforced| (enforced.watch.take(), enforced.keeper.take()));
        if child.is_none() {
            // Nothing was started.
            watch.iter().for_each(|watch| watch.give_up());
            return;
        }
        let clean = move || {
            if let Some(id) = id.and_then(pid) {
                let _ = waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            }
            // Nobody is left to be told of a failure.
            drop(child.map(|mut child| child.try_wait()));
            if let Some(keeper) = keeper {
                let _ = keeper.end_all();
            }
            drop(watch.map(|watch| watch.restore()));
        };
        drop(on_thread(clean));
    }
}

/// Waits until a child has ended, and leaves its status to its owner.
fn wait(child: &OwnedFd) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while let Err(rustix::io::Errno::INTR) = waitid(WaitId::PidFd(child.as_fd()), options) {}
}
