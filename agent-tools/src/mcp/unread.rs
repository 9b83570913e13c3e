//! Answers of servers that cannot be read.
//!
//! The library below leaves out what is no message for it, and tells nobody: a call would wait for an answer that has
//! come. Here an error takes the place of such an answer.

use std::{borrow::Cow, fmt};

use rmcp::model::{
    ErrorCode, ErrorData, JsonRpcError, JsonRpcNotification, RequestId, ServerJsonRpcMessage,
    ServerNotification,
};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Value, error::Category, value::RawValue};

use super::long;

/// Code of the error for an answer that cannot be read.
pub(super) const CODE: i32 = -32_017;
/// Most answers of one batch that are told apart.
const BATCH: usize = 1_000;

/// A part of a text that is no message.
#[derive(Debug, PartialEq)]
pub(super) enum Unread {
    /// An answer, with the error that takes its place. It has the id of its request, if that is known.
    Answer(JsonRpcError),
    /// A request, which waits for an answer of this side.
    Asks(RequestId),
}

/// Looks into a text that could not be read for this reason. What is neither an answer nor a request is left out.
pub(super) fn parts(text: &[u8], error: &serde_json::Error) -> Vec<Unread> {
    let text = String::from_utf8_lossy(text);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text).trim();
    let reason = match error.classify() {
        Category::Data | Category::Io => "it is no message of the protocol".to_owned(),
        // The words of the reader alone: it quotes nothing of the text.
        Category::Syntax | Category::Eof => error.to_string(),
    };
    if text.starts_with('[') {
        let heads = serde_json::from_str::<Batch>(text).map(|batch| batch.0);
        let reason = "it came in a batch, which is not supported";
        return heads.map_or_else(|_| scanned(text, reason), |heads| told(heads, reason));
    }
    match serde_json::from_str::<Head>(text) {
        Ok(head) if head.has_result && head.has_error => told([head], "it has a result and an error"),
        Ok(head) if head.id.is_none() => told([head], "it names no request"),
        Ok(head) => told([head], &reason),
        Err(_) => scanned(text, &reason),
    }
}

fn told(heads: impl IntoIterator<Item = Head>, reason: &str) -> Vec<Unread> {
    heads.into_iter().filter_map(|head| head.told(reason)).collect()
}

/// The answer that a text seems to be which is no JSON: one that was cut, or has `NaN` in it.
fn scanned(text: &str, reason: &str) -> Vec<Unread> {
    let id = long::answered(text.trim_start_matches('['));
    let id = id.and_then(|id| i64::try_from(id).ok()).map(RequestId::Number);
    id.map(|id| Unread::Answer(refusal(Some(id), reason))).into_iter().collect()
}

/// Returns the error in place of an answer.
fn refusal(id: Option<RequestId>, reason: &str) -> JsonRpcError {
    let text = format!("its answer cannot be read: {reason}");
    JsonRpcError::new(id, ErrorData::new(ErrorCode(CODE), text, None))
}

/// Returns the id of a request that an answer names, in the form in which requests are counted.
pub(super) fn asked(id: &RequestId) -> RequestId {
    let number = match id {
        RequestId::String(text) => text.parse().ok().map(RequestId::Number),
        RequestId::Number(_) => None,
    };
    number.unwrap_or_else(|| id.clone())
}

/// Returns the id of the request that a message answers.
pub(super) fn answers(message: &ServerJsonRpcMessage) -> Option<RequestId> {
    match message {
        ServerJsonRpcMessage::Response(answer) => Some(asked(&answer.id)),
        ServerJsonRpcMessage::Error(error) => error.id.as_ref().map(asked),
        ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => None,
    }
}

/// An event of a stream.
#[derive(Debug, PartialEq)]
pub(super) enum Seen {
    /// It is read as it is.
    Passes,
    /// It is read as it is, and is a request of the server.
    Asks(RequestId),
    /// It is read as it is, and says that the server wants no answer to this request any more.
    Cancels(RequestId),
    /// These texts are read in its place.
    Instead(Vec<String>),
}

/// Looks at the text of an event. Streams that answer one request have its id: what names no request is for it, and
/// what names another one ends nothing.
pub(super) fn seen(text: &str, asked: Option<&RequestId>) -> Seen {
    let errors = match serde_json::from_str(text) {
        Ok(ServerJsonRpcMessage::Error(mut error)) if error.id.is_none() && asked.is_some() => {
            error.id = asked.cloned();
            vec![error]
        }
        Ok(ServerJsonRpcMessage::Request(request)) => return Seen::Asks(request.id),
        Ok(ServerJsonRpcMessage::Notification(JsonRpcNotification {
            notification: ServerNotification::CancelledNotification(cancelled),
            ..
        })) => return cancelled.params.request_id.map_or(Seen::Passes, Seen::Cancels),
        Ok(_) => return Seen::Passes,
        Err(error) => {
            let answer = |part| match part {
                Unread::Answer(error) => Some(error),
                Unread::Asks(_) => None,
            };
            parts(text.as_bytes(), &error).into_iter().filter_map(answer).collect()
        }
    };
    let of = |mut error: JsonRpcError| {
        error.id = error.id.or_else(|| asked.cloned());
        let is_awaited = error.id.is_some() && (asked.is_none() || asked == error.id.as_ref());
        is_awaited.then(|| serde_json::to_string(&error).ok()).flatten()
    };
    let texts: Vec<_> = errors.into_iter().filter_map(of).collect();
    if texts.is_empty() { Seen::Passes } else { Seen::Instead(texts) }
}

/// The short members of a message. The others may be anything, nested however deep.
#[derive(Default)]
struct Head {
    id: Option<RequestId>,
    has_method: bool,
    has_result: bool,
    has_error: bool,
}

impl Head {
    fn told(self, reason: &str) -> Option<Unread> {
        let is_answer = self.has_result || self.has_error;
        match (self.id, self.has_method && !is_answer) {
            (Some(id), true) => Some(Unread::Asks(id)),
            (None, true) => None,
            (Some(id), false) => Some(Unread::Answer(refusal(Some(asked(&id)), reason))),
            (None, false) => is_answer.then(|| Unread::Answer(refusal(None, reason))),
        }
    }
}

/// Reads an id. Servers that know no integers name the request `7.0`.
fn id(text: &str) -> Option<RequestId> {
    match serde_json::from_str(text).ok()? {
        Value::String(text) => Some(RequestId::String(text.into())),
        Value::Number(number) => {
            let whole = || number.to_string().strip_suffix(".0").and_then(|whole| whole.parse().ok());
            number.as_i64().or_else(whole).map(RequestId::Number)
        }
        _ => None,
    }
}

impl<'de> Deserialize<'de> for Head {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Head;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Head, A::Error> {
                let mut head = Head::default();
                while let Some(name) = members.next_key::<Cow<'de, str>>()? {
                    if name == "id" {
                        head.id = id(members.next_value::<&RawValue>()?.get());
                        continue;
                    }
                    // It does not recur, so nothing is too deep for it.
                    members.next_value::<IgnoredAny>()?;
                    match &*name {
                        "method" => head.has_method = true,
                        "result" => head.has_result = true,
                        "error" => head.has_error = true,
                        _ => {}
                    }
                }
                Ok(head)
            }
        }

        from.deserialize_map(Members)
    }
}

/// Several messages in one text.
struct Batch(Vec<Head>);

impl<'de> Deserialize<'de> for Batch {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Items;

        impl<'de> Visitor<'de> for Items {
            type Value = Batch;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<Batch, A::Error> {
                let mut heads = Vec::new();
                while let Some(item) = items.next_element::<&RawValue>()? {
                    if heads.len() < BATCH {
                        heads.extend(serde_json::from_str::<Head>(item.get()));
                    }
                }
                Ok(Batch(heads))
            }
        }

        from.deserialize_seq(Items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ids of the answers in a text that cannot be read.
    fn ids(text: &str) -> Vec<Option<i64>> {
        let error = serde_json::from_str::<ServerJsonRpcMessage>(text).unwrap_err();
        let id = |part| match part {
            Unread::Answer(JsonRpcError { id: Some(RequestId::Number(id)), .. }) => Some(Some(id)),
            Unread::Answer(JsonRpcError { id: None, .. }) => Some(None),
            _ => None,
        };
        parts(text.as_bytes(), &error).into_iter().filter_map(id).collect()
    }

    #[test]
    fn the_request_of_an_answer_that_cannot_be_read_is_known() {
        let deep = |open: &str, shut: &str| format!("{}1{}", open.repeat(200_000), shut.repeat(200_000));
        for (text, expected) in [
            (format!(r#"{{"jsonrpc":"2.0","id":7,"result":{}}}"#, deep(r#"{"a":"#, "}")), vec![Some(7)]),
            (format!(r#"{{"result":{},"id":"7","jsonrpc":"2.0"}}"#, deep("[", "]")), vec![Some(7)]),
            (
                r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1,"message":"e"}}"#.into(),
                vec![Some(7)],
            ),
            (r#"{"jsonrpc":"2.0","id":7}"#.into(), vec![Some(7)]),
            (r#"{"id":7.0,"result":{"a":"\ud800"}}"#.into(), vec![Some(7)]),
            (r#"{"jsonrpc":"1.0","id":7,"result":{}}"#.into(), vec![Some(7)]),
            (r#"{"jsonrpc":"2.0","id":7,"error":"no"}"#.into(), vec![Some(7)]),
            (r#"{"jsonrpc":"2.0","id":7,"result":{"a":NaN}}"#.into(), vec![Some(7)]),
            (r#"{"result":{"a":NaN},"id":7}"#.into(), vec![Some(7)]),
            (r#"{"jsonrpc":"2.0","id":7,"result":{"content":["#.into(), vec![Some(7)]),
            (
                r#"[{"id":7,"result":{}},5,{"method":"m"},{"id":8,"error":{}},{"result":{}}]"#.into(),
                vec![Some(7), Some(8), None],
            ),
            (r#"[{"jsonrpc":"2.0","id":7,"result":NaN}]"#.into(), vec![Some(7)]),
            (r#"{"jsonrpc":"2.0","id":null,"result":{}}"#.into(), vec![None]),
            (r#"{"jsonrpc":"2.0","id":[7],"result":{}}"#.into(), vec![None]),
            (r#"{"jsonrpc":"2.0","result":{}}"#.into(), vec![None]),
            // These are no answers.
            (r#"{"jsonrpc":"2.0","id":7,"method":5}"#.into(), vec![]),
            (r#"{"jsonrpc":"2.0","id":7,"#.into(), vec![]),
            ("{}".into(), vec![]),
            ("[]".into(), vec![]),
            ("null".into(), vec![]),
            ("[INFO] it has begun".into(), vec![]),
        ] {
            assert_eq!(ids(&text), expected, "{}", text.get(..80).unwrap_or(&text));
        }
        assert_eq!(ids(&format!("[{}]", vec![r#"{"id":7}"#; 2 * BATCH].join(","))).len(), BATCH);
        // An id of which this side knows nothing is a request all the same.
        let error = serde_json::from_str::<ServerJsonRpcMessage>("{").unwrap_err();
        let asks = parts(r#"{"id":"q","method":"ping","params":5}"#.as_bytes(), &error);
        assert_eq!(asks, [Unread::Asks(RequestId::String("q".into()))]);
    }

    #[test]
    fn a_stream_that_answers_one_request_ends_that_one_alone() {
        let seven = RequestId::Number(7);
        let of = |text: &str, asked| match seen(text, asked) {
            Seen::Instead(texts) => Some(texts.join(" ")),
            _ => None,
        };
        let ping = |asked| seen(r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#, asked);
        assert_eq!([ping(None), ping(Some(&seven))], [Seen::Asks(seven.clone()), Seen::Asks(seven.clone())]);
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
        assert_eq!(seen(cancel, None), Seen::Cancels(seven.clone()));
        let deep = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{}}}"#, "[".repeat(200) + &"]".repeat(200));
        for (text, asked, has) in [
            (deep.as_str(), Some(&seven), Some("-32017")),
            (deep.as_str(), None, Some("-32017")),
            (r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"what?"}}"#, Some(&seven), Some("-32700")),
            (r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"what?"}}"#, None, None),
            (r#"{"jsonrpc":"2.0","id":null,"result":{}}"#, Some(&seven), Some("-32017")),
            (r#"{"jsonrpc":"2.0","id":null,"result":{}}"#, None, None),
            (r#"{"id":8,"result":{}}"#, Some(&seven), None),
            (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, Some(&seven), None),
            ("news", Some(&seven), None),
        ] {
            let texts = of(text, asked);
            assert_eq!(texts.is_some(), has.is_some(), "{text}");
            let expected = [r#""id":7"#, has.unwrap_or_default()];
            assert!(texts.is_none_or(|texts| expected.iter().all(|part| texts.contains(part))), "{text}");
        }
    }
}
