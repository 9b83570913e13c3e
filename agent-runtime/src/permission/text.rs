//! Rules in TOML.

use entourage_core::{Error, ErrorKind, Result, permission::RuleEffect};
use serde::Deserialize;
use toml_parser::{Source, lexer::TokenKind};

use super::{Policy, Rule};

/// Most bytes of a text.
const LARGEST: usize = 64 << 10;

/// Most dots between two commas or line ends, texts and comments aside. Rules need none.
const DOTS: usize = 8;

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
        if !is_shallow(text) {
            let text = "these are no rules: a key has too many parts; write `allow`, `ask` and `deny` as lists of texts";
            return Err(Error::new(ErrorKind::InvalidInput, text));
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

/// True for a text whose keys have few parts each. The reader bounds brackets, and the parts of a key, each alone: both
/// together make values so deep that dropping them uses up the stack.
fn is_shallow(text: &str) -> bool {
    let mut dots = 0_usize;
    Source::new(text).lex().all(|token| {
        match token.kind() {
            TokenKind::Dot => dots = dots.saturating_add(1),
            TokenKind::Comma | TokenKind::Newline | TokenKind::LeftCurlyBracket => dots = 0,
            _ => {}
        }
        dots <= DOTS
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_46_rules_that_nest_by_dots_and_brackets_together_are_refused() {
        let keys = "a.".repeat(75);
        let (inline, ends) = (format!("{{{keys}a=").repeat(75), "}".repeat(75));
        let lists = format!("[{{{keys}a=").repeat(35);
        for text in [
            format!("a = {inline}1{ends}"),
            format!("[{keys}a]\n{keys}a = {inline}1{ends}"),
            format!("deny = {lists}1{}", "}]".repeat(35)),
            // Within what is counted nothing is deep.
            format!("deny = {}1{}", "{a.a.a.a.a.a.a.a.a=".repeat(79), "}".repeat(79)),
        ] {
            assert_eq!(Policy::from_toml(&text).unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        let text = format!("deny = ['{0}', \"{0}\"] # {0}", "a.b.c[{".repeat(100));
        assert!(Policy::from_toml(&text).is_ok());
    }
}
