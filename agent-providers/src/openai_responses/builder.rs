//! Settings of a service, checked when it is built.

use std::sync::Arc;

use entourage_core::Result;

use super::{OpenAiResponses, Responses};
use crate::{
    http::{Auth, Settings},
    on_demand::OnDemand,
    service::{Service, settings},
    vendor,
};

/// Settings of an [`OpenAiResponses`]. `Debug` shows no secrets.
#[must_use]
#[derive(Default)]
pub struct OpenAiResponsesBuilder {
    settings: Settings,
    on_demand: OnDemand,
}

settings!(OpenAiResponsesBuilder, on_demand);

impl OpenAiResponsesBuilder {
    /// Leaves the agent's tools to the service's own search: the model sees those that are named in `shown`, and of the
    /// others those that it looked for. They are declared in each request, count as no input until they were found, and
    /// are called by their own names. For models that can search, from GPT-5.4 on; the service refuses requests to
    /// others.
    ///
    /// It is an alternative to a set of tools that the program searches itself, which works with any model.
    pub fn tools_on_demand<S: Into<String>>(mut self, shown: impl IntoIterator<Item = S>) -> Self {
        self.on_demand = OnDemand::except(shown);
        self
    }

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
        Ok(OpenAiResponses(Arc::new(Service::new(self.settings, Responses { on_demand: self.on_demand })?)))
    }
}
