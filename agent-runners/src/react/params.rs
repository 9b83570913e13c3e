//! Parameters of an agent's model calls, over those of its model.

use std::sync::{Arc, Mutex, PoisonError};

use entourage_core::provider::Params;

/// Parameters of an agent.
pub(super) struct OwnParams {
    own: Params,
    /// The newest model's, and the same under the agent's own: what has one address is digested once.
    joined: Mutex<Option<(Arc<Params>, Arc<Params>)>>,
}

impl OwnParams {
    pub(super) fn new(own: Params) -> Self {
        Self { own, joined: Mutex::default() }
    }

    /// Returns these parameters, with absent ones taken from a model's.
    pub(super) fn over(&self, model: &Arc<Params>) -> Arc<Params> {
        let mut joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner);
        match &*joined {
            Some((of, params)) if Arc::ptr_eq(of, model) => Arc::clone(params),
            _ => {
                let params = Arc::new(self.own.clone().or(model));
                *joined = Some((Arc::clone(model), Arc::clone(&params)));
                params
            }
        }
    }
}
