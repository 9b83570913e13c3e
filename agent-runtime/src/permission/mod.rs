//! Rules for calls, and the judge: scope first, then the rules. Nothing here performs a call.

mod grants;
mod policy;
mod preset;
#[cfg(feature = "policy-file")]
mod text;

pub(crate) use grants::Grant;
pub use policy::{Policy, Rule};
pub use preset::Preset;

use std::{borrow::Cow, fmt};

use entourage_core::{
    permission::{RuleEffect, Scope},
    tool::{Footprint, ToolSpec},
};
use serde::{Deserialize, Serialize};

/// Ruling of the scope and the rules on a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ruling {
    /// The call may run. Names the rule.
    Allow(Cow<'static, str>),
    /// The rules forbid the call; the refusal ends the turn.
    Deny(Cow<'static, str>),
    /// The scope forbids the call; it gets an error result, and the run goes on.
    OutOfScope(String),
    /// An approver must be asked. Names the rule.
    Ask(Cow<'static, str>),
}

impl fmt::Display for Ruling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allow(rule) => write!(f, "allowed by the rule `{rule}`"),
            Self::Deny(rule) => write!(f, "refused by the rule `{rule}`"),
            Self::OutOfScope(text) => f.write_str(text),
            Self::Ask(rule) => write!(f, "an approver must be asked by the rule `{rule}`"),
        }
    }
}

/// The name of the rule on leaks, in questions and records.
pub(crate) const LEAKS: &str =
    "leaks: it can send out what was read here, and text of strangers may have asked for it";

/// The ruling on a call that could leak.
pub(crate) fn leaking(effect: RuleEffect) -> Ruling {
    match effect {
        RuleEffect::Deny => Ruling::Deny(LEAKS.into()),
        _ => Ruling::Ask(LEAKS.into()),
    }
}

/// Judges a call: scope first, then the rules.
#[must_use]
pub fn judge(scope: &Scope, policy: &Policy, spec: &ToolSpec, footprint: &Footprint) -> Ruling {
    if let Err(violation) = scope.admits(spec, footprint) {
        return Ruling::OutOfScope(violation);
    }
    policy.judge(spec, footprint)
}
