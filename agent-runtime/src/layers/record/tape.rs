//! Record of one call, and the stored form of its end.

use std::time::Duration;

use entourage_core::{
    Error, ErrorKind, Result, RetryStatus,
    provider::{Delta, Request, WireRequest},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::expect::Counting;

/// Record of a call in flight. Not scrubbed, hence without `Debug`.
pub(super) struct Tape {
    pub(super) provider: String,
    pub(super) request: Request,
    pub(super) exchanges: Vec<Sent>,
    pub(super) deltas: Vec<Delta>,
    pub(super) end: End,
}

impl Tape {
    pub(super) fn new(provider: &str, request: Request) -> Self {
        Self {
            provider: provider.to_owned(),
            request,
            exchanges: Vec::new(),
            deltas: Vec::new(),
            end: End::Open,
        }
    }
}

/// End of a call.
pub(super) enum End {
    /// The call is in flight, or its caller dropped it.
    Open,
    /// The stream ended.
    Closed,
    /// The call ended with an error.
    Failed(Failed),
}

/// One request that left, and its answer.
pub(super) struct Sent {
    pub(super) protocol: String,
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    pub(super) counting: Counting,
    /// Status of the answer; `None` if none came.
    pub(super) status: Option<u16>,
    pub(super) answer_headers: Vec<(String, String)>,
    pub(super) answer: Vec<u8>,
}

impl From<&WireRequest<'_>> for Sent {
    fn from(request: &WireRequest<'_>) -> Self {
        Self {
            protocol: request.protocol.to_owned(),
            method: request.method.to_owned(),
            path: request.path.to_owned(),
            query: request.query.to_owned(),
            headers: request.headers.to_vec(),
            body: request.body.to_vec(),
            counting: Counting { cache_apart: request.cache_apart, reasoning_apart: request.reasoning_apart },
            status: None,
            answer_headers: Vec::new(),
            answer: Vec::new(),
        }
    }
}

/// An error in a form from which it can be rebuilt.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Failed {
    kind: ErrorKind,
    retry: RetryStatus,
    pub(super) message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    operation: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    context: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after: Option<Duration>,
    /// True if the call failed before it had a stream.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) refused: bool,
}

/// Context names of model calls' errors. An error only takes names that are known at compile time.
const NAMES: &[&str] =
    &["status", "code", "request", "provider", "model", "host", "index", "attempt", "limit", "recorded"];

const OPERATIONS: &[&str] = &["model.stream", "model.call", "model.generate"];

impl Failed {
    pub(super) fn new(error: &Error, refused: bool) -> Self {
        let context: Vec<_> =
            error.context().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let all = error.record().context;
        let operation = OPERATIONS.iter().find(|operation| {
            all.strip_prefix(**operation).is_some_and(|rest| rest.is_empty() || rest.starts_with(", "))
        });
        Self {
            kind: error.kind(),
            retry: error.retry(),
            message: error.message().to_owned(),
            operation: operation.map(|operation| (*operation).to_owned()),
            context,
            retry_after: error.retry_after(),
            refused,
        }
    }

    pub(super) fn to_error(&self) -> Error {
        let mut error = Error::new(self.kind, self.message.clone()).with_retry(self.retry);
        if let Some(wait) = self.retry_after {
            error = error.with_retry_after(wait);
        }
        let operation = self.operation.as_deref();
        if let Some(operation) = OPERATIONS.iter().find(|known| Some(**known) == operation) {
            error = error.during(operation);
        }
        self.context.iter().fold(error, |error, (name, value)| {
            match NAMES.iter().find(|known| *known == name) {
                Some(known) => error.with(known, value.clone()),
                None => error.with("recorded", format!("{name}: {value}")),
            }
        })
    }

    /// Value of this name in the error's context.
    pub(super) fn named(&self, wanted: &str) -> Option<&str> {
        self.context.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    }
}

/// One entry of an interaction's `deltas`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", untagged, try_from = "Value")]
pub(super) enum Entry {
    /// The call failed here.
    Error {
        error: Failed,
    },
    /// The caller dropped the call here.
    Dropped {
        dropped: bool,
    },
    Delta(Delta),
}

// serde's reader of untagged enums would compile one more copy of the readers of all deltas.
impl TryFrom<Value> for Entry {
    type Error = serde_json::Error;

    fn try_from(mut value: Value) -> serde_json::Result<Self> {
        if let Some(error) = value.get_mut("error") {
            return Ok(Entry::Error { error: serde_json::from_value(error.take())? });
        }
        if let Some(Value::Bool(dropped)) = value.get("dropped") {
            return Ok(Self::Dropped { dropped: *dropped });
        }
        serde_json::from_value(value).map(Self::Delta)
    }
}

impl Entry {
    /// The item that a caller gets.
    pub(super) fn into_item(self) -> Result<Delta> {
        match self {
            Self::Delta(delta) => Ok(delta),
            Self::Error { error } => Err(error.to_error()),
            Self::Dropped { .. } => Err(Error::new(
                ErrorKind::Diverged,
                "the recorded call was dropped here, but this one reads on; record it again",
            )
            .during("model.stream")),
        }
    }
}
