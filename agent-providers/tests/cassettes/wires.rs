//! The five wires as the test drives them: bytes → `Decoder` → `Assembler` → message, and a request → `encode` → JSON.
//!
//! Nothing here knows a recording by its name; a service is known by the name that the recording gives it.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorRecord, Result, Usage,
    layers::{Check, Layer},
    message::{Message, Part},
    provider::{
        Assembler, CallContext, Delta, DeltaStream, Finish, FinishReason, Provider, Request, ResponseInfo,
        Warning,
    },
};
use entourage_providers::{anthropic_messages, gemini, ollama, openai_chat, openai_responses, vendor};
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::Value;

/// One of the wires; chat completions with the habits of the service that was recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wire {
    Chat(openai_chat::Dialect),
    Responses,
    Messages,
    Gemini,
    Ollama,
}

/// What all decoders have in common.
trait Decoding {
    fn push(&mut self, bytes: &[u8]);
    fn finish(&mut self);
    fn pop(&mut self) -> Option<Result<Delta>>;
    fn is_done(&self) -> bool;
}

macro_rules! decoding {
    ($($wire:ident),*) => {
        $(impl Decoding for $wire::Decoder {
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

decoding!(openai_chat, openai_responses, anthropic_messages, gemini, ollama);

impl Wire {
    /// The wire that a recording calls `protocol`, as the service called `provider` there speaks it.
    pub fn named(protocol: &str, provider: &str) -> Self {
        match protocol {
            "openai-chat" => Self::Chat(dialect(provider)),
            "openai-responses" => Self::Responses,
            "anthropic-messages" => Self::Messages,
            "gemini" => Self::Gemini,
            "ollama" => Self::Ollama,
            other => panic!("no wire is called {other}"),
        }
    }

    pub fn refusal(self, status: u16, body: &[u8]) -> Error {
        match self {
            Self::Chat(_) => openai_chat::Decoder::refusal(status, body),
            Self::Responses => openai_responses::Decoder::refusal(status, body),
            Self::Messages => anthropic_messages::Decoder::refusal(status, body),
            Self::Gemini => gemini::Decoder::refusal(status, body),
            Self::Ollama => ollama::Decoder::refusal(status, body),
        }
    }

    pub fn encode(self, request: &Request) -> Value {
        let bytes = match self {
            Self::Chat(dialect) => openai_chat::encode(request, dialect),
            Self::Responses => openai_responses::encode(request),
            Self::Messages => anthropic_messages::encode(request),
            Self::Gemini => gemini::encode(request),
            Self::Ollama => ollama::encode(request),
        };
        serde_json::from_slice(&bytes).unwrap()
    }

    /// What a reader of the stream gets when the bytes come in these pieces: the connection is read no further after
    /// an error, nor after the end.
    fn deltas<'a>(self, pieces: impl IntoIterator<Item = &'a [u8]>, each: &mut impl FnMut(Result<Delta>)) {
        match self {
            Self::Chat(dialect) => drive(openai_chat::Decoder::new(dialect), pieces, each),
            Self::Responses => drive(openai_responses::Decoder::new(), pieces, each),
            Self::Messages => drive(anthropic_messages::Decoder::new(), pieces, each),
            Self::Gemini => drive(gemini::Decoder::new(), pieces, each),
            Self::Ollama => drive(ollama::Decoder::new(), pieces, each),
        }
    }

    /// The finished reply.
    pub fn decode<'a>(self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Reply {
        let mut folding = Folding::default();
        self.deltas(pieces, &mut |item| folding.take(item));
        folding.end()
    }

    /// The same through the core's own check of the contract, which turns what a stream must not do into an error.
    pub fn decode_checked<'a>(self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Reply {
        let mut items = Vec::new();
        self.deltas(pieces, &mut |item| items.push(item));
        let given: Arc<dyn Provider> = Arc::new(Given(Mutex::new(items)));
        let checked = Check::new().layer(given);
        let request = Request::new("m", [Message::user("x")].into_iter().collect());
        let cx = CallContext::new();
        let mut stream = checked.stream(request, &cx).now_or_never().unwrap().unwrap();
        let mut folding = Folding::default();
        while let Some(item) = stream.next().now_or_never().unwrap() {
            folding.take(item);
        }
        folding.end()
    }
}

/// The habits of the recorded service, as users get them who name it.
fn dialect(provider: &str) -> openai_chat::Dialect {
    let name = match provider {
        "azure-openai" => "azure",
        other => other,
    };
    vendor::named(name).and_then(vendor::Vendor::dialect).unwrap_or(openai_chat::Dialect::COMMON)
}

fn drive<'a>(
    mut decoder: impl Decoding,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    each: &mut impl FnMut(Result<Delta>),
) {
    let mut drain = |decoder: &mut dyn Decoding| {
        while let Some(item) = decoder.pop() {
            let failed = item.is_err();
            each(item);
            if failed {
                return true;
            }
        }
        false
    };
    for piece in pieces {
        decoder.push(piece);
        if drain(&mut decoder) || decoder.is_done() {
            return;
        }
    }
    decoder.finish();
    drain(&mut decoder);
}

/// A service that says what it is given, once.
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
pub struct Reply {
    pub message: Message,
    pub finish: Option<Finish>,
    pub usage: Usage,
    pub info: ResponseInfo,
    pub warnings: Vec<Warning>,
    pub error: Option<ErrorRecord>,
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
        let whole =
            if finished { assembler.finish().unwrap() } else { assembler.abort(FinishReason::Error) };
        Reply {
            finish: finished.then(|| whole.finish.clone()),
            usage: whole.usage,
            info: whole.info.clone(),
            warnings: whole.warnings.clone(),
            error: error.map(|error| error.record()),
            message: whole.into_message(),
        }
    }
}

impl Reply {
    /// A request that was refused.
    pub fn refused(error: &Error) -> Self {
        let Reply { message, finish, usage, info, warnings, .. } = Folding::default().end();
        Self { message, finish, usage, info, warnings, error: Some(error.record()) }
    }

    fn joined(&self, pick: impl Fn(&Part) -> Option<&str>) -> String {
        self.message.parts().iter().filter_map(pick).collect()
    }

    /// The reply as `compare_cassettes.py` wants it, without the line's id.
    pub fn line(&self, status: u16) -> Value {
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
        let calls: Vec<_> = self
            .message
            .tool_calls()
            .map(|call| {
                let arguments = call.malformed.is_none().then(|| call.arguments.to_value());
                serde_json::json!({"name": &*call.name, "arguments": arguments})
            })
            .collect();
        let error = self.error.as_ref().map(|error| {
            serde_json::json!({"status": status, "message": error.message})
        });
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
