//! Settings of a service, checked when it is built.

use std::sync::Arc;

use entourage_core::Result;

use super::{Gemini, Generate};
use crate::{
    http::{Auth, Settings},
    service::{Service, settings},
    vendor,
};

/// Host of Google's cloud, which speaks this wire below an address of the customer's project.
const CLOUD: &str = "aiplatform.googleapis.com";

/// Settings of a [`Gemini`]. `Debug` shows no secrets.
///
/// The key is sent in `x-goog-api-key`. Google's cloud requires an access token instead, and an address that names the
/// project:
/// `https://us-central1-aiplatform.googleapis.com/v1/projects/PROJECT/locations/us-central1/publishers/google` with
/// [`GeminiBuilder::bearer`]. Access tokens live for an hour; renewing them is up to the program.
#[must_use]
pub struct GeminiBuilder {
    settings: Settings,
}

impl Default for GeminiBuilder {
    fn default() -> Self {
        Self { settings: Settings { auth: Auth::Header("x-goog-api-key"), ..Settings::default() } }
    }
}

settings!(GeminiBuilder,);

impl GeminiBuilder {
    /// Checks the settings without connecting.
    ///
    /// # Errors
    /// [`entourage_core::ErrorKind::Config`] for an address that is not `http` or `https` or holds a password, for a
    /// key or header that HTTP cannot carry, and for a key that would travel unencrypted to another machine.
    pub fn build(mut self) -> Result<Gemini> {
        if self.settings.base_url.is_empty() {
            vendor::GEMINI.base_url.clone_into(&mut self.settings.base_url);
        }
        let cloud = is_cloud(&self.settings.base_url);
        if self.settings.vendor.is_empty() {
            match vendor::at_address(&self.settings.base_url) {
                Some(known) => known.name.clone_into(&mut self.settings.vendor),
                // The catalogue has the same models at the same prices under this name.
                None if cloud => vendor::GEMINI.name.clone_into(&mut self.settings.vendor),
                None => {}
            }
        }
        Ok(Gemini(Arc::new(Service::new(self.settings, Generate { cloud })?)))
    }
}

fn is_cloud(url: &str) -> bool {
    let host =
        url.split_once("://").map_or(url, |(_, rest)| rest).split(['/', ':', '?']).next().unwrap_or_default();
    host == CLOUD || host.strip_suffix(CLOUD).is_some_and(|front| front.ends_with(['-', '.']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cloud_is_known_by_its_host() {
        for (url, cloud) in [
            ("https://us-central1-aiplatform.googleapis.com/v1/projects/p", true),
            ("https://aiplatform.googleapis.com/v1/publishers/google", true),
            ("https://evilaiplatform.googleapis.com/v1", false),
            ("https://h.example/aiplatform.googleapis.com", false),
            ("https://generativelanguage.googleapis.com/v1beta", false),
        ] {
            assert_eq!(is_cloud(url), cloud, "{url}");
        }
    }
}
