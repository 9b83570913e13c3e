//! The end of all processes of a command, also of those that left its process group.
//!
//! A thread stays in the command's Landlock domain. Of all processes it may signal those of the domain alone, so a
//! signal to every process reaches these and no others.

use std::{
    fs,
    sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, getpid, getppid, kill_process_group, test_kill_process};

/// Time between two looks at processes that were killed, and the most looks.
const PAUSE: Duration = Duration::from_millis(5);
const LOOKS: u32 = 400;

/// The first version of Landlock's interface that keeps signals in the domain.
const SCOPED: u32 = 6;

/// A way to the thread in the domain.
#[derive(Debug, Clone)]
pub(in crate::sandbox) struct Keeper(Sender<SyncSender<()>>);

/// The part of the thread.
#[derive(Debug)]
pub(super) struct Kept(Receiver<SyncSender<()>>);

/// Both, if the domain of this version keeps signals inside.
pub(super) fn pair(abi: u32) -> Option<(Keeper, Kept)> {
    let (sender, receiver) = channel();
    (abi >= SCOPED).then_some((Keeper(sender), Kept(receiver)))
}

impl Keeper {
    /// Kills all processes of the domain, and waits until they are gone.
    pub(in crate::sandbox) fn end_all(&self) {
        let (done, waits) = sync_channel(1);
        if self.0.send(done).is_ok() {
            let _ = waits.recv();
        }
    }

    /// Kills all processes of the domain soon.
    #[cfg(feature = "shell")]
    pub(in crate::sandbox) fn order_end(&self) {
        let _ = self.0.send(sync_channel(1).0);
    }
}

impl Kept {
    /// Serves once, or until nobody can ask any more. It runs on the thread that took the rules on itself: after the
    /// end nothing is left in its domain that could begin anew.
    pub(super) fn serve(self) {
        if let Ok(done) = self.0.recv() {
            end_all();
            let _ = done.try_send(());
        }
    }
}

fn end_all() {
    // The parent of this program is not in the domain. If it can be signalled, nothing holds signals back.
    let is_confined = getppid().is_none_or(|parent| test_kill_process(parent).is_err());
    if !is_confined {
        return;
    }
    for _ in 0..LOOKS {
        // To the group of process 1 means: to every process but 1 and this program.
        let _ = kill_process_group(Pid::INIT, Signal::KILL);
        if !anybody_left() {
            return;
        }
        thread::sleep(PAUSE);
    }
}

fn anybody_left() -> bool {
    let Ok(all) = fs::read_dir("/proc") else { return false };
    let ids =
        all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw));
    ids.filter(|id| *id != getpid() && test_kill_process(*id).is_ok()).any(is_alive)
}

/// False for a process that ended and waits for its parent to notice.
fn is_alive(id: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", id.as_raw_nonzero())).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| !['Z', 'X', 'x'].contains(&state))
}
