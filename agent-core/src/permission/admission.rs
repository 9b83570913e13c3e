//! Permission within one call, for a tool that touches more than its footprint names.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Scope;
use crate::spec::{Footprint, ToolSpec};

/// Effect of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleEffect {
    /// Runs the call.
    Allow,
    /// Refuses the call and ends the turn.
    Deny,
    /// Asks an approver.
    Ask,
}

/// Rules of a runtime, for the context of a call that they admitted.
pub trait Rules: fmt::Debug + Send + Sync {
    /// Returns the effect on each path that the call reads beyond its footprint; `None` if the rules treat all paths
    /// alike. The allowed call covers what the same rules ask about as about the call itself.
    fn within(&self, spec: &ToolSpec, footprint: &Footprint) -> Option<Box<EffectOnPath>>;
}

type EffectOnPath = dyn Fn(&str) -> RuleEffect + Send + Sync;

/// Scope and rules for the places that one call reaches. For a tool that walks a tree: its footprint names only the
/// start.
///
/// The tool judges each path before it shows anything of it, in the form in which its footprints name paths. It judges
/// a link by its own path and by its target. Made by [`ToolContext::admission`](crate::tool::ToolContext::admission).
pub struct Admission {
    scope: Scope,
    spec: ToolSpec,
    rules: Option<Box<EffectOnPath>>,
}

impl Admission {
    /// The admission of a call that was judged and may run.
    pub(crate) fn new(scope: &Scope, rules: &dyn Rules, spec: &ToolSpec, footprint: &Footprint) -> Self {
        Self { scope: scope.clone(), spec: spec.clone(), rules: rules.within(spec, footprint) }
    }

    /// Judges one path that the call reads: [`RuleEffect::Allow`] to show it, [`RuleEffect::Deny`] to act as if it did
    /// not exist, [`RuleEffect::Ask`] if an approver must be asked first, which a new call that names the path does.
    ///
    /// The allowed call covers paths that the same rules ask about, and paths that only a rule without a subject, or no
    /// rule, asks about.
    #[must_use]
    pub fn reading(&self, path: &str) -> RuleEffect {
        if self.scope.admits(&self.spec, &Footprint::default().reading(path)).is_err() {
            return RuleEffect::Deny;
        }
        self.rules.as_ref().map_or(RuleEffect::Allow, |effect| effect(path))
    }

    /// True if the scope and the rules do not distinguish paths, so that no path needs to be judged.
    pub fn is_uniform(&self) -> bool {
        self.rules.is_none() && self.scope.roots().is_none()
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission").field("scope", &self.scope).finish_non_exhaustive()
    }
}
