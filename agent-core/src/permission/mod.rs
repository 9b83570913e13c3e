//! Permission for calls: the scope (may this agent ever?), the policy (rules) and the approver (a person or
//! program).
//!
//! A call is judged when it is executed, never when tools are advertised. Nothing here performs a call.

mod admission;
mod approver;
mod policy;
mod scope;

pub use crate::base::ApprovalId;
pub use admission::Admission;
pub use approver::{Answer, ApprovalRequest, Approver, Decision};
pub use policy::{Policy, Rule, RuleEffect};
pub use scope::Scope;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::spec::{Footprint, ToolSpec};

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

/// Judges a call: scope first, then the rules.
#[must_use]
pub fn judge(scope: &Scope, policy: &Policy, spec: &ToolSpec, footprint: &Footprint) -> Ruling {
    if let Err(violation) = scope.admits(spec, footprint) {
        return Ruling::OutOfScope(violation);
    }
    policy.judge(spec, footprint)
}
