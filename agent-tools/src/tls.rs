//! TLS of clients: certificates are judged as this machine judges them.

use std::sync::Arc;

use entourage_core::{Error, ErrorKind, Result};
use rustls::{ClientConfig, crypto::ring};
use rustls_platform_verifier::BuilderVerifierExt;

/// The settings of a client.
///
/// # Errors
/// [`ErrorKind::Config`] if TLS cannot be set up.
pub(crate) fn config() -> Result<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(BuilderVerifierExt::with_platform_verifier)
        .map_err(|error| Error::new(ErrorKind::Config, "TLS could not be set up").caused_by(error))?;
    Ok(config.with_no_client_auth())
}
