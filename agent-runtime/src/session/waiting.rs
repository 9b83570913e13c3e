//! Queued prompts, with a run of their own or to join the active one: stored, dropped, and taken over from a dead
//! process.

use std::sync::{Arc, MutexGuard};

use entourage_core::{
    Error, ErrorKind, Result, RunId,
    event::PromptQueued,
    run::{Outcome, Status, Task},
};
use tokio::{runtime::Handle, sync::oneshot, task::JoinHandle};

use crate::{
    agents::Agents,
    caught, check_agent_name,
    deps::Deps,
    run::{
        admit::{check_lease, check_prompt},
        execute::{Admission, CLEAN_UP},
    },
    session::{
        below::refuse_below,
        delivery::emit::{Emitter, Sink},
        guarded::Guarded,
        journal::{Journal, queued::InQueue},
        live::{Claim, Entry, Live, State},
        queue::Ticket,
        runs::tokio,
    },
};

/// A prompt's place in the queue; given up when its task ends, however it ends.
pub(super) struct Place {
    session: Arc<Live>,
    accepted: u64,
    /// Closed with the place, unless the prompt's run takes it over.
    sink: Option<Arc<Sink>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.session.lock().queue.remove(self.accepted);
        if let Some(sink) = &self.sink {
            sink.close();
        }
        self.session.changed.notify_waiters();
    }
}

/// The state of a queued prompt's task.
pub(super) struct Wait {
    entry: Entry,
    task: Task,
    place: Place,
    turn: oneshot::Receiver<Claim>,
    /// Notified once the prompt is stored.
    stored: Option<oneshot::Sender<Result<()>>>,
}

impl Live {
    /// Puts a prompt at the end of the queue.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        entry: Entry,
        task: Guarded,
        tokio: &Handle,
    ) -> Result<JoinHandle<Result<Outcome>>> {
        check_prompt(task.task())?;
        caught(|| check_agent_name(entry.agent.name())).unwrap_or_else(|panic| {
            Err(Error::new(
                ErrorKind::Internal,
                format!("the agent panicked when asked for its name: {panic}"),
            ))
        })?;
        self.check_room(&state)?;
        let (ticket, wait) = self.ticket(&mut state, entry, task);
        state.queue.push(ticket);
        // A new prompt abandons a paused run, which the queue then no longer waits for.
        state.queue.let_go();
        drop(state);
        let waiting = self.env.tasks.spawn_on(Arc::clone(self).wait(wait), tokio);
        self.pass_on(false, false);
        Ok(waiting)
    }

    /// Queues a plain prompt, which joins the active run at its next step. Returns once it is stored.
    pub(super) async fn steer(self: &Arc<Self>, task: Task, deps: &Deps) -> Result<()> {
        check_prompt(&task)?;
        let tokio = tokio()?;
        let task = Guarded::new(&self.env, task)?;
        if !self.runs_here() {
            // A run below another one takes prompts from its parent alone.
            match self.journal(false).await {
                Ok(journal) => {
                    refuse_below(&self.env, &journal).await?;
                    self.check_open(&journal)?;
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let stored = {
            let mut state = self.lock();
            let active = state.queue.active().and_then(|running| {
                let agent = running.agent.as_ref()?;
                Some((Arc::clone(agent), Arc::clone(&running.sink)))
            });
            let (agent, joins) = active.ok_or_else(|| {
                Error::new(ErrorKind::NotFound, "no run is under way that the prompt could join; use `start`")
                    .with("session", self.id.as_str())
            })?;
            self.check_room(&state)?;
            let (tell, stored) = oneshot::channel();
            let (mut ticket, mut wait) =
                self.ticket(&mut state, Entry::unread(RunId::generate(), agent, deps), task);
            ticket.joins = Some(joins);
            wait.stored = Some(tell);
            state.queue.push(ticket);
            drop(state);
            self.env.tasks.spawn_on(Arc::clone(self).wait(wait), &tokio);
            stored
        };
        stored.await.unwrap_or_else(|_| Err(Error::cancelled()))
    }

    /// Refuses a prompt for a run that waits, or that works elsewhere.
    fn check_open(&self, journal: &Journal) -> Result<()> {
        if !journal.read(|state| state.run().is_some()) {
            return Ok(());
        }
        check_lease(journal, self.env.clock.now())?;
        let text = "the session's run is paused, or was left by its process; `resume` it, after answering what it waits \
                    for: `start` would abandon it";
        Err(Error::new(ErrorKind::Paused, text).with("session", self.id.as_str()))
    }

    fn check_room(&self, state: &State) -> Result<()> {
        let most = self.env.queue;
        if state.queue.len() < most {
            return Ok(());
        }
        let text = format!("{most} prompts wait in the session already; wait for some, or cancel it");
        Err(Error::new(ErrorKind::Busy, text).with("session", self.id.as_str()))
    }

    fn ticket(self: &Arc<Self>, state: &mut State, entry: Entry, task: Guarded) -> (Ticket, Wait) {
        let task = task.into_task();
        let (turn, turns) = oneshot::channel();
        entry.sink.set_waiting(true);
        let accepted = state.queue.accept();
        let ticket = Ticket {
            accepted,
            entry: entry.clone(),
            task: task.clone(),
            joins: None,
            queued: None,
            noted: false,
            dropped: false,
            turn,
        };
        let place = Place { session: Arc::clone(self), accepted, sink: Some(Arc::clone(&entry.sink)) };
        (ticket, Wait { entry, task, place, turn: turns, stored: None })
    }

    /// Waits with a queued prompt: it is stored, then begins its run, joins another one, or is dropped.
    async fn wait(self: Arc<Self>, wait: Wait) -> Result<Outcome> {
        let Wait { entry, task, mut place, mut turn, stored } = wait;
        let noted = self.note(&entry, place.accepted).await;
        match (noted, stored) {
            (Ok(()), None) => {}
            (Ok(()), Some(stored)) => {
                drop(stored.send(Ok(())));
                // Its turn may have come meanwhile.
                self.pass_on(false, false);
            }
            (Err(error), None) => return Err(error),
            (Err(error), Some(stored)) => {
                drop(stored.send(Err(error)));
                drop(place);
                self.pass_on(false, false);
                return Ok(Outcome::new(Status::Cancelled));
            }
        }
        let active = tokio::select! {
            biased;
            active = &mut turn => active,
            () = entry.cancel.cancelled() => {
                let withdrawn = self.withdraw(&entry, place.accepted).await;
                if withdrawn.map_err(|error| self.still_queued(error))? {
                    return Ok(Outcome::new(Status::Cancelled));
                }
                turn.await
            }
        };
        // Without a turn it joined another run: that one answers it.
        let Ok(active) = active else { return Ok(Outcome::new(Status::Completed)) };
        entry.sink.set_waiting(false);
        place.sink = None;
        drop(place);
        let admission = Admission::Queued(task, active.queued);
        Box::pin(self.run(active, entry, admission, None)).await
    }

    /// Returns the error of a prompt that is stored and whose run did not begin here, unless it is gone with its
    /// session.
    pub(super) fn still_queued(&self, error: Error) -> Error {
        if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Queued) {
            return error;
        }
        let text = format!(
            "the prompt waits in the session's stored queue and did not run here; `Runtime::recover` runs it, so do not \
             give it again: {}",
            error.message()
        );
        Error::new(ErrorKind::Queued, text).with("session", self.id.as_str()).caused_by(error)
    }

    /// Stores a queued prompt, and those accepted before it first.
    async fn note(self: &Arc<Self>, entry: &Entry, accepted: u64) -> Result<()> {
        if self.lock().queue.is_noted(accepted) {
            return Ok(());
        }
        let write = async {
            let journal = loop {
                let journal = self.journal(true).await?;
                refuse_below(&self.env, &journal).await?;
                let now = self.env.clock.now();
                check_lease(&journal, now)?;
                if self.lock().stage_queued(&journal, now) {
                    break journal;
                }
            };
            journal.commit(&self.emitter(entry)).await?;
            self.lock().queue.note(accepted);
            Ok(())
        };
        let late = async {
            entry.cancel.cancelled().await;
            tokio::time::sleep(CLEAN_UP).await;
        };
        tokio::select! {
            biased;
            written = write => written,
            () = late => Err(too_late()),
        }
    }

    /// Drops a queued prompt, and stores that. Returns false if its run has begun, or it joined one.
    async fn withdraw(self: &Arc<Self>, entry: &Entry, accepted: u64) -> Result<bool> {
        let write = async {
            let journal = self.journal(true).await?;
            let now = self.env.clock.now();
            check_lease(&journal, now)?;
            {
                let mut state = self.lock();
                if !state.queue.withdraw(accepted, &journal, now) {
                    return Ok(false);
                }
            }
            journal.commit(&self.emitter(entry)).await?;
            self.rest(&journal).await;
            Ok(true)
        };
        tokio::time::timeout(CLEAN_UP, write).await.unwrap_or_else(|_| Err(too_late()))
    }

    fn emitter(self: &Arc<Self>, entry: &Entry) -> Emitter {
        let sink = self.lock().queue.sink_of(entry.run);
        Emitter::new(sink, &self.env).at(Arc::clone(self), entry.run)
    }

    /// Queues again, before all others, the prompts that a dead process had accepted, when its work is continued. Those
    /// of unknown agents stay where they are.
    pub(super) fn adopt(
        self: &Arc<Self>,
        journal: &Journal,
        entry: &Entry,
        admission: &Admission,
        agents: Option<&Agents>,
    ) {
        let agent = &entry.agent;
        let own = match admission {
            Admission::Start(_) => return,
            Admission::Queued(_, own) if agents.is_some() => own.map(|own| own.seq),
            Admission::Queued(..) => return,
            // Without an open run of this agent, the run is refused.
            _ if journal.read(|state| state.run().is_none_or(|run| *run.agent != *agent.name())) => return,
            _ => None,
        };
        let Ok(tokio) = tokio() else { return };
        let mut state = self.lock();
        let found = journal.read(|state| state.queue().to_vec());
        let (mut tickets, mut waits) = (Vec::new(), Vec::new());
        for queued in found.into_iter().filter(|queued| own != Some(queued.seq)) {
            let named = *queued.queued.agent == *agent.name();
            let agent = if named { Some(agent) } else { agents.and_then(|it| it.get(&queued.queued.agent)) };
            let Some(agent) = agent.filter(|_| !state.queue.knows(queued.seq)) else { continue };
            let place = InQueue { seq: queued.seq, created: journal.record.created };
            let run = if queued.queued.steer { RunId::generate() } else { queued.queued.run };
            let entry = Entry::unread(run, Arc::clone(agent), &entry.deps);
            let (ticket, wait) = self.readmit(&mut state, place, &queued.queued, entry);
            tickets.push(ticket);
            waits.push(wait);
        }
        state.queue.push_front(tickets);
        drop(state);
        for wait in waits {
            self.env.tasks.spawn_on(Arc::clone(self).wait(wait), &tokio);
        }
    }

    fn readmit(
        self: &Arc<Self>,
        state: &mut State,
        place: InQueue,
        queued: &PromptQueued,
        entry: Entry,
    ) -> (Ticket, Wait) {
        let (mut ticket, wait) = self.ticket(state, entry, Guarded::stored(queued));
        (ticket.queued, ticket.noted) = (Some(place), true);
        let active = state.queue.active().filter(|_| queued.steer);
        ticket.joins = active.map(|running| Arc::clone(&running.sink));
        (ticket, wait)
    }
}

fn too_late() -> Error {
    Error::new(ErrorKind::Timeout, "the store did not answer for the queued prompt in time; look at the session's queue before you give it again").during("store.append")
}
