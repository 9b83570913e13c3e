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
    tool::{Access, Footprint, Labels, ToolSpec},
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

/// True for an agent whose calls answer the rules that ask, without an approver: it is below an agent that only looks,
/// as in plan mode and in the mode of reading, and can do nothing but read itself. `above` is the scope of the run that
/// starts it; `None` for a root.
pub(crate) fn reads_unasked(above: Option<&Scope>, own: &Scope) -> bool {
    let looks = Access::READ | Access::DELEGATE | Access::ASK;
    above.is_some_and(|above| looks.contains(above.access())) && Access::READ.contains(own.access())
}

/// Judges a call: scope first, then the rules.
#[must_use]
pub fn judge(scope: &Scope, policy: &Policy, spec: &ToolSpec, footprint: &Footprint) -> Ruling {
    if let Err(violation) = scope.admits(spec, footprint) {
        return Ruling::OutOfScope(violation);
    }
    policy.judge(spec, footprint)
}

/// Judges a call of whoever has read text of these labels, as [`judge`] does and by the rule on leaks.
pub(crate) fn judge_labelled(
    scope: &Scope,
    policy: &Policy,
    spec: &ToolSpec,
    footprint: &Footprint,
    labels: Labels,
) -> Ruling {
    match (judge(scope, policy, spec, footprint), policy.leak(spec, footprint, labels)) {
        (Ruling::Allow(_) | Ruling::Ask(_), Some(RuleEffect::Deny)) => Ruling::Deny(LEAKS.into()),
        (Ruling::Allow(_) | Ruling::Ask(_), Some(_)) => Ruling::Ask(LEAKS.into()),
        (ruling, _) => ruling,
    }
}

#[cfg(test)]
mod tests {
    use entourage_core::{permission::Scope, tool::Access};

    use super::{Preset, reads_unasked};

    #[test]
    fn ai03_only_a_reader_below_an_agent_that_only_looks_is_auto_approved() {
        let (all, read) = (Scope::all(), Scope::read_only());
        let looks = Preset::Read.scope();
        let of = |access| Scope::all().with_access(access);
        let files = Scope::read_only().with_tools(["view"]).with_roots(["src"]);
        for (above, own, expected) in [
            (Some(&looks), &read, true),
            (Some(&read), &read, true),
            (Some(&looks), &files, true),
            (Some(&files), &files, true),
            (Some(&looks), &Scope::none(), true),
            // The agent above may do more.
            (Some(&all), &read, false),
            (Some(&of(Access::READ | Access::WRITE)), &read, false),
            (Some(&of(Access::READ | Access::EXECUTE)), &read, false),
            (Some(&of(Access::READ | Access::NETWORK)), &read, false),
            // So may the agent itself.
            (Some(&looks), &looks, false),
            (Some(&looks), &of(Access::READ | Access::DELEGATE), false),
            (Some(&looks), &of(Access::READ | Access::ASK), false),
            (Some(&looks), &of(Access::READ | Access::NETWORK), false),
            (Some(&all), &all, false),
            // It is below no other.
            (None, &read, false),
            (None, &looks, false),
            (None, &all, false),
        ] {
            assert_eq!(reads_unasked(above, own), expected, "{above:?} {own:?}");
        }
    }
}
