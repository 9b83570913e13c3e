//! The trait of everything that wraps a provider.

use std::sync::Arc;

use super::Provider;

/// Wrapper that adds behaviour to a provider. A closure from provider to provider is a layer.
pub trait Layer {
    /// Wraps `inner` in this behaviour.
    fn layer(self, inner: Arc<dyn Provider>) -> Arc<dyn Provider>;
}

impl<F: FnOnce(Arc<dyn Provider>) -> Arc<dyn Provider>> Layer for F {
    fn layer(self, inner: Arc<dyn Provider>) -> Arc<dyn Provider> {
        self(inner)
    }
}
