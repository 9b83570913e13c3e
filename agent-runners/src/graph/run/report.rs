//! The state of a run as a report and as a todo list.

use std::time::Duration;

use entourage_core::{
    event::Progress,
    team::{Todo, TodoStatus},
};

use super::{
    super::{GraphReport, NodeReport, NodeSignature, NodeState, schedule::State},
    machine::Machine,
    track::Track,
};

/// Most nodes that one line names.
const NAMED: usize = 20;

impl GraphReport {
    /// Returns the run as a todo list, one entry per node: a view that follows the graph. A node that failed or was
    /// skipped will not be done, so it is shown as cancelled.
    #[must_use]
    pub fn todos(&self) -> Vec<Todo> {
        let todo = |node: &NodeReport| Todo {
            content: node.id.to_string(),
            status: match node.state() {
                NodeState::Pending => TodoStatus::Pending,
                NodeState::Running => TodoStatus::InProgress,
                NodeState::Completed => TodoStatus::Completed,
                NodeState::Failed | NodeState::Skipped | NodeState::Cancelled => TodoStatus::Cancelled,
            },
            active_form: String::new(),
        };
        self.nodes.iter().map(todo).collect()
    }
}

impl Machine {
    /// Returns what a resumed run found, for people: the nodes that are over, then each attempt that continues.
    pub(super) fn found(&self) -> impl Iterator<Item = Progress> {
        let nodes: Vec<_> = (0..self.tracks.len()).filter(|place| self.is_newest(*place)).collect();
        let count = nodes.len();
        let over: Vec<_> = nodes.iter().copied().filter(|place| self.end(*place).is_some()).collect();
        let named: Vec<_> = over.iter().take(NAMED).map(|place| self.id(*place)).collect();
        let more = if over.len() > NAMED { " and others" } else { "" };
        let text = format!("{} of {count} are over: {}{more}", over.len(), named.join(", "));
        let summary = (!over.is_empty()).then(|| Progress::new(String::new(), text));
        let going_on = nodes.into_iter().filter_map(|place| {
            let track = self.tracks.get(place)?;
            let continues = track.more.as_ref()?.goes_on;
            let text = format!("continues {}, attempt {}", self.id(place), track.attempt);
            continues.then(|| Progress::new(self.id(place).to_string(), text))
        });
        summary.into_iter().chain(going_on)
    }

    /// Returns the current state of the run.
    pub(super) fn report(&self) -> GraphReport {
        let mut report = GraphReport::new(&self.graph.name, self.graph.signature());
        let own = report.nodes.len();
        let newest = (0..self.tracks.len()).filter(|place| self.is_newest(*place));
        report.nodes.extend(newest.clone().skip(own).filter_map(|place| self.extra_report(place)));
        for (place, node) in newest.zip(&mut report.nodes) {
            let Some(track) = self.tracks.get(place) else { continue };
            node.attempts = track.attempt;
            node.time = Duration::from_micros(track.micros);
            node.end = self.end(place);
            let runs = matches!(
                self.schedule.state(place),
                Some(State::Running | State::Suspended | State::Stopping)
            );
            node.since = runs.then_some(track.started);
            self.report_agent(place, track, node);
        }
        report
    }

    fn report_agent(&self, place: usize, track: &Track, node: &mut NodeReport) {
        let by = track.more.as_ref().and_then(|more| more.by.clone());
        if let Some(agent) = by.or_else(|| self.agent(place).map(|agent| agent.name().into())) {
            node.agent = Some(agent);
        }
        if let Some(more) = &track.more {
            node.child.clone_from(&more.child);
            (node.usage, node.cost) = (more.spent.usage, more.spent.cost);
            node.failure.clone_from(&more.error);
        }
    }

    fn extra_report(&self, place: usize) -> Option<NodeReport> {
        let extra = self.extra(place)?;
        let after = match self.schedule.parent(place) {
            // An item comes from its map, which is not an edge.
            Some(_) => Vec::new(),
            None => extra.after.clone(),
        };
        Some(NodeReport::new(&NodeSignature {
            id: self.id(place),
            after,
            agent: extra.node.agent().map(Into::into),
            version: extra.node.version.clone(),
            output: extra.node.output,
        }))
    }
}
