//! Scopes and rules for the usual degrees of trust.

use std::{fmt, str::FromStr};

use entourage_core::{Error, ErrorKind, permission::Scope, tool::Access};

use super::Policy;

/// A degree of trust in an agent that works with files and commands.
///
/// | preset | scope | rules |
/// |---|---|---|
/// | `read` | reads, starts agents, asks the user | reading is allowed |
/// | `ask` | everything but starting agents | an approver is asked before anything but reading |
/// | `edit` | everything | `write`, `edit`, `multiedit` and `undo` run unasked; an approver is asked before the rest |
/// | `full` | everything | every call is allowed |
///
/// ```
/// use entourage_runtime::permission::Preset;
///
/// let preset: Preset = "edit".parse().unwrap();
/// assert_eq!(preset, Preset::Edit);
/// assert!("yolo".parse::<Preset>().unwrap_err().message().contains("read, ask, edit, full"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Preset {
    /// Reads, and changes nothing.
    Read,
    /// Asks before each change and command.
    Ask,
    /// Changes files unasked, and asks before anything else.
    Edit,
    /// Asks about nothing.
    Full,
}

impl Preset {
    /// All presets, from the least trust to the most.
    pub const ALL: [Self; 4] = [Self::Read, Self::Ask, Self::Edit, Self::Full];

    /// The name, as it is parsed and shown.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Ask => "ask",
            Self::Edit => "edit",
            Self::Full => "full",
        }
    }

    /// The most that the agent may do.
    #[must_use]
    pub fn scope(self) -> Scope {
        match self {
            Self::Read => Scope::all().with_access(Access::READ | Access::DELEGATE | Access::ASK),
            Self::Ask => Scope::all().with_access(Access::ALL - Access::DELEGATE),
            Self::Edit | Self::Full => Scope::all(),
        }
    }

    /// The rules, to which more can be added.
    #[must_use]
    pub fn policy(self) -> Policy {
        match self {
            Self::Read | Self::Ask => Policy::new(),
            Self::Edit => {
                ["write", "edit", "multiedit", "undo"].into_iter().fold(Policy::new(), Policy::allow)
            }
            Self::Full => Policy::allow_all(),
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Preset {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|preset| preset.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::new(ErrorKind::InvalidInput, format!("there is no such preset; use one of {names}"))
                .with("preset", name)
        })
    }
}

#[cfg(test)]
mod tests {
    use entourage_core::tool::{Footprint, ToolSpec};
    use serde_json::json;

    use super::*;
    use crate::permission::{Ruling, judge};

    #[test]
    fn ai11_each_preset_admits_and_asks_as_its_table_says() {
        let tool =
            |name: &str, access| ToolSpec::new(name, "", json!({})).with_access(access).naming_subjects();
        let tools = [
            (tool("view", Access::READ), ["allow", "allow", "allow", "allow"]),
            (tool("question", Access::ASK), ["allow", "allow", "allow", "allow"]),
            (tool("agent", Access::DELEGATE), ["allow", "scope", "allow", "allow"]),
            (tool("edit", Access::WRITE), ["scope", "ask", "allow", "allow"]),
            (tool("undo", Access::WRITE), ["scope", "ask", "allow", "allow"]),
            (tool("editor", Access::WRITE), ["scope", "ask", "ask", "allow"]),
            (
                tool("bash", Access::WRITE | Access::EXECUTE | Access::NETWORK),
                ["scope", "ask", "ask", "allow"],
            ),
            (tool("fetch", Access::NETWORK), ["scope", "ask", "ask", "allow"]),
        ];
        for (spec, expected) in tools {
            let verdicts = Preset::ALL.map(|preset| {
                let footprint = Footprint::new(spec.access()).writing("a");
                match judge(&preset.scope(), &preset.policy(), &spec, &footprint) {
                    Ruling::Allow(_) => "allow",
                    Ruling::Deny(_) => "deny",
                    Ruling::OutOfScope(_) => "scope",
                    Ruling::Ask(_) => "ask",
                }
            });
            assert_eq!(verdicts, expected, "{}", spec.name());
        }
        assert_eq!(Preset::ALL.map(|preset| preset.to_string().parse::<Preset>().unwrap()), Preset::ALL);
    }
}
