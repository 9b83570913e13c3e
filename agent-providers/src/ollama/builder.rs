//! Settings of a server, checked when it is built.

use std::sync::Arc;

use entourage_core::Result;

use super::{Chat, Ollama};
use crate::{
    http::Settings,
    service::{Service, settings},
};

/// Default address of a server.
const LOCAL: &str = "http://127.0.0.1:11434";

/// Settings of an [`Ollama`]. `Debug` shows no secrets. A server on this machine needs no key.
#[must_use]
#[derive(Default)]
pub struct OllamaBuilder {
    settings: Settings,
}

settings!(OllamaBuilder,);

impl OllamaBuilder {
    /// Checks the settings without connecting.
    ///
    /// # Errors
    /// [`entourage_core::ErrorKind::Config`] for an address that is not `http` or `https` or holds a password, for a
    /// key or header that HTTP cannot carry, and for a key that would travel unencrypted to another machine.
    pub fn build(mut self) -> Result<Ollama> {
        if self.settings.base_url.is_empty() {
            LOCAL.clone_into(&mut self.settings.base_url);
        }
        if self.settings.vendor.is_empty() && self.settings.base_url.trim_end_matches('/') == LOCAL {
            super::WIRE.clone_into(&mut self.settings.vendor);
        }
        Ok(Ollama(Arc::new(Service::new(self.settings, Chat)?)))
    }
}
