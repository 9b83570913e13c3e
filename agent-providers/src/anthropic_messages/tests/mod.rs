//! Tables of requests and replies, without a connection.

mod conversation;
mod decode;
mod encode;
mod settings;

use entourage_core::{
    message::{Arguments, Message, ToolCall},
    provider::{Params, Request, Warning},
};
use serde_json::{Value, json};

use super::{AnthropicMessagesDecoder, encode::encode_with_tools, tools};

fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall::new(id, name, Arguments::parse(arguments).unwrap())
}

/// A request of one message.
fn asked(model: &str, change: impl FnOnce(&mut Params)) -> Request {
    let mut params = Params::default();
    change(&mut params);
    Request::new(model, [Message::user("Hi")].into_iter().collect()).with_params(params)
}

fn encoded(request: &Request) -> (Value, Vec<Warning>) {
    let strict = request.params.strict_tools == Some(true);
    let tools = tools::encode(&request.tools, strict);
    let encoded = encode_with_tools(request, &tools, "anthropic");
    (serde_json::from_slice(&encoded.body).unwrap(), encoded.warnings)
}

/// The body, and the subjects of the warnings.
fn body(request: &Request) -> (Value, Vec<String>) {
    let (body, warnings) = encoded(request);
    (body, warnings.into_iter().map(|warning| warning.subject.into()).collect())
}

fn hello() -> Value {
    json!([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}])
}
