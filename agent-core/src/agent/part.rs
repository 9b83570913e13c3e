//! Code by name: what agents and tools are made of.

use std::{fmt, sync::Arc};

use super::{Agent, IntoAgent};
use crate::{
    provider::ModelSlot,
    tool::{Repair, Tools},
};

/// A piece of code that an agent or a tool is made of.
#[derive(Clone)]
#[non_exhaustive]
pub enum AgentPart {
    /// A model that it calls.
    Model(ModelSlot),
    /// Tools that it calls, or offers to a model.
    Tools(Tools),
    /// The repair of its models' calls.
    Repair(Arc<dyn Repair>),
    /// An agent that it starts.
    Agent {
        /// The name that its [`Spawn`](crate::run::Spawn) gives it, unique among the parts.
        name: Arc<str>,
        /// The agent.
        agent: Arc<dyn Agent>,
    },
}

impl fmt::Debug for AgentPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model(model) => model.fmt(f),
            Self::Tools(tools) => tools.fmt(f),
            Self::Repair(repair) => repair.fmt(f),
            Self::Agent { name, .. } => name.fmt(f),
        }
    }
}

impl AgentPart {
    /// Creates the part for an agent that is started under its own name.
    pub fn agent<Form>(agent: impl IntoAgent<Form>) -> Self {
        let agent = agent.into_agent();
        Self::Agent { name: agent.name().into(), agent }
    }
}
