//! The record of one run as a replay follows it: the next event, the events that the agent's code makes again, and the
//! place where the two diverge. Pure.
//!
//! A resumed run had several lives, each in its own process. Each life is replayed by itself, from the agent's top to
//! the end of its record.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use entourage_core::{
    Clock, Error, ErrorKind, ErrorRecord, Timestamp,
    event::{Envelope, Event, Origin, Recorded},
    run::{Outcome, Status, StopReason},
    session::SessionState,
};
use tokio_util::sync::CancellationToken;

use crate::session::journal::closing::open_results;

/// The time of the newest event that was replayed.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordedTime(Arc<AtomicI64>);

impl Clock for RecordedTime {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::Relaxed))
    }
}

/// The reason that an effect gets no recorded answer.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The process that recorded it died before the answer was stored: its life is over.
    Cut,
    /// The agent gets this error.
    Told(Error),
    /// The agent does something other than what is recorded.
    Diverged(Error),
}

/// The events of one run, and the position of a replay in them.
#[derive(Debug)]
pub(crate) struct Script {
    events: Vec<Envelope>,
    /// Place of the first event that is not part of the state yet.
    next: usize,
    /// Place after the last event of this life.
    end: usize,
    time: RecordedTime,
    flaw: Option<Error>,
    /// Cancelled when this life's code need not continue.
    over: CancellationToken,
    /// The newest recorded failure that the agent got.
    told: Option<ErrorRecord>,
    /// Place of the first event of this life.
    begun: usize,
    /// Number of effects that this life's code has asked for: they are numbered in that order.
    asked: u64,
}

impl Script {
    /// Creates a script of `events`: those of the run, and those that others stored meanwhile.
    pub(crate) fn new(events: Vec<Envelope>, time: RecordedTime) -> Self {
        let over = CancellationToken::new();
        Self { events, next: 0, end: 0, time, flaw: None, over, told: None, begun: 0, asked: 0 }
    }

    pub(crate) fn started(&self) -> Option<&Envelope> {
        self.events.first()
    }

    pub(crate) fn over(&self) -> CancellationToken {
        self.over.clone()
    }

    pub(crate) fn event(&self, place: usize) -> Option<&Event> {
        self.events.get(place).map(|envelope| &envelope.event)
    }

    /// Begins the next life, if there is one, and returns the events that it found recorded.
    pub(crate) fn begin(&mut self, state: &mut SessionState) -> Option<Vec<Event>> {
        let begun = self.next;
        if begun >= self.events.len() {
            return None;
        }
        let resumed = |envelope: &Envelope| matches!(envelope.event, Event::RunResumed(_));
        let later = self.events.iter().skip(begun + 1).position(resumed);
        self.end = later.map_or(self.events.len(), |later| begun + 1 + later);
        self.over = CancellationToken::new();
        self.told = None;
        (self.begun, self.asked) = (begun, 0);
        self.through(state, begun);
        if begun == 0 {
            return Some(Vec::new());
        }
        let from = state.run_window();
        let known = self.events.iter().take(begun).filter(|envelope| envelope.seq >= from);
        Some(known.map(|envelope| envelope.event.clone()).collect())
    }

    pub(crate) fn is_last(&self) -> bool {
        self.end == self.events.len()
    }

    /// Applies the rest of this life to the state.
    pub(crate) fn finish_life(&mut self, state: &mut SessionState) {
        if let Some(last) = self.end.checked_sub(1) {
            self.through(state, last);
        }
    }

    /// Applies the events up to `place` to the state.
    pub(crate) fn through(&mut self, state: &mut SessionState, place: usize) {
        while self.next <= place {
            let Some(envelope) = self.events.get(self.next) else { return };
            state.apply(envelope);
            self.time.0.store(envelope.at.as_micros(), Ordering::Relaxed);
            self.next += 1;
        }
    }

    /// True when the next event is a pause.
    pub(crate) fn is_paused(&self) -> bool {
        matches!(self.peek(), Some((_, Event::RunPaused(_))))
    }

    /// Returns the next event of the run itself.
    pub(crate) fn peek(&self) -> Option<(usize, &Event)> {
        self.from(self.next)
    }

    pub(super) fn from(&self, place: usize) -> Option<(usize, &Event)> {
        let left = self.events.iter().enumerate().take(self.end).skip(place);
        left.map(|(place, envelope)| (place, &envelope.event)).find(|(_, event)| !is_of_others(event))
    }

    /// Applies the events that others stored up to here to the state.
    pub(crate) fn catch_up(&mut self, state: &mut SessionState) {
        let until = self.peek().map_or(self.end, |(place, _)| place);
        if let Some(last) = until.checked_sub(1) {
            self.through(state, last);
        }
    }

    /// Returns the places of the events of one keyed effect, in this life and before it.
    pub(crate) fn keyed(&mut self, ordinal: u64) -> Vec<usize> {
        self.asked = self.asked.max(ordinal.saturating_add(1));
        let of_it =
            |envelope: &Envelope| envelope.event.effect_key().is_some_and(|key| key.ordinal == ordinal);
        let known = self.events.iter().enumerate().take(self.end);
        known.filter(|(_, envelope)| of_it(envelope)).map(|(place, _)| place).collect()
    }

    /// Applies the events up to `until`, one of an effect's `places`, to the state, and with them those of effects that
    /// were in flight at once.
    ///
    /// # Errors
    /// The place of an event that is neither.
    pub(crate) fn reach(
        &mut self,
        state: &mut SessionState,
        places: &[usize],
        until: usize,
    ) -> Result<(), usize> {
        while self.next <= until {
            match self.peek() {
                Some((place, event))
                    if places.contains(&place) || is_question(event) || event.effect_key().is_some() =>
                {
                    self.through(state, place.min(until));
                }
                Some((place, _)) => return Err(place),
                None => self.through(state, until),
            }
        }
        Ok(())
    }

    /// Returns the place of an effect that is recorded in this life beside others and that the code never asked for.
    pub(crate) fn unasked(&self) -> Option<usize> {
        let passed = self.events.iter().enumerate().take(self.next).skip(self.begun);
        let unasked = |event: &Event| event.effect_key().is_some_and(|key| key.ordinal >= self.asked);
        passed.filter(|(_, envelope)| unasked(&envelope.event)).map(|(place, _)| place).next()
    }

    /// Returns the pause that ended this life while other effects were in flight, if that is how it ended.
    pub(crate) fn pause_beside(&self) -> Option<Error> {
        let mut place = self.next;
        loop {
            match self.from(place)? {
                (_, Event::RunPaused(paused)) => return Some(Error::paused(paused.pause.clone())),
                (at, event) if event.effect_key().is_some() || is_question(event) => place = at + 1,
                _ => return None,
            }
        }
    }

    /// Takes an event that the agent's own code stages: it must be the next one of the record. Returns its number.
    pub(crate) fn made(&mut self, state: &mut SessionState, made: &Event) -> u64 {
        let staged = state.head().seq.saturating_add(1);
        let mut place = self.next;
        loop {
            let Some(recorded) = self.event(place).filter(|_| place < self.end) else {
                // The process died before this was stored.
                self.over.cancel();
                return staged;
            };
            if is_alike(recorded, made) {
                self.through(state, place);
                return state.head().seq;
            }
            if !is_of_others(recorded) {
                if self.is_cancelled(state) {
                    // The process died before this was stored, and the run was ended from outside.
                    self.over.cancel();
                    return staged;
                }
                let flaw = self.differs(place, made.kind());
                self.diverge(flaw);
                return staged;
            }
            place += 1;
        }
    }

    /// Returns the records that come next in this life, and applies them to the state.
    pub(crate) fn records(&mut self, state: &mut SessionState) -> Vec<Recorded> {
        let mut records = Vec::new();
        while let Some((place, Event::Recorded(record))) = self.peek() {
            records.push(record.clone());
            self.through(state, place);
        }
        records
    }

    /// Applies the prompts that joined the run at this place.
    pub(crate) fn fold(&mut self, state: &mut SessionState) {
        while let Some((place, Event::MessageAdded(_))) = self.peek() {
            self.through(state, place);
        }
    }

    pub(crate) fn diverge(&mut self, flaw: Error) {
        self.flaw.get_or_insert(flaw);
        self.over.cancel();
    }

    pub(crate) fn take_flaw(&mut self) -> Option<Error> {
        self.flaw.take()
    }

    /// Returns a recorded failure for the agent, and keeps it as the newest one.
    pub(crate) fn tell(&mut self, error: &ErrorRecord) -> Stop {
        self.told = Some(error.clone());
        Stop::Told(error.to_error())
    }

    /// Answers an effect that is not the next one of the record: with the run's end, if that comes next.
    pub(crate) fn beyond(&self, state: &SessionState, asked: &str) -> Stop {
        if let Some((place, outcome)) = self.ending(state) {
            return self
                .cut_short(outcome)
                .map_or_else(|| Stop::Diverged(self.differs(place, asked)), Stop::Told);
        }
        match self.peek() {
            None => Stop::Cut,
            Some((_, Event::RunPaused(paused))) => Stop::Told(Error::paused(paused.pause.clone())),
            Some((place, _)) => Stop::Diverged(self.differs(place, asked)),
        }
    }

    /// Returns the error that the agent got, if its run was ended from outside.
    fn cut_short(&self, outcome: &Outcome) -> Option<Error> {
        match &outcome.status {
            Status::Cancelled | Status::Stopped(StopReason::Deadline) => Some(Error::cancelled()),
            Status::Stopped(StopReason::Budget(exhausted)) => {
                let error = Error::new(ErrorKind::BudgetExceeded, exhausted.to_string());
                Some(error.with_exhausted((**exhausted).clone()))
            }
            // An agent that got this failure ends, and asks for nothing more.
            Status::Failed(error) if !self.told.as_ref().is_some_and(|told| is_same(told, error)) => {
                Some(error.to_error())
            }
            _ => None,
        }
    }

    /// True when nothing is left but an end that the agent learned of by an error of its effect.
    pub(crate) fn is_cut_short(&self, state: &SessionState) -> bool {
        self.ending(state).is_some_and(|(_, outcome)| self.cut_short(outcome).is_some())
    }

    /// True when nothing is left but the end of a run that was cancelled, or late.
    pub(crate) fn is_cancelled(&self, state: &SessionState) -> bool {
        self.ending(state).is_some_and(|(_, outcome)| is_from_outside(&outcome.status))
    }

    /// Returns the run's end, when all that is left are the results that an end gives to open calls.
    pub(crate) fn ending(&self, state: &SessionState) -> Option<(usize, &Outcome)> {
        let mut place = self.next;
        let mut given = Vec::new();
        let (place, end) = loop {
            match self.from(place)? {
                (at, Event::RunFinished(end)) => break (at, end),
                (at, Event::ToolFinished(call)) if call.key.is_none() => {
                    given.push((call.index, &*call.result));
                    place = at + 1;
                }
                _ => return None,
            }
        };
        let due = open_results(state, end);
        let same = given.len() == due.len()
            && given.iter().zip(&due).all(|((index, given), (at, due))| index == at && **given == *due);
        same.then_some((place, &end.outcome))
    }

    /// Returns the error of code that does `asked` where the event at `place` is recorded.
    pub(crate) fn differs(&self, place: usize, asked: &str) -> Error {
        let Some(envelope) = self.events.get(place) else {
            return Error::new(ErrorKind::Internal, "an event of the record is not there");
        };
        let text = match &envelope.event {
            Event::RunFinished(end) => format!(
                "the agent goes on with {asked} where its record ends: {}; replay it with the code and the settings that ran it",
                end.outcome.status
            ),
            Event::Recorded(value) if value.kind() == asked => format!(
                "the agent records another {asked} than `{}`; replay it with the code and the settings that ran it",
                value.summary()
            ),
            _ => format!(
                "the agent goes on with {asked} where a {} is recorded; replay it with the code and the settings that ran it",
                envelope.event.kind()
            ),
        };
        diverged(text, envelope)
    }

    /// Returns the error of an agent that ended with `status` where the record continues, or ends otherwise.
    pub(crate) fn ended_otherwise(&self, place: usize, status: &Status) -> Error {
        match self.events.get(place) {
            Some(envelope) => {
                let recorded = match &envelope.event {
                    Event::RunFinished(end) => format!("the end `{}`", end.outcome.status),
                    other => format!("a {}", other.kind()),
                };
                let text = format!("the agent ended (`{status}`) where {recorded} is recorded");
                diverged(text, envelope)
            }
            None => Error::new(ErrorKind::Internal, "an event of the record is not there"),
        }
    }

    /// Returns the error of a record without an end, with all of which the agent's code agrees.
    pub(crate) fn unfinished(&self) -> Error {
        let error = Error::new(
            ErrorKind::Unfinished,
            "the run agrees with its record as far as that goes, and has no end there: its process died or still runs; resume it",
        );
        match self.events.last() {
            Some(last) => error
                .with("event", last.seq.to_string())
                .with("recorded", last.event.kind())
                .with("session", last.origin.session.as_str()),
            None => error,
        }
    }
}

fn diverged(text: String, envelope: &Envelope) -> Error {
    Error::new(ErrorKind::Diverged, text)
        .with("event", envelope.seq.to_string())
        .with("recorded", envelope.event.kind())
        .with("session", envelope.origin.session.as_str())
}

/// Returns the error of a replay with another agent than the recorded one.
pub(crate) fn other_agent(name: &str, recorded: &str, origin: &Origin, seq: u64) -> Error {
    let text = format!("the run was the agent `{recorded}`'s; replay it with that one, not with `{name}`");
    Error::new(ErrorKind::Diverged, text)
        .with("event", seq.to_string())
        .with("recorded", "run_started")
        .with("session", origin.session.as_str())
}

/// True when a run with this status was ended from outside, whatever its agent did.
pub(crate) fn is_from_outside(status: &Status) -> bool {
    match status {
        Status::Cancelled | Status::Stopped(StopReason::Deadline) => true,
        Status::Stopped(StopReason::Budget(exhausted)) => &*exhausted.bound == "time",
        _ => false,
    }
}

/// True for events that others store while a run is active, and that nothing in it waits for.
fn is_of_others(event: &Event) -> bool {
    use Event::{
        ApprovalDecided, Checkpoint, LabelsAdded, ModeChanged, PromptDropped, PromptQueued, SignalReceived,
        Titled, TodosChanged, WarningRaised,
    };
    matches!(
        event,
        PromptQueued(_)
            | PromptDropped(_)
            | SignalReceived(_)
            | ApprovalDecided(_)
            | ModeChanged(_)
            | LabelsAdded(_)
            | Titled(_)
            | TodosChanged(_)
            | Checkpoint(_)
            | WarningRaised(_)
    )
}

/// True for a question on the way to a tool's result.
pub(crate) fn is_question(event: &Event) -> bool {
    matches!(event, Event::ApprovalRequested(_))
}

fn is_alike(recorded: &Event, made: &Event) -> bool {
    match (recorded, made) {
        (Event::CompactionFailed(recorded), Event::CompactionFailed(made)) => {
            is_same(&recorded.error, &made.error)
        }
        _ => recorded == made,
    }
}

/// True when two failures are the same. Their context is not compared: one that was read back writes it otherwise.
pub(crate) fn is_same(one: &ErrorRecord, other: &ErrorRecord) -> bool {
    one.kind == other.kind && one.message == other.message
}
