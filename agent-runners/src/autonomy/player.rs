//! The agents that work and check. A [`ReactAgent`] can be given a tool and asked for a summary; any other agent is
//! taken as it is.

use std::{fmt, sync::Arc};

use entourage_core::{Error, ErrorKind, Result, agent::Agent, message::Message, provider::ModelSlot};

use super::{
    TASK_COMPLETE,
    digest::{digest, digest_of_calls},
};
use crate::{ReactAgent, person::Person, react::Typed};

#[derive(Clone)]
pub(crate) enum Player {
    React(ReactAgent),
    Other(Arc<dyn Agent>),
}

impl Player {
    pub(crate) fn new(agent: Arc<dyn Agent>) -> Self {
        match agent.as_any().and_then(|any| any.downcast_ref::<ReactAgent>()) {
            Some(react) => Self::React(react.clone()),
            None => Self::Other(agent),
        }
    }

    pub(crate) fn agent(&self) -> Arc<dyn Agent> {
        match self {
            Self::React(react) => Arc::new(react.clone()),
            Self::Other(agent) => Arc::clone(agent),
        }
    }

    pub(crate) fn react(&self) -> Option<&ReactAgent> {
        if let Self::React(react) = self { Some(react) } else { None }
    }

    /// Digests what the agent did. What it said is left out if guards look at its answers: they saw nothing else.
    pub(crate) fn digest(&self, work: &[Arc<Message>]) -> String {
        let guarded = match self {
            Self::React(react) => react.is_guarded(),
            Self::Other(agent) => {
                let typed = agent.as_any().and_then(|any| any.downcast_ref::<Typed>());
                typed.is_some_and(|typed| typed.0.is_guarded())
            }
        };
        if guarded { digest_of_calls(work) } else { digest(work) }
    }

    /// True for a person, who has no tools.
    pub(crate) fn is_person(&self) -> bool {
        let Self::Other(agent) = self else { return false };
        agent.as_any().is_some_and(|any| any.is::<Person>())
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::React(react) => react.name(),
            Self::Other(agent) => agent.name(),
        }
    }

    pub(crate) fn description(&self) -> &str {
        match self {
            Self::React(react) => react.description(),
            Self::Other(agent) => agent.description(),
        }
    }

    /// True when the agent has a tool `task_complete` of its own.
    pub(crate) fn claims(&self) -> bool {
        self.react().is_some_and(|react| react.tool_set().get(TASK_COMPLETE).is_some())
    }

    /// Returns the same agent on another model.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for an agent that is no [`ReactAgent`].
    pub(crate) fn with_model(&self, model: impl Into<ModelSlot>) -> Result<Self> {
        let other = || {
            let text = "only the model of a `ReactAgent` can be changed; build the agent of this role anew";
            Error::new(ErrorKind::InvalidInput, text)
        };
        Ok(Self::React(self.react().ok_or_else(other)?.with_model(model)))
    }
}

impl fmt::Debug for Player {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::React(react) => react.fmt(f),
            Self::Other(agent) => write!(f, "Agent({:?})", agent.name()),
        }
    }
}
