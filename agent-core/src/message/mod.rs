//! Messages and their parts, and the shared history that they form.
//!
//! Nothing here knows a wire format; a wire may keep its encoding of a message in the message's [`Slot`].

pub(crate) mod estimate;
mod history;
mod part;
pub(crate) mod raw_call;

pub use crate::base::{
    bound::{check_value, json_bytes, parse_value},
    json::value as deserialize_value,
    shown::is_harmful,
};
pub(crate) use estimate::estimate_tokens;
pub use history::History;
pub use part::{
    Arguments, Content, Media, MediaSource, Opaque, Part, Reasoning, Signature, ToolCall, ToolResult,
};
pub(crate) use raw_call::RawCall;

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, OnceLock},
};

use serde::{Deserialize, Serialize};

/// Speaker of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions from the program.
    System,
    /// The user, or a program in the user's place.
    User,
    /// The model.
    Assistant,
    /// Results of tools.
    Tool,
}

/// One message: a role and its parts. Immutable once it is shared, so that encodings of it can be kept.
///
/// ```
/// use entourage_core::message::{Message, Role};
///
/// let message = Message::user("Which file here is the longest?");
/// assert_eq!(message.role(), Role::User);
/// assert_eq!(message.text(), "Which file here is the longest?");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    role: Role,
    parts: Vec<Part>,
    #[serde(skip)]
    slot: Slot,
}

impl Message {
    /// Returns true if it has content that a service would accept: text, reasoning, media, calls or results.
    #[must_use]
    pub fn has_content(&self) -> bool {
        let says = |part: &Part| !matches!(part, Part::Text(text) | Part::Refusal(text) if text.is_empty());
        self.parts().iter().any(says)
    }

    /// A message of `role` made of `parts`.
    #[must_use]
    pub fn new(role: Role, parts: Vec<Part>) -> Self {
        Self { role, parts, slot: Slot::default() }
    }

    /// A system message of one text.
    #[must_use]
    pub fn system(text: impl Into<String>) -> Self {
        Self::new(Role::System, vec![Part::Text(text.into())])
    }

    /// A user message of one text.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Role::User, vec![Part::Text(text.into())])
    }

    /// An assistant message of one text.
    #[must_use]
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new(Role::Assistant, vec![Part::Text(text.into())])
    }

    /// A tool message with the results of one step, in the order of the calls.
    #[must_use]
    pub fn tool<R: Into<Arc<ToolResult>>>(results: impl IntoIterator<Item = R>) -> Self {
        Self::new(Role::Tool, results.into_iter().map(|result| Part::ToolResult(result.into())).collect())
    }

    /// The same message with another part.
    #[must_use]
    pub fn with(mut self, part: Part) -> Self {
        self.parts.push(part);
        self.slot = Slot::default();
        self
    }

    /// Speaker of the message.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Parts of the message, in order.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// All text parts, concatenated.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for part in &self.parts {
            if let Part::Text(piece) = part {
                text.push_str(piece);
            }
        }
        text
    }

    /// The first text part that is not blank.
    #[must_use]
    pub fn first_text(&self) -> Option<&str> {
        self.parts.iter().find_map(|part| match part {
            Part::Text(text) if !text.trim().is_empty() => Some(text.as_str()),
            _ => None,
        })
    }

    /// The tool calls, in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call),
            _ => None,
        })
    }

    /// The tool results, in order.
    pub fn tool_results(&self) -> impl Iterator<Item = &ToolResult> {
        self.parts.iter().filter_map(|part| match part {
            Part::ToolResult(result) => Some(&**result),
            _ => None,
        })
    }

    /// Encoding of this message for `wire`. `encode` runs at most once per message for the first wire that asks.
    ///
    /// That wire borrows the stored bytes from then on. Any other wire gets a new, owned encoding at each call:
    /// sessions that change wires are rare.
    #[inline]
    pub fn encoded(&self, wire: &'static str, encode: impl Fn(&Self) -> Vec<u8>) -> Cow<'_, [u8]> {
        // Called once per message and model call, so a long conversation needs a short path.
        match self.slot.0.get() {
            Some((owner, bytes)) if std::ptr::eq(*owner, wire) => Cow::Borrowed(bytes),
            _ => self.encoded_anew(wire, encode),
        }
    }

    #[cold]
    fn encoded_anew(&self, wire: &'static str, encode: impl Fn(&Self) -> Vec<u8>) -> Cow<'_, [u8]> {
        let (owner, bytes) = self.slot.0.get_or_init(|| (wire, encode(self).into()));
        if *owner == wire { Cow::Borrowed(bytes) } else { Cow::Owned(encode(self)) }
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Self {
        Self::user(text)
    }
}

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self::user(text)
    }
}

/// Slot for a wire's encoding of a message. Not part of the message: clones start empty, and all slots are equal.
#[derive(Default)]
pub struct Slot(OnceLock<(&'static str, Box<[u8]>)>);

impl Clone for Slot {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Slot {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.get().map_or("empty", |(wire, _)| wire))
    }
}
