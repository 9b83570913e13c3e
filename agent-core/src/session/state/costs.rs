//! The cost of a session's model calls. While one is open it is unknown: its process may have died.

use std::sync::Arc;

use super::SessionState;
use crate::{Money, RequestId, event::ModelStarted};

impl SessionState {
    /// Folds in the begin of a model call of the open run.
    pub(crate) fn call(&mut self, call: &ModelStarted) {
        if let Some(new) = call.contents.as_ref().filter(|new| !new.is_empty()) {
            Arc::make_mut(self.contents.get_or_insert_default()).extend(new.keys());
        }
        let Some(run) = &mut self.run else { return };
        run.calling = true;
        // A call that is made again keeps its id.
        let Some(request) = call.request.filter(|request| !run.calls.contains(request)) else { return };
        if run.calls.is_empty() {
            run.ended_cost = self.head.cost;
        }
        run.calls.push(request);
        self.head.cost = None;
    }

    /// Folds in the cost of a model call that ended.
    pub(crate) fn charge(&mut self, request: Option<RequestId>, cost: Option<Money>) {
        let after = |sum: Option<Money>| sum.zip(cost).map(|(sum, cost)| sum + cost);
        match &mut self.run {
            Some(run) if !run.calls.is_empty() => {
                run.ended_cost = after(run.ended_cost);
                run.calls.retain(|open| Some(*open) != request);
                if run.calls.is_empty() {
                    self.head.cost = run.ended_cost.take();
                }
            }
            _ => self.head.cost = after(self.head.cost),
        }
    }
}
