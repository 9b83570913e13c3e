//! HTTP for the exporter, which runs on a plain thread: requests are made on a small runtime of their own.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{Error, ErrorKind, Result};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use rustls_platform_verifier::BuilderVerifierExt;
use secrecy::{ExposeSecret, SecretString};
use tokio::runtime::{Builder, Runtime};

/// Largest response body that is read. A collector reports at most the number of refused spans, and why.
const ANSWER: usize = 64 * 1024;

pub(crate) struct Client {
    http: reqwest::Client,
    /// `None` after the drop.
    runtime: Option<Runtime>,
}

impl Client {
    pub(crate) fn new(timeout: Duration) -> Result<Self> {
        let failed =
            |why: String| Error::new(ErrorKind::Config, "the export cannot be set up").with("cause", why);
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls().map_err(|error| failed(error.to_string()))?)
            .timeout(timeout)
            // A header with a key goes to the configured host only.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| failed(error.to_string()))?;
        // One worker: a thread that waits for an answer need not drive the request, and the program's own runtime may
        // be blocked in `shutdown` meanwhile.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(2)
            .thread_name("entourage-otlp")
            .enable_all()
            .build()
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self { http, runtime: Some(runtime) })
    }
}

/// A configuration that trusts the system's certificates. The cryptography is named explicitly: no process default is
/// read.
fn tls() -> std::result::Result<rustls::ClientConfig, rustls::Error> {
    #[cfg(feature = "aws-lc")]
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    #[cfg(not(feature = "aws-lc"))]
    let provider = rustls::crypto::ring::default_provider();
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(provider));
    Ok(builder.with_safe_default_protocol_versions()?.with_platform_verifier()?.with_no_client_auth())
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> std::result::Result<Response<Bytes>, HttpError> {
        let runtime = self.runtime.as_ref().ok_or("the export has ended")?;
        let request = reqwest::Request::try_from(request)?;
        let http = self.http.clone();
        runtime.spawn(async move { answer(http, request).await }).await?
    }
}

async fn answer(
    http: reqwest::Client,
    request: reqwest::Request,
) -> std::result::Result<Response<Bytes>, HttpError> {
    // An address may hold a key: it is not part of any error.
    let mut response = http.execute(request).await.map_err(reqwest::Error::without_url)?;
    let mut built = Response::builder().status(response.status());
    if let Some(headers) = built.headers_mut() {
        headers.extend(response.headers().clone());
    }
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(reqwest::Error::without_url)? {
        if body.len() + piece.len() > ANSWER {
            return Err("the collector's answer is too large".into());
        }
        body.extend_from_slice(&piece);
    }
    Ok(built.body(body.into())?)
}

impl Drop for Client {
    fn drop(&mut self) {
        // A runtime may not be dropped on another one's thread unless it is let go.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// Checks a header. The exporter silently leaves out headers that it cannot send, so a lost key is found here.
pub(crate) fn check_header(name: &str, value: &SecretString) -> Result<()> {
    let fits = reqwest::header::HeaderName::from_bytes(name.as_bytes()).is_ok()
        && reqwest::header::HeaderValue::from_str(value.expose_secret()).is_ok();
    if fits {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Config, "this header cannot be sent: it holds characters that headers may not")
        .with("header", name.escape_debug().to_string()))
}
