//! The scripted model: calls `add` a number of times, then answers with the last sum.

use std::{iter::once_with, sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage::{
    prelude::*,
    provider::{DeltaStream, FinishReason, Request},
};
use futures::{StreamExt, stream};

#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) calls: usize,
    pub(crate) delay: Duration,
    pub(crate) fan: usize,
    pub(crate) deltas: usize,
}

impl Script {
    pub(crate) fn calls(calls: usize) -> Self {
        Self { calls, delay: Duration::ZERO, fan: 0, deltas: 0 }
    }
}

impl From<Script> for Model {
    fn from(script: Script) -> Self {
        Self::new(Arc::new(script), "bench")
    }
}

fn call(place: u32, name: &str, index: usize) -> [Delta; 2] {
    let arguments = format!("{{\"a\":{index},\"b\":1}}");
    [Delta::tool_call(place, format!("c{index}"), name), Delta::arguments(place, arguments)]
}

#[async_trait]
impl Provider for Script {
    fn name(&self) -> &str {
        "script"
    }

    async fn stream(&self, request: Request, _: &CallContext) -> Result<DeltaStream> {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        if self.deltas > 0 {
            let text = (0..self.deltas).map(|_| Ok(Delta::text("token ")));
            return Ok(stream::iter(text.chain(once_with(|| Ok(Delta::finish(FinishReason::Stop))))).boxed());
        }
        let messages = &request.messages;
        let done = (messages.len() - 1) / 2;
        let mut deltas = Vec::with_capacity(3);
        if self.fan > 0 && messages.len() == 1 {
            (0..self.fan).for_each(|index| deltas.extend(call(index as u32, "nap", index)));
        } else if self.fan > 0 {
            let results: usize = messages.iter().map(|message| message.tool_results().count()).sum();
            deltas.push(Delta::text(format!("n={results}")));
        } else if done < self.calls {
            deltas.extend(call(0, "add", done));
        } else {
            let last = messages.last().and_then(|message| Some(message.tool_results().next()?.to_text()));
            deltas.push(Delta::text(format!("sum={}", last.as_deref().unwrap_or("?"))));
        }
        let reason = if deltas.len() > 1 { FinishReason::ToolCalls } else { FinishReason::Stop };
        deltas.push(Delta::finish(reason));
        Ok(stream::iter(deltas.into_iter().map(Ok)).boxed())
    }
}
