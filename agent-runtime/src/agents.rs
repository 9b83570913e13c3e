//! Agents by name.

use std::{collections::HashMap, fmt, sync::Arc};

use entourage_core::agent::{Agent, IntoAgent};

/// Agents by name, which may continue the runs that a process left, or are the code of an [`engine`](crate::engine).
/// Cloning shares them.
#[derive(Clone, Default)]
pub struct Agents(Arc<HashMap<String, Arc<dyn Agent>>>);

impl Agents {
    /// Creates a set without agents.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `agent`, instead of any other of its name.
    #[must_use]
    pub fn with<Form>(mut self, agent: impl IntoAgent<Form>) -> Self {
        let agent = agent.into_agent();
        Arc::make_mut(&mut self.0).insert(agent.name().to_owned(), agent);
        self
    }

    /// Returns the agent of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Agent>> {
        self.0.get(name)
    }
}

impl fmt::Debug for Agents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
