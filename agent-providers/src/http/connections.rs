//! Sends requests over connections that are kept for the next one.
//!
//! A server may close a connection while the next request is in flight: it never sees the request, and the caller only
//! sees the end. llama.cpp does so after every second streamed reply. Such a request is sent once more here; any other
//! failure is left to retry layers.

use std::{
    error::Error as _,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use reqwest::{Client, IntoUrl, Method, RequestBuilder, Response};
use tokio::time::Instant;

/// Time within which a connection that was already closed fails. Later, the server may have worked on the request.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Connections to one service. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Connections {
    client: Client,
    /// True once there was an answer, so a connection may have been kept.
    answered: Arc<AtomicBool>,
}

impl Connections {
    pub(super) fn new(client: Client) -> Self {
        Self { client, answered: Arc::default() }
    }

    pub(super) fn request(&self, method: Method, url: impl IntoUrl) -> RequestBuilder {
        self.client.request(method, url)
    }

    /// Sends the request; a second time if it met a kept connection that was already closed.
    pub(super) async fn send(&self, request: RequestBuilder) -> reqwest::Result<Response> {
        let request = request.build()?;
        // Shares the body's bytes. On a new connection, nothing is ever sent twice.
        let again = self.answered.load(Ordering::Relaxed).then(|| request.try_clone()).flatten();
        let begun = Instant::now();
        let mut answer = self.client.execute(request).await;
        if let (Err(error), Some(again)) = (&answer, again)
            && begun.elapsed() < AT_ONCE
            && was_closed(error)
        {
            answer = self.client.execute(again).await;
        }
        if answer.is_ok() {
            self.answered.store(true, Ordering::Relaxed);
        }
        answer
    }
}

/// True if the connection ended without an answer.
fn was_closed(error: &reqwest::Error) -> bool {
    if error.is_timeout() || error.is_connect() {
        return false;
    }
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message) {
            return true;
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
            return matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset);
        }
        cause = error.source();
    }
    false
}
