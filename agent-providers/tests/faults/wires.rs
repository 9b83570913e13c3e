//! The replies of a well-behaved service on each wire, piece by piece, so that faults can be put anywhere.

use std::sync::Arc;

use bytes::Bytes;
use entourage_core::{
    Result,
    provider::{Delta, Provider},
};
use entourage_providers::{
    anthropic_messages::{self, AnthropicMessages},
    gemini::{self, Gemini},
    ollama::{self, Ollama},
    openai_chat::{self, OpenAiChat},
    openai_responses::{self, OpenAiResponses},
};
use hyper::body::Body;
use serde_json::json;

/// Secrets that every provider here holds and no error may show.
pub(crate) const KEY: &str = "sk-very-secret";
pub(crate) const HEADER: &str = "team-very-secret";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    Chat,
    Responses,
    Messages,
    Gemini,
    Ollama,
}

pub(crate) use Wire::{Chat, Messages, Ollama as OllamaChat, Responses};

pub(crate) const WIRES: [Wire; 5] = [Chat, Responses, Messages, Wire::Gemini, Wire::Ollama];

macro_rules! build {
    ($builder:expr, $url:expr, $key:expr) => {{
        let builder = $builder.base_url($url).vendor_name("test");
        let builder = if $key { builder.api_key(KEY).header("x-team", HEADER) } else { builder };
        Arc::new(builder.build().unwrap())
    }};
}

impl Wire {
    /// Decodes a stream that is cut where the pieces end.
    pub(crate) fn decode<'a>(self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Result<Delta>> {
        macro_rules! all {
            ($decoder:expr) => {{
                let mut decoder = $decoder;
                let mut all = Vec::new();
                for piece in pieces {
                    decoder.push(piece);
                    all.extend(std::iter::from_fn(|| decoder.pop()));
                }
                decoder.finish();
                all.extend(std::iter::from_fn(|| decoder.pop()));
                all
            }};
        }
        match self {
            Self::Chat => all!(openai_chat::OpenAiChatDecoder::new(openai_chat::Dialect::COMMON)),
            Self::Responses => all!(openai_responses::OpenAiResponsesDecoder::new()),
            Self::Messages => all!(anthropic_messages::AnthropicMessagesDecoder::new()),
            Self::Gemini => all!(gemini::GeminiDecoder::new()),
            Self::Ollama => all!(ollama::OllamaDecoder::new()),
        }
    }

    pub(crate) fn provider(self, url: &str) -> Arc<dyn Provider> {
        self.build(url, true)
    }

    /// A provider whose calls `client` takes.
    pub(crate) fn asking<R, B, E>(
        self,
        url: &str,
        client: impl Fn(http::Request<Bytes>) -> R + Send + Sync + 'static,
    ) -> Arc<dyn Provider>
    where
        R: Future<Output = std::result::Result<http::Response<B>, E>> + Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        match self {
            Chat => build!(OpenAiChat::builder().http_client(client), url, true),
            Responses => build!(OpenAiResponses::builder().http_client(client), url, true),
            Messages => build!(AnthropicMessages::builder().http_client(client), url, true),
            Self::Gemini => build!(Gemini::builder().http_client(client), url, true),
            Self::Ollama => build!(Ollama::builder().http_client(client), url, true),
        }
    }

    pub(crate) fn without_key(self, url: &str) -> Arc<dyn Provider> {
        self.build(url, false)
    }

    fn build(self, url: &str, key: bool) -> Arc<dyn Provider> {
        match self {
            Chat => build!(OpenAiChat::builder(), url, key),
            Responses => build!(OpenAiResponses::builder(), url, key),
            Messages => build!(AnthropicMessages::builder(), url, key),
            Self::Gemini => build!(Gemini::builder(), url, key),
            Self::Ollama => build!(Ollama::builder(), url, key),
        }
    }

    /// The first line of a request below `/v1`.
    pub(crate) fn request_line(self) -> &'static str {
        match self {
            Chat => "post /v1/chat/completions http/1.1\r\n",
            Responses => "post /v1/responses http/1.1\r\n",
            Messages => "post /v1/messages http/1.1\r\n",
            Self::Gemini => "post /v1/models/m:streamgeneratecontent?alt=sse http/1.1\r\n",
            Self::Ollama => "post /v1/api/chat http/1.1\r\n",
        }
    }

    /// The header that carries the key, in lower case.
    pub(crate) fn key_header(self) -> String {
        match self {
            Messages => format!("x-api-key: {KEY}"),
            Self::Gemini => format!("x-goog-api-key: {KEY}"),
            Chat | Responses | Self::Ollama => format!("authorization: bearer {KEY}"),
        }
    }

    /// The list of models that holds one called `qwen3`, if the wire has such a list.
    pub(crate) fn models(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Gemini => None,
            Self::Ollama => Some(("GET /v1/api/tags ", r#"{"models":[{"name":"qwen3","model":"qwen3"}]}"#)),
            Chat | Responses | Messages => Some(("GET /v1/models ", r#"{"data":[{"id":"qwen3"}]}"#)),
        }
    }

    /// The start of a stream, without content.
    pub(crate) fn open(self) -> String {
        match self {
            Responses => {
                self.frame(r#"{"type":"response.created","response":{"id":"r","model":"m"}}"#)
                    + &self.frame(r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"i"}}"#)
            }
            Messages => {
                self.frame(r#"{"type":"message_start","message":{"id":"r","model":"m","content":[],"usage":{"input_tokens":9}}}"#)
                    + &self.frame(r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#)
            }
            Chat | Self::Gemini | Self::Ollama => String::new(),
        }
    }

    /// A piece of text.
    pub(crate) fn say(self, text: &str) -> String {
        let text = json!(text);
        self.frame(&match self {
            Chat => format!(r#"{{"choices":[{{"delta":{{"content":{text}}}}}]}}"#),
            Responses => {
                format!(r#"{{"type":"response.output_text.delta","output_index":0,"delta":{text}}}"#)
            }
            Messages => format!(
                r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":{text}}}}}"#
            ),
            Self::Gemini => format!(r#"{{"candidates":[{{"content":{{"parts":[{{"text":{text}}}]}}}}]}}"#),
            Self::Ollama => format!(r#"{{"model":"m","message":{{"content":{text}}},"done":false}}"#),
        })
    }

    /// Tool call number `index` of the reply, with this text as arguments: any text if the wire sends text, JSON if it
    /// sends JSON.
    pub(crate) fn call(self, index: usize, arguments: &str) -> String {
        let text = json!(arguments);
        let at = index + 1;
        match self {
            Chat => self.frame(&format!(
                r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":{index},"id":"c{index}","function":{{"name":"f","arguments":{text}}}}}]}}}}]}}"#
            )),
            Responses => {
                self.frame(&format!(r#"{{"type":"response.output_item.added","output_index":{at},"item":{{"type":"function_call","call_id":"c{index}","name":"f"}}}}"#))
                    + &self.arguments(index, arguments)
            }
            Messages => {
                self.frame(&format!(r#"{{"type":"content_block_start","index":{at},"content_block":{{"type":"tool_use","id":"c{index}","name":"f","input":{{}}}}}}"#))
                    + &self.arguments(index, arguments)
            }
            Self::Gemini => self.frame(&format!(
                r#"{{"candidates":[{{"content":{{"parts":[{{"functionCall":{{"name":"f","args":{arguments}}}}}]}}}}]}}"#
            )),
            Self::Ollama => self.frame(&format!(
                r#"{{"message":{{"tool_calls":[{{"function":{{"name":"f","arguments":{arguments}}}}}]}},"done":false}}"#
            )),
        }
    }

    /// True if arguments come in pieces.
    pub(crate) fn cuts_arguments(self) -> bool {
        matches!(self, Chat | Responses | Messages)
    }

    /// More arguments of call number `index`, on wires that cut them.
    pub(crate) fn arguments(self, index: usize, piece: &str) -> String {
        let (text, at) = (json!(piece), index + 1);
        match self {
            Chat => self.frame(&format!(
                r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":{index},"function":{{"arguments":{text}}}}}]}}}}]}}"#
            )),
            Responses => self.frame(&format!(
                r#"{{"type":"response.function_call_arguments.delta","output_index":{at},"delta":{text}}}"#
            )),
            Messages => self.frame(&format!(
                r#"{{"type":"content_block_delta","index":{at},"delta":{{"type":"input_json_delta","partial_json":{text}}}}}"#
            )),
            Self::Gemini | Self::Ollama => String::new(),
        }
    }

    /// The finish reason, on wires that send it before the end.
    pub(crate) fn reason(self) -> Option<String> {
        match self {
            Chat => Some(self.frame(r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#)),
            Messages => Some(self.frame(r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#)),
            Self::Gemini => Some(self.frame(r#"{"candidates":[{"finishReason":"STOP"}]}"#)),
            Responses | Self::Ollama => None,
        }
    }

    /// The end of a stream.
    pub(crate) fn close(self) -> String {
        self.close_having_used("9", "2")
    }

    /// The end of a stream with these token counts.
    pub(crate) fn close_having_used(self, input: &str, output: &str) -> String {
        match self {
            Chat => {
                self.reason().unwrap()
                    + &self.frame(&format!(
                        r#"{{"choices":[],"usage":{{"prompt_tokens":{input},"completion_tokens":{output}}}}}"#
                    ))
                    + &self.frame("[DONE]")
            }
            Responses => self.frame(&format!(
                r#"{{"type":"response.completed","response":{{"status":"completed","usage":{{"input_tokens":{input},"output_tokens":{output}}}}}}}"#
            )),
            Messages => {
                self.frame(r#"{"type":"content_block_stop","index":0}"#)
                    + &self.frame(&format!(
                        r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{{"input_tokens":{input},"output_tokens":{output}}}}}"#
                    ))
                    + &self.frame(r#"{"type":"message_stop"}"#)
            }
            Self::Gemini => self.frame(&format!(
                r#"{{"candidates":[{{"finishReason":"STOP"}}],"usageMetadata":{{"promptTokenCount":{input},"candidatesTokenCount":{output}}}}}"#
            )),
            Self::Ollama => self.frame(&format!(
                r#"{{"message":{{"content":""}},"done":true,"done_reason":"stop","prompt_eval_count":{input},"eval_count":{output}}}"#
            )),
        }
    }

    /// A whole reply that was not streamed.
    pub(crate) fn whole(self) -> &'static str {
        match self {
            Chat => r#"{"choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}]}"#,
            Responses => {
                r#"{"object":"response","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"Hello"}]}]}"#
            }
            Messages => {
                r#"{"type":"message","content":[{"type":"text","text":"Hello"}],"stop_reason":"end_turn"}"#
            }
            Self::Gemini => {
                r#"{"candidates":[{"content":{"parts":[{"text":"Hello"}]},"finishReason":"STOP"}]}"#
            }
            Self::Ollama => r#"{"message":{"content":"Hello"},"done":true,"done_reason":"stop"}"#,
        }
    }

    /// The body of a refusal for too many requests, in the wire's own words.
    pub(crate) fn refusal(self, message: &str) -> String {
        let message = json!(message);
        match self {
            Chat | Responses => format!(
                r#"{{"error":{{"message":{message},"type":"requests","code":"rate_limit_exceeded"}}}}"#
            ),
            Messages => {
                format!(r#"{{"type":"error","error":{{"type":"rate_limit_error","message":{message}}}}}"#)
            }
            Self::Gemini => {
                format!(r#"{{"error":{{"code":429,"message":{message},"status":"RESOURCE_EXHAUSTED"}}}}"#)
            }
            Self::Ollama => format!(r#"{{"error":{message}}}"#),
        }
    }

    /// The same refusal inside a stream that has begun.
    pub(crate) fn failure(self, message: &str) -> String {
        let body = self.refusal(message);
        match self {
            Responses => {
                let error = body.strip_prefix('{').unwrap().strip_suffix('}').unwrap();
                self.frame(&format!(
                    r#"{{"type":"response.failed","response":{{"status":"failed",{error}}}}}"#
                ))
            }
            Chat | Messages | Self::Gemini | Self::Ollama => self.frame(&body),
        }
    }

    /// One frame of a stream, as the wire's own service cuts it.
    pub(crate) fn frame(self, data: &str) -> String {
        match self {
            Chat => format!("data: {data}\n\n"),
            Responses | Messages => {
                let kind: serde_json::Value = serde_json::from_str(data).unwrap_or_default();
                format!("event: {}\ndata: {data}\n\n", kind["type"].as_str().unwrap_or("message"))
            }
            Self::Gemini => format!("data: {data}\r\n\r\n"),
            Self::Ollama => format!("{data}\n"),
        }
    }

    /// The start of a frame that never ends.
    pub(crate) fn endless(self) -> &'static str {
        if self == Self::Ollama { r#"{"message":{"content":""# } else { "data: " }
    }

    /// About 64 KiB of data that a service may send to keep a connection alive.
    pub(crate) fn keep_alive(self) -> String {
        if self == Self::Ollama {
            format!("{}\n", " ".repeat(65_535))
        } else {
            format!(": {}\n\n", "k".repeat(65_532))
        }
    }

    /// The reply of [`Wire::good`] over a connection that stays open.
    pub(crate) fn good_and_open(self) -> String {
        let body = [self.open(), self.say("Hello"), self.close()].concat();
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
    }

    /// Head, text and end of a stream.
    pub(crate) fn good(self) -> String {
        [STREAM, &self.open(), &self.say("Hello"), &self.close()].concat()
    }
}

/// The head of a stream that ends with the connection.
pub(crate) const STREAM: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
