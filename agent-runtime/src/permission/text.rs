//! Rules in TOML.

use entourage_core::{Error, ErrorKind, Result, permission::RuleEffect};
use serde::Deserialize;

use super::{Policy, Rule};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    otherwise: Option<RuleEffect>,
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    ask: Vec<String>,
    #[serde(default)]
    deny: Vec<String>,
}

impl Policy {
    /// Reads rules from TOML: lists of patterns under `allow`, `ask` and `deny`, and `otherwise` as one of these words.
    /// Each of them may be missing. Their order does not matter.
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
    /// [`ErrorKind::InvalidInput`] for other keys, other types, and patterns without a tool; it says where.
    pub fn from_toml(text: &str) -> Result<Self> {
        let rules: Rules = toml::from_str(text)
            .map_err(|error| Error::new(ErrorKind::InvalidInput, format!("these are no rules: {error}")))?;
        let lists =
            [(RuleEffect::Allow, rules.allow), (RuleEffect::Ask, rules.ask), (RuleEffect::Deny, rules.deny)];
        let mut policy = rules.otherwise.into_iter().fold(Self::new(), Self::otherwise);
        for (effect, patterns) in lists {
            for pattern in patterns {
                let rule = Rule::parse(effect, &pattern);
                if rule.tool.is_empty() {
                    let text = "a rule needs the pattern of a tool, such as `write` or `write:docs/*`";
                    return Err(Error::new(ErrorKind::InvalidInput, text).with("rule", pattern));
                }
                policy = policy.rule(rule);
            }
        }
        Ok(policy)
    }
}
