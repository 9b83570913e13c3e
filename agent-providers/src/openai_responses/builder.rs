//! Settings of a service, checked when it is built.

use std::sync::Arc;

use entourage_core::Result;

use super::{OpenAiResponses, Responses};
use crate::{
    http::{Auth, Settings},
    service::{Service, settings},
    vendor,
};

/// Settings of an [`OpenAiResponses`]. `Debug` shows no secrets.
#[must_use]
#[derive(Default)]
pub struct OpenAiResponsesBuilder {
    settings: Settings,
}

settings!(OpenAiResponsesBuilder,);

impl OpenAiResponsesBuilder {
    /// Checks the settings without connecting.
    ///
    /// # Errors
    /// [`entourage_core::ErrorKind::Config`] for an address that is not `http` or `https` or holds a password, for a
    /// key or header that HTTP cannot carry, and for a key that would travel unencrypted to another machine.
    pub fn build(mut self) -> Result<OpenAiResponses> {
        if self.settings.base_url.is_empty() {
            vendor::OPENAI.base_url.clone_into(&mut self.settings.base_url);
        }
        let known = vendor::at_address(&self.settings.base_url);
        if let Some(known) = known.filter(|_| self.settings.vendor.is_empty()) {
            known.name.clone_into(&mut self.settings.vendor);
        }
        if known == Some(&vendor::AZURE) && self.settings.auth == Auth::Bearer {
            self.settings.auth = Auth::Header("api-key");
        }
        Ok(OpenAiResponses(Arc::new(Service::new(self.settings, Responses)?)))
    }
}
