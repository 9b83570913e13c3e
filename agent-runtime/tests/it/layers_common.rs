//! Shared helpers of the layer tests.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Prices, Result,
    message::{History, Message},
    provider::{CallContext, Delta, DeltaStream, FinishReason, Params, Profile, Provider, Request},
};
use entourage_runtime::reply::{Assembled, ProviderExt};
use entourage_testkit::{Gate, Script};
use futures_util::StreamExt;
use tokio::task::JoinHandle;

/// A request of "hello" (2 tokens) to `model`.
pub(crate) fn hello(model: &str) -> Request {
    Request::new(model, History::from_iter([Message::user("hello")]))
}

/// A profile with prices per token in pico-dollars.
pub(crate) fn priced(input: u64, output: u64) -> Profile {
    let mut profile = Profile::default();
    profile.prices = Some(Prices::per_million_micros(input, output));
    profile
}

pub(crate) fn up_to(tokens: u64) -> Params {
    let mut params = Params::default();
    params.max_output = Some(tokens);
    params
}

/// A reply of text without usage.
pub(crate) fn saying(text: &str) -> Script {
    Script::new().text(text).finish(FinishReason::Stop)
}

/// A reply that waits for the gate.
pub(crate) fn behind(gate: &Gate) -> Script {
    Script::new().wait(gate).text("ok").finish(FinishReason::Stop)
}

/// Makes the call in a task of its own.
pub(crate) fn spawn(
    provider: &Arc<dyn Provider>,
    request: Request,
    cx: &CallContext,
) -> JoinHandle<Result<Assembled>> {
    let (provider, cx) = (Arc::clone(provider), cx.clone());
    tokio::spawn(async move { provider.complete(request, &cx).await })
}

/// Yields to other tasks until `done`.
pub(crate) async fn settle_until(done: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if done() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it never happened");
}

/// All items of a stream.
pub(crate) async fn all(mut stream: DeltaStream) -> Vec<Result<Delta>> {
    let mut items = Vec::new();
    while let Some(item) = stream.next().await {
        items.push(item);
    }
    assert!(stream.next().await.is_none(), "a stream that is over stays so");
    items
}

/// A provider that records the time budget of each attempt.
#[derive(Debug)]
pub(crate) struct Clocked(pub(crate) Arc<dyn Provider>, pub(crate) Mutex<Vec<(u32, Option<Duration>)>>);

impl Clocked {
    pub(crate) fn new(inner: Arc<dyn Provider>) -> Arc<Self> {
        Arc::new(Self(inner, Mutex::default()))
    }

    /// Attempt numbers, with the seconds left.
    pub(crate) fn told(&self) -> Vec<(u32, Option<u64>)> {
        self.1
            .lock()
            .unwrap()
            .iter()
            .map(|(attempt, left)| (*attempt, left.map(|left| left.as_secs())))
            .collect()
    }
}

#[async_trait]
impl Provider for Clocked {
    fn name(&self) -> &str {
        self.0.name()
    }
    async fn stream(&self, request: Request, cx: &CallContext) -> Result<DeltaStream> {
        self.1.lock().unwrap().push((cx.attempt, cx.timeout));
        self.0.stream(request, cx).await
    }
}
