//! Runs that are never queued: of agents that hold what only this process has.

use std::{pin::pin, sync::Arc, time::Duration};

use entourage_core::{
    Error, ErrorKind, Result, RunId,
    agent::IntoAgent,
    run::{Outcome, Task},
};
use tokio::runtime::Handle;

use crate::{
    run::{execute::Admission, handle::RunHandle},
    session::{
        Session,
        guarded::Guarded,
        live::{Entry, Live},
        runs,
    },
};

/// First and longest wait for a session in which another process works. Each is twice the one before.
const FIRST_WAIT: Duration = Duration::from_millis(25);
const LONGEST_WAIT: Duration = Duration::from_millis(200);

impl Session {
    /// Runs an agent as [`Session::start`] does, but never by the stored queue: for an agent that holds what only this
    /// process has, so that nobody else could perform a prompt that was left there.
    ///
    /// While the session is busy, here or in another process, the call waits in memory, at most for `patience`; those
    /// of one process have their turns in order. Prompts in the queue go first, also those behind a paused run, which
    /// this does not abandon then. A run that another process took the session from is run again: an agent may have
    /// recorded twice what it records. Dropping the future cancels the run.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] or [`ErrorKind::Conflict`] when that time is over, and no prompt is left in the session;
    /// otherwise those of [`RunHandle::outcome`].
    pub async fn run_unqueued<Form>(
        &self,
        agent: impl IntoAgent<Form>,
        prompt: impl Into<Task>,
        patience: Duration,
    ) -> Result<Outcome> {
        let handle = runs::tokio()?;
        let (agent, task) = (agent.into_agent(), Guarded::new(&self.0.env, prompt.into())?.into_task());
        let entry = || Entry::new(RunId::generate(), Arc::clone(&agent), &self.1);
        let mut over = pin!(tokio::time::sleep(patience));
        // Only one call of this process asks the store if another process is done.
        let _turn = tokio::select! {
            biased;
            turn = self.0.turns.lock() => turn,
            () = &mut over => return Err(self.never_free()),
        };
        let mut wait = FIRST_WAIT;
        loop {
            let run = tokio::select! {
                biased;
                run = self.0.begin_free(entry, &task, &handle) => run,
                () = &mut over => return Err(self.never_free()),
            };
            match run.outcome().await {
                Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::Conflict) => {
                    tokio::select! {
                        biased;
                        () = &mut over => return Err(error),
                        () = tokio::time::sleep(wait) => wait = wait.saturating_mul(2).min(LONGEST_WAIT),
                    }
                }
                ended => return ended,
            }
        }
    }

    fn never_free(&self) -> Error {
        let text = "the session was busy all the time; try again when its runs are over";
        Error::new(ErrorKind::Busy, text).with("session", self.id().as_str())
    }
}

impl Live {
    /// Begins a run as soon as the session is free here: to see that and to become its active run is one step.
    async fn begin_free(
        self: &Arc<Self>,
        entry: impl Fn() -> Entry,
        task: &Task,
        tokio: &Handle,
    ) -> RunHandle {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(run) = self.begin_if_free(&entry, task, tokio) {
                return run;
            }
            changed.await;
        }
    }

    fn begin_if_free(
        self: &Arc<Self>,
        entry: impl Fn() -> Entry,
        task: &Task,
        tokio: &Handle,
    ) -> Option<RunHandle> {
        let entry = {
            let mut state = self.lock();
            if !state.queue.is_free() {
                return None;
            }
            let (entry, accepted) = (entry(), state.queue.accept());
            state.queue.occupy(entry.running(accepted));
            entry
        };
        let (sink, cancel) = (Arc::clone(&entry.sink), entry.cancel.clone());
        let job = self.spawn(entry, Admission::Start(task.clone()), None, tokio);
        Some(RunHandle::new(self.env.owner, self.id.clone(), sink, Ok(job), cancel))
    }
}
