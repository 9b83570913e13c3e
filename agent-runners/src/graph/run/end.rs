//! The outcome of a graph's run.

use std::collections::BTreeSet;

use super::{
    super::{AgentWork, MapWork, NodeEnd, SkipCause, Work, schedule::State},
    attempt::Worker,
    machine::Machine,
};
use entourage_core::{
    SessionId,
    run::{Outcome, Pause, Status, StopReason},
};
use tokio_util::sync::CancellationToken;

use crate::finality::failed_task;

impl Machine {
    /// Returns the outcome once every node is over.
    ///
    /// A graph with an output node is completed when that node is. Without one it is completed when every node is,
    /// except nodes skipped by a condition or on request.
    pub(super) fn outcome(&self) -> Outcome {
        let mut outcome = Outcome::completed(self.text());
        let counts = self.schedule.counts();
        let output = self.graph.output;
        let done = output.map(|output| self.schedule.state(output) == Some(State::Completed));
        if done == Some(true) && counts.failed == 0 {
            return outcome;
        }
        if done.is_none() && counts.failed + counts.skipped + counts.cancelled == 0 {
            return outcome;
        }
        let (mut failed, mut cancelled, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
        for place in 0..self.tracks.len() {
            let id = || self.id(place);
            match self.end(place) {
                // Items belong to their map.
                _ if self.schedule.parent(place).is_some() => {}
                Some(NodeEnd::Failed(error)) => failed.push(failed_task(id(), &error)),
                Some(NodeEnd::Cancelled) => cancelled.push(id()),
                Some(NodeEnd::Skipped(SkipCause::Blocked(_))) => skipped.push(id()),
                Some(NodeEnd::Skipped(cause)) if done == Some(false) && Some(place) == output => {
                    skipped.push(format!("{} ({cause})", id()).into());
                }
                _ => {}
            }
        }
        match done {
            Some(true) => outcome.failed = failed.into_iter().map(|failed| failed.task).collect(),
            None if failed.is_empty() && cancelled.is_empty() && skipped.is_empty() => {}
            _ => {
                let (failed, cancelled, skipped) = (failed.into(), cancelled.into(), skipped.into());
                outcome.status = Status::Stopped(StopReason::Tasks { failed, cancelled, skipped });
            }
        }
        outcome
    }

    /// Returns the text of the output node; without one, the texts of the nodes that no other depends on, each under
    /// its id.
    fn text(&self) -> String {
        let text = |place: usize| Some(self.slots.get(place)?.to_text());
        if let Some(output) = self.graph.output {
            return text(output).unwrap_or_default();
        }
        let sinks = self.sinks();
        if let [only] = sinks[..] {
            return text(only).unwrap_or_default();
        }
        let parts =
            sinks.into_iter().filter_map(|place| Some(format!("{}:\n{}", self.id(place), text(place)?)));
        parts.collect::<Vec<_>>().join("\n\n")
    }

    /// Returns the nodes that no other node depends on.
    fn sinks(&self) -> Vec<usize> {
        let own = self.graph.nodes.len();
        let added: Vec<_> =
            (own..self.tracks.len()).filter(|place| self.schedule.parent(*place).is_none()).collect();
        let followed: BTreeSet<usize> = added
            .iter()
            .filter_map(|place| self.extra(*place))
            .flat_map(|extra| extra.from.iter().copied())
            .collect();
        let sinks = self.topology.sinks.iter().copied().chain(added);
        sinks.filter(|place| !followed.contains(place)).collect()
    }

    /// Returns the reason of the first node that is paused.
    pub(super) fn pause(&self) -> Option<Pause> {
        let waits = |place: &usize| self.schedule.state(*place) == Some(State::Waiting);
        let paused = (0..self.tracks.len()).filter(waits);
        let mut pauses = paused.filter_map(|place| self.tracks.get(place)?.more.as_ref()?.pause.clone());
        pauses.next().or_else(|| self.watch_pause())
    }

    pub(super) fn is_map(&self, place: usize) -> bool {
        matches!(self.node(place).map(|node| &node.work), Some(Work::Map(MapWork { .. })))
    }

    pub(super) fn has_items(&self, place: usize) -> bool {
        self.tracks.get(place).and_then(|track| track.more.as_ref()).is_some_and(|more| more.items.is_some())
    }

    pub(super) fn set_child(&mut self, place: usize, child: SessionId) {
        if let Some(track) = self.track(place) {
            track.more().child = Some(child);
        }
    }

    /// Returns the session of an agent's newest attempt.
    pub(super) fn child(&self, place: usize) -> Option<SessionId> {
        self.tracks.get(place)?.more.as_ref()?.child.clone()
    }

    /// Returns the worker for the newest attempt, if an agent makes it.
    pub(super) fn worker(&self, place: usize, child: SessionId, stop: CancellationToken) -> Option<Worker> {
        let node = self.node(place)?;
        let Work::Agent(work) = &node.work else { return None };
        let more = self.tracks.get(place)?.more.as_ref()?;
        let escalates = work.has_choice() && self.tracks.get(place)?.failures > 0 && more.agent.is_none();
        let agent = more.former.clone().or_else(|| self.agent(place))?;
        let mut work = AgentWork::clone(work);
        // The node's scope was written for its own agents; a reassigned agent keeps what the graph grants it.
        if more.agent.is_some() && !work.agents.iter().any(|(_, own)| own.name() == agent.name()) {
            work.scope = work.scope.narrow(&self.graph.granted(agent.name()));
        }
        Some(Worker {
            work,
            node: self.id(place),
            part: self.graph.part(place, &agent),
            beside: self.graph.beside.clone(),
            agent,
            child,
            inputs: self.inputs(place),
            limit: node.timeout,
            reason: more.error.clone().filter(|_| escalates),
            stop,
        })
    }
}
