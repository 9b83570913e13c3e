//! Answers of hooks about a call, and their merging. Pure.

use entourage_core::bound::shortened;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Most bytes of a reason.
const REASON: usize = 4 << 10;
/// Exit code of a hook that denies the call.
const DENIES: i32 = 2;
/// Exit code of a hook that denies the call and ends the turn.
const HALTS: i32 = 49;

/// A hook's decision, the weakest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Decision {
    #[default]
    None,
    Allow,
    Deny,
}

/// The answer of one hook.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answer {
    decision: Option<Decision>,
    halt: Option<bool>,
    reason: Option<String>,
    context: Option<String>,
    arguments: Option<Map<String, Value>>,
}

impl Answer {
    /// Reads the answer of a hook that ended with `code`. `out` is `None` if it was too long.
    ///
    /// # Errors
    /// The reason that it is ignored.
    pub(super) fn read(code: Option<i32>, out: Option<&[u8]>, err: &[u8]) -> Result<Self, String> {
        match code {
            Some(0) => {
                let out = out.ok_or("it printed too much")?;
                if out.trim_ascii().is_empty() {
                    return Ok(Self::default());
                }
                serde_json::from_slice(out).map_err(|error| format!("its output is no answer: {error}"))
            }
            Some(code @ (DENIES | HALTS)) => Ok(Self {
                decision: Some(Decision::Deny),
                halt: Some(code == HALTS),
                reason: Some(String::from_utf8_lossy(err).into_owned()),
                ..Self::default()
            }),
            Some(code) => Err(format!("it ended with exit code {code}")),
            None => Err("it was ended by a signal".to_owned()),
        }
    }
}

/// The answers of all hooks of a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Merged {
    pub(super) decision: Decision,
    pub(super) halt: bool,
    /// Fields that replace those of the call.
    pub(super) arguments: Map<String, Value>,
    /// The reasons of those that refuse the call.
    refusals: Vec<String>,
    /// The first that allows it, with its reason.
    allowed: Option<String>,
    contexts: Vec<String>,
}

/// Merges answers with the names of their hooks, in the order of the hooks.
pub(super) fn merge<N: AsRef<str>>(answers: impl IntoIterator<Item = (N, Answer)>) -> Merged {
    let mut all = Merged::default();
    for (name, answer) in answers {
        let decision = answer.decision.unwrap_or_default();
        let halts = answer.halt.unwrap_or_default();
        let reason = answer.reason.as_deref().map(str::trim).filter(|reason| !reason.is_empty());
        let reason = reason.map(|reason| shortened(reason, REASON));
        all.decision = all.decision.max(decision);
        all.halt |= halts;
        if halts || decision == Decision::Deny {
            all.refusals.extend(reason.map(Into::into));
        } else if decision == Decision::Allow && all.allowed.is_none() {
            let name = name.as_ref();
            all.allowed = Some(match reason {
                Some(reason) => format!("hook `{name}`: {reason}"),
                None => format!("hook `{name}`"),
            });
        }
        all.contexts.extend(answer.context.filter(|context| !context.trim().is_empty()));
        all.arguments.extend(answer.arguments.unwrap_or_default());
    }
    all
}

impl Merged {
    /// The text for the model when the call does not run.
    pub(super) fn refusal(&self) -> String {
        let how = if self.halt { "a hook ended the turn" } else { "refused by a hook" };
        let mut text = how.to_owned();
        if !self.refusals.is_empty() {
            text.push_str(": ");
            text.push_str(&self.refusals.join("\n"));
        }
        if let Some(note) = self.note() {
            text.push_str("\n\n");
            text.push_str(&note);
        }
        text
    }

    /// The reason for which the call is allowed, for the record.
    pub(super) fn allowed(&self) -> String {
        self.allowed.clone().unwrap_or_default()
    }

    /// The contexts, for the model.
    pub(super) fn note(&self) -> Option<String> {
        let joined = self.contexts.join("\n");
        (!joined.is_empty()).then(|| format!("From a hook, not from the tool:\n{joined}"))
    }
}

#[cfg(test)]
mod tests;
