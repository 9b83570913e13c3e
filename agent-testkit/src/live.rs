//! A provider that the test drives during the run.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    provider::{CallContext, Delta, DeltaStream, FinishReason, Model, Provider, Request},
};
use futures_util::stream;
use tokio::sync::{Mutex, mpsc};

/// A provider whose replies the test writes step by step: it reads the request, sends deltas, and ends the stream.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_core::provider::FinishReason;
/// use entourage_runners::ReactAgent;
/// use entourage_runtime::AgentExt;
/// use entourage_testkit::LiveProvider;
///
/// let provider = LiveProvider::new();
/// let agent = ReactAgent::builder("a", provider.model()).build().unwrap();
/// let run = agent.start("Hello?");
/// let mut call = provider.asked().await;
/// assert_eq!(call.request().messages.len(), 1);
/// call.text("Hi!");
/// call.finish(FinishReason::Stop);
/// assert_eq!(run.outcome().await.unwrap().text, "Hi!");
/// # });
/// ```
pub struct LiveProvider {
    inner: Arc<Inner>,
    calls: Mutex<mpsc::UnboundedReceiver<LiveCall>>,
}

struct Inner(mpsc::UnboundedSender<LiveCall>);

impl LiveProvider {
    /// A provider that waits for the test.
    #[must_use]
    pub fn new() -> Self {
        let (ask, calls) = mpsc::unbounded_channel();
        Self { inner: Arc::new(Inner(ask)), calls: Mutex::new(calls) }
    }

    /// The model to give to agents.
    #[must_use]
    pub fn model(&self) -> Model {
        Model::new(Arc::clone(&self.inner) as _, "live")
    }

    /// Waits for the next call.
    pub async fn asked(&self) -> LiveCall {
        match self.calls.lock().await.recv().await {
            Some(call) => call,
            None => panic!("the live provider is gone"),
        }
    }

    /// Panics when a call waits to be answered.
    pub async fn assert_silent(&self) {
        if let Ok(call) = self.calls.lock().await.try_recv() {
            panic!("a call was made that nobody expected: {:?}", call.request);
        }
    }
}

impl Default for LiveProvider {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for LiveProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LiveProvider")
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LiveProvider")
    }
}

/// A call that the test answers. Dropping it without a finish cuts off the reply.
#[derive(Debug)]
pub struct LiveCall {
    request: Request,
    reply: mpsc::UnboundedSender<Result<Delta>>,
}

impl LiveCall {
    /// The request of the call.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Sends a delta. Does nothing if the caller has dropped the stream.
    pub fn send(&mut self, delta: Delta) {
        let _ = self.reply.send(Ok(delta));
    }

    /// Sends text.
    pub fn text(&mut self, text: &str) {
        self.send(Delta::Text(text.into()));
    }

    /// Sends a whole tool call.
    pub fn call(&mut self, index: u32, name: &str, arguments: &str) {
        self.send(Delta::tool_call(index, format!("call_{index}"), name));
        self.send(Delta::arguments(index, arguments));
    }

    /// Ends the reply with a finish.
    pub fn finish(mut self, reason: FinishReason) {
        self.send(Delta::Finish(reason.into()));
    }

    /// Ends the reply with an error.
    pub fn fail(self, kind: ErrorKind, text: &str) {
        let _ = self.reply.send(Err(Error::new(kind, text.to_owned())));
    }

    /// True if the caller has dropped the stream.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    /// Waits until the caller has dropped the stream.
    pub async fn abandoned(&self) {
        self.reply.closed().await;
    }
}

#[async_trait]
impl Provider for Inner {
    fn name(&self) -> &str {
        "live"
    }

    async fn stream(&self, request: Request, _: &CallContext) -> Result<DeltaStream> {
        let (reply, deltas) = mpsc::unbounded_channel();
        self.0
            .send(LiveCall { request, reply })
            .map_err(|_| Error::new(ErrorKind::Internal, "the test has dropped its live provider"))?;
        Ok(Box::pin(stream::unfold(deltas, |mut deltas| async move { Some((deltas.recv().await?, deltas)) })))
    }
}
