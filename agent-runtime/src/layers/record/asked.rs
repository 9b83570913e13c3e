//! Digests of requests: enough to tell one from another and to name where they differ.

use std::{collections::BTreeMap, fmt::Write};

use entourage_core::{Digest, Error, ErrorKind, Result, provider::Request};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::scrub::Scrubber;

/// Digests of a request's parts. Computed after scrubbing, so that no secret can be guessed from them and a recording
/// can be replayed without its secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Asked {
    pub(super) model: String,
    instructions: Digest,
    tools: BTreeMap<String, Digest>,
    tool_choice: Digest,
    output: Digest,
    params: Digest,
    messages: Vec<Digest>,
}

impl Asked {
    pub(super) fn of(request: &Request, scrubber: &Scrubber) -> Result<Self> {
        let tools = request.tools.iter().map(|tool| Ok((tool.name().to_owned(), digest(tool, scrubber)?)));
        Ok(Self {
            model: scrubber.text(&request.model).0,
            instructions: digest(&request.instructions, scrubber)?,
            tools: tools.collect::<Result<_>>()?,
            tool_choice: digest(&request.tool_choice, scrubber)?,
            output: digest(&request.output, scrubber)?,
            params: digest(&request.params, scrubber)?,
            messages: request
                .messages
                .iter()
                .map(|message| digest(message, scrubber))
                .collect::<Result<_>>()?,
        })
    }

    /// First difference from `recorded`, for people; `None` if there is none.
    pub(super) fn difference(&self, recorded: &Self) -> Option<String> {
        if self == recorded {
            return None;
        }
        if self.model != recorded.model {
            return Some(format!("the model is `{}` instead of `{}`", self.model, recorded.model));
        }
        let parts = [
            ("the instructions", self.instructions == recorded.instructions),
            ("the tool choice", self.tool_choice == recorded.tool_choice),
            ("the form of the reply", self.output == recorded.output),
            ("the parameters", self.params == recorded.params),
        ];
        if let Some((what, _)) = parts.into_iter().find(|(_, same)| !same) {
            return Some(format!("{what} differ"));
        }
        self.tools_difference(recorded).or_else(|| self.messages_difference(recorded))
    }

    fn tools_difference(&self, recorded: &Self) -> Option<String> {
        let names = self.tools.keys().chain(recorded.tools.keys());
        let differs = |name: &&String| self.tools.get(*name) != recorded.tools.get(*name);
        let name = names.filter(differs).min()?;
        Some(match (self.tools.contains_key(name), recorded.tools.contains_key(name)) {
            (true, false) => format!("the tool `{name}` is new"),
            (false, true) => format!("the tool `{name}` is missing"),
            _ => format!("the tool `{name}` has another description or schema"),
        })
    }

    fn messages_difference(&self, recorded: &Self) -> Option<String> {
        let place = (0..self.messages.len().max(recorded.messages.len()))
            .find(|place| self.messages.get(*place) != recorded.messages.get(*place))?;
        let mut text = format!("message {place} (counted from 0) ");
        text.push_str(match (self.messages.get(place), recorded.messages.get(place)) {
            (None, _) => "is missing",
            (_, None) => "is new",
            _ => "differs",
        });
        let (now, then) = (self.messages.len(), recorded.messages.len());
        if now != then {
            // Writing to a string does not fail.
            let _ = write!(text, ", there are {now} instead of {then}");
        }
        Some(text)
    }
}

/// Digest of the value as scrubbed JSON. Its keys are sorted, so that equal values have equal digests.
fn digest<T: Serialize + ?Sized>(value: &T, scrubber: &Scrubber) -> Result<Digest> {
    let text = scrubbed(value, scrubber)?.0.to_string();
    Ok(Digest::of([text.as_bytes()]))
}

/// `value` as JSON without secrets, and the number of secrets removed.
pub(super) fn scrubbed<T: Serialize + ?Sized>(value: &T, scrubber: &Scrubber) -> Result<(Value, usize)> {
    let mut value = serde_json::to_value(value).map_err(|error| {
        Error::new(ErrorKind::Internal, "a part of a model call cannot be written as JSON").caused_by(error)
    })?;
    let count = scrubber.value(&mut value);
    Ok((value, count))
}
