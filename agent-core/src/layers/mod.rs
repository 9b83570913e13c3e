//! What happens around every model call, one file each: a layer turns a provider into a provider.

mod budget;
mod cache;
mod check;
mod fallback;
mod rate_limit;
mod record;
mod refresh;
mod retry;
mod timeout;

use std::sync::Arc;

use crate::provider::Provider;

/// Wraps a provider in behaviour. A closure from provider to provider is a layer.
pub trait Layer {
    /// `inner` with this behaviour around it.
    fn layer(self, inner: Arc<dyn Provider>) -> Arc<dyn Provider>;
}

impl<F: FnOnce(Arc<dyn Provider>) -> Arc<dyn Provider>> Layer for F {
    fn layer(self, inner: Arc<dyn Provider>) -> Arc<dyn Provider> {
        self(inner)
    }
}
