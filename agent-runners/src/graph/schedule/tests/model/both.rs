//! The schedule and the model, taken through the same steps, and the record of a run.

use proptest::prelude::*;

use super::naive::{Naive, NaiveNode, holds};
use crate::graph::{
    SkipAs,
    schedule::{Cause, Consequence, How, Planned, PlannedEdge, Refused, Schedule, State},
};

/// An event of a run; the number picks the node that it concerns.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Start,
    Finish(usize, How),
    RetryLater(usize),
    ReadyAgain(usize),
    Skip(usize, SkipAs),
    Cancel(usize),
    Reassign(usize, Vec<usize>),
    Retry(usize),
    Add(Vec<(usize, bool, bool)>, Option<usize>),
    Expand(usize, Vec<Option<usize>>, Option<usize>),
    CancelAll,
}

/// An entry in the record of a run.
#[derive(Debug, Clone)]
pub(super) enum Recorded {
    State(usize, State),
    Started(usize, Option<usize>),
    Step(Step, usize),
}

/// The schedule and the model, side by side.
pub(super) struct Both {
    pub(super) real: Schedule,
    pub(super) naive: Naive,
    /// State of each node as reported by consequences.
    pub(super) told: Vec<State>,
    pub(super) record: Vec<Recorded>,
}

impl Both {
    pub(super) fn start(&mut self) -> Result<bool, TestCaseError> {
        let expected = self.naive.next();
        prop_assert_eq!(self.real.start(), expected, "started");
        let Some(node) = expected else { return Ok(false) };
        let seat = self.naive.slot(&self.naive.nodes[node]).unwrap();
        let of = &mut self.naive.nodes[node];
        (of.state, of.seat) = (State::Running, seat);
        if of.agents.len() > 1 {
            prop_assert_eq!(self.real.seat(node), seat, "agent of {}", node);
        }
        self.told[node] = State::Running;
        // An attempt that continues has begun before, and is recorded.
        if !std::mem::take(&mut of.in_flight) {
            of.attempts += 1;
            of.expanded = false;
            self.record.push(Recorded::Started(node, seat));
        }
        self.check()?;
        Ok(true)
    }

    pub(super) fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let closed = self.naive.closed;
        let naive = self.naive.clone();
        // Three times out of four a node that the step applies to, if there is one.
        let among = |pick: usize, fits: &dyn Fn(State) -> bool| {
            let fitting: Vec<_> =
                (0..naive.nodes.len()).filter(|node| fits(naive.nodes[*node].state)).collect();
            match fitting.len() {
                0 => pick % naive.nodes.len(),
                _ if pick.is_multiple_of(4) => pick % naive.nodes.len(),
                count => fitting[pick % count],
            }
        };
        let at = |pick: usize| among(pick, &|state| !state.is_terminal());
        let running = |pick: usize| {
            among(pick, &|state| matches!(state, State::Running | State::Stopping | State::Suspended))
        };
        match step {
            Step::Start => drop(self.start()?),
            Step::Finish(pick, how) => self.finish(running(*pick), *how)?,
            Step::RetryLater(pick) => {
                let node = running(*pick);
                if self.naive.nodes[node].state == State::Running {
                    (self.naive.nodes[node].state, self.naive.nodes[node].bound) = (State::Waiting, None);
                    prop_assert_eq!(self.real.retry_later(node), Ok(State::Waiting));
                    self.told[node] = State::Waiting;
                    self.record.push(Recorded::State(node, State::Waiting));
                }
            }
            Step::ReadyAgain(pick) => {
                let node = among(*pick, &|state| state == State::Waiting);
                self.ready_again(node)?;
            }
            Step::Skip(pick, dependents) => {
                let node = at(*pick);
                let done = !closed && self.naive.stop(node, State::Skipped(Cause::Asked(*dependents)));
                prop_assert_eq!(self.real.skip(node, *dependents).is_ok(), done, "skip {}", node);
                self.changed(node, step, done);
            }
            Step::Cancel(pick) => {
                let node = at(*pick);
                let done = !closed && self.naive.stop(node, State::Cancelled);
                prop_assert_eq!(self.real.cancel(node).is_ok(), done, "cancel {}", node);
                self.changed(node, step, done);
            }
            Step::Reassign(pick, agent) => {
                let node = at(*pick);
                let done = !closed && self.naive.reassign(node, agent);
                prop_assert_eq!(self.real.reassign(node, agent).is_ok(), done, "reassign {}", node);
                self.changed(node, step, done);
            }
            Step::Retry(pick) => {
                let node = among(*pick, &|state| state.is_terminal() && state != State::Completed);
                let done = !closed && self.naive.retry(node);
                prop_assert_eq!(self.real.retry(node).is_ok(), done, "retry {}", node);
                self.changed(node, step, done);
                self.told[node] = self.naive.nodes[node].state;
            }
            Step::Add(edges, agent) => self.add(edges, *agent, step)?,
            Step::Expand(pick, items, at_once) => self.expand(running(*pick), items, *at_once, step)?,
            Step::CancelAll => {
                self.naive.cancel_all();
                self.real.cancel_all();
                self.record.push(Recorded::Step(step.clone(), 0));
            }
        }
        self.check()
    }

    /// Kills the process: the next one continues from the record with `fresh`.
    pub(super) fn dies(&mut self, fresh: Schedule) -> Result<(), TestCaseError> {
        self.real = replayed(fresh, &self.record);
        for node in 0..self.naive.nodes.len() {
            let of = &mut self.naive.nodes[node];
            match (self.real.state(node).unwrap(), of.state) {
                (State::Running, _) => {
                    prop_assert_eq!(self.real.go_on(node), Ok(()));
                    (of.state, of.in_flight, self.told[node]) = (State::Pending, true, State::Pending);
                    of.bound = of.seat.filter(|_| of.agents.len() > 1);
                }
                // It was reassigned while its attempt waited to continue.
                (State::Stopping, State::Pending) => {
                    self.real.finish(node, How::Cancelled, holds).unwrap();
                    self.record.push(Recorded::State(node, State::Cancelled));
                }
                // The end of a wait is not recorded: the caller asks again.
                (State::Waiting, State::Pending) => prop_assert!(self.real.ready_again(node)),
                _ => {}
            }
        }
        self.check()
    }

    fn ready_again(&mut self, node: usize) -> Result<(), TestCaseError> {
        let waits = self.naive.nodes[node].state == State::Waiting;
        if waits {
            (self.naive.nodes[node].state, self.told[node]) = (State::Pending, State::Pending);
            self.naive.settle();
        }
        prop_assert_eq!(self.real.ready_again(node), waits);
        Ok(())
    }

    pub(super) fn changed(&mut self, node: usize, step: &Step, done: bool) {
        if done {
            self.record.push(Recorded::Step(step.clone(), node));
        }
    }

    pub(super) fn finish(&mut self, node: usize, how: How) -> Result<(), TestCaseError> {
        let of = &self.naive.nodes[node];
        let mut items = self.naive.nodes.iter().filter(|n| n.item_of == Some(node));
        let can = match of.state {
            State::Running => true,
            State::Stopping => !of.expanded,
            State::Suspended => items.all(|item| item.state.is_terminal()),
            _ => false,
        };
        if !can {
            let refused = Err(Refused::State { node, state: of.state });
            prop_assert_eq!(self.real.finish(node, how, holds), refused);
            return Ok(());
        }
        let anew = of.stop == Some(State::Pending);
        let state = self.naive.finish(node, how);
        let done = self.real.finish(node, how, holds).unwrap();
        prop_assert_eq!(std::mem::discriminant(&done), std::mem::discriminant(&state));
        self.told[node] = state;
        self.record.push(Recorded::State(node, if anew { State::Cancelled } else { state }));
        Ok(())
    }

    pub(super) fn add(
        &mut self,
        edges: &[(usize, bool, bool)],
        agent: Option<usize>,
        step: &Step,
    ) -> Result<(), TestCaseError> {
        let count = self.naive.nodes.len();
        let edge = |(from, optional, conditional): &(usize, bool, bool)| PlannedEdge {
            from: from % count,
            optional: *optional,
            conditional: *conditional,
        };
        let planned =
            Planned { edges: edges.iter().map(edge).collect(), agent, expected: 5, ..Planned::default() };
        let done = self.real.add(&planned);
        if self.naive.closed {
            prop_assert_eq!(done, Err(Refused::Closed));
            return Ok(());
        }
        prop_assert_eq!(done, Ok(count));
        self.record.push(Recorded::Step(step.clone(), count));
        let mut added = NaiveNode::new(planned.clone());
        let unasked = |edge: &PlannedEdge| {
            let from = &self.naive.nodes[edge.from].state;
            edge.conditional && !edge.optional && self.naive.gives(edge.from) && *from != State::Completed
        };
        added.unheld = (0..edges.len()).filter(|number| unasked(&planned.edges[*number])).collect();
        self.naive.nodes.push(added);
        self.told.push(State::Pending);
        self.naive.settle();
        Ok(())
    }

    pub(super) fn expand(
        &mut self,
        node: usize,
        items: &[Option<usize>],
        at_once: Option<usize>,
        step: &Step,
    ) -> Result<(), TestCaseError> {
        let of = &self.naive.nodes[node];
        let can = of.state == State::Running && of.item_of.is_none();
        if !can {
            return Ok(());
        }
        self.record.push(Recorded::Step(step.clone(), node));
        let item = |agent: &Option<usize>| Planned { agent: *agent, expected: 2, ..Planned::default() };
        let first = self.naive.nodes.len();
        let range = self.real.expand(node, items.iter().map(item), at_once);
        prop_assert_eq!(range, Ok(first..first + items.len()));
        (self.naive.nodes[node].state, self.told[node]) = (State::Suspended, State::Suspended);
        (self.naive.nodes[node].expanded, self.naive.nodes[node].bound) = (true, None);
        self.naive.at_once.remove(&node);
        self.naive.at_once.extend(at_once.map(|most| (node, most)));
        let of_attempt = self.naive.nodes[node].attempts;
        for agent in items {
            let new = NaiveNode { item_of: Some(node), of_attempt, ..NaiveNode::new(item(agent)) };
            self.naive.nodes.push(new);
            self.told.push(State::Pending);
        }
        Ok(())
    }

    pub(super) fn check(&mut self) -> Result<(), TestCaseError> {
        while let Some(consequence) = self.real.consequence() {
            match consequence {
                Consequence::Ended { node, state } => {
                    self.told[node] = state;
                    self.record.push(Recorded::State(node, state));
                }
                Consequence::Stop { node } => self.told[node] = State::Stopping,
                Consequence::Pending { node } => self.told[node] = State::Pending,
                Consequence::Gather { node } => {
                    prop_assert_eq!(self.real.state(node), Some(State::Suspended));
                }
            }
        }
        for node in 0..self.naive.nodes.len() {
            let state = self.real.state(node).unwrap();
            // Of several causes any may be named.
            if let State::Skipped(cause @ (Cause::Blocked(_) | Cause::Condition(_))) = state
                && let State::Skipped(Cause::Blocked(_) | Cause::Condition(_)) = self.naive.nodes[node].state
            {
                prop_assert!(self.naive.obstacles(node).contains(&cause), "{}: {:?}", node, cause);
                self.naive.nodes[node].state = state;
            }
            let naive = &self.naive.nodes[node];
            prop_assert_eq!(state, naive.state, "node {}", node);
            // Only its items are running, and those are reported.
            if (self.told[node], state) == (State::Suspended, State::Stopping) {
                self.told[node] = state;
            }
            prop_assert_eq!(self.told[node], state, "told of node {}", node);
        }
        let open = self.naive.nodes.iter().filter(|n| !n.state.is_terminal()).count();
        prop_assert_eq!(self.real.counts().open(), open);
        Ok(())
    }

    /// Runs everything that is left to its end.
    pub(super) fn drain(&mut self) -> Result<(), TestCaseError> {
        for round in 0.. {
            prop_assert!(round < 1000, "no end");
            while self.start()? {}
            let before = self.naive.nodes.iter().filter(|n| !n.state.is_terminal()).count();
            for node in 0..self.naive.nodes.len() {
                self.ready_again(node)?;
                self.check()?;
                self.finish(node, How::Completed)?;
                self.check()?;
            }
            if before == 0 {
                break;
            }
        }
        prop_assert!(self.real.is_over());
        Ok(())
    }
}

/// Replays a record into a new schedule.
pub(super) fn replayed(mut schedule: Schedule, record: &[Recorded]) -> Schedule {
    for entry in record {
        match entry {
            Recorded::State(node, state) => schedule.restore(*node, *state, holds).unwrap(),
            Recorded::Started(node, seat) => {
                schedule.restore(*node, State::Running, holds).unwrap();
                assert!(seat.is_none_or(|seat| schedule.sit(*node, seat)));
            }
            Recorded::Step(step, node) => again(&mut schedule, step, *node),
        }
    }
    while schedule.consequence().is_some() {}
    schedule
}

pub(super) fn again(schedule: &mut Schedule, step: &Step, node: usize) {
    match step {
        Step::Skip(_, dependents) => drop(schedule.skip(node, *dependents).unwrap()),
        Step::Cancel(_) => drop(schedule.cancel(node).unwrap()),
        Step::Reassign(_, agent) => drop(schedule.reassign(node, agent).unwrap()),
        Step::Retry(_) => schedule.retry(node).unwrap(),
        Step::CancelAll => schedule.cancel_all(),
        Step::Add(edges, agent) => {
            let edges = edges.iter().map(|(from, optional, conditional)| PlannedEdge {
                from: from % node,
                optional: *optional,
                conditional: *conditional,
            });
            let planned =
                Planned { edges: edges.collect(), agent: *agent, expected: 5, ..Planned::default() };
            assert_eq!(schedule.add(&planned), Ok(node));
        }
        Step::Expand(_, items, at_once) => {
            let item = |agent: &Option<usize>| Planned { agent: *agent, expected: 2, ..Planned::default() };
            schedule.expand(node, items.iter().map(item), *at_once).unwrap();
        }
        Step::Start | Step::Finish(..) | Step::RetryLater(_) | Step::ReadyAgain(_) => {}
    }
}
