//! Changes of a running graph. Each change is applied whole, or refused without effect.

use std::{sync::Arc, time::Duration};

use entourage_core::{Error, ErrorKind, Result, Timestamp, agent::Agent, event::Recorded, permission::Scope};

use super::{
    super::{
        Change, GraphChanged, Node, NodeSignature, SkipAs, Work,
        schedule::{Cause, PlannedEdge, Refused, State},
    },
    machine::Machine,
    track::{Extra, Told, Track},
};

impl Machine {
    /// Applies a change and its consequences, as a record has it.
    pub(super) fn change(&mut self, change: &Change, now: Timestamp) -> Result<()> {
        match change {
            Change::Skip { node, dependents } => self.skip(node, *dependents)?,
            Change::Reassign { node, agent } => self.reassign(node, agent)?,
            Change::Add { node, task, expected_seconds, scope } => {
                let expected = expected_seconds.map(|seconds| Duration::from_secs(seconds.into()));
                self.add(node, task, scope.as_ref(), expected)?;
            }
            Change::Retry { node } => self.retry(node)?,
            Change::Cancel { node } => {
                let place = self.known(node)?;
                self.take_up(place);
                self.schedule.cancel(place).map_err(|refusal| self.refused(&refusal))?;
            }
        }
        let first = self.told.len();
        self.again.clear();
        self.follow(now);
        self.told.extend(self.unwinding.take().map(Told::Unwind));
        if self.heard && !self.recalling {
            let again = self.again.iter().map(|place| self.id(*place)).collect();
            let changed = GraphChanged { change: change.clone(), again };
            self.told.insert(first, Told::Record(Recorded::new(changed)));
        }
        Ok(())
    }

    /// Makes a change that somebody asked for, but for what `is_made` knows. A node that is over without a value is
    /// given to another agent so that this one tries again.
    pub(super) fn carry_out(
        &mut self,
        change: &Change,
        now: Timestamp,
        is_made: impl Fn(&mut Self, &Change) -> bool,
    ) -> Result<()> {
        let retry = match change {
            Change::Reassign { node, .. } if self.is_failed(node) => {
                Some(Change::Retry { node: Arc::clone(node) }).filter(|retry| !is_made(self, retry))
            }
            _ => None,
        };
        if let Some(Change::Retry { node }) = &retry {
            // Before the first of them has an effect.
            let place = self.known(node)?;
            self.schedule.can_retry(place).map_err(|refusal| self.refused(&refusal))?;
        }
        if !is_made(self, change) {
            self.change(change, now)?;
        }
        retry.map_or(Ok(()), |retry| self.change(&retry, now))
    }

    fn known(&self, id: &str) -> Result<usize> {
        self.place(id).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "the graph has no such node; name one of its own")
                .with("node", id)
        })
    }

    fn skip(&mut self, id: &str, dependents: SkipAs) -> Result<()> {
        let place = self.known(id)?;
        let satisfied = dependents == SkipAs::Satisfied;
        // Those that were skipped for its failure are pending again then.
        let is_failed = satisfied && self.schedule.state(place) == Some(State::Failed);
        if satisfied && let Some(needs) = self.needed_by(place, is_failed) {
            let text = "a step requires this node's value; skip it with `SkipAs::Blocked`";
            return Err(Error::new(ErrorKind::InvalidInput, text).with("node", id).with("step", &*needs));
        }
        if is_failed {
            self.schedule.retry(place).map_err(|refusal| self.refused(&refusal))?;
        }
        self.take_up(place);
        self.schedule.skip(place, dependents).map_err(|refusal| self.refused(&refusal))?;
        Ok(())
    }

    /// Returns a step that requires the value of this node, and is not over, or may be begun again if `revived`.
    fn needed_by(&self, place: usize, revived: bool) -> Option<Arc<str>> {
        let open = |dependent: usize| match self.schedule.state(dependent) {
            Some(State::Skipped(Cause::Blocked(_))) => revived,
            state => state.is_some_and(|state| !state.is_terminal()),
        };
        let needs = |node: &Node| node.edges.iter().any(|edge| edge.from == place && edge.needed);
        let mut nodes = self.graph.nodes.iter().enumerate();
        nodes.find(|(dependent, node)| needs(node) && open(*dependent)).map(|(_, node)| Arc::clone(&node.id))
    }

    fn reassign(&mut self, id: &str, agent: &str) -> Result<()> {
        let place = self.known(id)?;
        let agent = self.roster(agent)?;
        match self.node(place).map(|node| &node.work) {
            Some(Work::Agent(_)) => {}
            Some(Work::Map(_)) => {
                let text = "a map has no agent of its own while it runs; reassign its items";
                return Err(Error::new(ErrorKind::InvalidInput, text).with("node", id));
            }
            _ => {
                let text = "no agent works on this node: it is a step of the program";
                return Err(Error::new(ErrorKind::InvalidInput, text).with("node", id));
            }
        }
        let number = self.names().agent(agent.name());
        self.take_up(place);
        let runs = self.schedule.state(place) == Some(State::Running);
        let former = self.agent(place).filter(|_| runs);
        self.schedule.reassign(place, &[number]).map_err(|refusal| self.refused(&refusal))?;
        let Some(track) = self.track(place) else { return Ok(()) };
        track.failures = 0;
        let more = track.more();
        (more.agent, more.by) = (Some(agent), None);
        if former.is_some() {
            more.former = former;
        }
        Ok(())
    }

    /// Takes up an attempt that waits, for somebody or for its slot after a resume, so that it is stopped like a
    /// running one: what it asked for is withdrawn when it unwinds.
    fn take_up(&mut self, place: usize) {
        let more = self.tracks.get(place).and_then(|track| track.more.as_ref());
        let waits = more.is_some_and(|more| more.goes_on || more.pause.is_some());
        if !waits || self.schedule.is_closed() || self.schedule.take_up(place).is_err() {
            return;
        }
        if let Some(track) = self.track(place) {
            let more = track.more();
            (more.goes_on, more.pause) = (false, None);
        }
        self.unwinding = Some(place);
    }

    fn roster(&self, name: &str) -> Result<Arc<dyn Agent>> {
        self.graph.agents.get(name).cloned().ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "the graph knows no agent of this name; name one of its own")
                .with("agent", name)
                .with("known", self.graph.agents.keys().map(|name| &**name).collect::<Vec<_>>().join(" "))
        })
    }

    fn retry(&mut self, id: &str) -> Result<()> {
        let place = self.known(id)?;
        self.schedule.retry(place).map_err(|refusal| self.refused(&refusal))?;
        if let Some(track) = self.track(place) {
            track.failures = 0;
        }
        self.escalated(place);
        Ok(())
    }

    fn add(
        &mut self,
        signature: &NodeSignature,
        task: &str,
        scope: Option<&Scope>,
        expected: Option<Duration>,
    ) -> Result<()> {
        let node = self.graph.added(signature, task, scope, |id| self.place(id))?;
        let node = Node { expected, ..node };
        let mut planned = self.names().planned(&node);
        planned.edges.extend(node.edges.iter().map(|edge| PlannedEdge {
            from: edge.from,
            optional: edge.optional,
            conditional: false,
        }));
        let place = self.schedule.add(&planned).map_err(|refusal| self.refused(&refusal))?;
        let from = node.edges.iter().map(|edge| edge.from).collect();
        self.extra_by_id.insert(Arc::clone(&node.id), place);
        self.extra.push(Extra { node, from, after: signature.after.clone() });
        self.tracks.push(Track::default());
        Ok(())
    }
}

/// Returns the error for the caller of a refused change.
pub(super) fn refusal(refusal: &Refused, id: impl Fn(usize) -> Arc<str>) -> Error {
    let invalid = |text: String| Error::new(ErrorKind::InvalidInput, text);
    match refusal {
        Refused::Unknown(_) => {
            Error::new(ErrorKind::NotFound, "the graph has no such node; name one of its own")
        }
        Refused::State { node, state: State::Completed } => {
            invalid("a completed node cannot be changed".to_owned()).with("node", &*id(*node))
        }
        Refused::State { node, state } => {
            invalid(format!("not possible while the node is {state}")).with("node", &*id(*node))
        }
        Refused::Blocked { node, by } => invalid("a dependency has no value; retry it first".to_owned())
            .with("node", &*id(*node))
            .with("needs", &*id(*by)),
        Refused::Closed => Error::new(
            ErrorKind::Cancelled,
            "the graph is being cancelled and takes no more changes; start a new run",
        ),
        Refused::Cycle(nodes) => {
            let names: Vec<_> = nodes.iter().map(|node| id(*node)).collect();
            invalid(format!(
                "tasks depend on each other: {}; drop one of the dependencies",
                names.join(" -> ")
            ))
        }
        Refused::TooMany => {
            Error::new(ErrorKind::TooLarge, "the graph has too many nodes or edges; add fewer")
        }
    }
}
