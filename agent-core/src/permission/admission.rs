//! The rules of one call, for a tool that comes to more than its footprint names.

use super::{Policy, Rule, RuleEffect, Scope};
use crate::tool::{Footprint, ToolSpec};

/// What the scope and the rules say about places that one call comes to: asked by a tool that walks a tree, which its
/// footprint names by its start alone.
///
/// The tool judges each path before it shows anything of it, in the form in which its footprints name paths, and a link
/// by its own path and by where it leads. Made by [`ToolContext::admission`](crate::tool::ToolContext::admission).
#[derive(Debug, Clone)]
pub struct Admission {
    scope: Scope,
    policy: Policy,
    spec: ToolSpec,
    /// The rules with a subject that asked about this call, which was allowed.
    asked: Vec<Rule>,
    /// Whether all paths are judged alike.
    uniform: bool,
}

impl Admission {
    /// The admission of a call that was judged, and may run.
    pub(crate) fn new(scope: &Scope, policy: &Policy, spec: &ToolSpec, footprint: &Footprint) -> Self {
        let rules = policy.rules_for(spec.name());
        let access = spec.access() | footprint.access;
        let mut asked: Vec<Rule> = Vec::new();
        for subject in footprint.subjects() {
            let ruling = policy.most_specific(&rules, Some(subject), access);
            if let (RuleEffect::Ask, Some(rule)) = (ruling.effect, ruling.rule)
                && !asked.contains(rule)
            {
                asked.push(rule.clone());
            }
        }
        let uniform = rules.iter().all(|rule| rule.subject.is_none());
        Self { scope: scope.clone(), policy: policy.clone(), spec: spec.clone(), asked, uniform }
    }

    /// What holds for one path that the call reads: [`RuleEffect::Allow`] to show it, [`RuleEffect::Deny`] to act as if
    /// it were not there, [`RuleEffect::Ask`] when somebody would have to be asked first, which a new call that names the
    /// path does. The call that was allowed covers the paths that the same rules ask about, and those that only a rule without
    /// a subject, or no rule, asks about.
    #[must_use]
    pub fn reading(&self, path: &str) -> RuleEffect {
        if self.scope.admits(&self.spec, &Footprint::default()).is_err() {
            return RuleEffect::Deny;
        }
        let rules = self.policy.rules_for(self.spec.name());
        let ruling = self.policy.most_specific(&rules, Some(path), self.spec.access());
        match (ruling.effect, ruling.rule) {
            // Who was asked about the call was asked about all that it does, unless a rule singles the path out.
            (RuleEffect::Ask, Some(rule)) if rule.subject.is_some() && !self.asked.contains(rule) => {
                RuleEffect::Ask
            }
            (RuleEffect::Ask, _) => RuleEffect::Allow,
            (effect, _) => effect,
        }
    }

    /// Whether no rule tells one path from another, so that none needs to be judged.
    #[must_use]
    pub fn is_uniform(&self) -> bool {
        self.uniform
    }
}
