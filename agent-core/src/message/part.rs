//! The kinds of parts that a message is made of.

use std::{borrow::Cow, fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use serde_json::{Value, value::RawValue};

use crate::{
    Error, ErrorKind, Result,
    base::{bound, json},
};

/// One piece of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Part {
    /// Plain text.
    Text(String),
    /// The model's reasoning, if the provider shows it.
    Reasoning(Reasoning),
    /// A refusal of the model, in the provider's refusal channel.
    Refusal(String),
    /// An image, a document, audio.
    Media(Media),
    /// A tool call of the model.
    ToolCall(ToolCall),
    /// Result of a tool.
    ToolResult(Arc<ToolResult>),
    /// A block that only the provider understands; replayed to it as it came.
    Opaque(Opaque),
}

/// Reasoning text, with the provider's signature for its replay.
///
/// Signed reasoning without text belongs to the part that follows: some services sign calls and answers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Reasoning {
    /// The text; may be empty when only a signature or encrypted content came.
    pub text: String,
    /// The provider's proof that the reasoning is its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Box<Signature>>,
}

impl Reasoning {
    /// Reasoning text with its signature, if any.
    #[must_use]
    pub fn new(text: impl Into<String>, signature: Option<Signature>) -> Self {
        Self { text: text.into(), signature: signature.map(Box::new) }
    }
}

/// A provider's proof of its reasoning, or the reasoning itself in a form that only the provider can read. Replayed
/// byte for byte, and only to the wire that it came from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Signature {
    /// The wire that it came from; other wires leave it out.
    pub wire: Cow<'static, str>,
    /// The signature or the encrypted content; may be empty if `item` holds all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub data: String,
    /// The wire's own block around `data`, if it needs more than that, such as an item with its id.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "json::option")]
    pub item: Option<Value>,
}

impl Signature {
    /// A signature of `wire`.
    #[must_use]
    pub fn new(wire: impl Into<Cow<'static, str>>, data: impl Into<String>) -> Self {
        Self { wire: wire.into(), data: data.into(), item: None }
    }

    /// The same with the wire's own block.
    #[must_use]
    pub fn with_item(mut self, item: Value) -> Self {
        self.item = Some(item);
        self
    }
}

/// A file that the model sees or hears.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Media {
    /// The media type, such as `image/png`.
    pub mime: String,
    /// Source of its bytes.
    pub source: MediaSource,
    /// Display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Media {
    /// Media of type `mime` from `source`.
    #[must_use]
    pub fn new(mime: impl Into<String>, source: MediaSource) -> Self {
        Self { mime: mime.into(), source, name: None }
    }
}

/// Source of the bytes of a [`Media`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MediaSource {
    /// Inline base64 with padding.
    Base64(String),
    /// Address that the provider fetches. Only `http` and `https` are passed on.
    Url(String),
}

/// A request of the model to run a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolCall {
    /// Id chosen by the model's service; unique within its message.
    pub id: Arc<str>,
    /// The tool's name as the model spelled it.
    pub name: Arc<str>,
    /// Arguments: always a JSON object, `{}` if the model sent none that can be used (see `malformed`).
    pub arguments: Arguments,
    /// Reason that the arguments could not be used, with an excerpt of them (at most 1,000 characters). Such a call is
    /// never run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub malformed: Option<String>,
}

impl ToolCall {
    /// A call of `name` with `arguments`.
    #[must_use]
    pub fn new(id: impl Into<Arc<str>>, name: impl Into<Arc<str>>, arguments: Arguments) -> Self {
        Self { id: id.into(), name: name.into(), arguments, malformed: None }
    }
}

/// The arguments of a tool call: the text of a JSON object, kept as it came so that replay is byte for byte.
#[derive(Clone, PartialEq, Eq)]
pub struct Arguments(Box<str>);

impl Arguments {
    /// Parses the text of a JSON object.
    ///
    /// Blank text counts as `{}`: several services send nothing for a call without arguments. Space around the object
    /// is not kept.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when it is not JSON, is not an object, nests deeper than 96 levels, holds a number
    /// of more than 400 digits, or would take more than 32 MiB of memory.
    pub fn parse(text: impl AsRef<str>) -> Result<Self> {
        let text = text.as_ref();
        let invalid = |why: String| Error::new(ErrorKind::InvalidInput, why);
        if text.trim().is_empty() {
            return Ok(Self::empty());
        }
        // Refused before parsing, while it is small: the parsed value may be far larger than the text.
        bound::check_text(text, bound::VALUE)
            .map_err(|flaw| invalid(format!("the arguments cannot be used: {flaw}")))?;
        match serde_json::from_str(text) {
            // A store gives back the object without the space around it.
            Ok(Shape::Object) => Ok(Self(text.trim_ascii().into())),
            Ok(Shape::Other) => Err(invalid("the arguments are no JSON object".to_owned())),
            Err(error) => Err(invalid(format!("the arguments are no valid JSON: {error}"))),
        }
    }

    /// The arguments `{}`.
    #[must_use]
    pub fn empty() -> Self {
        Self("{}".into())
    }

    /// The JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The parsed form.
    #[must_use]
    pub fn to_value(&self) -> Value {
        json::parse(&self.0).unwrap_or_else(|_| Value::Object(serde_json::Map::new()))
    }
}

/// Root type of a JSON text. Reads any depth that the parser allows and keeps nothing else.
enum Shape {
    Object,
    Other,
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShapeVisitor)
    }
}

struct ShapeVisitor;

macro_rules! scalars {
    ($($visit:ident: $type:ty),*) => {
        $(fn $visit<E: de::Error>(self, _: $type) -> Result<Shape, E> {
            Ok(Shape::Other)
        })*
    };
}

impl<'de> de::Visitor<'de> for ShapeVisitor {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    scalars!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn visit_unit<E: de::Error>(self) -> Result<Shape, E> {
        Ok(Shape::Other)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Shape, A::Error> {
        while items.next_element::<Shape>()?.is_some() {}
        Ok(Shape::Other)
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut entries: A) -> Result<Shape, A::Error> {
        while entries.next_entry::<Shape, Shape>()?.is_some() {}
        Ok(Shape::Object)
    }
}

impl From<&Value> for Arguments {
    /// Gives `{}` if the value is not an object, or out of the bounds of [`Arguments::parse`].
    fn from(value: &Value) -> Self {
        let text = value.is_object().then(|| bound::text(value, bound::VALUE));
        text.and_then(Result::ok).map_or_else(Self::empty, |text| Self(text.into()))
    }
}

impl fmt::Debug for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Arguments {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(<Box<RawValue>>::deserialize(deserializer)?.get().into()))
    }
}

/// Result of a tool for one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolResult {
    /// The id of the call.
    pub call: Arc<str>,
    /// The tool's name.
    pub name: Arc<str>,
    /// Content as the model is shown it.
    pub content: Vec<Content>,
    /// True if the call failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

impl ToolResult {
    /// A text result of `call`.
    #[must_use]
    pub fn text(call: &ToolCall, text: impl Into<String>) -> Self {
        Self {
            call: Arc::clone(&call.id),
            name: Arc::clone(&call.name),
            content: vec![Content::Text(text.into())],
            is_error: false,
        }
    }

    /// A result of `call` made of `content`.
    #[must_use]
    pub fn new(call: &ToolCall, content: Vec<Content>, is_error: bool) -> Self {
        Self { call: Arc::clone(&call.id), name: Arc::clone(&call.name), content, is_error }
    }

    /// An error result of `call`.
    #[must_use]
    pub fn error(call: &ToolCall, text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(call, text) }
    }

    /// All text of the result, pieces joined by line breaks.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self.content.as_slice() {
            [Content::Text(text)] => text.clone(),
            pieces => pieces.iter().map(Content::as_text).collect::<Vec<_>>().join("\n"),
        }
    }
}

/// One piece of a tool's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Content {
    /// Text for the model.
    Text(String),
    /// An image or a document for the model.
    Media(Media),
}

impl Content {
    /// The text, or a short note in place of media.
    #[must_use]
    pub fn as_text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Media(media) => format!("[{}]", media.mime),
        }
    }
}

/// A block that only its provider understands, such as the result of a server-side tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Opaque {
    /// The wire that it came from; other wires leave it out.
    pub wire: String,
    /// The block as it came. Shared, since it may be large and is passed on often.
    #[serde(deserialize_with = "json::shared")]
    pub data: Arc<Value>,
}

impl Opaque {
    /// A block of `wire`.
    #[must_use]
    pub fn new(wire: impl Into<String>, data: impl Into<Arc<Value>>) -> Self {
        Self { wire: wire.into(), data: data.into() }
    }
}
