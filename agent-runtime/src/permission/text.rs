//! Rules in TOML.

use entourage_core::{Error, ErrorKind, Result, permission::RuleEffect};
use serde::Deserialize;

use super::{Policy, Rule};

/// Most bytes of a text.
const LARGEST: usize = 64 << 10;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    otherwise: Option<RuleEffect>,
    leaks: Option<RuleEffect>,
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    ask: Vec<String>,
    #[serde(default)]
    deny: Vec<String>,
}

impl Policy {
    /// Reads rules from TOML: lists of patterns under `allow`, `ask` and `deny`; `otherwise` and `leaks` as one of
    /// these words, for [`Policy::otherwise`] and [`Policy::leaks`]. Each may be missing. Their order does not matter.
    ///
    /// A text that comes with a project is not to be trusted: let it restrict your own rules, with
    /// [`Policy::restricted_by`].
    ///
    /// ```
    /// use entourage_runtime::permission::Policy;
    ///
    /// let policy = Policy::from_toml(
    ///     r#"
    ///     allow = ["bash:cargo test", "write:docs/*"]
    ///     deny = ["*:.env", "bash:sudo *"]
    ///     otherwise = "ask"
    ///     "#,
    /// );
    /// assert!(policy.is_ok());
    /// assert!(Policy::from_toml("denny = []").unwrap_err().message().contains("denny"));
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for other keys, other types, and patterns with an empty part or white space around
    /// it; [`ErrorKind::TooLarge`] for more than 64 KiB, since each call is judged by all of it.
    pub fn from_toml(text: &str) -> Result<Self> {
        if text.len() > LARGEST {
            return Err(Error::new(
                ErrorKind::TooLarge,
                "the rules have more than 64 KiB; use patterns with `*`",
            ));
        }
        let rules: Rules = toml::from_str(text)
            .map_err(|error| Error::new(ErrorKind::InvalidInput, format!("these are no rules: {error}")))?;
        let lists =
            [(RuleEffect::Allow, rules.allow), (RuleEffect::Ask, rules.ask), (RuleEffect::Deny, rules.deny)];
        let policy = rules.otherwise.into_iter().fold(Self::new(), Self::otherwise);
        let mut policy = rules.leaks.into_iter().fold(policy, Self::leaks);
        for (effect, patterns) in lists {
            for pattern in patterns {
                let rule = Rule::parse(effect, &pattern);
                let parts = [Some(&rule.tool), rule.subject.as_ref()];
                if parts.into_iter().flatten().any(|part| part.is_empty() || part.trim() != part) {
                    let text = "a rule is the pattern of a tool, such as `write`, or one of a subject as well, such as `write:docs/*`, without \
                                white space around them";
                    return Err(Error::new(ErrorKind::InvalidInput, text).with("rule", pattern));
                }
                policy = policy.rule(rule);
            }
        }
        Ok(policy)
    }
}
