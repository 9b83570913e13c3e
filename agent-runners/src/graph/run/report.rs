//! The state of a run as a report and as a todo list.

use std::time::Duration;

use entourage_core::team::{Todo, TodoStatus};

use super::{
    super::{GraphReport, NodeReport, NodeSignature, NodeState, schedule::State},
    machine::Machine,
    track::Track,
};

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
    /// Returns the current state of the run.
    pub(super) fn report(&self) -> GraphReport {
        let mut report = GraphReport::new(&self.graph.name, self.graph.signature());
        let own = report.nodes.len();
        report.nodes.extend((own..self.tracks.len()).filter_map(|place| self.extra_report(place)));
        for (place, (node, track)) in report.nodes.iter_mut().zip(&self.tracks).enumerate() {
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
        if let Some(agent) = self.agent(place) {
            node.agent = Some(agent.name().into());
        }
        if let Some(more) = &track.more {
            node.child.clone_from(&more.child);
            (node.usage, node.cost) = (more.spent.usage, more.spent.cost);
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
