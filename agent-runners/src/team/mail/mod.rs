//! Messages among the members of a team, and to its lead.
//!
//! A message is a record of the team's session, and so is its delivery: `mailbox` is the fold over both (pure), `room`
//! records, `tool` sends and `inbox` delivers, with the prompt of an item and with the results of a member's calls. The
//! labels of a message are those of its sender's session.

mod inbox;
mod mailbox;
mod room;
mod tool;

use std::{fmt::Write as _, sync::Arc};

use entourage_core::{
    Result,
    event::{Record, plain_line, weigh_plain},
    tool::{Labels, ToolContext},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(super) use inbox::Inbox;
pub(super) use room::{Mail, Room};
pub(super) use tool::SendMessage;

/// Name of the lead among the members.
pub(super) const LEAD: &str = "lead";

/// Stands for all members but the sender.
pub(super) const EVERYONE: &str = "everyone";

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[non_exhaustive]
pub enum MessageKind {
    /// A question, which a response may answer.
    Request,
    /// The answer to a request.
    Response,
    /// News that nobody need answer.
    Status,
}

/// A message of a member of a [`Team`](super::Team), or of its lead, as a recorded value of the team's session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TeamMessage {
    /// Its id: `m1` for the first message of the run, and so on.
    pub id: Arc<str>,
    /// The tool call that sent it: made once more, it sends nothing.
    pub call: Arc<str>,
    /// Id of the sender.
    pub from: Arc<str>,
    /// Id of the recipient, or `everyone`.
    pub to: Arc<str>,
    /// Its kind.
    pub kind: MessageKind,
    /// Its text.
    pub text: Arc<str>,
    /// Id of the request that a response answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<Arc<str>>,
    /// Labels of what its sender had read.
    #[serde(default = "Labels::all")]
    pub labels: Labels,
}

impl TeamMessage {
    /// Returns its place in the order in which messages were sent: `m2` comes before `m10`.
    fn order(&self) -> (usize, &str) {
        (self.id.len(), &self.id)
    }
}

impl Record for TeamMessage {
    const KIND: &'static str = "team.message";

    fn summary(&self) -> String {
        format!("{} to {}: {}", self.from, self.to, plain_line(&self.text))
    }

    fn weigh(&self) -> Result<usize> {
        weigh_plain(self)
    }
}

/// Messages reached a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Delivered {
    /// The recipient.
    pub(super) to: Arc<str>,
    /// The place that it reads them at: the session of its item, or the lead's run.
    pub(super) place: Arc<str>,
    /// The tool call that brought them; `None` for those of a prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) call: Option<Arc<str>>,
    /// The item whose attempt the prompt begins; `None` for the lead, and for those of a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) item: Option<Arc<str>>,
    /// Ids of the messages.
    pub(super) messages: Vec<Arc<str>>,
}

impl Delivered {
    fn by_prompt(to: &str, place: &str, item: Option<&str>) -> Self {
        Self {
            to: to.into(),
            place: place.into(),
            call: None,
            item: item.map(Into::into),
            messages: Vec::new(),
        }
    }

    fn by_call((to, place, call): (&str, &str, &str)) -> Self {
        Self { to: to.into(), place: place.into(), call: Some(call.into()), item: None, messages: Vec::new() }
    }
}

impl Record for Delivered {
    const KIND: &'static str = "team.delivered";

    fn summary(&self) -> String {
        format!("{} gets {} messages", self.to, self.messages.len())
    }

    fn weigh(&self) -> Result<usize> {
        weigh_plain(self)
    }
}

/// Returns the id of a call: each try of it has the same, in any process.
fn call_of(cx: &ToolContext<'_>) -> Arc<str> {
    cx.run().call().map(|id| id.to_string()).unwrap_or_default().into()
}

/// Returns messages in words for a model; nothing for none.
fn shown(messages: &[Arc<TeamMessage>]) -> String {
    let mut text = String::new();
    for message in messages {
        let TeamMessage { id, from, kind, of, .. } = &**message;
        let kind = match kind {
            MessageKind::Request => "request",
            MessageKind::Response => "response",
            MessageKind::Status => "status",
        };
        let of = of.as_ref().map(|of| format!(" of=\"{of}\"")).unwrap_or_default();
        let gap = if text.is_empty() { "" } else { "\n" };
        // No text can end its own message, or begin another one.
        let body = message.text.replace("<message", "< message").replace("</message", "< /message");
        let head = format!("id=\"{id}\" from=\"{from}\" type=\"{kind}\"{of}");
        let _ = write!(text, "{gap}<message {head}>\n{body}\n</message>");
    }
    text
}

/// Returns the labels of messages.
fn labels(messages: &[Arc<TeamMessage>]) -> Labels {
    messages.iter().fold(Labels::empty(), |labels, message| labels | message.labels)
}
