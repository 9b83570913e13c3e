//! Parameters of an agent's model calls, over those of its model.

use std::sync::Arc;

use entourage_core::provider::Params;

use crate::newest::Newest;

/// Parameters of an agent.
pub(super) struct OwnParams {
    own: Params,
    /// The newest model's under the agent's own.
    joined: Newest<Arc<Params>, Arc<Params>>,
}

impl OwnParams {
    pub(super) fn new(own: Params) -> Self {
        Self { own, joined: Newest::default() }
    }

    /// Returns these parameters, with absent ones taken from a model's.
    pub(super) fn over(&self, model: &Arc<Params>) -> Arc<Params> {
        self.joined.of(model, Arc::ptr_eq, || Arc::new(self.own.clone().or(model)))
    }
}
