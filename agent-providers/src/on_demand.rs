//! Tools that a service searches and loads on demand, for the wires of services that do. Pure.

use std::collections::BTreeSet;

use entourage_core::tool::ToolSpec;

/// The tools that a service shows its model only once a search found them: all but those that are kept.
#[derive(Debug, Clone, Default)]
pub(crate) struct OnDemand {
    kept: Option<BTreeSet<String>>,
}

impl OnDemand {
    pub(crate) fn except<S: Into<String>>(kept: impl IntoIterator<Item = S>) -> Self {
        Self { kept: Some(kept.into_iter().map(Into::into).collect()) }
    }

    pub(crate) fn has(&self, tool: &ToolSpec) -> bool {
        self.kept.as_ref().is_some_and(|kept| !kept.contains(tool.name()))
    }

    pub(crate) fn has_any(&self, tools: &[ToolSpec]) -> bool {
        tools.iter().any(|tool| self.has(tool))
    }
}
