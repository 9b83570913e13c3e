//! The scripted model: calls `add` a number of times, then answers with the last sum.

use std::{fmt, pin::Pin, time::Duration};

use async_trait::async_trait;
use autoagents::llm::{
    FunctionCall, LLMProvider, ToolCall,
    chat::{ChatMessage, ChatProvider, ChatResponse, MessageType, StreamChunk, StructuredOutputFormat, Tool},
    completion::{CompletionProvider, CompletionRequest, CompletionResponse},
    embedding::EmbeddingProvider,
    error::LLMError,
    models::ModelsProvider,
};
use futures::{Stream, stream};

pub(crate) struct Script {
    pub(crate) calls: usize,
    pub(crate) delay: Duration,
    pub(crate) fan: usize,
}

#[derive(Debug)]
struct Reply(Option<String>, Vec<ToolCall>);

impl fmt::Display for Reply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.0)
    }
}

impl ChatResponse for Reply {
    fn text(&self) -> Option<String> {
        self.0.clone()
    }

    fn tool_calls(&self) -> Option<Vec<ToolCall>> {
        Some(self.1.clone()).filter(|calls| !calls.is_empty())
    }
}

fn call(index: usize, name: &str) -> ToolCall {
    let function = FunctionCall { name: name.into(), arguments: format!("{{\"a\":{index},\"b\":1}}") };
    ToolCall { id: format!("c{index}"), call_type: "function".into(), function }
}

fn results(messages: &[ChatMessage]) -> impl Iterator<Item = &ToolCall> {
    let results = messages.iter().filter_map(|message| match &message.message_type {
        MessageType::ToolResult(results) => Some(results),
        _ => None,
    });
    results.flatten()
}

#[async_trait]
impl ChatProvider for Script {
    async fn chat_with_tools(
        &self,
        messages: &[ChatMessage],
        _: Option<&[Tool]>,
        _: Option<StructuredOutputFormat>,
    ) -> Result<Box<dyn ChatResponse>, LLMError> {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        let done = (messages.len() - 2) / 2;
        let reply = match messages.len() {
            2 if self.fan > 0 => Reply(None, (0..self.fan).map(|index| call(index, "nap")).collect()),
            _ if self.fan > 0 => Reply(Some(format!("n={}", results(messages).count())), Vec::new()),
            _ if done < self.calls => Reply(None, vec![call(done, "add")]),
            len => {
                let last = results(&messages[len - 1..]).next().map(|result| &*result.function.arguments);
                Reply(Some(format!("sum={}", last.unwrap_or("?"))), Vec::new())
            }
        };
        Ok(Box::new(reply))
    }

    async fn chat_stream_with_tools(
        &self,
        _: &[ChatMessage],
        _: Option<&[Tool]>,
        _: Option<StructuredOutputFormat>,
    ) -> Result<Pin<Box<dyn Stream<Item = Result<StreamChunk, LLMError>> + Send>>, LLMError> {
        let text = (0..self.calls).map(|_| Ok(StreamChunk::Text(String::from("token "))));
        Ok(Box::pin(stream::iter(text.chain([Ok(StreamChunk::Done { stop_reason: "end_turn".into() })]))))
    }
}

#[async_trait]
impl CompletionProvider for Script {
    async fn complete(
        &self,
        _: &CompletionRequest,
        _: Option<StructuredOutputFormat>,
    ) -> Result<CompletionResponse, LLMError> {
        unreachable!("a chat model")
    }
}

#[async_trait]
impl EmbeddingProvider for Script {
    async fn embed(&self, _: Vec<String>) -> Result<Vec<Vec<f32>>, LLMError> {
        unreachable!("a chat model")
    }
}

#[async_trait]
impl ModelsProvider for Script {}

impl LLMProvider for Script {}
