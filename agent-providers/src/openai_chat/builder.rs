//! Settings of a service, checked when it is built.

use std::fmt;

use entourage_core::Result;
use secrecy::SecretString;

use super::{Dialect, OpenAiChat};
use crate::{
    http::{Endpoint, Settings},
    vendor,
};

/// Settings of an [`OpenAiChat`]. `Debug` shows no secrets.
#[must_use]
#[derive(Default)]
pub struct Builder {
    settings: Settings,
    dialect: Option<Dialect>,
}

impl Builder {
    /// The address below which `chat/completions` is found, such as `http://127.0.0.1:8080/v1`. A query is kept.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.settings.base_url = url.into();
        self
    }

    /// The key, sent as `Authorization: Bearer …`. It appears in no error, log or `Debug` output.
    pub fn api_key(mut self, key: impl Into<String>) -> Self {
        self.settings.key = Some(SecretString::from(key.into()));
        self
    }

    /// A header for every call; it replaces one of ours of the same name. The value is treated as a secret.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.headers.push((name.into(), SecretString::from(value.into())));
        self
    }

    /// The service's name, as stored with each call. Without it: that of a known service at this host, else the host.
    pub fn vendor_name(mut self, name: impl Into<String>) -> Self {
        self.settings.vendor = name.into();
        self
    }

    /// How the service differs from the common form. Without it: what is known of the service at this host.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = Some(dialect);
        self
    }

    /// Lets a key travel over plain `http` to another machine, which is refused otherwise.
    pub fn allow_insecure(mut self) -> Self {
        self.settings.allow_insecure = true;
        self
    }

    /// Checks the settings. Connects to nothing.
    ///
    /// # Errors
    /// [`entourage_core::ErrorKind::Config`] for an address that is not `http` or `https` or holds a password, for a key or header
    /// that HTTP cannot carry, and for a key that would travel unencrypted to another machine.
    pub fn build(mut self) -> Result<OpenAiChat> {
        if self.settings.base_url.is_empty() {
            vendor::OPENAI.base_url.clone_into(&mut self.settings.base_url);
        }
        let known = vendor::at_address(&self.settings.base_url);
        if let Some(known) = known.filter(|_| self.settings.vendor.is_empty()) {
            known.name.clone_into(&mut self.settings.vendor);
        }
        let dialect = self.dialect.or(known.map(|known| known.dialect)).unwrap_or_default();
        Ok(OpenAiChat::new(Endpoint::new(self.settings)?, dialect))
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.settings.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Builder")
            .field("vendor", &self.settings.vendor)
            .field("has_key", &self.settings.key.is_some())
            .field("headers", &headers)
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
}
