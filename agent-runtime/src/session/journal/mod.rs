//! The one writer of a session: stages events, folds them into the session's state, and commits them to the store.
//!
//! A staged event is part of the state at once, and is committed before any effect leaves the process. So a step with
//! one tool costs two transactions.

pub(crate) mod apart;
pub(crate) mod closing;
pub(crate) mod flight;
pub(crate) mod fold;
pub(crate) mod life;
mod overtaken;
pub(crate) mod parts;
pub(crate) mod queued;
pub(crate) mod script;
pub(crate) mod since;
mod stored;
pub(crate) mod unstored;
pub(crate) mod weight;
pub(crate) mod windows;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use entourage_core::{
    Error, ErrorKind, ErrorRecord, Result, RunId, SessionId, Timestamp,
    event::{Checkpoint, Envelope, Event, Origin, Recorded},
    message::json_bytes,
    run::Outcome,
    session::{Batch, Lease, ReadRange, Row, SessionRecord, SessionState, SharedStore},
};
use tokio::sync::Notify;

use crate::{
    env::Env,
    guards::AnswersGuarded,
    session::journal::{
        life::Life,
        overtaken::Tree,
        parts::{Parts, size, weighed},
        script::Script,
    },
};

#[derive(Debug)]
pub(crate) struct Journal {
    /// `None` for a session that ends with its handle: its state lives here alone.
    pub(crate) store: Option<SharedStore>,
    pub(crate) record: SessionRecord,
    writer: u64,
    /// Id of the runtime, which holds the leases.
    owner: u64,
    /// Smallest number of events between two checkpoints.
    checkpoint_every: u64,
    /// Notified whenever nothing is in flight any more.
    landed: Notify,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Boxed, as is its open run: the allocator is quickest with pieces of less than a kilobyte.
    state: Box<SessionState>,
    staged: VecDeque<Envelope>,
    /// An empty buffer, kept between commits.
    spare: VecDeque<Envelope>,
    /// Number of the newest event that the store has.
    committed: u64,
    /// Number of the newest event whose commit was requested.
    wanted: u64,
    /// True while an operation of the store is in flight or its events are delivered: one at a time, so that events are
    /// delivered in the order in which they are stored.
    aloft: bool,
    /// True when somebody waits for the end of that operation.
    awaited: bool,
    broken: Option<ErrorRecord>,
    /// True once the store took an event from here.
    wrote: bool,
    /// Shared with the sessions above and below; `None` as long as there are none.
    tree: Option<Arc<Tree>>,
    /// Number of the newest event when the newest run's contexts ended, that run, and how often it was resumed. `None`
    /// if it was cancelled.
    lived: Option<(u64, RunId, u32)>,
    /// Events of the open run, as found when the session was opened.
    recorded: Vec<Event>,
    /// The lease as last seen in the store, or as it was sent there.
    lease: Option<Lease>,
    /// End of the lease that the store has acknowledged.
    acknowledged: Option<Timestamp>,
    /// Duration of the lease, while a run holds it.
    held: Option<Duration>,
    /// Division of the staged events into appends; `None` where nothing is stored.
    parts: Option<Parts>,
    /// Number of the newest event after which a checkpoint was too large to be stored.
    passed_over: u64,
    /// The record that a replay follows; each staged event must be part of it already.
    script: Option<Box<Script>>,
}

impl Journal {
    /// Creates the journal of a session that the store does not know yet; the first commit creates the session.
    pub(crate) fn create(env: &Env, record: SessionRecord) -> Arc<Self> {
        Self::with(env, record, Box::default(), Vec::new(), None)
    }

    /// Creates the journal of a replay: a session as it was in `state`, which continues as `script` says. Nothing of it
    /// is stored: `env` has no store.
    pub(crate) fn replaying(
        env: &Env,
        record: SessionRecord,
        state: SessionState,
        script: Script,
    ) -> Arc<Self> {
        let journal = Self::with(env, record, Box::new(state), Vec::new(), None);
        journal.lock().script = Some(Box::new(script));
        journal
    }

    /// Calls `follow` on the record that this replays, and on the state.
    pub(crate) fn follow<T>(&self, follow: impl FnOnce(&mut Script, &mut SessionState) -> T) -> Result<T> {
        let mut inner = self.lock();
        let Inner { script, state, .. } = &mut *inner;
        let no_record = || Error::new(ErrorKind::Internal, "this session is not replayed");
        script.as_mut().map(|script| follow(script, state)).ok_or_else(no_record)
    }

    /// True when the record that this replays continues with a pause, which was asked for from outside.
    pub(crate) fn paused_here(&self) -> bool {
        self.lock().script.as_ref().is_some_and(|script| script.is_paused())
    }

    fn with(
        env: &Env,
        record: SessionRecord,
        state: Box<SessionState>,
        recorded: Vec<Event>,
        lease: Option<Lease>,
    ) -> Arc<Self> {
        let committed = state.head().seq;
        Arc::new(Self {
            store: env.store.clone(),
            record,
            writer: crate::random::random(),
            owner: env.owner,
            checkpoint_every: env.checkpoint_every,
            landed: Notify::new(),
            inner: Mutex::new(Inner {
                state,
                staged: VecDeque::new(),
                spare: VecDeque::new(),
                committed,
                wanted: 0,
                aloft: false,
                awaited: false,
                broken: None,
                wrote: false,
                tree: None,
                lived: None,
                recorded,
                lease,
                acknowledged: None,
                held: None,
                parts: env.store.as_ref().map(|store| Parts::new(store.largest_batch())),
                passed_over: 0,
                script: None,
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn session(&self) -> &SessionId {
        &self.record.id
    }

    /// True when this is the stored session that was created at `created`, and not one made anew since.
    pub(crate) fn is_of(&self, created: Timestamp) -> bool {
        self.record.created == created && self.committed() > 0
    }

    /// Returns the parent session.
    pub(crate) fn parent(&self) -> Option<&SessionId> {
        self.record.parent.as_ref()
    }

    /// Reads the state.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&SessionState) -> T) -> T {
        read(&self.lock().state)
    }

    /// Takes the oldest signal of this name.
    pub(crate) fn take_signal(&self, name: &str) -> Option<serde_json::Value> {
        self.lock().state.take_signal(name)
    }

    pub(crate) fn recorded(&self) -> Vec<Event> {
        self.lock().recorded.clone()
    }

    /// Returns the time until which another process runs an agent here, as far as is known.
    pub(crate) fn leased_elsewhere(&self, now: Timestamp) -> Option<Timestamp> {
        let lease = self.lock().lease;
        lease.filter(|lease| lease.owner != self.owner && lease.is_live(now)).map(|lease| lease.until)
    }

    /// Number of the newest event that the store has.
    pub(crate) fn committed(&self) -> u64 {
        self.lock().committed
    }

    /// True if no other process than this one was the last to run an agent here.
    fn is_owned(&self) -> bool {
        self.lock().lease.is_none_or(|lease| lease.owner == self.owner)
    }

    /// Returns the time until which any process, this one too, runs an agent here, as far as is known.
    pub(crate) fn leased(&self, now: Timestamp) -> Option<Timestamp> {
        self.lock().lease.filter(|lease| lease.is_live(now)).map(|lease| lease.until)
    }

    /// Returns the error of a session in which an agent works.
    pub(crate) fn busy(session: &SessionId) -> Error {
        let text = "an agent runs in the session, or its process died just now; wait for it, or for its lease to end";
        Error::new(ErrorKind::Busy, text).with("session", session.as_str())
    }

    /// Checks that no agent works in the session, of this process or another one: of one below another run the lease
    /// alone tells.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`].
    pub(crate) fn check_unleased(&self, now: Timestamp) -> Result<()> {
        self.leased(now).map_or(Ok(()), |_| Err(Self::busy(self.session())))
    }

    /// Lets each commit from now on take or renew the lease for `time`.
    pub(crate) fn hold_lease(&self, time: Duration) {
        self.lock().held = Some(time);
    }

    /// Lets the next commit give the lease back.
    pub(crate) fn release_lease(&self) {
        let mut inner = self.lock();
        inner.held = inner.held.map(|_| Duration::ZERO);
    }

    /// True when the last commit kept the lease for the next run of the session.
    pub(crate) fn keeps_lease(&self) -> bool {
        let inner = self.lock();
        inner.held.is_some() && inner.lease.is_some_and(|lease| lease.until > Timestamp::default())
    }

    /// Returns the lease that gives back one that was kept; `None` when it is held again.
    fn lease_to_return(&self, inner: &mut Inner) -> Option<Lease> {
        if inner.committed == 0 || inner.broken.is_some() || inner.held != Some(Duration::ZERO) {
            return None;
        }
        inner.next_lease(self.owner, Timestamp::default())
    }

    /// Returns the lease that renews one that is held for `time`; `None` while at least two thirds of that are left.
    fn lease_to_renew(&self, inner: &mut Inner, now: Timestamp, time: Duration) -> Option<Lease> {
        let fresh = inner.lease.is_some_and(|lease| lease.until.since(now) > time - time / 3);
        if inner.committed == 0 || fresh {
            return None;
        }
        inner.next_lease(self.owner, now)
    }

    /// Returns the lease with which this takes the session over; `None` for one that is not stored.
    fn lease_to_take(&self, inner: &mut Inner, now: Timestamp) -> Option<Lease> {
        if inner.committed == 0 { None } else { inner.next_lease(self.owner, now) }
    }

    pub(crate) fn forget_recorded(&self) {
        self.lock().recorded = Vec::new();
    }

    /// True when another process may have appended, or the store failed: the session must be opened again.
    pub(crate) fn is_broken(&self) -> bool {
        self.lock().broken.is_some()
    }

    /// Returns the totals of the unfinished run so far, as an outcome for a run that could not make one. It has no text
    /// that guards should have looked at.
    pub(crate) fn spent(&self) -> Outcome {
        self.read(|state| {
            let mut outcome = state.spent();
            if AnswersGuarded::is_in(state) {
                outcome.text.clear();
            }
            outcome
        })
    }

    /// Reads the outcome of the session's newest run, if that has ended.
    pub(crate) async fn last_outcome(&self) -> Result<Option<Outcome>> {
        let newest = self.seq().saturating_sub(1);
        let Some(store) = &self.store else { return Ok(None) };
        let rows = store.read(&self.record.id, ReadRange::after(newest)).await?;
        for row in rows {
            if let Event::RunFinished(end) = row.into_envelope(&self.record.id)?.event {
                return Ok(Some(end.outcome.clone()));
            }
        }
        Ok(None)
    }

    /// Adds an event to the state; it is stored by the next commit. Returns its number.
    pub(crate) fn stage(&self, origin: &Arc<Origin>, at: Timestamp, event: Event) -> u64 {
        self.stage_locked(&mut self.lock(), origin, at, event)
    }

    /// Adds an event of a run to the state, unless that run is over.
    ///
    /// # Errors
    /// Those of [`Life::check`].
    pub(crate) fn stage_in(
        &self,
        life: &Life,
        origin: &Arc<Origin>,
        at: Timestamp,
        event: Event,
    ) -> Result<u64> {
        let mut inner = self.lock();
        life.check()?;
        Ok(self.stage_locked(&mut inner, origin, at, event))
    }

    fn stage_locked(&self, inner: &mut Inner, origin: &Arc<Origin>, at: Timestamp, event: Event) -> u64 {
        if let Inner { script: Some(script), state, .. } = inner {
            return script.made(state, &event);
        }
        self.stage_live(inner, origin, at, event)
    }

    /// Stages an event outside a replay, behind a checkpoint where one is due.
    fn stage_live(&self, inner: &mut Inner, origin: &Arc<Origin>, at: Timestamp, event: Event) -> u64 {
        if let Some(store) = &self.store
            && begins_something(&event)
            && inner.needs_checkpoint(self.checkpoint_every)
        {
            inner.stage_checkpoint(origin, at, store.largest_batch());
        }
        inner.stage(Arc::clone(origin), at, event)
    }

    /// Adds an event of a run that `make` derives from the current state. Its own number is the next one, unless it
    /// begins a turn: a checkpoint may come before it then.
    ///
    /// # Errors
    /// Those of [`Life::check`] and of `make`; nothing is added then.
    pub(crate) fn stage_with(
        &self,
        life: &Life,
        origin: &Arc<Origin>,
        at: Timestamp,
        make: impl FnOnce(&SessionState) -> Result<Event>,
    ) -> Result<u64> {
        let mut inner = self.lock();
        life.check()?;
        if let Inner { script: Some(script), state, .. } = &mut *inner {
            script.catch_up(state);
            let event = make(state)?;
            return Ok(script.made(state, &event));
        }
        let event = make(&inner.state)?;
        Ok(self.stage_live(&mut inner, origin, at, event))
    }

    /// Adds the record of a run that `make` derives from the current state and its own number.
    ///
    /// # Errors
    /// Those of [`Life::check`], of `make` and of [`Recorded::weigh`]; nothing is added then.
    pub(crate) fn append(
        &self,
        life: &Life,
        origin: &Arc<Origin>,
        at: Timestamp,
        make: &mut dyn FnMut(&SessionState, u64) -> Result<Recorded>,
    ) -> Result<()> {
        let next = |state: &SessionState| state.head().seq.saturating_add(1);
        let mut inner = self.lock();
        life.check()?;
        if let Inner { script: Some(script), state, .. } = &mut *inner {
            script.catch_up(state);
            let made = Event::Recorded(make(state, next(state))?);
            script.made(state, &made);
            return Ok(());
        }
        let made = make(&inner.state, next(&inner.state))?;
        // A value that cannot be stored would break the session.
        let bytes = if inner.parts.is_some() { weighed(&made)? } else { 0 };
        inner.stage_sized(Arc::clone(origin), at, Event::Recorded(made), bytes);
        Ok(())
    }

    /// Number of the newest event, staged ones included.
    pub(crate) fn seq(&self) -> u64 {
        self.lock().state.head().seq
    }

    /// Returns the staged events that go into one append.
    fn batch(&self, inner: &mut Inner) -> Batch {
        let part = inner.parts.as_ref().map(|parts| parts.next(inner.committed));
        let (count, head) = part.unwrap_or((usize::MAX, None));
        let head = head.unwrap_or_else(|| inner.state.head().clone());
        let rows = inner.staged.iter().take(count).cloned().map(Row::live).collect();
        let now = head.updated;
        let mut batch = Batch::new(self.writer, rows, head);
        batch.lease = inner.next_lease(self.owner, now);
        if inner.committed == 0 { batch.creating(self.record.clone()) } else { batch.of(&self.record) }
    }
}

/// True when no call is open before this event, so that the state is small and a turn can begin from it.
fn begins_something(event: &Event) -> bool {
    matches!(event, Event::RunStarted(_) | Event::ModelStarted(_))
}

impl Inner {
    fn stage(&mut self, origin: Arc<Origin>, at: Timestamp, event: Event) -> u64 {
        let bytes = if self.parts.is_some() { size(&event) } else { 0 };
        self.stage_sized(origin, at, event, bytes)
    }

    fn stage_sized(&mut self, origin: Arc<Origin>, at: Timestamp, event: Event, bytes: usize) -> u64 {
        let seq = self.state.head().seq.saturating_add(1);
        if let Some(parts) = &mut self.parts {
            parts.add(bytes, self.state.head(), !self.staged.is_empty());
        }
        let envelope = Envelope::new(origin, seq, at, event);
        self.state.apply(&envelope);
        self.staged.push_back(envelope);
        seq
    }

    /// Stages a checkpoint. One that the store could not take is left out: that costs time, not the session.
    fn stage_checkpoint(&mut self, origin: &Arc<Origin>, at: Timestamp, largest: usize) {
        let bytes = json_bytes(&self.state, largest);
        if bytes > largest {
            self.passed_over = self.state.head().seq;
            return;
        }
        let state = (*self.state).clone();
        let checkpoint = Event::Checkpoint(Arc::new(Checkpoint::new(state, None, false)));
        self.stage_sized(Arc::clone(origin), at, checkpoint, bytes);
    }

    /// True when a checkpoint is due. It costs as much as the conversation takes, so a long conversation gets them less
    /// often: the bytes written, and those read again, stay in proportion to the events.
    fn needs_checkpoint(&self, every: u64) -> bool {
        let head = self.state.head();
        let newest = head.checkpoint.max(self.passed_over);
        let messages = u64::try_from(self.state.history().len()).unwrap_or(u64::MAX);
        self.state.step().is_none()
            && head.seq.saturating_sub(newest) >= every.max(messages.saturating_mul(2))
    }

    /// Returns the lease that goes to the store next.
    fn next_lease(&mut self, owner: u64, now: Timestamp) -> Option<Lease> {
        let time = self.held?;
        let generation = match &self.lease {
            Some(lease) if lease.owner == owner => lease.generation,
            lease => lease.map_or(0, |lease| lease.generation).saturating_add(1),
        };
        // A lease that is given back has expired by any clock.
        let until = if time.is_zero() { Timestamp::default() } else { now.after(time) };
        self.lease = Some(Lease::new(owner, generation, until));
        self.lease
    }

    /// Notes how far the run came whose contexts end now.
    fn end_of_life(&mut self, cancelled: bool) {
        let newest = self.state.head().seq;
        let run = self.state.run().filter(|_| !cancelled);
        self.lived = run.map(|run| (newest, run.id, run.resumed));
    }

    /// Takes out the oldest `count` staged events.
    fn take_staged(&mut self, count: usize) -> VecDeque<Envelope> {
        let mut events = std::mem::take(&mut self.spare);
        if count >= self.staged.len() {
            // As a rule all of them go: the empty buffer takes the place of the full one.
            std::mem::swap(&mut events, &mut self.staged);
        } else {
            events.extend(self.staged.drain(..count));
        }
        events
    }
}
