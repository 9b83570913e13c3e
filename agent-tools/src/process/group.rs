//! The group of processes that a child leads.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::process::Child;

/// A process group, until its leader has ended.
#[derive(Debug, Clone)]
pub(crate) struct Group(Arc<Mutex<Option<u32>>>);

impl Group {
    /// The group that a child leads.
    pub(crate) fn of(child: &Child) -> Self {
        Self(Arc::new(Mutex::new(child.id())))
    }

    /// Kills every process of the group at once.
    pub(crate) fn kill(&self) {
        let leader = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        signal(*leader, true);
        signal_leader(*leader);
    }

    /// Asks every process of the group to end.
    pub(crate) fn ask_to_end(&self) {
        let leader = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        signal(*leader, false);
    }

    /// Kills what the leader left. The number of the group may then belong to another one, so it is forgotten.
    pub(crate) fn close(&self) {
        let mut leader = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        signal(leader.take(), true);
    }
}

#[cfg(unix)]
fn signal(leader: Option<u32>, at_once: bool) {
    use rustix::process::{Pid, Signal, kill_process_group};

    let pid = leader.and_then(|it| i32::try_from(it).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended meanwhile.
        let _ = kill_process_group(pid, if at_once { Signal::KILL } else { Signal::TERM });
    }
}

/// Kills the leader, which may not have made its group yet.
#[cfg(unix)]
fn signal_leader(leader: Option<u32>) {
    use rustix::process::{Pid, Signal, kill_process};

    if let Some(pid) = leader.and_then(|it| i32::try_from(it).ok()).and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

#[cfg(not(unix))]
fn signal_leader(_: Option<u32>) {}

#[cfg(not(unix))]
fn signal(_: Option<u32>, _: bool) {}
