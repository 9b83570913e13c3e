//! Permission within one call, for a tool that touches more than its footprint names.

use super::{Policy, Rule, RuleEffect, Scope};
use crate::spec::{Footprint, ToolSpec};

/// Scope and rules for the places that one call reaches. For a tool that walks a tree: its footprint names only the
/// start.
///
/// The tool judges each path before it shows anything of it, in the form in which its footprints name paths. It judges
/// a link by its own path and by its target. Made by [`ToolContext::admission`](crate::tool::ToolContext::admission).
#[derive(Debug, Clone)]
pub struct Admission {
    scope: Scope,
    policy: Policy,
    spec: ToolSpec,
    /// Rules with a subject that asked about this call, which was then allowed.
    asked: Vec<Rule>,
    /// True if the rules treat all paths alike.
    uniform: bool,
}

impl Admission {
    /// The admission of a call that was judged and may run.
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

    /// Judges one path that the call reads: [`RuleEffect::Allow`] to show it, [`RuleEffect::Deny`] to act as if it did
    /// not exist, [`RuleEffect::Ask`] if an approver must be asked first, which a new call that names the path does.
    ///
    /// The allowed call covers paths that the same rules ask about, and paths that only a rule without a subject, or no
    /// rule, asks about.
    #[must_use]
    pub fn reading(&self, path: &str) -> RuleEffect {
        if self.scope.admits(&self.spec, &Footprint::default()).is_err() {
            return RuleEffect::Deny;
        }
        let rules = self.policy.rules_for(self.spec.name());
        let ruling = self.policy.most_specific(&rules, Some(path), self.spec.access());
        match (ruling.effect, ruling.rule) {
            // An approver who allowed the call allowed all that it does, except paths that a rule singles out.
            (RuleEffect::Ask, Some(rule)) if rule.subject.is_some() && !self.asked.contains(rule) => {
                RuleEffect::Ask
            }
            (RuleEffect::Ask, _) => RuleEffect::Allow,
            (effect, _) => effect,
        }
    }

    /// True if the rules do not distinguish paths, so that no path needs to be judged.
    pub fn is_uniform(&self) -> bool {
        self.uniform
    }
}
