//! Code found by name: the agent of a run, and the models and tools that it is made of.

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind, Result,
    agent::{Agent, AgentPart},
    provider::Model,
    run::Spawn,
    tool::{Repair, Tool, Tools},
};
use serde::{Deserialize, Serialize};

use crate::agents::Agents;

/// The name by which an agent was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PartName {
    /// The agent's own name.
    pub agent: String,
    /// Its name among the parts of whoever started it; `None`: its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// The tool that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
}

impl PartName {
    /// Creates the name of an agent that was started as itself.
    pub fn new(agent: impl Into<String>) -> Self {
        Self { agent: agent.into(), part: None, tool: None }
    }

    /// Returns the name by which `spawn` starts its agent.
    #[must_use]
    pub fn of(spawn: &Spawn) -> Self {
        let text = |name: &Arc<str>| name.to_string();
        Self {
            agent: spawn.agent.name().to_owned(),
            part: spawn.part.as_ref().map(text),
            tool: spawn.tool.as_ref().map(text),
        }
    }

    /// Returns the agents of this name among the parts of `above`, or of the tool there.
    fn among(&self, above: &dyn Agent) -> Vec<Arc<dyn Agent>> {
        let wanted = self.part.as_ref().unwrap_or(&self.agent);
        let parts = match &self.tool {
            Some(tool) => tools_of(&above.parts(), tool).iter().flat_map(|tool| tool.parts()).collect(),
            None => above.parts(),
        };
        let named = parts.into_iter().filter_map(|part| match part {
            AgentPart::Agent { name, agent } if *name == **wanted => Some(agent),
            _ => None,
        });
        named.filter(|agent| agent.name() == self.agent).collect()
    }
}

/// The code of one run, as a process finds it: an agent by its path, below an agent of a set.
///
/// It is looked up anew at each use, so that a change of an agent's model or tools is seen.
#[derive(Debug, Clone)]
pub struct Code {
    agents: Agents,
    path: Vec<PartName>,
}

impl Code {
    /// Creates the code at `path`: the name of one of `agents`, and the names by which the agents below were started.
    pub fn new(agents: Agents, path: impl IntoIterator<Item = PartName>) -> Self {
        Self { agents, path: path.into_iter().collect() }
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &[PartName] {
        &self.path
    }

    /// Returns the code of an agent that this one starts.
    #[must_use]
    pub fn below(&self, name: PartName) -> Self {
        let mut below = self.clone();
        below.path.push(name);
        below
    }

    /// Returns the agent: a part of the one that starts it, or one of the set.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when there is no such agent, or several are meant.
    pub fn agent(&self) -> Result<Arc<dyn Agent>> {
        let mut found: Option<Arc<dyn Agent>> = None;
        for name in &self.path {
            let mut parts = found.as_deref().map(|above| name.among(above)).unwrap_or_default();
            if parts.is_empty() {
                parts.extend(self.agents.get(&name.agent).cloned());
            }
            found = Some(self.only(parts, is_same, "agent", &name.agent)?);
        }
        found.ok_or_else(|| self.missing("agent", ""))
    }

    /// Returns the model of this name and provider.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when it is none of the agent's parts, or two of them that differ have this name.
    pub fn model(&self, provider: &str, name: &str) -> Result<Model> {
        let models = self.agent()?.parts().into_iter().filter_map(|part| match part {
            AgentPart::Model(slot) => Some(slot.model()),
            _ => None,
        });
        let named = models.filter(|model| **model.provider_name() == *provider && **model.name() == *name);
        let same = |one: &Model, other: &Model| {
            is_same(one.provider(), other.provider()) && one.params() == other.params()
        };
        self.only(named, same, "model", &format!("{provider}:{name}"))
    }

    /// Returns the tools of these names.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when one is none of the agent's parts, or two tools have its name.
    pub fn tools(&self, names: &[String]) -> Result<Tools> {
        if names.is_empty() {
            return Ok(Tools::none());
        }
        let parts = self.agent()?.parts();
        let tool = |name: &String| self.only(tools_of(&parts, name), is_same, "tool", name);
        Tools::new(names.iter().map(tool).collect::<Result<Vec<_>>>()?)
    }

    /// Returns the agent's repair of calls; `None` when it has none.
    ///
    /// # Errors
    /// As [`Code::agent`]; [`ErrorKind::Config`] when it has two.
    pub fn repair(&self) -> Result<Option<Arc<dyn Repair>>> {
        let mut repairs = self.agent()?.parts().into_iter().filter_map(|part| match part {
            AgentPart::Repair(repair) => Some(repair),
            _ => None,
        });
        let Some(first) = repairs.next() else { return Ok(None) };
        self.only(std::iter::once(first).chain(repairs), is_same, "repair", "").map(Some)
    }

    /// Returns the one part that was found by its name.
    fn only<T>(
        &self,
        found: impl IntoIterator<Item = T>,
        same: impl Fn(&T, &T) -> bool,
        what: &str,
        name: &str,
    ) -> Result<T> {
        let mut found = found.into_iter();
        let first = found.next().ok_or_else(|| self.missing(what, name))?;
        if found.all(|other| same(&first, &other)) {
            return Ok(first);
        }
        let text = format!("two parts are a {what} named `{name}` and differ; give each a name of its own");
        Err(Error::new(ErrorKind::Config, text).with("agent", self.shown()))
    }

    /// Returns the error of a part that is another one than was meant.
    pub(super) fn differs(&self, what: &str, name: &str) -> Error {
        let text = format!(
            "the {what} `{name}` that is found by name is another one than the agent used; list the one that a hook \
             offers in `Agent::parts`, under a name of its own"
        );
        Error::new(ErrorKind::Config, text).with("agent", self.shown())
    }

    /// Returns the names from the root down, joined by `/`.
    fn shown(&self) -> String {
        let path: Vec<_> = self.path.iter().map(|name| name.agent.as_str()).collect();
        path.join("/")
    }

    fn missing(&self, what: &str, name: &str) -> Error {
        let text = format!(
            "no {what} `{name}` was found by name; list it in `Agent::parts` of the agent that uses it{}",
            if what == "agent" { ", or add it to the engine's `Agents`" } else { "" }
        );
        Error::new(ErrorKind::Config, text).with("agent", self.shown())
    }
}

/// Returns the tools of this name among the parts of an agent.
fn tools_of(parts: &[AgentPart], name: &str) -> Vec<Arc<dyn Tool>> {
    let tools = parts.iter().filter_map(|part| match part {
        AgentPart::Tools(tools) => tools.get(name).cloned(),
        _ => None,
    });
    tools.collect()
}

fn is_same<T: ?Sized>(one: &Arc<T>, other: &Arc<T>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}
