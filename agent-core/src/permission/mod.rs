//! Whether a call may run: scope (may this agent ever?), policy (rules), approver (a person).
//!
//! All of it is judged when a call is executed, never when tools are advertised. Nothing here performs a call.

mod admission;
mod approver;
mod policy;
mod scope;

pub use admission::Admission;
pub use approver::{AllowAll, ApprovalId, ApprovalRequest, Approver, Decision, DenyAll};
pub use policy::{Policy, Rule, RuleEffect};
pub use scope::Scope;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::tool::{Footprint, ToolSpec};

/// What the scope and the rules say about a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// It may run. Names the rule.
    Allow(Cow<'static, str>),
    /// It may not, by the rules; a refusal ends the turn.
    Deny(Cow<'static, str>),
    /// This agent may never do this; an error result, and the run goes on.
    OutOfScope(String),
    /// Somebody must be asked.
    Ask(Cow<'static, str>),
}

/// Judges a call: scope first, then the rules.
#[must_use]
pub fn judge(scope: &Scope, policy: &Policy, spec: &ToolSpec, footprint: &Footprint) -> Verdict {
    if let Err(violation) = scope.admits(spec, footprint) {
        return Verdict::OutOfScope(violation);
    }
    policy.judge(spec, footprint)
}
