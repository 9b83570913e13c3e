//! Rules: allow, deny, ask. The most specific rule wins.

use std::{borrow::Cow, sync::Arc};

use serde::{Deserialize, Serialize};

use super::Verdict;
use crate::tool::{Access, Footprint, ToolSpec};

/// What a rule says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleEffect {
    /// Run it.
    Allow,
    /// Refuse it and end the turn.
    Deny,
    /// Ask somebody.
    Ask,
}

/// One rule: an effect for calls whose tool and subject match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Rule {
    /// What to do.
    pub effect: RuleEffect,
    /// Pattern on the tool's name; `*` stands for any run of characters.
    pub tool: String,
    /// Pattern on what the call touches: its command, else each of its paths and hosts. `None` matches every call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
}

impl Rule {
    fn parse(effect: RuleEffect, pattern: &str) -> Self {
        match pattern.split_once(':') {
            Some((tool, subject)) => {
                Self { effect, tool: tool.to_owned(), subject: Some(subject.to_owned()) }
            }
            None => Self { effect, tool: pattern.to_owned(), subject: None },
        }
    }

    /// An allowing or asking rule must cover everything the call touches; a denying one needs a single match.
    fn matches(&self, spec: &ToolSpec, footprint: &Footprint) -> bool {
        if !wildcard(&self.tool, spec.name()) {
            return false;
        }
        let Some(subject) = &self.subject else { return true };
        let mut subjects = footprint.subjects();
        match self.effect {
            RuleEffect::Deny => subjects.any(|it| wildcard(subject, it)),
            RuleEffect::Allow | RuleEffect::Ask => {
                let mut some = false;
                subjects.all(|it| {
                    some = true;
                    wildcard(subject, it)
                }) && some
            }
        }
    }

    /// More literal characters are more specific; a pattern on the subject beats any on the name alone.
    fn specificity(&self) -> (bool, usize, usize) {
        let literal = |pattern: &str| pattern.chars().filter(|c| *c != '*').count();
        (self.subject.is_some(), self.subject.as_deref().map_or(0, literal), literal(&self.tool))
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let effect = match self.effect {
            RuleEffect::Allow => "allow",
            RuleEffect::Deny => "deny",
            RuleEffect::Ask => "ask",
        };
        write!(f, "{effect} {}", self.tool)?;
        self.subject.as_ref().map_or(Ok(()), |subject| write!(f, ":{subject}"))
    }
}

/// Rules over tools. Where none matches, what changes nothing is allowed and anything else is asked for.
///
/// A pattern is `tool` or `tool:subject`, where the subject is the call's command, else its paths and hosts, and `*`
/// stands for any run of characters. The most specific matching rule wins; among equals deny beats ask beats allow.
///
/// ```
/// use entourage_core::permission::Policy;
///
/// let policy = Policy::new().allow("write:docs/*").deny("write:*.lock").ask("shell");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy(Option<Arc<Inner>>);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Inner {
    rules: Vec<Rule>,
    fallback: Option<RuleEffect>,
}

impl Policy {
    /// No rules: reading is allowed, anything else is asked for.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Everything that the scope admits is allowed.
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

    /// What to do where no rule matches.
    #[must_use]
    pub fn otherwise(mut self, effect: RuleEffect) -> Self {
        self.inner().fallback = Some(effect);
        self
    }

    fn inner(&mut self) -> &mut Inner {
        Arc::make_mut(self.0.get_or_insert_default())
    }

    /// What the rules say about a call.
    #[must_use]
    pub fn judge(&self, spec: &ToolSpec, footprint: &Footprint) -> Verdict {
        let strictness = |effect: RuleEffect| match effect {
            RuleEffect::Allow => 0,
            RuleEffect::Ask => 1,
            RuleEffect::Deny => 2,
        };
        let rules = self.0.as_ref().map_or(&[][..], |inner| &inner.rules);
        let best = rules
            .iter()
            .filter(|rule| rule.matches(spec, footprint))
            .max_by_key(|rule| (rule.specificity(), strictness(rule.effect)));
        let (effect, name) = match best {
            Some(rule) => (rule.effect, Cow::Owned(rule.to_string())),
            None => match self.0.as_ref().and_then(|inner| inner.fallback) {
                Some(effect) => (effect, Cow::Borrowed("otherwise")),
                None if needs_no_leave(spec.access() | footprint.access) => {
                    (RuleEffect::Allow, Cow::Borrowed("default"))
                }
                None => (RuleEffect::Ask, Cow::Borrowed("default")),
            },
        };
        match effect {
            RuleEffect::Allow => Verdict::Allow(name),
            RuleEffect::Deny => Verdict::Deny(name),
            RuleEffect::Ask => Verdict::Ask(name),
        }
    }
}

fn needs_no_leave(access: Access) -> bool {
    (Access::READ | Access::DELEGATE | Access::ASK).contains(access)
}

/// Whether `text` matches `pattern`, in which `*` stands for any run of characters. Linear in memory, no recursion.
fn wildcard(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if text.get(t) == Some(c) => {
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
    pattern.get(p..).is_some_and(|rest| rest.iter().all(|c| *c == '*'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(access: Access) -> ToolSpec {
        ToolSpec::new("write", "", json!({})).with_access(access)
    }

    #[test]
    fn wildcards() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("a*c", "abc", true),
            ("a*c", "abcd", false),
            ("*b*", "abc", true),
            ("git *", "git status", true),
            ("git *", "gitstatus", false),
            ("**é", "né", true),
            ("", "x", false),
        ] {
            assert_eq!(wildcard(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn without_rules_reading_is_allowed_and_writing_asked_for() {
        let policy = Policy::new();
        assert!(matches!(policy.judge(&spec(Access::READ), &Footprint::default()), Verdict::Allow(_)));
        for access in [Access::WRITE, Access::EXECUTE, Access::NETWORK] {
            assert!(
                matches!(policy.judge(&spec(access), &Footprint::default()), Verdict::Ask(_)),
                "{access}"
            );
        }
    }

    #[test]
    fn the_most_specific_rule_wins_and_deny_needs_one_match() {
        let policy = Policy::new().allow("write:docs/*").deny("write:*.lock").ask("w*");
        let judge = |paths: &[&str]| {
            let footprint = paths.iter().fold(Footprint::new(Access::WRITE), |f, path| f.writing(*path));
            policy.judge(&spec(Access::WRITE), &footprint)
        };
        assert_eq!(judge(&["docs/a.md"]), Verdict::Allow("allow write:docs/*".into()));
        assert_eq!(judge(&["src/a.rs"]), Verdict::Ask("ask w*".into()));
        assert_eq!(
            judge(&["docs/a.md", "src/a.rs"]),
            Verdict::Ask("ask w*".into()),
            "one path is not covered"
        );
        assert_eq!(
            judge(&["docs/a.lock"]),
            Verdict::Deny("deny write:*.lock".into()),
            "equal length: deny wins"
        );
        assert_eq!(judge(&[]), Verdict::Ask("ask w*".into()), "a subject pattern needs a subject");
    }
}
