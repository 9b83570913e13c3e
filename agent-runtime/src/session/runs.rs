//! Runs of an open session: begun, continued, or put into its queue.

use std::{future::Future, sync::Arc};

use entourage_core::{
    Error, ErrorKind, Result, RunId, Timestamp,
    permission::Scope,
    run::{Outcome, Status, Task},
    tool::Labels,
};
use tokio::{runtime::Handle, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    run::{
        execute::{Admission, CLEAN_UP, Within, execute},
        handle::RunHandle,
    },
    runtime::recover::Recovering,
    session::{
        below::refuse_below,
        delivery::{
            emit::{Emitter, Sink},
            nest::Nest,
        },
        guarded::Guarded,
        journal::Journal,
        live::{Claim, Entry, Live, State},
        queue::Running,
    },
};

/// Retries of a run whose first commit another process was faster than.
const TRIES: u32 = 4;

pub(super) fn tokio() -> Result<Handle> {
    Handle::try_current().map_err(|error| {
        Error::new(ErrorKind::Config, "a run needs a tokio runtime; call this within one").caused_by(error)
    })
}

impl Live {
    /// Returns the journal that a run begins or continues with, as the store has it now.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when the open run, as this handle (`seen`) or a recovery last saw it, is another
    /// process' by now, or the session was made anew; [`ErrorKind::InvalidInput`] for a session below another one.
    async fn journal_for(
        self: &Arc<Self>,
        admission: &Admission,
        recovering: Option<&Recovering>,
        seen: Option<Life>,
    ) -> Result<Arc<Journal>> {
        let create = matches!(admission, Admission::Start(_) | Admission::Queued(..));
        let known = self.created();
        let journal = self.opened(create, true).await?;
        if matches!(admission, Admission::Resume) {
            journal.check_created(known)?;
        }
        refuse_below(&self.env, &journal).await?;
        let taken = match (recovering, admission, seen) {
            (Some(recovering), ..) => recovering.seen != open_run(&journal),
            (None, Admission::Resume, Some(seen)) => was_taken(seen, &journal, self.env.clock.now()),
            _ => false,
        };
        if taken {
            return Err(Error::new(
                ErrorKind::Conflict,
                "another process went on with the run first; look at the session again before you resume it",
            )
            .with("session", self.id.as_str()));
        }
        Ok(journal)
    }

    /// Checks that no run is active and activates this one, in one step.
    fn occupy(&self, state: &mut State, running: impl FnOnce(u64) -> Running) -> Result<()> {
        if let Some(active) = state.queue.active() {
            return Err(Error::new(
                ErrorKind::Busy,
                "the session has an active run; await its outcome or cancel it first",
            )
            .with("session", self.id.as_str())
            .with("active", active.sink.run().to_string()));
        }
        let accepted = state.queue.accept();
        state.queue.occupy(running(accepted));
        Ok(())
    }

    /// Claims the session for a write, so that no run begins meanwhile. Waits for a brief claim to end.
    pub(super) async fn claim(
        self: &Arc<Self>,
        run: RunId,
        cancel: &CancellationToken,
        brief: bool,
    ) -> Result<Claim> {
        let sink = Arc::new(Sink::unread(run));
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let (sink, cancel) = (Arc::clone(&sink), cancel.clone());
            let running = |accepted| Running { accepted, sink, cancel, agent: None, brief };
            let claimed = {
                let mut state = self.lock();
                let waits = state.queue.active().is_some_and(|active| active.brief);
                if waits { None } else { Some(self.occupy(&mut state, running)) }
            };
            match claimed {
                Some(claimed) => {
                    claimed?;
                    break;
                }
                None => changed.await,
            }
        }
        Ok(Claim::new(Arc::clone(self), sink, None))
    }

    /// Begins a run, or puts it into the queue: one step, so that no two runs are ever active.
    pub(super) fn begin(self: &Arc<Self>, entry: Entry, task: Task) -> RunHandle {
        let (sink, cancel) = (Arc::clone(&entry.sink), entry.cancel.clone());
        let job = tokio().and_then(|tokio| {
            let task = Guarded::new(&self.env, task)?;
            let mut state = self.lock();
            if !state.queue.is_free() {
                return self.enqueue(state, entry, task, &tokio);
            }
            self.occupy(&mut state, |accepted| entry.running(accepted))?;
            drop(state);
            Ok(self.spawn(entry, Admission::Start(task.into_task()), None, &tokio))
        });
        RunHandle::new(self.env.owner, self.id.clone(), sink, job, cancel)
    }

    /// Continues a run, or a queue, that this process does not work on.
    pub(crate) fn go_on(
        self: &Arc<Self>,
        entry: Entry,
        admission: Admission,
        recovering: Option<Recovering>,
    ) -> RunHandle {
        let (sink, cancel) = (Arc::clone(&entry.sink), entry.cancel.clone());
        let job = tokio().and_then(|tokio| {
            self.occupy(&mut self.lock(), |accepted| entry.running(accepted))?;
            Ok(self.spawn(entry, admission, recovering, &tokio))
        });
        RunHandle::new(self.env.owner, self.id.clone(), sink, job, cancel)
    }

    /// Starts the task of the run that has just become the active one.
    pub(super) fn spawn(
        self: &Arc<Self>,
        entry: Entry,
        admission: Admission,
        recovering: Option<Recovering>,
        tokio: &Handle,
    ) -> JoinHandle<Result<Outcome>> {
        let active = Claim::new(Arc::clone(self), Arc::clone(&entry.sink), None);
        // A large future is moved several times on its way into a task; a box is moved cheaply.
        let run = Box::pin(Arc::clone(self).run(active, entry, admission, recovering));
        self.env.tasks.spawn_on(run, tokio)
    }

    // An async fn keeps what it is given twice, and every run pays for it.
    pub(super) fn run(
        self: Arc<Self>,
        mut active: Claim,
        entry: Entry,
        admission: Admission,
        recovering: Option<Recovering>,
    ) -> impl Future<Output = Result<Outcome>> + Send {
        let nest = Nest::new(&self.env, &self.id, &entry.sink);
        nest.around(async move {
            // Read before anything is staged: that would be part of the journal's state at once.
            let used = self.lock().journal.clone().filter(|journal| !journal.is_broken());
            let mut seen = used.map(|journal| open_run(&journal));
            // A recovery reports by itself what could not begin.
            let waited = recovering.is_none() && matches!(admission, Admission::Queued(_, Some(_)));
            let mut tries = 0;
            let (outcome, journal) = loop {
                let journal = self.journal_for(&admission, recovering.as_ref(), seen).await;
                let journal =
                    journal.map_err(|error| if waited { self.still_queued(error) } else { error })?;
                seen.get_or_insert_with(|| open_run(&journal));
                let before = journal.committed();
                let agents = recovering.as_ref().map(|recovering| &recovering.agents);
                self.adopt(&journal, &entry, &admission, agents);
                let (env, agent) = (Arc::clone(&self.env), Arc::clone(&entry.agent));
                let within = self.within(&entry);
                let newest = journal.seq();
                let outcome = execute(env, Arc::clone(&journal), agent, admission.clone(), within).await;
                // Another process appended between the look at the store and the first commit: nothing of the run is
                // stored, and its agent has not begun.
                let lost = journal.is_broken() && journal.committed() == before;
                let again = lost && tries < TRIES && !entry.cancel.is_cancelled();
                if !again || !outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Conflict) {
                    let begun = journal.committed() > newest;
                    let told = |error| if waited && !begun { self.still_queued(error) } else { error };
                    break (outcome.map_err(told), journal);
                }
                tries += 1;
            };
            active.hold = is_open(&outcome) && journal.read(|state| state.run().is_some());
            drop(active);
            self.rest(&journal).await;
            outcome.map(|outcome| *outcome)
        })
    }

    fn within(self: &Arc<Self>, entry: &Entry) -> Box<Within> {
        let emitter = Emitter::new(Some(Arc::clone(&entry.sink)), &self.env);
        Box::new(Within {
            path: None,
            scope: Scope::all(),
            reads_unasked: false,
            cancel: entry.cancel.clone(),
            emitter: emitter.at(Arc::clone(self), entry.run),
            todos: None,
            budget: None,
            run: Some(entry.run),
            opening: Vec::new(),
            title: None,
            pool: None,
            unseated: false,
            subtree: None,
            clock: None,
            root: None,
            above: None,
            labels: Labels::empty(),
            owns_cancel: false,
            deps: entry.deps.clone(),
        })
    }

    /// Gives back the lease that was kept for queued prompts, once there are none.
    pub(super) async fn rest(self: &Arc<Self>, journal: &Arc<Journal>) {
        if !journal.keeps_lease() {
            return;
        }
        {
            let state = self.lock();
            if !state.queue.is_free() {
                return;
            }
            journal.release_lease();
        }
        // If this fails the lease ends by itself.
        let emitter = Emitter::new(None, &self.env).at(Arc::clone(self), RunId::generate());
        drop(tokio::time::timeout(CLEAN_UP, Box::pin(journal.return_lease(&emitter))).await);
    }
}

/// The open run of a session, if it has one: its id, how often it was resumed, and true if it is paused.
pub(crate) type Life = Option<(RunId, u32, bool)>;

pub(crate) fn open_run(journal: &Journal) -> Life {
    journal.read(|state| state.run().map(|run| (run.id, run.resumed, run.pause.is_some())))
}

/// True when the open run of a session, as it was `seen`, is another process' by now: that one ended it, or works on
/// it.
fn was_taken(seen: Life, now: &Journal, at: Timestamp) -> bool {
    let open = open_run(now);
    seen != open && (open.is_none() || now.leased_elsewhere(at).is_some())
}

/// True when the run can be resumed, so that queued prompts must not abandon it.
fn is_open(outcome: &Result<Box<Outcome>>) -> bool {
    match outcome {
        Ok(outcome) => matches!(outcome.status, Status::Paused(_)),
        Err(error) => error.kind() == ErrorKind::Diverged,
    }
}
