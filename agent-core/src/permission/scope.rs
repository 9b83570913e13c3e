//! The ceiling over an agent: the access and the tools that it may ever use. It can only be narrowed.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::spec::{Access, Footprint, ToolSpec};

/// Most that an agent may ever do. A child's scope is the intersection of its own with its parent's.
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
    /// Excluded tools. Never empty, and `None` if `tools` is set, which then lacks them: equal scopes have equal
    /// fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    without: Option<Arc<BTreeSet<String>>>,
}

impl Scope {
    /// The scope without limits.
    pub fn all() -> Self {
        Self { access: Access::ALL, tools: None, without: None }
    }

    /// The scope of reading only.
    pub fn read_only() -> Self {
        Self { access: Access::READ, ..Self::all() }
    }

    /// The scope without access to anything but a tool's own arguments.
    pub fn none() -> Self {
        Self { access: Access::NONE, ..Self::all() }
    }

    /// The same scope with at most `access`.
    #[must_use]
    pub fn with_access(mut self, access: Access) -> Self {
        self.access = self.access.intersection(access);
        self
    }

    /// The same scope with at most the named tools.
    #[must_use]
    pub fn with_tools<S: Into<String>>(self, names: impl IntoIterator<Item = S>) -> Self {
        let names = names.into_iter().map(Into::into).collect();
        self.narrow(&Self { tools: Some(Arc::new(names)), ..Self::all() })
    }

    /// The same scope without the named tools. A tool is judged by its name alone, whatever it does.
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

    /// The intersection of this scope and `other`.
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
        let tools = match (&tools, &without) {
            (Some(tools), Some(without)) => Some(Arc::new(tools.difference(without).cloned().collect())),
            _ => tools,
        };
        let without = without.filter(|_| tools.is_none());
        Self { access: self.access.intersection(other.access), tools, without }
    }

    /// True if nothing is excluded.
    pub fn is_all(&self) -> bool {
        self.access == Access::ALL && self.tools.is_none() && self.without.is_none()
    }

    /// True if the scope may admit a call of this tool. If not, the tool need not be offered to a model.
    pub fn offers(&self, spec: &ToolSpec) -> bool {
        self.has_tool(spec.name()) && self.access.contains(spec.access())
    }

    /// Access that a call may have at most.
    pub fn access(&self) -> Access {
        self.access
    }

    /// True if a tool of this name may be used at all.
    pub fn has_tool(&self, name: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.contains(name))
            && self.without.as_ref().is_none_or(|without| !without.contains(name))
    }

    /// True if this scope admits everything that `other` admits.
    pub fn contains(&self, other: &Self) -> bool {
        self.narrow(other) == *other
    }

    /// Checks a call against the scope. The declared access counts as well as the footprint's, so a footprint that
    /// claims too little gains nothing.
    ///
    /// # Errors
    /// The text for the model: the tool, the access that it needs, and the access or tools that the scope holds.
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
