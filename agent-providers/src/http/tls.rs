//! TLS with the system's roots. The cryptography is named here: no process default is read or installed.

use std::{error::Error as StdError, fmt, io, sync::Arc};

use entourage_core::{Error, ErrorKind, Result};
use rustls::{ClientConfig, crypto};
use rustls_platform_verifier::BuilderVerifierExt;

/// A configuration that trusts the system's roots and offers the compiled-in versions of HTTP.
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

/// A handshake that failed.
pub(super) struct Failure<'a> {
    error: &'a rustls::Error,
    /// True if the server's certificate was refused: a retry gives the same result.
    pub(super) is_refused: bool,
}

impl fmt::Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remedy = match self.error {
            rustls::Error::InvalidCertificate(_) => {
                "trust its issuer in this system (SSL_CERT_FILE names a file of certificates), or correct the address"
            }
            rustls::Error::InvalidMessage(_) => "does the server speak plain http there?",
            _ => "check the address, or try again",
        };
        write!(f, "{}; {remedy}", self.error)
    }
}

/// The failed handshake among the causes of `error`.
pub(super) fn failure<'a>(error: &'a (dyn StdError + 'static)) -> Option<Failure<'a>> {
    let mut cause = error.source();
    while let Some(one) = cause {
        if let Some(error) = one.downcast_ref::<rustls::Error>() {
            return Some(Failure {
                error,
                is_refused: matches!(error, rustls::Error::InvalidCertificate(_)),
            });
        }
        // An I/O error does not list the error that it holds among its causes.
        let held = one.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause = match held {
            Some(held) => Some(held),
            None => one.source(),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use entourage_core::provider::CallContext;
    use rustls::{
        ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    };
    use tokio::{io::AsyncWriteExt, net::TcpListener};
    use tokio_rustls::TlsAcceptor;

    use super::{
        super::{Endpoint, Settings, Target},
        *,
    };

    async fn asked(listener: &TcpListener) -> Error {
        let base_url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let endpoint = Endpoint::new(Settings { base_url, ..Settings::default() }).unwrap();
        endpoint.post(Target::default(), Vec::new(), &CallContext::default()).await.err().unwrap()
    }

    #[tokio::test]
    async fn an_untrusted_certificate_is_refused_for_good_and_the_error_says_what_to_trust() {
        let certificate = CertificateDer::from_pem_slice(include_bytes!("testdata/untrusted.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("testdata/key.pem")).unwrap();
        let provider = Arc::new(crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(server));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let accept = async {
            let (connection, _) = listener.accept().await.unwrap();
            assert!(acceptor.accept(connection).await.is_err(), "the client trusts anybody");
        };
        let (error, ()) = tokio::join!(asked(&listener), accept);
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.message().contains("SSL_CERT_FILE"), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_speaks_no_tls_is_told_from_one_that_is_not_there() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let answer = async {
            let (mut connection, _) = listener.accept().await.unwrap();
            connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            connection
        };
        let (error, _connection) = tokio::join!(asked(&listener), answer);
        assert_eq!(error.kind(), ErrorKind::Transport, "{error}");
        assert!(error.message().contains("plain http"), "{error}");
    }
}
