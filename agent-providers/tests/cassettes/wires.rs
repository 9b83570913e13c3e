//! The five wires as the test drives them: bytes → `Decoder` → `Assembler` → message, and a request → `encode` → JSON.
//!
//! Nothing here knows a recording by its name; a service is known by the name in the recording.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorRecord, Result, Usage,
    message::{Arguments, Message, Part, ToolCall},
    provider::{
        CallContext, Delta, DeltaStream, Finish, FinishReason, Layer, Provider, RawCall, Request,
        ResponseInfo, Warning,
    },
};
use entourage_providers::{anthropic_messages, gemini, ollama, openai_chat, openai_responses, vendor};
use entourage_runtime::layers::Check;
use entourage_runtime::reply::Assembler;
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::Value;

/// One of the wires; chat completions in the dialect of the recorded service.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Wire {
    Chat(openai_chat::Dialect),
    Responses,
    Messages,
    Gemini,
    Ollama,
}

/// The common interface of all decoders.
trait Decoding {
    fn push(&mut self, bytes: &[u8]);
    fn finish(&mut self);
    fn pop(&mut self) -> Option<Result<Delta>>;
    fn is_done(&self) -> bool;
}

macro_rules! decoding {
    ($($decoder:path),*) => {
        $(impl Decoding for $decoder {
            fn push(&mut self, bytes: &[u8]) {
                self.push(bytes);
            }
            fn finish(&mut self) {
                self.finish();
            }
            fn pop(&mut self) -> Option<Result<Delta>> {
                self.pop()
            }
            fn is_done(&self) -> bool {
                self.is_done()
            }
        })*
    };
}

decoding!(
    anthropic_messages::AnthropicMessagesDecoder,
    gemini::GeminiDecoder,
    ollama::OllamaDecoder,
    openai_chat::OpenAiChatDecoder,
    openai_responses::OpenAiResponsesDecoder
);

impl Wire {
    /// The wire that a recording calls `protocol`, in the dialect of the service called `provider` there.
    pub(crate) fn named(protocol: &str, provider: &str) -> Self {
        match protocol {
            "openai-chat" => Self::Chat(dialect(provider)),
            "openai-responses" => Self::Responses,
            "anthropic-messages" => Self::Messages,
            "gemini" => Self::Gemini,
            "ollama" => Self::Ollama,
            other => panic!("no wire is called {other}"),
        }
    }

    pub(crate) fn refusal(self, status: u16, body: &[u8]) -> Error {
        match self {
            Self::Chat(_) => openai_chat::OpenAiChatDecoder::refusal(status, body),
            Self::Responses => openai_responses::OpenAiResponsesDecoder::refusal(status, body),
            Self::Messages => anthropic_messages::AnthropicMessagesDecoder::refusal(status, body),
            Self::Gemini => gemini::GeminiDecoder::refusal(status, body),
            Self::Ollama => ollama::OllamaDecoder::refusal(status, body),
        }
    }

    pub(crate) fn encode(self, request: &Request) -> Value {
        let bytes = match self {
            Self::Chat(dialect) => openai_chat::encode(request, dialect),
            Self::Responses => openai_responses::encode(request),
            Self::Messages => anthropic_messages::encode(request),
            Self::Gemini => gemini::encode(request),
            Self::Ollama => ollama::encode(request),
        };
        serde_json::from_slice(&bytes).unwrap()
    }

    /// Decodes bytes that come in these pieces.
    fn deltas<'a>(self, pieces: impl IntoIterator<Item = &'a [u8]>, each: &mut impl FnMut(Result<Delta>)) {
        match self {
            Self::Chat(dialect) => drive(openai_chat::OpenAiChatDecoder::new(dialect), pieces, each),
            Self::Responses => drive(openai_responses::OpenAiResponsesDecoder::new(), pieces, each),
            Self::Messages => drive(anthropic_messages::AnthropicMessagesDecoder::new(), pieces, each),
            Self::Gemini => drive(gemini::GeminiDecoder::new(), pieces, each),
            Self::Ollama => drive(ollama::OllamaDecoder::new(), pieces, each),
        }
    }

    /// The finished reply. Decoding continues after an error, as decoders promise: facts about a failed reply may
    /// follow.
    pub(crate) fn decode<'a>(self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Reply {
        let mut folding = Folding::default();
        self.deltas(pieces, &mut |item| folding.take(item));
        folding.end()
    }

    /// The violation of the contract of streams, as the core's own check reports it. Nothing is read after an error,
    /// as on a connection.
    pub(crate) fn broken<'a>(self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Option<String> {
        let mut items = Vec::new();
        self.deltas(pieces, &mut |item| {
            if !items.last().is_some_and(Result::is_err) {
                items.push(item);
            }
        });
        let own = items.last().and_then(|last| last.as_ref().err()).map(Error::record);
        let given: Arc<dyn Provider> = Arc::new(Given(Mutex::new(items)));
        let request = Request::new("m", [Message::user("x")].into_iter().collect());
        let cx = CallContext::new();
        let mut stream = Check::new().layer(given).stream(request, &cx).now_or_never()?.ok()?;
        while let Some(item) = stream.next().now_or_never()? {
            if let Err(error) = item
                && own.as_ref() != Some(&error.record())
                && error.message() != Assembler::cut_off().message()
            {
                return Some(error.message().to_owned());
            }
        }
        None
    }
}

/// The dialect of the recorded service, as a user gets it by name.
fn dialect(provider: &str) -> openai_chat::Dialect {
    let name = match provider {
        "azure-openai" => "azure",
        other => other,
    };
    vendor::named(name).and_then(vendor::Vendor::dialect).unwrap_or(openai_chat::Dialect::COMMON)
}

/// Drives a decoder as a connection does: nothing is read after the end.
fn drive<'a>(
    mut decoder: impl Decoding,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    each: &mut impl FnMut(Result<Delta>),
) {
    for piece in pieces {
        decoder.push(piece);
        std::iter::from_fn(|| decoder.pop()).for_each(&mut *each);
        if decoder.is_done() {
            return;
        }
    }
    decoder.finish();
    std::iter::from_fn(|| decoder.pop()).for_each(each);
}

/// A provider that yields the given items, once.
#[derive(Debug)]
struct Given(Mutex<Vec<Result<Delta>>>);

#[async_trait]
impl Provider for Given {
    fn name(&self) -> &str {
        "given"
    }

    async fn stream(&self, _: Request, _: &CallContext) -> Result<DeltaStream> {
        let items = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Box::pin(stream::iter(items)))
    }
}

/// A reply as users get it.
#[derive(Debug, PartialEq)]
pub(crate) struct Reply {
    pub(crate) message: Message,
    pub(crate) finish: Option<Finish>,
    pub(crate) usage: Usage,
    pub(crate) info: ResponseInfo,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) error: Option<ErrorRecord>,
    /// The HTTP status in the error.
    status: Option<u16>,
    /// The calls, unmodified.
    calls: Vec<RawCall>,
}

#[derive(Default)]
struct Folding {
    assembler: Assembler,
    error: Option<Error>,
}

impl Folding {
    fn take(&mut self, item: Result<Delta>) {
        let taken = item.and_then(|delta| self.assembler.push(&delta));
        if let Err(error) = taken {
            self.error.get_or_insert(error);
        }
    }

    fn end(self) -> Reply {
        let Self { assembler, error } = self;
        let finished = assembler.is_finished();
        let error = error.or_else(|| (!finished).then(Assembler::cut_off));
        let whole = if finished { assembler.finish().unwrap() } else { assembler.abort(FinishReason::Error) };
        let (finish, usage, info, warnings) =
            (whole.finish.clone(), whole.usage, whole.info.clone(), whole.warnings.clone());
        let mut calls = Vec::new();
        let message = whole.clone().into_message();
        whole.into_message_with(|raw| {
            let call = ToolCall::new(
                Arc::clone(&raw.id),
                Arc::clone(&raw.name),
                Arguments::from(&serde_json::json!({})),
            );
            calls.push(raw);
            call
        });
        Reply {
            finish: finished.then_some(finish),
            usage,
            info,
            warnings,
            status: error.as_ref().and_then(named_status),
            error: error.map(|error| error.record()),
            message,
            calls,
        }
    }
}

fn named_status(error: &Error) -> Option<u16> {
    error.context().find(|(name, _)| *name == "status")?.1.parse().ok()
}

impl Reply {
    /// The result of a refused request.
    pub(crate) fn refused(error: &Error) -> Self {
        Self { error: Some(error.record()), status: named_status(error), ..Folding::default().end() }
    }

    fn joined(&self, pick: impl Fn(&Part) -> Option<&str>) -> String {
        self.message.parts().iter().filter_map(pick).collect()
    }

    /// The reply in the form of `compare_cassettes.py`, without the line's id. An error inside a stream has the
    /// stream's status.
    pub(crate) fn line(&self, status: u16) -> Value {
        let text = self.message.text();
        let reasoning = self.joined(|part| match part {
            Part::Reasoning(reasoning) => Some(&reasoning.text),
            _ => None,
        });
        let refusal = self.joined(|part| match part {
            Part::Refusal(text) => Some(text),
            _ => None,
        });
        let signatures: Vec<_> = self
            .message
            .parts()
            .iter()
            .filter_map(|part| match part {
                Part::Reasoning(reasoning) => Some(reasoning.signature.as_deref()?.data.as_str()),
                _ => None,
            })
            .filter(|data| !data.is_empty())
            .collect();
        let calls: Vec<_> = self.calls.iter().zip(self.message.tool_calls()).map(call).collect();
        let error = self.error.as_ref().map(
            |error| serde_json::json!({"status": self.status.unwrap_or(status), "message": error.message}),
        );
        let usage = &self.usage;
        serde_json::json!({
            "text": text, "reasoning": reasoning, "refusal": refusal, "tool_calls": calls, "signatures": signatures,
            "usage": {"input": usage.input, "output": usage.output, "cache_read": usage.cache_read,
                      "cache_write": usage.cache_write, "reasoning": usage.reasoning},
            "finish": self.finish.as_ref().and_then(|finish| finish.raw.as_deref()),
            "error": error,
        })
    }
}

/// A call, with properties that the message cannot express: an empty name, and arguments that are not an object or
/// were repaired.
fn call((raw, call): (&RawCall, &ToolCall)) -> Value {
    let mut arguments = serde_json::from_str(&raw.arguments).ok();
    if raw.arguments.trim().is_empty() || arguments.as_ref().is_some_and(Value::is_object) {
        arguments = Some(call.arguments.to_value());
    }
    serde_json::json!({"name": (!raw.name.is_empty()).then_some(&*call.name), "arguments": arguments})
}
