//! The messages of a client over pipes, one a line.
//!
//! rmcp leaves JSON that it cannot read without an answer, so a client would wait for one.

use std::mem;

use rmcp::{
    ErrorData, RoleServer,
    model::{JsonRpcMessage, RequestId, ServerJsonRpcMessage},
    service::RxJsonRpcMessage,
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// The lines of an input, without those that are too long.
pub(crate) struct Lines<R> {
    read: BufReader<R>,
    line: Vec<u8>,
    most: usize,
    /// True while the rest of a line is skipped.
    skips: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// `most` is in bytes, with the end of the line.
    pub(crate) fn new(read: R, most: usize) -> Self {
        Self { read: BufReader::new(read), line: Vec::new(), most, skips: false }
    }

    /// Returns the next line; `None` at the end, also of an input that fails. May be dropped at any time.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            let there = self.read.fill_buf().await.ok()?;
            let Some(part) = there.split_inclusive(|byte| *byte == b'\n').next() else {
                // The last line may lack its end. What was cut off is no JSON, and gets no answer.
                let rest = mem::take(&mut self.line);
                return (!rest.is_empty()).then_some(rest);
            };
            let (taken, is_end) = (part.len(), part.ends_with(b"\n"));
            if self.skips || self.line.len().saturating_add(taken) > self.most {
                self.line = Vec::new();
                self.skips = !is_end;
                self.read.consume(taken);
                continue;
            }
            self.line.extend_from_slice(part);
            self.read.consume(taken);
            if is_end {
                return Some(mem::take(&mut self.line));
            }
        }
    }
}

/// What an answer needs of a message that cannot be read.
#[derive(Deserialize)]
struct Outline {
    id: Option<RequestId>,
    method: Option<IgnoredAny>,
}

/// Reads a line. `None` for one that gets no answer: a notification that is not known, and what is no JSON. A client
/// that sends back what it cannot read would never end.
///
/// # Errors
/// The answer to JSON that is no message, or holds what cannot be read, such as a number without end.
pub(crate) fn message(
    line: &[u8],
) -> Option<Result<RxJsonRpcMessage<RoleServer>, Box<ServerJsonRpcMessage>>> {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    if let Ok(message) = serde_json::from_slice(line) {
        return Some(Ok(message));
    }
    // This one looks at the form only, at any depth.
    serde_json::from_slice::<IgnoredAny>(line).ok()?;
    let outline = serde_json::from_slice::<Outline>(line).unwrap_or(Outline { id: None, method: None });
    let error = match serde_json::from_slice::<Value>(line) {
        Ok(value) if value.get("method").is_some_and(Value::is_string) && value.get("id").is_none() => {
            return None;
        }
        Ok(_) => ErrorData::invalid_request("the message is no request, notification or response", None),
        Err(error) => ErrorData::parse_error(format!("the message cannot be read: {error}"), None),
    };
    // The id of a response is one of this server's requests.
    let id = outline.id.filter(|_| outline.method.is_some());
    Some(Err(Box::new(JsonRpcMessage::error(error, id))))
}
