//! The state of a graph's run: the scheduler, the outputs of the nodes, and the results of their attempts. It never
//! waits.
//!
//! Its decisions follow from its inputs alone, so that applying a run's events again, in their order, restores the same
//! machine.

use std::{collections::HashMap, sync::Arc, time::Duration};

use entourage_core::{Error, ErrorKind, Result, Timestamp, agent::Agent, event::Recorded, run::Task};
use entourage_runtime::caught;

use super::{
    super::{
        Inner, Inputs, Node, NodeEnd, NodeFinished, NodeValue, SkipCause, Slots, Work,
        schedule::{Cause, Consequence, How, Limits, Refused, Schedule, State},
    },
    refused,
    supervise::Watch,
    topology::{Names, Topology},
    track::{Attempt, Ended, Extra, Spent, Told, Track},
};
use crate::finality::is_final_error;

/// One run of a graph.
pub(super) struct Machine {
    pub(super) graph: Arc<Inner>,
    pub(super) topology: Arc<Topology>,
    pub(super) schedule: Schedule,
    pub(super) slots: Arc<Slots>,
    pub(super) tracks: Vec<Track>,
    /// Nodes that are not in the graph itself.
    pub(super) extra: Vec<Extra>,
    /// Indices of those nodes.
    pub(super) extra_by_id: HashMap<Arc<str>, usize>,
    /// Numbers of agents and providers, including agents added later; `None` while those of the topology suffice.
    names: Option<Names>,
    /// Actions to carry out, oldest first.
    pub(super) told: Vec<Told>,
    /// Nodes that are pending again since the newest change.
    pub(super) again: Vec<usize>,
    /// Node whose waiting attempt the change takes up that is being made.
    pub(super) unwinding: Option<usize>,
    /// True when somebody reads or stores records.
    pub(super) heard: bool,
    pub(super) watch: Watch,
    /// True while the run's events are applied again: their consequences are among them.
    pub(super) recalling: bool,
}

impl Machine {
    /// Creates a run that has not begun. At most `agents` of its agents work in parallel: so the most urgent ones get
    /// the pool's slots, not those that came first.
    pub(super) fn new(graph: &Arc<Inner>, task: &Task, agents: usize) -> Result<Self> {
        let topology = graph.shape.of(graph)?;
        let limits = Limits { all_agents: Some(agents), ..topology.limits.clone() };
        let schedule = Schedule::new(Arc::clone(&topology.plan), limits, topology.policy)
            .map_err(|refusal| refused(graph, &refusal))?;
        let count = graph.nodes.len();
        Ok(Self {
            graph: Arc::clone(graph),
            topology,
            schedule,
            slots: Arc::new(Slots::new(count, Arc::clone(&task.prompt))),
            tracks: vec![Track::default(); count],
            extra: Vec::new(),
            extra_by_id: HashMap::new(),
            names: None,
            told: Vec::new(),
            again: Vec::new(),
            unwinding: None,
            heard: true,
            watch: Watch::default(),
            recalling: false,
        })
    }

    /// True when every node is over, and the supervisor too.
    pub(super) fn is_over(&self) -> bool {
        self.schedule.is_over() && !self.is_watched()
    }

    pub(super) fn node(&self, place: usize) -> Option<&Node> {
        match self.graph.nodes.get(place) {
            Some(node) => Some(node),
            None => self.extra(place).map(|extra| &extra.node),
        }
    }

    pub(super) fn extra(&self, place: usize) -> Option<&Extra> {
        self.extra.get(place.checked_sub(self.graph.nodes.len())?)
    }

    pub(super) fn id(&self, place: usize) -> Arc<str> {
        self.node(place).map_or_else(|| Arc::from(""), |node| Arc::clone(&node.id))
    }

    /// Returns the index of a node, including added ones and items.
    pub(super) fn place(&self, id: &str) -> Option<usize> {
        self.graph.place(id).or_else(|| self.extra_by_id.get(id).copied())
    }

    /// True unless the node is an item of an earlier attempt at its map: the items of a newer one have the same ids.
    pub(super) fn is_newest(&self, place: usize) -> bool {
        place < self.graph.nodes.len() || self.place(&self.id(place)) == Some(place)
    }

    pub(super) fn track(&mut self, place: usize) -> Option<&mut Track> {
        self.tracks.get_mut(place)
    }

    /// Returns the inputs of the node.
    pub(super) fn inputs(&self, place: usize) -> Inputs {
        let from = match self.topology.from.get(place) {
            Some(from) => Arc::clone(from),
            None => self.extra(place).map(|extra| Arc::clone(&extra.from)).unwrap_or_default(),
        };
        Inputs::new(Arc::clone(&self.slots), from)
    }

    pub(super) fn names(&mut self) -> &mut Names {
        self.names.get_or_insert_with(|| self.topology.names.clone())
    }

    pub(super) fn refused(&self, refusal: &Refused) -> Error {
        let id = |place: usize| self.id(place);
        super::refusal(refusal, id)
    }

    /// Returns the node's current agent.
    pub(super) fn agent(&self, place: usize) -> Option<Arc<dyn Agent>> {
        let track = self.tracks.get(place)?;
        if let Some(agent) = track.more.as_ref().and_then(|more| more.agent.as_ref()) {
            return Some(Arc::clone(agent));
        }
        let Work::Agent(work) = &self.node(place)?.work else { return None };
        let (level, seat) = (work.level(track.failures), self.schedule.seat(place));
        let sits = |agent: &&(_, Arc<dyn Agent>)| seat == self.number(agent.1.name());
        let of_seat = seat.and_then(|_| level.iter().find(sits));
        of_seat.or(level.first()).map(|(_, agent)| Arc::clone(agent))
    }

    /// Returns the scheduler's number of an agent.
    fn number(&self, agent: &str) -> Option<usize> {
        self.names.as_ref().unwrap_or(&self.topology.names).known(agent)
    }

    /// Returns the scheduler's numbers of the agents of which one makes the next attempt.
    fn candidates(&mut self, place: usize) -> Vec<usize> {
        let Some(track) = self.tracks.get(place) else { return Vec::new() };
        let given = track.more.as_ref().and_then(|more| more.agent.clone());
        let agents = match (given, self.node(place).map(|node| &node.work)) {
            (Some(agent), _) => vec![agent],
            (None, Some(Work::Agent(work))) => {
                work.level(track.failures).iter().map(|(_, agent)| Arc::clone(agent)).collect()
            }
            _ => Vec::new(),
        };
        agents.iter().map(|agent| self.names().agent(agent.name())).collect()
    }

    /// Begins or continues an attempt. Returns the number of a new one.
    pub(super) fn begin(&mut self, place: usize, now: Timestamp) -> Option<u32> {
        self.note_agent(place);
        let track = self.tracks.get_mut(place)?;
        (track.started, track.is_open) = (now, true);
        if let Some(more) = &mut track.more {
            more.retry_at = None;
            more.went_on = std::mem::take(&mut more.goes_on);
            if more.went_on {
                return None;
            }
        }
        track.attempt = track.attempt.saturating_add(1);
        Some(track.attempt)
    }

    /// Notes which of several agents makes the attempt.
    pub(super) fn note_agent(&mut self, place: usize) {
        let chosen = self.schedule.seat(place).and_then(|_| self.agent(place));
        if let (Some(agent), Some(track)) = (chosen, self.track(place)) {
            track.more().by = Some(agent.name().into());
        }
    }

    /// Applies the end of an attempt.
    pub(super) fn settle(&mut self, place: usize, ended: Ended, now: Timestamp) {
        let Ended { result, spent } = ended;
        let stopping = self.schedule.state(place) == Some(State::Stopping);
        match result {
            _ if stopping => self.finish(place, Ok(None), &spent, now),
            Attempt::Done(value) => match self.conditions(place, &value) {
                Ok(held) => self.complete(place, value, &held, &spent, now),
                Err(error) => self.fail(place, error, &spent, now),
            },
            Attempt::Failed(error) => self.fail(place, error, &spent, now),
            Attempt::Cancelled if self.went_on(place) => self.again(place, &spent, now),
            Attempt::Cancelled => self.finish(place, Ok(None), &spent, now),
            // It releases its slot; a resumed run continues it.
            Attempt::Paused(pause) => {
                drop(self.schedule.retry_later(place));
                if let Some(track) = self.track(place) {
                    track.more().pause = Some(pause);
                }
            }
            Attempt::Broken(_) => {}
        }
        self.follow(now);
    }

    /// True when this process continued the attempt. A child that then ends as cancelled was cancelled by an earlier
    /// process, which died before it could record why: it is retried.
    fn went_on(&self, place: usize) -> bool {
        self.tracks.get(place).and_then(|track| track.more.as_ref()).is_some_and(|more| more.went_on)
    }

    fn again(&mut self, place: usize, spent: &Spent, now: Timestamp) {
        if self.schedule.retry_later(place).is_ok() {
            self.tell_end(place, NodeEnd::Cancelled, spent, now, Some(now));
            self.schedule.ready_again(place);
        }
    }

    fn complete(
        &mut self,
        place: usize,
        value: NodeValue,
        held: &[((usize, usize), bool)],
        spent: &Spent,
        now: Timestamp,
    ) {
        // Set before its dependents can start.
        self.slots.set(place, value.clone());
        let holds = |dependent, edge| {
            held.iter().find(|(of, _)| *of == (dependent, edge)).is_some_and(|(_, held)| *held)
        };
        if self.schedule.finish(place, How::Completed, holds).is_ok() {
            let micros = self.count(place, spent, now);
            if self.heard {
                self.tell(place, NodeEnd::Completed(value), spent, micros, None);
            }
        }
    }

    fn fail(&mut self, place: usize, error: Error, spent: &Spent, now: Timestamp) {
        let failures = self.tracks.get(place).map_or(u32::MAX, |track| track.failures.saturating_add(1));
        if let Some(track) = self.track(place) {
            track.failures = failures;
        }
        let retries = self.node(place).map(|node| node.retry).unwrap_or_default();
        if !is_final_error(&error) && failures < retries.attempts && self.schedule.retry_later(place).is_ok()
        {
            let delay = doubled(retries.delay, failures.saturating_sub(1));
            let at = now.after(delay);
            self.tell_end(place, NodeEnd::Failed(error.record()), spent, now, Some(at));
            self.escalated(place);
            self.wait(place, at, now);
            return;
        }
        self.finish(place, Err(error), spent, now);
    }

    /// Passes the next attempt to the agents of the next larger size, and to their limits.
    pub(super) fn escalated(&mut self, place: usize) {
        let candidates = self.candidates(place);
        if !candidates.is_empty() && self.schedule.offered(place) != candidates {
            drop(self.schedule.reassign(place, &candidates));
            if let Some(more) = self.track(place).and_then(|track| track.more.as_mut()) {
                more.by = None;
            }
        }
    }

    /// Schedules the next attempt at `at`.
    pub(super) fn wait(&mut self, place: usize, at: Timestamp, now: Timestamp) {
        if let Some(track) = self.track(place) {
            track.more().retry_at = Some(at);
        }
        if at <= now {
            self.schedule.ready_again(place);
        } else {
            self.told.push(Told::Wait(place, at));
        }
    }

    /// Ends the wait for the attempt that follows attempt `after`. There may be none: a node that it needs may have
    /// given no value meanwhile.
    pub(super) fn due(&mut self, place: usize, after: u32, now: Timestamp) {
        let waits = |track: &Track| {
            track.attempt == after && track.more.as_ref().is_some_and(|more| more.retry_at.is_some())
        };
        if self.tracks.get(place).is_some_and(waits) {
            self.schedule.ready_again(place);
            self.follow(now);
        }
    }

    /// Finishes a node after its last attempt: without a value, or with an error.
    fn finish(&mut self, place: usize, failed: Result<Option<()>, Error>, spent: &Spent, now: Timestamp) {
        let how = if failed.is_err() { How::Failed } else { How::Cancelled };
        let Ok(state) = self.schedule.finish(place, how, |_, _| false) else { return };
        match (state, failed) {
            (State::Failed, Err(error)) => {
                self.note_failure(place);
                self.tell_end(place, NodeEnd::Failed(error.record()), spent, now, None);
            }
            // It was reassigned; a node that it needs may have failed meanwhile.
            (State::Pending | State::Skipped(Cause::Blocked(_) | Cause::Condition(_)), _) => {
                self.tell_end(place, NodeEnd::Cancelled, spent, now, Some(now));
            }
            (state, _) => {
                let end = self.end_of(state);
                self.tell_end(place, end, spent, now, None);
            }
        }
    }

    pub(super) fn end_of(&self, state: State) -> NodeEnd {
        match state {
            State::Skipped(Cause::Blocked(by)) => NodeEnd::Skipped(SkipCause::Blocked(self.id(by))),
            State::Skipped(Cause::Condition(of)) => NodeEnd::Skipped(SkipCause::Condition(self.id(of))),
            State::Skipped(Cause::Asked(_)) => NodeEnd::Skipped(SkipCause::Asked),
            _ => NodeEnd::Cancelled,
        }
    }

    fn count(&mut self, place: usize, spent: &Spent, now: Timestamp) -> u64 {
        let Some(track) = self.tracks.get_mut(place) else { return 0 };
        let micros = u64::try_from(now.since(track.started).as_micros()).unwrap_or(u64::MAX);
        track.micros = track.micros.saturating_add(micros);
        track.is_open = false;
        if let Some(more) = &mut track.more {
            more.spent.add(spent);
            (more.pause, more.former, more.went_on) = (None, None, false);
        }
        micros
    }

    /// Records the end of an attempt.
    pub(super) fn tell_end(
        &mut self,
        place: usize,
        end: NodeEnd,
        spent: &Spent,
        now: Timestamp,
        retry_at: Option<Timestamp>,
    ) {
        let micros = self.count(place, spent, now);
        if let NodeEnd::Failed(error) = &end
            && let Some(track) = self.track(place)
        {
            track.more().error = Some(error.clone());
        }
        self.tell(place, end, spent, micros, retry_at);
    }

    pub(super) fn tell(
        &mut self,
        place: usize,
        end: NodeEnd,
        spent: &Spent,
        micros: u64,
        retry_at: Option<Timestamp>,
    ) {
        let attempt = self.tracks.get(place).map_or(0, |track| track.attempt);
        self.tell_attempt(place, attempt, end, spent, micros, retry_at);
    }

    /// Records the end of a node that no attempt came to, save for one that it breaks off.
    pub(super) fn tell_consequence(&mut self, place: usize, end: NodeEnd) {
        let broken_off = |track: &mut Track| std::mem::take(&mut track.is_open).then_some(track.attempt);
        let attempt = self.track(place).and_then(broken_off).unwrap_or_default();
        self.tell_attempt(place, attempt, end, &Spent::default(), 0, None);
    }

    fn tell_attempt(
        &mut self,
        place: usize,
        attempt: u32,
        end: NodeEnd,
        spent: &Spent,
        micros: u64,
        retry_at: Option<Timestamp>,
    ) {
        if !self.heard || self.recalling {
            return;
        }
        let node = self.id(place);
        let (usage, cost) = (spent.usage, spent.cost);
        let finished = NodeFinished { node, attempt, end, usage, cost, micros, retry_at };
        self.told.push(Told::Record(Recorded::new(finished)));
    }

    /// Applies the consequences for other nodes. Every way into the machine ends with this: what is decided is told at
    /// once, before anything that follows from it.
    pub(super) fn follow(&mut self, now: Timestamp) {
        while let Some(consequence) = self.schedule.consequence() {
            match consequence {
                Consequence::Ended { node, state } => {
                    // A later retry is a new attempt.
                    if let Some(more) = self.track(node).and_then(|track| track.more.as_mut()) {
                        more.goes_on = false;
                    }
                    let end = self.end_of(state);
                    self.tell_consequence(node, end);
                }
                Consequence::Stop { node } => self.told.push(Told::Stop(node)),
                Consequence::Pending { node } => {
                    self.again.push(node);
                    if let Some(track) = self.track(node) {
                        track.failures = 0;
                    }
                }
                // The map's own end is among the events that are applied again.
                Consequence::Gather { .. } if self.recalling => {}
                Consequence::Gather { node } => {
                    let ended = self.gather(node);
                    self.settle_map(node, ended, now);
                }
            }
        }
    }

    /// Ends a map whose items are all over. Apart from `settle`, which applies the consequences afterwards.
    pub(super) fn settle_map(&mut self, place: usize, gathered: Result<NodeValue>, now: Timestamp) {
        let spent = Spent::default();
        let checked = gathered.and_then(|value| {
            if self.heard {
                value.check()?;
            }
            Ok((self.conditions(place, &value)?, value))
        });
        match checked {
            Ok((held, value)) => {
                let (before, state) = (self.slots.get(place), self.schedule.state(place));
                if before.is_none() && state == Some(State::Suspended) {
                    self.complete(place, value, &held, &spent, now);
                }
            }
            Err(error) => self.finish(place, Err(error), &spent, now),
        }
    }

    /// Evaluates the conditions on the edges out of a node for its output.
    pub(super) fn conditions(&self, place: usize, value: &NodeValue) -> Result<Vec<((usize, usize), bool)>> {
        let asked = self.schedule.conditions(place).map(|(dependent, edge)| {
            let node = self.node(dependent);
            let when = node.and_then(|node| node.edges.get(edge)).and_then(|edge| edge.when.as_ref());
            let held = match when {
                Some(when) => guarded("a condition", || when(value))?,
                None => true,
            };
            Ok(((dependent, edge), held))
        });
        asked.collect()
    }
}

/// Returns `delay` doubled `times` times, at most a day.
fn doubled(delay: Duration, times: u32) -> Duration {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    delay.checked_mul(2_u32.saturating_pow(times)).map_or(DAY, |delay| delay.min(DAY))
}

/// Runs code of the program; a panic becomes an error.
pub(super) fn guarded<T>(what: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
    caught(run).unwrap_or_else(|panic| Err(panicked(what, &panic)))
}

/// Returns the error for a panic of the program's code.
pub(super) fn panicked(what: &str, panic: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("{what} panicked: {panic}"))
}
