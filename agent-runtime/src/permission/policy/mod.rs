//! Rules: allow, deny, ask. Each subject of a call is judged by its most specific rule, and the strictest verdict
//! holds.
//!
//! Pure: nothing here looks at a file or a host.

use std::{borrow::Cow, cmp::Ordering, fmt, sync::Arc};

use entourage_core::{
    permission::{RuleEffect, Rules},
    tool::{Access, Footprint, Labels, ToolSpec},
};
use serde::{Deserialize, Serialize};

use super::Ruling;

/// One rule: an effect for calls whose tool and subject match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Rule {
    /// Effect on a matching call.
    pub effect: RuleEffect,
    /// Pattern on the tool's name; `*` stands for any run of characters.
    pub tool: String,
    /// Pattern on one thing that the call touches: its command, a path or a host. `None` matches every call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
}

impl Rule {
    pub(super) fn parse(effect: RuleEffect, pattern: &str) -> Self {
        let (tool, subject) = pattern.split_once(':').unzip();
        Self { effect, tool: tool.unwrap_or(pattern).to_owned(), subject: subject.map(str::to_owned) }
    }

    /// True if the rule matches this subject of a call. A rule without a subject matches every call.
    fn matches(&self, subject: Option<&str>) -> bool {
        match (&self.subject, subject) {
            (None, _) => true,
            (Some(pattern), Some(subject)) => wildcard(pattern, subject),
            (Some(_), None) => false,
        }
    }

    /// True if a call of this tool without subjects may touch what the rule covers: the rule names the tool itself, or
    /// the tool reads, writes, executes or talks to hosts.
    fn may_concern(&self, tool: &str, access: Access) -> bool {
        self.subject.is_some()
            && (self.tool == tool
                || access.intersects(Access::READ | Access::WRITE | Access::EXECUTE | Access::NETWORK))
    }

    /// Rank of the rule: a subject pattern beats any on the name alone, then more literal characters win.
    fn specificity(&self) -> (bool, usize, usize) {
        let literal = |pattern: &str| pattern.chars().filter(|c| *c != '*').count();
        (self.subject.is_some(), self.subject.as_deref().map_or(0, literal), literal(&self.tool))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = match self.effect {
            RuleEffect::Allow => "allow",
            RuleEffect::Deny => "deny",
            RuleEffect::Ask => "ask",
        };
        write!(f, "{effect} {}", self.tool)?;
        self.subject.as_ref().map_or(Ok(()), |subject| write!(f, ":{subject}"))
    }
}

/// Rules over tools. Where none matches, a call that only reads, starts agents or asks the user is allowed, and an
/// approver is asked about any other.
///
/// A pattern is `tool` or `tool:subject`, where a subject is a command, a path or a host, and `*` stands for any run of
/// characters. Each subject of a call is judged by itself: the most specific rule that matches it wins, and among
/// equals deny beats ask beats allow. The strictest verdict holds for the call, so touching more never makes it milder.
///
/// Patterns are case-sensitive. On a file system that is not, a rule on a path misses the same file under another
/// spelling: deny or ask for more there, or confine the tool to a directory.
///
/// ```
/// use entourage_runtime::permission::Policy;
///
/// let policy = Policy::new().allow("write:docs/*").deny("write:*.lock").ask("shell");
/// ```
///
/// # Calls without subjects
/// A call without subjects is judged by the rules without a subject, if its tool declares that its footprints name what
/// they touch ([`ToolSpec::naming_subjects`]). A tool without that declaration, such as one made by `#[tool]` without
/// marked arguments, could touch anything. So each rule with a subject that denies or asks applies to its calls too,
/// and one that allows does not; [`Footprint::unclear`] brings the same rules to bear on any call. This holds for rules
/// that name the tool, and for those with a `*` in the tool's name if the tool reads, writes, executes or talks to
/// hosts. A run warns of such rules before its first model call.
///
/// ```
/// use entourage_core::tool::{Access, Footprint, ToolSpec};
/// use entourage_runtime::permission::{Policy, Ruling};
/// use serde_json::json;
///
/// let policy = Policy::new().allow("run").deny("run:rm *");
/// let blind = ToolSpec::new("run", "Runs a command.", json!({})).with_access(Access::EXECUTE);
/// let footprint = Footprint::new(Access::EXECUTE);
/// assert!(matches!(policy.judge(&blind, &footprint), Ruling::Deny(_)));
///
/// let naming = blind.naming_subjects();
/// assert!(matches!(policy.judge(&naming, &footprint.running("ls")), Ruling::Allow(_)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy(Option<Arc<Inner>>);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Inner {
    rules: Vec<Rule>,
    fallback: Option<RuleEffect>,
    /// Shown behind the rules.
    name: Option<Arc<str>>,
    /// Effect on calls that could send out what is private, where strangers may have asked for them.
    leaks: Option<RuleEffect>,
    /// Policies that are judged apart, and can only make a verdict stricter.
    limits: Vec<Policy>,
}

impl Policy {
    /// A policy without rules, which asks about any call that does more than read, start agents or ask the user.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A policy that allows every call within the scope.
    #[must_use]
    pub fn allow_all() -> Self {
        Self::new().otherwise(RuleEffect::Allow)
    }

    /// Adds an allowing rule.
    #[must_use]
    pub fn allow(self, pattern: &str) -> Self {
        self.rule(Rule::parse(RuleEffect::Allow, pattern))
    }

    /// Adds a denying rule.
    #[must_use]
    pub fn deny(self, pattern: &str) -> Self {
        self.rule(Rule::parse(RuleEffect::Deny, pattern))
    }

    /// Adds an asking rule.
    #[must_use]
    pub fn ask(self, pattern: &str) -> Self {
        self.rule(Rule::parse(RuleEffect::Ask, pattern))
    }

    /// Adds a rule.
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Self {
        self.inner().rules.push(rule);
        self
    }

    /// The same rules with `effect` where none of them matches.
    #[must_use]
    pub fn otherwise(mut self, effect: RuleEffect) -> Self {
        self.inner().fallback = Some(effect);
        self
    }

    /// Sets the effect on calls that talk to other machines, in sessions that have both read what is private and what
    /// strangers may have written: see [`Labels`]. Text that a stranger wrote may make a model send out the other.
    /// Default: none, the other rules alone decide.
    ///
    /// It can only make a verdict stricter, whatever rules, layers and earlier grants allow. An approver who then
    /// allows a call for the session, or always, allows others of its extent. An automatic approval of the session is
    /// no answer.
    ///
    /// ```
    /// use entourage_core::permission::RuleEffect;
    /// use entourage_runtime::permission::Policy;
    ///
    /// let policy = Policy::new().allow("web_fetch").leaks(RuleEffect::Ask);
    /// ```
    #[must_use]
    pub fn leaks(mut self, effect: RuleEffect) -> Self {
        self.inner().leaks = Some(effect);
        self
    }

    /// Names the policy. The name is shown behind its rules, in errors, questions and records.
    #[must_use]
    pub fn named(mut self, name: impl Into<Arc<str>>) -> Self {
        self.inner().name = Some(name.into());
        self
    }

    /// The same policy, which `other` can only make stricter. Each of them is judged apart, and the stricter verdict
    /// holds. For rules of less trust, such as those that come with a project: what they allow counts for nothing.
    ///
    /// Where no rule of `other` matches, it says nothing, unless [`Policy::otherwise`] was set on it.
    ///
    /// ```
    /// use entourage_core::tool::{Access, Footprint, ToolSpec};
    /// use entourage_runtime::permission::{Policy, Ruling};
    /// use serde_json::json;
    ///
    /// let project = Policy::new().named("project").allow("*").deny("write:*.lock");
    /// let policy = Policy::new().allow("write:*").restricted_by(project);
    /// let write = ToolSpec::new("write", "Writes a file.", json!({})).with_access(Access::WRITE).naming_subjects();
    /// let judge = |path: &str| policy.judge(&write, &Footprint::new(Access::WRITE).writing(path));
    /// assert_eq!(judge("Cargo.lock"), Ruling::Deny("deny write:*.lock (project)".into()));
    /// assert_eq!(judge("src/lib.rs"), Ruling::Allow("allow write:*".into()));
    /// ```
    #[must_use]
    pub fn restricted_by(mut self, mut other: Self) -> Self {
        other.inner().fallback.get_or_insert(RuleEffect::Allow);
        self.inner().limits.push(other);
        self
    }

    fn inner(&mut self) -> &mut Inner {
        Arc::make_mut(self.0.get_or_insert_default())
    }

    /// This policy, and all that restrict it.
    fn levels(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.limits())
    }

    /// All policies that restrict this one. Without any, as policies are for the most part, it allocates nothing.
    fn limits(&self) -> impl Iterator<Item = &Self> {
        let limits = self.0.as_ref().map_or(&[][..], |inner| &inner.limits);
        let below = |limit| Self::levels(limit).collect::<Vec<_>>();
        limits.iter().flat_map(below)
    }

    /// Judges a call by the rules.
    #[must_use]
    pub fn judge(&self, spec: &ToolSpec, footprint: &Footprint) -> Ruling {
        let limits = self.limits().map(|limit| limit.strictest(spec, footprint));
        // Of equals, that of this policy is named.
        let ruling = limits.fold(self.strictest(spec, footprint), |one, other| {
            if strictness(other.effect) > strictness(one.effect) { other } else { one }
        });
        let name = ruling.name();
        match ruling.effect {
            RuleEffect::Allow => Ruling::Allow(name),
            RuleEffect::Deny => Ruling::Deny(name),
            RuleEffect::Ask => Ruling::Ask(name),
        }
    }

    /// Returns the effect on a call that could send out what is private, in a session that has read text of these
    /// labels; `None` for any other call, and where it is allowed.
    pub(crate) fn leak(&self, spec: &ToolSpec, footprint: &Footprint, labels: Labels) -> Option<RuleEffect> {
        if !labels.is_all() || !spec.access_of(footprint).contains(Access::NETWORK) {
            return None;
        }
        let effects = self.levels().filter_map(|level| level.0.as_ref()?.leaks);
        effects.filter(|effect| *effect != RuleEffect::Allow).max_by_key(|effect| strictness(*effect))
    }

    /// The strictest verdict of this policy's own rules.
    fn strictest(&self, spec: &ToolSpec, footprint: &Footprint) -> Applied<'_> {
        let rules = self.rules_for(spec.name());
        let access = spec.access_of(footprint);
        let ruled = |subject| self.most_specific(&rules, subject, access);
        let mut subjects = footprint.subjects().map(Some);
        let first = subjects.next().flatten();
        let blind = footprint.unclear || first.is_none() && !spec.names_subjects();
        let unseen = rules.iter().filter(|rule| {
            blind && rule.effect != RuleEffect::Allow && rule.may_concern(spec.name(), access)
        });
        let whole = footprint.unclear.then(|| ruled(None));
        let others = subjects.map(ruled).chain(unseen.map(|rule| self.applied(rule))).chain(whole);
        others.fold(ruled(first), |one, other| std::cmp::max_by(one, other, Applied::compare))
    }

    /// True if a rule with a subject asks about the call, at any level, and none denies it there.
    pub(crate) fn asks_by_subject(&self, spec: &ToolSpec, footprint: &Footprint) -> bool {
        // Of the verdicts that are equally strict, that of a rule with a subject is the strictest.
        self.levels().map(|level| level.strictest(spec, footprint)).any(|ruling| {
            ruling.effect == RuleEffect::Ask && ruling.rule.is_some_and(|rule| rule.subject.is_some())
        })
    }

    /// Rules with a subject that concern this tool and can match none of its calls, since the tool does not declare
    /// that its footprints name what its calls touch. Such a rule applies to each call without subjects if it denies or
    /// asks, and to none if it allows.
    pub fn unmatchable<'a>(&'a self, spec: &'a ToolSpec) -> impl Iterator<Item = &'a Rule> {
        self.rules().filter(move |rule| {
            !spec.names_subjects()
                && wildcard(&rule.tool, spec.name())
                && rule.may_concern(spec.name(), spec.access())
        })
    }

    /// Returns the rules, those of the policies that restrict this one included.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.levels().flat_map(Self::own_rules)
    }

    fn own_rules(&self) -> &[Rule] {
        self.0.as_ref().map_or(&[][..], |inner| &inner.rules)
    }

    fn rules_for(&self, tool: &str) -> Vec<&Rule> {
        self.own_rules().iter().filter(|rule| wildcard(&rule.tool, tool)).collect()
    }

    /// The ruling on one subject, or on the call as a whole, by those of `rules` that match it.
    fn most_specific<'a>(&'a self, rules: &[&'a Rule], subject: Option<&str>, access: Access) -> Applied<'a> {
        let matching = rules.iter().filter(|rule| rule.matches(subject));
        if let Some(rule) = matching.max_by_key(|rule| (rule.specificity(), strictness(rule.effect))) {
            return self.applied(rule);
        }
        let (effect, word) = match self.0.as_ref().and_then(|inner| inner.fallback) {
            Some(effect) => (effect, "otherwise"),
            None if needs_no_leave(access) => (RuleEffect::Allow, "default"),
            None => (RuleEffect::Ask, "default"),
        };
        Applied { effect, rule: None, word, policy: self }
    }

    fn applied<'a>(&'a self, rule: &'a Rule) -> Applied<'a> {
        Applied { effect: rule.effect, rule: Some(rule), word: "", policy: self }
    }
}

impl Rules for Policy {
    fn within(
        &self,
        spec: &ToolSpec,
        footprint: &Footprint,
    ) -> Option<Box<dyn Fn(&str) -> RuleEffect + Send + Sync>> {
        let levels: Vec<_> = self.levels().filter_map(|level| Reading::new(level, spec, footprint)).collect();
        if levels.is_empty() {
            return None;
        }
        Some(Box::new(move |path| {
            levels
                .iter()
                .map(|level| level.effect(path))
                .max_by_key(|it| strictness(*it))
                .unwrap_or(RuleEffect::Deny)
        }))
    }
}

/// One level of rules that tell paths apart, for the paths that a call reads.
struct Reading {
    policy: Policy,
    spec: ToolSpec,
    /// Rules with a subject that asked about this call, which was then allowed.
    asked: Vec<Rule>,
}

impl Reading {
    fn new(policy: &Policy, spec: &ToolSpec, footprint: &Footprint) -> Option<Self> {
        let rules = policy.rules_for(spec.name());
        if rules.iter().all(|rule| rule.subject.is_none()) {
            return None;
        }
        let mut asked: Vec<Rule> = Vec::new();
        for subject in footprint.subjects() {
            let ruling = policy.most_specific(&rules, Some(subject), spec.access_of(footprint));
            if let (RuleEffect::Ask, Some(rule)) = (ruling.effect, ruling.rule)
                && !asked.contains(rule)
            {
                asked.push(rule.clone());
            }
        }
        Some(Self { policy: policy.clone(), spec: spec.clone(), asked })
    }

    fn effect(&self, path: &str) -> RuleEffect {
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
}

/// Effect on one subject, with the rule that gave it.
#[derive(Debug, Clone)]
struct Applied<'a> {
    effect: RuleEffect,
    /// `None` where no rule matched.
    rule: Option<&'a Rule>,
    /// Stands for the rule where none matched.
    word: &'static str,
    policy: &'a Policy,
}

impl Applied<'_> {
    /// Orders by strictness, then by the rule, so that the order of subjects and rules never decides which rule is
    /// named.
    fn compare(&self, other: &Self) -> Ordering {
        let key = |it: &Self| (strictness(it.effect), it.rule.map(Rule::specificity));
        let words = |it: &Self| it.rule.map(|rule| (rule.tool.clone(), rule.subject.clone()));
        key(self).cmp(&key(other)).then_with(|| words(self).cmp(&words(other)))
    }

    /// Its name in records.
    fn name(&self) -> Cow<'static, str> {
        let is_named = self.policy.0.as_ref().is_some_and(|inner| inner.name.is_some());
        match self.rule {
            None if !is_named => Cow::Borrowed(self.word),
            _ => Cow::Owned(self.to_string()),
        }
    }
}

impl fmt::Display for Applied<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rule {
            Some(rule) => rule.fmt(f)?,
            None => f.write_str(self.word)?,
        }
        let name = self.policy.0.as_ref().and_then(|inner| inner.name.as_deref());
        name.map_or(Ok(()), |name| write!(f, " ({name})"))
    }
}

fn strictness(effect: RuleEffect) -> u8 {
    match effect {
        RuleEffect::Allow => 0,
        RuleEffect::Ask => 1,
        RuleEffect::Deny => 2,
    }
}

fn needs_no_leave(access: Access) -> bool {
    (Access::READ | Access::DELEGATE | Access::ASK).contains(access)
}

/// Matches `text` against `pattern`, in which `*` stands for any run of characters. No allocation, no recursion. Bytes
/// do: neither `*` nor a literal character can match within another character of UTF-8.
fn wildcard(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(byte) if text.get(t) == Some(byte) => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).is_some_and(|rest| rest.iter().all(|byte| *byte == b'*'))
}

#[cfg(test)]
mod tests;
