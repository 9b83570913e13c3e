//! The ceiling over an agent: which access and which tools it may ever use. It can only narrow.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::tool::{Access, Footprint, ToolSpec};

/// What an agent may ever do. A child's scope is the intersection of what it asks for and what its parent has.
///
/// ```
/// use entourage_core::{permission::Scope, tool::Access};
///
/// let parent = Scope::all().with_access(Access::READ | Access::WRITE);
/// let child = parent.narrow(&Scope::all().with_tools(["view", "grep"]));
/// assert_eq!(child.access(), Access::READ | Access::WRITE);
/// assert!(!child.has_tool("write"));
/// assert_eq!(child.narrow(&Scope::all()), child);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    access: Access,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tools: Option<Arc<BTreeSet<String>>>,
    /// Never empty, and `None` beside `tools`, which then lacks them: equal scopes look alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    without: Option<Arc<BTreeSet<String>>>,
}

impl Scope {
    /// No ceiling.
    #[must_use]
    pub fn all() -> Self {
        Self { access: Access::ALL, tools: None, without: None }
    }

    /// Reading only.
    #[must_use]
    pub fn read_only() -> Self {
        Self { access: Access::READ, ..Self::all() }
    }

    /// Nothing outside a tool's own arguments.
    #[must_use]
    pub fn none() -> Self {
        Self { access: Access::NONE, ..Self::all() }
    }

    /// The same scope with at most `access`.
    #[must_use]
    pub fn with_access(mut self, access: Access) -> Self {
        self.access = self.access.intersection(access);
        self
    }

    /// The same scope with at most the tools named.
    #[must_use]
    pub fn with_tools<S: Into<String>>(self, names: impl IntoIterator<Item = S>) -> Self {
        let names = names.into_iter().map(Into::into).collect();
        self.narrow(&Self { tools: Some(Arc::new(names)), ..Self::all() })
    }

    /// The same scope without the tools named, whoever has them: a tool's name and not the tool is what is judged.
    ///
    /// ```
    /// use entourage_core::permission::Scope;
    ///
    /// let leaf = Scope::all().without_tools(["agent"]);
    /// assert!(!leaf.has_tool("agent") && leaf.has_tool("view"));
    /// assert_eq!(leaf.narrow(&Scope::all().with_tools(["agent", "view"])), Scope::all().with_tools(["view"]));
    /// ```
    #[must_use]
    pub fn without_tools<S: Into<String>>(self, names: impl IntoIterator<Item = S>) -> Self {
        let names: BTreeSet<_> = names.into_iter().map(Into::into).collect();
        let without = (!names.is_empty()).then(|| Arc::new(names));
        self.narrow(&Self { without, ..Self::all() })
    }

    /// What this scope and `other` both admit.
    #[must_use]
    pub fn narrow(&self, other: &Self) -> Self {
        let tools = match (&self.tools, &other.tools) {
            (Some(a), Some(b)) => Some(Arc::new(a.intersection(b).cloned().collect())),
            (some, None) | (None, some) => some.clone(),
        };
        let without = match (&self.without, &other.without) {
            (Some(a), Some(b)) if a != b => Some(Arc::new(a.union(b).cloned().collect())),
            (some, None) | (None | Some(_), some) => some.clone(),
        };
        let access = self.access.intersection(other.access);
        match (tools, without) {
            (Some(tools), Some(without)) if tools.is_disjoint(&without) => {
                Self { access, tools: Some(tools), without: None }
            }
            (Some(tools), Some(without)) => Self {
                access,
                tools: Some(Arc::new(tools.difference(&without).cloned().collect())),
                without: None,
            },
            (tools, without) => Self { access, tools, without },
        }
    }

    /// Whether nothing is excluded.
    pub(crate) fn is_all(&self) -> bool {
        self.access == Access::ALL && self.tools.is_none() && self.without.is_none()
    }

    /// Whether some call of this tool may be admitted: otherwise a model need not be shown it.
    #[must_use]
    pub fn offers(&self, spec: &ToolSpec) -> bool {
        self.has_tool(spec.name()) && self.access.contains(spec.access())
    }

    /// The most that a call may touch.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Whether a tool of this name may be used at all.
    #[must_use]
    pub fn has_tool(&self, name: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.contains(name))
            && self.without.as_ref().is_none_or(|without| !without.contains(name))
    }

    /// Whether everything that `other` admits is admitted here.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        self.narrow(other) == *other
    }

    /// Whether a call may run. The declared access counts as well as the call's own, so a footprint that claims too
    /// little does not help.
    ///
    /// # Errors
    /// The text for the model: the tool, what it needs and what is held.
    pub fn admits(&self, spec: &ToolSpec, footprint: &Footprint) -> Result<(), String> {
        let name = spec.name();
        if !self.has_tool(name) {
            let held = match &self.tools {
                Some(tools) if tools.is_empty() => "no tool".to_owned(),
                Some(tools) => tools.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
                None => "others".to_owned(),
            };
            let needed = spec.access();
            return Err(format!(
                "the tool `{name}` ({needed} access) is outside this agent's scope, which holds {held} only"
            ));
        }
        let needed = spec.access() | footprint.access;
        if !self.access.contains(needed) {
            return Err(format!(
                "the tool `{name}` needs {needed} access, and this agent's scope holds {} only",
                self.access
            ));
        }
        Ok(())
    }
}

impl Default for Scope {
    fn default() -> Self {
        Self::all()
    }
}
