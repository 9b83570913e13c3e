//! The same workloads on Entourage, as a user would write them: events consumed, sessions in memory.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Result,
    event::Event,
    provider::{CallContext, Delta, DeltaStream, FinishReason, Model, Provider, Request},
    run::Limits,
    tool::{Access, Tool},
};
use entourage_runners::{ReactAgent, from_fn::typed};
use entourage_runtime::RunHandle;
use futures_util::{StreamExt, stream};

/// The model that matches the floor's.
#[derive(Debug)]
pub(crate) struct Scripted {
    pub(crate) turns: usize,
    pub(crate) fan: usize,
    pub(crate) tokens: usize,
}

fn call(index: u32, name: &str, a: usize) -> [Delta; 2] {
    [
        Delta::tool_call(index, format!("call{a}"), name),
        Delta::arguments(index, format!("{{\"a\":{a},\"b\":1}}")),
    ]
}

#[async_trait]
impl Provider for Scripted {
    fn name(&self) -> &str {
        "bench"
    }

    async fn stream(&self, request: Request, _: &CallContext) -> Result<DeltaStream> {
        if self.tokens > 0 {
            let tokens = (0..self.tokens).map(|_| Ok(Delta::Text("token ".into())));
            let end = std::iter::once_with(|| Ok(Delta::Finish(FinishReason::Stop.into())));
            return Ok(stream::iter(tokens.chain(end)).boxed());
        }
        let count = request.messages.len();
        let mut deltas = Vec::with_capacity(3);
        if self.fan > 0 && count == 1 {
            (0..self.fan).for_each(|n| deltas.extend(call(n as u32, "nap", n)));
        } else if self.fan == 0 && (count - 1) / 2 < self.turns {
            deltas.extend(call(0, "add", (count - 1) / 2));
        } else {
            let last =
                request.messages.last().and_then(|message| Some(message.tool_results().next()?.to_text()));
            deltas.push(Delta::Text(format!("sum {}", last.as_deref().unwrap_or("?")).into()));
        }
        let reason = if deltas.len() > 1 { FinishReason::ToolCalls } else { FinishReason::Stop };
        deltas.push(Delta::Finish(reason.into()));
        Ok(stream::iter(deltas.into_iter().map(Ok)).boxed())
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Add {
    a: i64,
    b: i64,
}

/// The tools, made once and shared by every agent, as in a program that builds many.
pub(crate) fn tools() -> [Arc<dyn Tool>; 2] {
    [
        Arc::new(typed("add", "Adds.", Access::NONE, |Add { a, b }| async move { Ok(a + b) })),
        Arc::new(typed("nap", "Sleeps.", Access::NONE, |Add { a, .. }| async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(a)
        })),
    ]
}

pub(crate) fn model(turns: usize, fan: usize, tokens: usize) -> Model {
    Model::new(Arc::new(Scripted { turns, fan, tokens }), "bench")
}

pub(crate) fn agent(model: &Model, tools: &[Arc<dyn Tool>]) -> ReactAgent {
    let builder = ReactAgent::builder("bench", model.clone()).instructions("You are a helpful assistant.");
    builder.tools(tools.iter().cloned()).build().unwrap()
}

/// An agent without the default bound of 50 steps, that runs all naps at once.
pub(crate) fn tireless(model: &Model, tools: &[Arc<dyn Tool>]) -> ReactAgent {
    let mut limits = Limits::default();
    limits.steps = 2_000;
    limits.parallel_tools = NonZeroUsize::new(32).unwrap();
    ReactAgent::builder("bench", model.clone()).tools(tools.iter().cloned()).limits(limits).build().unwrap()
}

/// Reads every event, then the outcome. Returns the number of deltas, and the answer.
pub(crate) async fn consume(mut run: RunHandle) -> (usize, String) {
    let mut deltas = 0;
    while let Some(event) = run.next().await {
        if let Event::Delta(delta) = &event.event {
            deltas += 1;
            std::hint::black_box(delta);
        }
    }
    (deltas, run.outcome().await.unwrap().text)
}
