//! The scripted model: calls `add` a number of times, then answers with the last sum.

use std::{iter::once_with, time::Duration};

use adk_core::{
    Content, FunctionResponseData, Llm, LlmRequest, LlmResponse, LlmResponseStream, Part, Result,
};
use async_trait::async_trait;
use futures::stream;
use serde_json::json;

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

fn call(index: usize, name: &str) -> Part {
    let (name, args) = (name.into(), json!({"a": index, "b": 1}));
    Part::FunctionCall { name, args, id: Some(format!("c{index}")), thought_signature: None }
}

fn calling(parts: Vec<Part>) -> Content {
    let mut content = Content::new("model");
    content.parts = parts;
    content
}

fn sum_in(part: &Part) -> Option<String> {
    match part {
        Part::FunctionResponse { function_response: FunctionResponseData { response, .. }, .. } => {
            Some(response["sum"].to_string())
        }
        _ => None,
    }
}

impl Script {
    fn answer(&self, request: &LlmRequest) -> Content {
        let messages = &request.contents;
        let done = (messages.len() - 1) / 2;
        let parts = messages.iter().flat_map(|content| &content.parts);
        match messages.len() {
            1 if self.fan > 0 => calling((0..self.fan).map(|index| call(index, "nap")).collect()),
            _ if self.fan > 0 => {
                let results = parts.filter(|part| matches!(part, Part::FunctionResponse { .. })).count();
                Content::new("model").with_text(format!("n={results}"))
            }
            _ if done < self.calls => calling(vec![call(done, "add")]),
            len => {
                let last = messages[len - 1].parts.iter().find_map(sum_in);
                Content::new("model").with_text(format!("sum={}", last.as_deref().unwrap_or("?")))
            }
        }
    }
}

#[async_trait]
impl Llm for Script {
    fn name(&self) -> &str {
        "script"
    }

    async fn generate_content(&self, request: LlmRequest, _: bool) -> Result<LlmResponseStream> {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        if self.deltas > 0 {
            let delta = |_| {
                let mut response = LlmResponse::new(Content::new("model").with_text("token "));
                response.partial = true;
                response.turn_complete = false;
                response.finish_reason = None;
                Ok(response)
            };
            let end = once_with(|| Ok(LlmResponse::new(Content::new("model"))));
            return Ok(Box::pin(stream::iter((0..self.deltas).map(delta).chain(end))));
        }
        let content = self.answer(&request);
        Ok(Box::pin(stream::once(async move { Ok(LlmResponse::new(content)) })))
    }
}
