//! The queue of a session: its active run, the prompts behind it in the order in which they were accepted, and those
//! that join the active run at its next step.
//!
//! A [`PromptQueue`] is a plain machine behind its session's lock: checking if the session is busy, and becoming its
//! active run or the last one in the queue, is one step.

use std::{collections::VecDeque, sync::Arc};

use entourage_core::{
    Clock, Error, RunId, Timestamp,
    agent::Agent,
    event::{Event, MessageAdded, Origin, PromptDropped, PromptQueued},
    run::Task,
    session::QueuedPrompt,
};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::session::{
    delivery::emit::Sink,
    journal::{Journal, queued::InQueue},
    live::{Claim, Entry},
};

/// The run that a session is busy with.
pub(crate) struct Running {
    pub(crate) accepted: u64,
    pub(crate) sink: Arc<Sink>,
    pub(crate) cancel: CancellationToken,
    /// `None` while the session is only written to.
    pub(crate) agent: Option<Arc<dyn Agent>>,
    /// True for an answer or a signal: others wait for it instead of failing as busy.
    pub(crate) brief: bool,
}

/// A queued prompt.
pub(crate) struct Ticket {
    pub(crate) accepted: u64,
    pub(crate) entry: Entry,
    pub(crate) task: Task,
    /// For a plain prompt, the run that it joins if that has a next step.
    pub(crate) joins: Option<Arc<Sink>>,
    /// Place of its event in the stored queue.
    pub(crate) queued: Option<InQueue>,
    /// True once that event is stored.
    pub(crate) noted: bool,
    pub(crate) dropped: bool,
    pub(crate) turn: oneshot::Sender<Claim>,
}

impl Ticket {
    fn waits(&self) -> bool {
        !self.dropped && !self.entry.cancel.is_cancelled()
    }

    /// True if the stored prompt is this one.
    fn is(&self, stored: &QueuedPrompt) -> bool {
        self.queued.is_some_and(|queued| queued.seq == stored.seq) && self.task.prompt == stored.queued.prompt
    }

    fn origin(&self, journal: &Journal) -> Arc<Origin> {
        Arc::new(Origin::new(journal.session().clone(), self.entry.run, self.entry.agent.name()))
    }

    fn stage(&mut self, journal: &Journal, now: Timestamp) {
        let queued = PromptQueued::new(
            self.joins.as_ref().map_or(self.entry.run, |sink| sink.run()),
            self.entry.agent.name().into(),
            Arc::clone(&self.task.prompt),
            self.joins.is_some(),
            self.task.budget,
            self.task.deadline,
            self.task.labels,
        );
        let origin = self.origin(journal);
        let seq = journal.stage(&origin, now, Event::PromptQueued(Arc::new(queued)));
        self.queued = Some(InQueue { seq, created: journal.record.created });
    }
}

/// The active run of a session and the prompts behind it.
#[derive(Default)]
pub(crate) struct PromptQueue {
    active: Option<Running>,
    waiting: VecDeque<Ticket>,
    accepted: u64,
    /// True if the newest run is paused: queued prompts must not abandon it.
    held: bool,
}

impl PromptQueue {
    pub(crate) fn active(&self) -> Option<&Running> {
        self.active.as_ref()
    }

    /// True when a new prompt need not wait.
    pub(crate) fn is_free(&self) -> bool {
        self.active.is_none() && !self.is_awaited()
    }

    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.iter().any(Ticket::waits)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of the next prompt that is accepted.
    pub(crate) fn accept(&mut self) -> u64 {
        self.accepted += 1;
        self.accepted
    }

    /// Returns the newest number that was given out.
    pub(crate) fn mark(&self) -> u64 {
        self.accepted
    }

    /// Makes a run the active one. The session must be free, or held for it.
    pub(crate) fn occupy(&mut self, running: Running) {
        self.held &= running.agent.is_none();
        self.active = Some(running);
    }

    /// Releases the queue that a paused run holds, since that run is abandoned.
    pub(crate) fn let_go(&mut self) {
        self.held = false;
    }

    pub(crate) fn push(&mut self, ticket: Ticket) {
        self.waiting.push_back(ticket);
    }

    /// Puts `tickets` before all others.
    pub(crate) fn push_front(&mut self, tickets: Vec<Ticket>) {
        for ticket in tickets.into_iter().rev() {
            self.waiting.push_front(ticket);
        }
    }

    pub(crate) fn knows(&self, seq: u64) -> bool {
        self.waiting.iter().any(|ticket| ticket.queued.is_some_and(|queued| queued.seq == seq))
    }

    /// Ends the active run.
    pub(crate) fn end(&mut self, hold: bool) {
        self.active = None;
        self.held |= hold;
    }

    /// Takes the next prompt out of the queue and makes its run the active one. A prompt that was to join a run must be
    /// stored first: that is all that its caller is told.
    pub(crate) fn next(&mut self) -> Option<Ticket> {
        if self.held || self.active.is_some() {
            return None;
        }
        let place = self.waiting.iter().position(Ticket::waits)?;
        if self.waiting.get(place).is_some_and(|ticket| ticket.joins.is_some() && !ticket.noted) {
            return None;
        }
        let ticket = self.waiting.remove(place)?;
        self.active = Some(ticket.entry.running(ticket.accepted));
        Some(ticket)
    }

    /// Drops all queued prompts. Returns the tokens that cancel them and the active run.
    pub(crate) fn clear(&mut self) -> Vec<CancellationToken> {
        self.waiting.iter_mut().for_each(|ticket| ticket.dropped = true);
        let active = self.active.iter().map(|running| &running.cancel);
        active.chain(self.waiting.iter().map(|ticket| &ticket.entry.cancel)).cloned().collect()
    }

    /// True while anything that was accepted up to `mark` is left.
    pub(crate) fn has(&self, mark: u64) -> bool {
        let active = self.active.iter().map(|running| running.accepted);
        active.chain(self.waiting.iter().map(|ticket| ticket.accepted)).any(|accepted| accepted <= mark)
    }

    /// Drops a queued prompt, and stages that. Returns false if its run has begun or it joined a run. Its ticket stays
    /// until it is removed.
    pub(crate) fn withdraw(&mut self, accepted: u64, journal: &Journal, now: Timestamp) -> bool {
        let Some(ticket) = self.waiting.iter_mut().find(|ticket| ticket.accepted == accepted) else {
            return false;
        };
        ticket.dropped = true;
        // A prompt of a deleted session is gone with it.
        if let Some(queued) = ticket.queued.filter(|queued| journal.is_of(queued.created)) {
            let dropped = PromptDropped::new(queued.seq, Error::cancelled().record());
            journal.stage(&ticket.origin(journal), now, Event::PromptDropped(Arc::new(dropped)));
        }
        true
    }

    pub(crate) fn remove(&mut self, accepted: u64) {
        self.waiting.retain(|ticket| ticket.accepted != accepted);
    }

    /// Stages the prompts that were accepted and not yet staged, in order.
    pub(crate) fn stage(&mut self, journal: &Journal, now: Timestamp) {
        for ticket in self.waiting.iter_mut().filter(|ticket| ticket.queued.is_none()) {
            ticket.stage(journal, now);
        }
    }

    pub(crate) fn is_noted(&self, accepted: u64) -> bool {
        self.waiting.iter().any(|ticket| ticket.accepted == accepted && ticket.noted)
    }

    /// Marks the prompts up to `accepted` as stored, which were staged in this order.
    pub(crate) fn note(&mut self, accepted: u64) {
        let put_down = |ticket: &&mut Ticket| ticket.accepted <= accepted && ticket.queued.is_some();
        self.waiting.iter_mut().filter(put_down).for_each(|ticket| ticket.noted = true);
    }

    /// Looks for the prompts that were staged in the journal before `journal`, of which the store has acknowledged the
    /// events up to `stored`. Those that are not stored are staged again.
    pub(crate) fn find_staged(&mut self, journal: &Journal, stored: u64) {
        let is_stored = |ticket: &Ticket, queued: InQueue| {
            queued.seq <= stored || journal.read(|state| state.queue().iter().any(|it| ticket.is(it)))
        };
        for ticket in self.waiting.iter_mut().filter(|ticket| !ticket.noted) {
            ticket.queued = ticket.queued.filter(|queued| is_stored(ticket, *queued));
        }
    }

    /// Adds plain prompts to the conversation of the active run, oldest first.
    ///
    /// One that is not stored yet waits for the next step: if the commit of the run fails, a prompt that joined it must
    /// be in the store for the process that continues the run.
    pub(crate) fn fold(&mut self, journal: &Journal, origin: &Arc<Origin>, clock: &dyn Clock) {
        let joins = |ticket: &Ticket| ticket.joins.is_some() && ticket.noted && ticket.waits();
        if !self.waiting.iter().any(joins) {
            return;
        }
        // Read only now: in most steps the queue is empty.
        let now = clock.now();
        let (joining, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(joins);
        self.waiting = waiting;
        let joining: VecDeque<Ticket> = joining;
        for ticket in joining {
            let added = MessageAdded::new(ticket.task.prompt, ticket.queued.map(|queued| queued.seq));
            journal.stage(origin, now, Event::MessageAdded(Arc::new(added)));
        }
    }

    pub(crate) fn sink_of(&self, run: RunId) -> Option<Arc<Sink>> {
        let active = self.active.as_ref().map(|running| &running.sink).filter(|sink| sink.run() == run);
        let waiting = || {
            let ticket = self.waiting.iter().find(|ticket| ticket.entry.run == run)?;
            Some(ticket.joins.as_ref().unwrap_or(&ticket.entry.sink))
        };
        active.or_else(waiting).cloned()
    }
}
