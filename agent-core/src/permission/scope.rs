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
}

impl Scope {
    /// No ceiling.
    #[must_use]
    pub fn all() -> Self {
        Self { access: Access::ALL, tools: None }
    }

    /// Reading only.
    #[must_use]
    pub fn read_only() -> Self {
        Self { access: Access::READ, tools: None }
    }

    /// Nothing outside a tool's own arguments.
    #[must_use]
    pub fn none() -> Self {
        Self { access: Access::NONE, tools: None }
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
        let named =
            Self { access: Access::ALL, tools: Some(Arc::new(names.into_iter().map(Into::into).collect())) };
        self.narrow(&named)
    }

    /// What this scope and `other` both admit.
    #[must_use]
    pub fn narrow(&self, other: &Self) -> Self {
        let tools = match (&self.tools, &other.tools) {
            (Some(a), Some(b)) => Some(Arc::new(a.intersection(b).cloned().collect())),
            (some, None) | (None, some) => some.clone(),
        };
        Self { access: self.access.intersection(other.access), tools }
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
            return Err(format!(
                "the tool `{name}` is outside this agent's scope; it holds other tools only"
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
