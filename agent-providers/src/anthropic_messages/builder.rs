//! Settings of a service, checked when it is built.

use std::sync::Arc;

use entourage_core::Result;

use super::{AnthropicMessages, Messages};
use crate::{
    http::{Auth, Settings},
    service::{Service, settings},
    vendor,
};

/// Settings of an [`AnthropicMessages`]. `Debug` shows no secrets.
#[must_use]
pub struct AnthropicMessagesBuilder {
    settings: Settings,
}

impl Default for AnthropicMessagesBuilder {
    /// Sends the key in the wire's own header, `x-api-key`; [`AnthropicMessagesBuilder::bearer`] changes that.
    fn default() -> Self {
        Self { settings: Settings { auth: Auth::Header("x-api-key"), ..Settings::default() } }
    }
}

settings!(AnthropicMessagesBuilder,);

impl AnthropicMessagesBuilder {
    /// Checks the settings without connecting.
    ///
    /// # Errors
    /// [`entourage_core::ErrorKind::Config`] for an address that is not `http` or `https` or holds a password, for a
    /// key or header that HTTP cannot carry, and for a key that would travel unencrypted to another machine.
    pub fn build(mut self) -> Result<AnthropicMessages> {
        if self.settings.base_url.is_empty() {
            vendor::ANTHROPIC.base_url.clone_into(&mut self.settings.base_url);
        }
        let known = vendor::at_address(&self.settings.base_url);
        if let Some(known) = known.filter(|_| self.settings.vendor.is_empty()) {
            known.name.clone_into(&mut self.settings.vendor);
        }
        Ok(AnthropicMessages(Arc::new(Service::new(self.settings, Messages)?)))
    }
}
