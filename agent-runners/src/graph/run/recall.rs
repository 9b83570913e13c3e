//! Restores a run from its records when it is resumed: they are applied again, in their order.

use std::collections::HashMap;

use entourage_core::{Error, ErrorKind, Result, Timestamp, event::Recorded};

use super::{
    super::{
        Change, GraphSignature, GraphStarted, NodeEnd, NodeFinished, NodeStarted, SkipCause, Work,
        records::GraphRecord,
        schedule::{Cause, How, State},
    },
    machine::Machine,
    track::Spent,
};
use crate::graph::SkipAs;

impl Machine {
    /// Applies records of the run, and returns them in their types.
    ///
    /// # Errors
    /// [`ErrorKind::Diverged`] when another graph was recorded; those of a record that cannot be read.
    pub(super) fn recall(&mut self, records: &[Recorded], now: Timestamp) -> Result<Vec<GraphRecord>> {
        let read = |record| GraphRecord::of(record).transpose();
        let recorded = records.iter().filter_map(read).collect::<Result<Vec<_>>>()?;
        self.recalling = true;
        let told = recorded.iter().try_for_each(|record| self.recall_one(record, now));
        self.recalling = false;
        // The consequences of that time are recorded as well.
        self.told.clear();
        told.map(|()| recorded)
    }

    /// Goes on behind all that is recorded. Returns true when the graph had begun.
    pub(super) fn go_on(&mut self, recorded: &[GraphRecord], now: Timestamp) -> bool {
        let begun = recorded.iter().any(|record| matches!(record, GraphRecord::Started(_)));
        if begun {
            self.tell_missing(recorded);
            self.continue_attempts(now);
        }
        begun
    }

    /// Records consequences of records that are not recorded themselves: another writer's commit came in
    /// between, and then the process died. They are the nodes that ended otherwise than the records say, as a node that
    /// failed and was skipped later.
    fn tell_missing(&mut self, recorded: &[GraphRecord]) {
        let mut ends: HashMap<&str, &NodeEnd> = HashMap::new();
        for record in recorded {
            match record {
                GraphRecord::NodeStarted(started) => {
                    ends.remove(&*started.node);
                }
                GraphRecord::NodeFinished(finished) if finished.retry_at.is_none() => {
                    ends.insert(&finished.node, &finished.end);
                }
                GraphRecord::Changed(changed) => {
                    if let Change::Retry { node } = &changed.change {
                        ends.remove(&**node);
                    }
                    for node in &changed.again {
                        ends.remove(&**node);
                    }
                }
                GraphRecord::Started(_)
                | GraphRecord::NodeFinished(_)
                | GraphRecord::Asked(_)
                | GraphRecord::Answered(_) => {}
            }
        }
        let is_told = |recorded: &NodeEnd, end: &NodeEnd| recorded == end || end.is_completed();
        for place in 0..self.tracks.len() {
            let Some(end) = self.end(place).filter(|_| self.is_newest(place)) else { continue };
            if !ends.get(&*self.id(place)).is_some_and(|recorded| is_told(recorded, &end)) {
                self.tell_consequence(place, end);
            }
        }
    }

    fn recall_one(&mut self, record: &GraphRecord, now: Timestamp) -> Result<()> {
        match record {
            GraphRecord::Started(started) => self.recall_graph(started),
            GraphRecord::NodeStarted(started) => self.recall_start(started, now),
            GraphRecord::NodeFinished(finished) => self.recall_end(finished, now),
            GraphRecord::Asked(_) | GraphRecord::Answered(_) if self.graph.supervisor.is_none() => {
                Err(diverged("a supervisor watched it"))
            }
            GraphRecord::Asked(asked) => {
                self.recall_asked(asked);
                Ok(())
            }
            GraphRecord::Answered(answered) => {
                self.recall_answered(answered);
                Ok(())
            }
            GraphRecord::Changed(changed) => {
                self.recall_made(&changed.change);
                self.change(&changed.change, now).map_err(|error| diverged(error.message()))
            }
        }
    }

    fn recall_graph(&self, started: &GraphStarted) -> Result<()> {
        let now = self.graph.signature();
        if started.signature == *now {
            return Ok(());
        }
        Err(diverged(&differences(&started.signature, now)))
    }

    fn recall_start(&mut self, started: &NodeStarted, now: Timestamp) -> Result<()> {
        let place = self.recalled(&started.node)?;
        self.schedule
            .restore(place, State::Running, |_, _| false)
            .map_err(|refusal| diverged(self.refused(&refusal).message()))?;
        let seat = started.agent.as_ref().map(|agent| self.names().agent(agent));
        let sits = seat.is_none_or(|seat| self.schedule.sit(place, seat));
        let agent = self.agent(place).filter(|_| sits);
        if agent.as_ref().map(|agent| agent.name()) != started.agent.as_deref() {
            let text =
                format!("`{}` was run by `{}`, and now has another agent", started.node, named(started));
            return Err(diverged(&text));
        }
        self.note_agent(place);
        if let Some(track) = self.track(place) {
            track.attempt = started.attempt;
            // No record tells the time spent before this process. A map has no other start here.
            (track.started, track.is_open) = (now, true);
            if let Some(child) = &started.child {
                track.more().child = Some(child.clone());
            }
            if let Some(more) = &mut track.more {
                (more.retry_at, more.former) = (None, None);
            }
        }
        if matches!(self.node(place).map(|node| &node.work), Some(Work::Map(_))) {
            self.recall_items(place);
            self.follow(now);
        }
        Ok(())
    }

    fn recall_end(&mut self, finished: &NodeFinished, now: Timestamp) -> Result<()> {
        let place = self.recalled(&finished.node)?;
        self.recall_spent(place, finished);
        match (finished.retry_at, self.schedule.state(place)) {
            // The node was reassigned.
            (Some(_), Some(State::Stopping)) => {
                drop(self.schedule.finish(place, How::Cancelled, |_, _| false));
            }
            (Some(at), _) => {
                if self.schedule.retry_later(place).is_err() {
                    return Err(impossible(&finished.node));
                }
                self.escalated(place);
                if let Some(track) = self.track(place) {
                    track.more().retry_at = Some(at);
                }
            }
            (None, _) => self.recall_last(place, finished)?,
        }
        self.follow(now);
        Ok(())
    }

    fn recall_last(&mut self, place: usize, finished: &NodeFinished) -> Result<()> {
        let (state, held) = match &finished.end {
            NodeEnd::Completed(value) => {
                self.slots.set(place, value.clone());
                (State::Completed, self.conditions(place, value)?)
            }
            NodeEnd::Failed(_) => {
                self.note_failure(place);
                (State::Failed, Vec::new())
            }
            NodeEnd::Cancelled => (State::Cancelled, Vec::new()),
            NodeEnd::Skipped(cause) => (State::Skipped(self.cause(cause)?), Vec::new()),
        };
        let holds = |dependent, edge| {
            held.iter().find(|(of, _)| *of == (dependent, edge)).is_some_and(|(_, held)| *held)
        };
        self.schedule.restore(place, state, holds).map_err(|_| impossible(&finished.node))
    }

    fn recall_spent(&mut self, place: usize, finished: &NodeFinished) {
        let Some(track) = self.track(place) else { return };
        track.micros = track.micros.saturating_add(finished.micros);
        track.is_open = false;
        if finished.retry_at.is_some() && matches!(finished.end, NodeEnd::Failed(_)) {
            track.failures = track.failures.saturating_add(1);
        }
        if let NodeEnd::Failed(error) = &finished.end {
            track.more().error = Some(error.clone());
        }
        if track.more.is_some() || !finished.usage.is_unknown() {
            track.more().spent.add(&Spent { usage: finished.usage, cost: finished.cost });
        }
    }

    /// Continues the attempts that were in flight, each as soon as it has a slot again, and the waits for retries, each
    /// for its remaining time.
    fn continue_attempts(&mut self, now: Timestamp) {
        for place in 0..self.tracks.len() {
            match self.schedule.state(place) {
                Some(State::Running) => {
                    if self.schedule.go_on(place).is_ok()
                        && let Some(track) = self.track(place)
                    {
                        track.more().goes_on = true;
                    }
                }
                Some(State::Waiting) => {
                    let due = self.tracks.get(place).and_then(|track| track.more.as_ref()?.retry_at);
                    self.wait(place, due.unwrap_or(now), now);
                }
                // A process died between the end of the last item and that of the map.
                Some(State::Suspended) if self.is_gathered(place) => {
                    let gathered = self.gather(place);
                    self.settle_map(place, gathered, now);
                }
                _ => {}
            }
        }
        self.follow(now);
    }

    fn recalled(&self, id: &str) -> Result<usize> {
        self.place(id).ok_or_else(|| impossible(id))
    }

    fn cause(&self, cause: &SkipCause) -> Result<Cause> {
        Ok(match cause {
            SkipCause::Blocked(by) => Cause::Blocked(self.recalled(by)?),
            SkipCause::Condition(of) => Cause::Condition(self.recalled(of)?),
            SkipCause::Asked => Cause::Asked(SkipAs::Satisfied),
        })
    }

    /// Builds the run's first record: the graph's signature.
    pub(super) fn started(&self) -> GraphStarted {
        GraphStarted { signature: self.graph.signature().clone() }
    }
}

fn named(started: &NodeStarted) -> &str {
    started.agent.as_deref().unwrap_or("a step of the program")
}

fn impossible(node: &str) -> Error {
    diverged(&format!("the record of node `{node}` does not fit the graph"))
}

fn diverged(what: &str) -> Error {
    Error::new(
        ErrorKind::Diverged,
        format!(
            "the graph is not the one that began this run: {what}; resume it with the graph that began it, or start a new run"
        ),
    )
}

fn differences(recorded: &GraphSignature, now: &GraphSignature) -> String {
    recorded.differences(now).iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
