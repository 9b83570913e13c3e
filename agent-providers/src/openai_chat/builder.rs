//! Settings of a service, checked when it is built.

use std::sync::Arc;

use entourage_core::Result;

use super::{Chat, Dialect, OpenAiChat};
use crate::{
    http::{Auth, Settings},
    service::{Service, settings},
    vendor,
};

/// Settings of an [`OpenAiChat`]. `Debug` shows no secrets.
#[must_use]
#[derive(Default)]
pub struct OpenAiChatBuilder {
    settings: Settings,
    dialect: Option<Dialect>,
}

settings!(OpenAiChatBuilder, dialect);

impl OpenAiChatBuilder {
    /// Sets the service's deviations from the common form. Default: the known ones of the service at this host.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = Some(dialect);
        self
    }

    /// Checks the settings without connecting.
    ///
    /// # Errors
    /// [`entourage_core::ErrorKind::Config`] for an address that is not `http` or `https` or holds a password, for a
    /// key or header that HTTP cannot carry, and for a key that would travel unencrypted to another machine.
    pub fn build(mut self) -> Result<OpenAiChat> {
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
        let dialect = self.dialect.or(known.and_then(|known| known.dialect())).unwrap_or_default();
        Ok(OpenAiChat(Arc::new(Service::new(self.settings, Chat(dialect))?)))
    }
}
