//! One server over time: started by the first file that concerns it, started again a few times, and ended.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout_at},
};

use super::{LanguageServerState, live::Live, server::LanguageServer, wire::plain};

/// Most times that a server which failed is started again by itself.
const RETRIES: usize = 3;
/// Time after which what failed before does not count any more.
const FORGIVEN: Duration = Duration::from_secs(600);

type Made = Option<Result<Arc<Live>, String>>;

/// A server that may run.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) server: LanguageServer,
    root: PathBuf,
    slot: Mutex<Slot>,
}

#[derive(Debug)]
struct Slot {
    stage: Stage,
    /// Number of times that it failed.
    failed: usize,
    is_shut: bool,
}

#[derive(Debug)]
enum Stage {
    Idle,
    Begun(watch::Receiver<Made>, JoinHandle<()>),
    /// It is not started again by itself.
    Failed(String),
}

/// Reason that no server is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Absent {
    /// It is not ready yet.
    Starting,
    /// It failed, for this reason.
    Failed(String),
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Stage::Begun(_, task) = &self.slot().stage {
            task.abort();
        }
    }
}

impl Link {
    pub(super) fn new(server: LanguageServer, root: PathBuf) -> Self {
        let slot = Slot { stage: Stage::Idle, failed: 0, is_shut: false };
        Self { server, root, slot: Mutex::new(slot) }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn state(&self) -> LanguageServerState {
        let slot = self.slot();
        match &slot.stage {
            _ if slot.is_shut => LanguageServerState::Stopped,
            Stage::Idle => LanguageServerState::Idle,
            Stage::Failed(reason) => LanguageServerState::Failed(reason.clone()),
            Stage::Begun(made, _) => match &*made.borrow() {
                None => LanguageServerState::Starting,
                Some(Err(reason)) => LanguageServerState::Failed(reason.clone()),
                Some(Ok(live)) => {
                    live.over().map_or(LanguageServerState::Running, LanguageServerState::Failed)
                }
            },
        }
    }

    /// The server, if it runs.
    pub(super) fn running(&self) -> Option<Arc<Live>> {
        match &self.slot().stage {
            Stage::Begun(made, _) => match &*made.borrow() {
                Some(Ok(live)) if live.over().is_none() => Some(Arc::clone(live)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the server, which is started where it does not run. Waits for it no longer than to the deadline.
    pub(super) async fn live(&self, deadline: Instant) -> Result<Arc<Live>, Absent> {
        let mut made = self.begun().map_err(Absent::Failed)?;
        let ready = timeout_at(deadline, made.wait_for(Option::is_some)).await;
        match ready {
            Ok(Ok(made)) => match &*made {
                Some(Ok(live)) => Ok(Arc::clone(live)),
                Some(Err(reason)) => Err(Absent::Failed(reason.clone())),
                None => Err(Absent::Starting),
            },
            Ok(Err(_)) => Err(Absent::Failed("its start was broken off".to_owned())),
            Err(_) => Err(Absent::Starting),
        }
    }

    /// Returns the start of the server that is there, or of another one.
    ///
    /// # Errors
    /// The reason that it is not started.
    fn begun(&self) -> Result<watch::Receiver<Made>, String> {
        let mut slot = self.slot();
        if slot.is_shut {
            return Err("it was shut down".to_owned());
        }
        let failed = match &slot.stage {
            Stage::Idle => None,
            Stage::Failed(reason) => return Err(reason.clone()),
            Stage::Begun(made, _) => match &*made.borrow() {
                None if made.has_changed().is_ok() => return Ok(made.clone()),
                None => Some(("its start was broken off".to_owned(), false)),
                Some(Err(reason)) => Some((reason.clone(), false)),
                Some(Ok(live)) => match live.over() {
                    None => return Ok(made.clone()),
                    Some(reason) => Some((reason, live.born.elapsed() > FORGIVEN)),
                },
            },
        };
        if let Some((reason, is_forgiven)) = failed {
            slot.failed = if is_forgiven { 1 } else { slot.failed.saturating_add(1) };
            if slot.failed > RETRIES {
                let reason = format!("it failed {} times, the last time because {reason}", slot.failed);
                slot.stage = Stage::Failed(reason.clone());
                return Err(reason);
            }
        }
        Ok(self.begin(&mut slot))
    }

    /// Starts the server.
    fn begin(&self, slot: &mut Slot) -> watch::Receiver<Made> {
        let (made, begun) = watch::channel(None);
        let (server, root) = (self.server.clone(), self.root.clone());
        // It has nothing of this value, whose drop ends it.
        let task = tokio::spawn(async move {
            let live = Live::start(server, root).await;
            made.send_replace(Some(live.map(Arc::new).map_err(|reason| plain(&reason, 1_000))));
        });
        slot.stage = Stage::Begun(begun.clone(), task);
        begun
    }

    /// Takes the server out, if one runs or starts.
    async fn taken(&self, is_shut: bool) -> Option<Arc<Live>> {
        let stage = {
            let mut slot = self.slot();
            slot.failed = 0;
            slot.is_shut |= is_shut;
            std::mem::replace(&mut slot.stage, Stage::Idle)
        };
        let Stage::Begun(made, task) = stage else { return None };
        task.abort();
        // A process that it has started is killed when it ends.
        let _ = task.await;
        match &*made.borrow() {
            Some(Ok(live)) => Some(Arc::clone(live)),
            _ => None,
        }
    }

    /// Ends the server, and starts another one.
    pub(super) async fn restart(&self, deadline: Instant) -> Result<Arc<Live>, Absent> {
        if let Some(live) = self.taken(false).await {
            live.shut_down().await;
        }
        self.live(deadline).await
    }

    /// Ends the server, and starts no other.
    pub(super) async fn shut_down(&self) {
        if let Some(live) = self.taken(true).await {
            live.shut_down().await;
        }
    }
}
