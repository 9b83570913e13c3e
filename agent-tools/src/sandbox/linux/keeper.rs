//! The end of all processes of a command, also of those that left its process group.
//!
//! With Landlock, a thread stays in the command's domain. Of all processes it may signal those of the domain alone, so
//! a signal to every process reaches these and no others. With bubblewrap, all processes end with the first one of
//! their name space, and before it has ended.

use std::{
    fs,
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{
        Pid, PidfdFlags, Signal, getpid, getppid, kill_process_group, pidfd_open, pidfd_send_signal,
        test_kill_process,
    },
};

use super::held::{Listed, escaped, listed, table};

/// Time between two looks at processes that were killed, and the most looks.
const PAUSE: Duration = Duration::from_millis(5);
const LOOKS: u32 = 400;

/// Time for the processes of a name space to end, of which some may have to wait long for a processor.
const ENDING: Duration = Duration::from_secs(30);

/// The first version of Landlock's interface that keeps signals in the domain.
const SCOPED: u32 = 6;

/// A way to end all processes of a command.
#[derive(Debug, Clone)]
pub(in crate::sandbox) enum Keeper {
    /// The thread in the domain.
    Thread(Sender<SyncSender<()>>),
    /// The first process of the name space.
    First(Arc<OwnedFd>),
}

/// The part of the thread.
#[derive(Debug)]
pub(super) struct Kept(Receiver<SyncSender<()>>);

/// Both, if the domain of this version keeps signals inside.
pub(super) fn pair(abi: u32) -> Option<(Keeper, Kept)> {
    let (sender, receiver) = channel();
    (abi >= SCOPED).then_some((Keeper::Thread(sender), Kept(receiver)))
}

/// The keeper of a command that `bwrap`, a child of this program, has set up, and the first process of its name space;
/// none if it has ended.
pub(super) fn of_bubblewrap(bwrap: u32) -> Option<(Keeper, Pid)> {
    let listed = children(bwrap).first().copied().and_then(super::pid);
    // Some kernels have no list.
    let first = listed.or_else(|| all().into_iter().flatten().find(|id| parent_of(*id) == Some(bwrap)))?;
    let opened = pidfd_open(first, PidfdFlags::empty()).ok()?;
    // What is no child of it any more has ended, and its number may be that of somebody else.
    (parent_of(first) == Some(bwrap)).then(|| (Keeper::First(Arc::new(opened)), first))
}

impl Keeper {
    /// Kills all processes of the command, and waits until they are gone. Returns false if they are not.
    pub(in crate::sandbox) fn end_all(&self) -> bool {
        match self {
            Self::Thread(thread) => {
                let (done, waits) = sync_channel(1);
                if thread.send(done).is_ok() {
                    let _ = waits.recv();
                }
                true
            }
            Self::First(first) => {
                self.order_end();
                has_ended(first)
            }
        }
    }

    /// Kills all processes of the command soon.
    pub(in crate::sandbox) fn order_end(&self) {
        match self {
            Self::Thread(thread) => drop(thread.send(sync_channel(1).0)),
            // One that has ended cannot be signalled, as it should be.
            Self::First(first) => drop(pidfd_send_signal(first, Signal::KILL)),
        }
    }
}

fn has_ended(process: &OwnedFd) -> bool {
    let began = Instant::now();
    loop {
        let left = ENDING.saturating_sub(began.elapsed());
        let mut polled = [PollFd::new(process, PollFlags::IN)];
        match poll(&mut polled, Timespec::try_from(left).ok().as_ref()) {
            Ok(0) if left.is_zero() => return false,
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
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

/// The processes of this machine, as far as they can be seen.
fn all() -> Option<impl Iterator<Item = Pid>> {
    let all = fs::read_dir("/proc").ok()?;
    Some(all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)))
}

/// True if one of these absolute paths is mounted on in a process of this machine. It reads the mounts of all of them.
pub(super) fn are_mounted_on(paths: &[PathBuf]) -> bool {
    let paths: Vec<Vec<u8>> = paths.iter().map(|path| escaped(path)).collect();
    let mut tables = all().into_iter().flatten().filter_map(|id| table(id).ok());
    // While bubblewrap works, the names have a prefix.
    let is_one = |mount: Listed<'_>| paths.iter().any(|path| mount.at.ends_with(path));
    !paths.is_empty() && tables.any(|table| listed(&table).any(is_one))
}

fn anybody_left() -> bool {
    let Some(ids) = all() else { return false };
    ids.filter(|id| *id != getpid() && test_kill_process(*id).is_ok()).any(is_alive)
}

/// The processes that a process started by its first thread, where the kernel lists them.
pub(super) fn children(id: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    listed.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

fn parent_of(id: Pid) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", id.as_raw_nonzero())).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// False for a process that ended and waits for its parent to notice.
fn is_alive(id: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", id.as_raw_nonzero())).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| !['Z', 'X', 'x'].contains(&state))
}
