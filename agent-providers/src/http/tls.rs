//! TLS with the system's roots. The cryptography is named here: no default of the process is read or installed.

use std::sync::Arc;

use entourage_core::{Error, ErrorKind, Result};
use rustls::{ClientConfig, crypto};
use rustls_platform_verifier::BuilderVerifierExt;

/// A configuration that trusts what the system trusts and offers the versions of HTTP that are built in.
pub(super) fn config() -> Result<ClientConfig> {
    #[cfg(feature = "aws-lc")]
    let provider = crypto::aws_lc_rs::default_provider();
    #[cfg(not(feature = "aws-lc"))]
    let provider = crypto::ring::default_provider();
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .and_then(BuilderVerifierExt::with_platform_verifier)
        .map_err(|error| Error::new(ErrorKind::Config, "TLS could not be set up").caused_by(error))?
        .with_no_client_auth();
    if cfg!(feature = "http2") {
        config.alpn_protocols.push(b"h2".to_vec());
    }
    config.alpn_protocols.push(b"http/1.1".to_vec());
    Ok(config)
}
