//! An agent made of a definition and a catalogue. Pure, but for the sets of tools that it asks.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use entourage_core::{
    Error, ErrorKind, ErrorRecord, Result,
    agent::Agent,
    context::Instructions,
    permission::Scope,
    tool::{Access, Tool, Tools, Toolset},
};

use super::{
    AgentDefinition, AgentFiles, AgentTexts, Catalogue, FileAgent, TeamDefinition,
    catalogue::{Inner, LARGE},
    unknown,
};
use crate::{
    agent_tool::AgentTool,
    combined::ToolsetExt,
    react::{ReactAgent, ReactBuilder, joined},
    team::{Member, Team, lead_prompt},
};

/// Most agents of a chain in which each delegates to the next.
const LEVELS: usize = 8;

/// Agents that a definition may name, as its run sees them: the description of each one of a file, by name.
pub(super) type Below = BTreeMap<String, String>;

/// Definitions as they were found at one moment. Many ways may lead to one of them, which is read once.
pub(super) struct Known {
    texts: AgentTexts,
    read: BTreeMap<String, OnceLock<std::result::Result<Arc<AgentDefinition>, ErrorRecord>>>,
}

impl Known {
    pub(super) fn new(texts: AgentTexts) -> Self {
        let read = texts.agents.keys().map(|name| (name.clone(), OnceLock::new())).collect();
        Self { texts, read }
    }

    pub(super) fn texts(&self) -> &AgentTexts {
        &self.texts
    }

    /// The definition of this name, without a look at others; `None` for one that was not found.
    pub(super) fn definition(&self, name: &str) -> Option<Result<Arc<AgentDefinition>>> {
        let read = || match self.texts.agents.get(name)? {
            Ok(text) => Some(AgentDefinition::read(text).map(Arc::new).map_err(|error| error.record())),
            Err(problem) => Some(Err(Error::new(ErrorKind::InvalidInput, problem.clone()).record())),
        };
        let known = self.read.get(name)?;
        let known = match known.get() {
            Some(known) => known,
            None => {
                let read = read()?;
                known.get_or_init(|| read)
            }
        };
        Some(known.as_ref().map(Arc::clone).map_err(ErrorRecord::to_error))
    }
}

/// The checks of definitions against each other and a catalogue.
pub(super) struct Build<'a> {
    files: &'a AgentFiles,
    known: &'a Known,
    /// The longest chain below each definition that was checked.
    heights: RefCell<BTreeMap<String, usize>>,
}

impl<'a> Build<'a> {
    pub(super) fn new(files: &'a AgentFiles, known: &'a Known) -> Self {
        Self { files, known, heights: RefCell::default() }
    }

    fn catalogue(&self) -> &'a Inner {
        &self.files.catalogue.0
    }

    /// The definition of this name, without a look at others.
    fn read(&self, name: &str, is_fit: fn(&AgentDefinition) -> bool) -> Result<Arc<AgentDefinition>> {
        match self.known.texts.agents.get(name) {
            Some(Ok(text)) if self.catalogue().agents.contains_key(name) => Err(Error::new(
                ErrorKind::Config,
                format!("`{}`: the program has an agent `{name}` of its own; rename the file", text.place()),
            )),
            _ => self.known.definition(name).unwrap_or_else(|| {
                let is_fit = |name: &&str| {
                    self.known.definition(name).is_some_and(|it| it.is_ok_and(|it| is_fit(&it)))
                };
                let names = self.known.texts.agents.keys().map(String::as_str);
                Err(unknown(ErrorKind::NotFound, "agent", name, names.filter(is_fit)))
            }),
        }
    }

    /// The definition of an agent that a person picks, checked.
    pub(super) fn selected(&self, name: &str) -> Result<Arc<AgentDefinition>> {
        let definition = self.read(name, |it| it.mode.is_selectable())?;
        if !definition.mode.is_selectable() {
            let text = format!(
                "the agent `{name}` is for other agents alone; pick another one, or give it the mode `all` in `{}`",
                definition.place()
            );
            return Err(Error::new(ErrorKind::Config, text));
        }
        self.checked(name)
    }

    /// The definition of this name, checked with all that it needs.
    pub(super) fn checked(&self, name: &str) -> Result<Arc<AgentDefinition>> {
        let definition = self.read(name, |_| true)?;
        self.descend(&definition, &mut Vec::new())?;
        Ok(definition)
    }

    /// The definition of an agent that another one delegates to, checked.
    pub(super) fn called(&self, name: &str) -> Result<Arc<AgentDefinition>> {
        let definition = self.checked(name)?;
        if definition.mode.is_callable() {
            return Ok(definition);
        }
        let text = format!("the agent `{name}` is for people alone; do the work without it");
        Err(Error::new(ErrorKind::Config, text))
    }

    /// Checks a definition and those below it, each once. `path` leads to it.
    fn descend(&self, definition: &AgentDefinition, path: &mut Vec<String>) -> Result<usize> {
        let refuse =
            |text: String| Err(Error::new(ErrorKind::Config, format!("`{}`: {text}", definition.place())));
        if path.contains(&definition.name) {
            let names = path.iter().chain([&definition.name]).cloned().collect::<Vec<_>>().join(" -> ");
            return refuse(format!(
                "the agents delegate in a circle, {names}; remove one of them from `agents`"
            ));
        }
        path.push(definition.name.clone());
        let mut height = 1_usize;
        for name in definition.needs().filter(|name| !self.catalogue().agents.contains_key(*name)) {
            let other = self.callable(definition, name)?;
            let known = self.heights.borrow().get(name).copied();
            let below = match known {
                Some(below) => below,
                None if path.len() < LEVELS => self.descend(&other, path)?,
                None => LEVELS,
            };
            height = height.max(below.saturating_add(1));
        }
        path.pop();
        if path.len().saturating_add(height) > LEVELS {
            return refuse(format!("more than {LEVELS} agents delegate one to the next; shorten the chain"));
        }
        make(self.files, definition, &self.below(definition)?, None)?;
        self.heights.borrow_mut().insert(definition.name.clone(), height);
        Ok(height)
    }

    /// The definition of an agent that `of` delegates to.
    fn callable(&self, of: &AgentDefinition, name: &str) -> Result<Arc<AgentDefinition>> {
        let place = of.place();
        let named = |error: Error| match error.kind() {
            ErrorKind::NotFound => Error::new(ErrorKind::Config, format!("`{place}`: {}", error.message())),
            _ => error,
        };
        let other = self.read(name, |it| it.mode.is_callable()).map_err(named)?;
        if other.mode.is_callable() {
            return Ok(other);
        }
        let text = format!(
            "`{place}`: the agent `{name}` is for people alone; remove it, or give it the mode `all`"
        );
        Err(Error::new(ErrorKind::Config, text))
    }

    /// The descriptions of the agents that a definition names and files describe.
    pub(super) fn below(&self, definition: &AgentDefinition) -> Result<Below> {
        let names = definition.needs().filter(|name| !self.catalogue().agents.contains_key(*name));
        names
            .map(|name| Ok((name.to_owned(), self.callable(definition, name)?.description.clone())))
            .collect()
    }
}

/// Makes the agent of a definition whose agents `below` are described as given. By `known` their code is found.
pub(super) fn make(
    files: &AgentFiles,
    definition: &AgentDefinition,
    below: &Below,
    known: Option<&Arc<Known>>,
) -> Result<Arc<dyn Agent>> {
    let parts = Parts { files, definition, below, known };
    match &definition.team {
        Some(team) => parts.team(team),
        None => Ok(Arc::new(parts.react()?)),
    }
}

/// The ceiling of an agent of this definition.
pub(super) fn ceiling(catalogue: &Catalogue, definition: &AgentDefinition) -> Scope {
    let Inner { scope, project_scope, disabled, .. } = &*catalogue.0;
    let own = definition.scope.clone().without_tools(definition.disallowed_tools.iter().cloned());
    let scope = scope.narrow(&own).without_tools(disabled.iter().cloned());
    if definition.from_project { scope.narrow(project_scope) } else { scope }
}

struct Parts<'a> {
    files: &'a AgentFiles,
    definition: &'a AgentDefinition,
    below: &'a Below,
    known: Option<&'a Arc<Known>>,
}

impl Parts<'_> {
    fn catalogue(&self) -> &Inner {
        &self.files.catalogue.0
    }

    fn at(&self, error: &Error) -> Error {
        Error::new(ErrorKind::Config, format!("`{}`: {}", self.definition.place(), error.message()))
    }

    fn wrong(&self, text: String) -> Error {
        self.at(&Error::new(ErrorKind::Config, text))
    }

    fn react(&self) -> Result<ReactAgent> {
        let AgentDefinition { name, description, instructions, digest, .. } = self.definition;
        let catalogue = self.catalogue();
        let model = self.definition.model.as_deref().unwrap_or(LARGE);
        let names = catalogue.models.keys().map(String::as_str);
        let slot = catalogue.models.get(model);
        let slot = slot.ok_or_else(|| self.at(&unknown(ErrorKind::Config, "model", model, names)))?;
        let hash: String = digest.to_string().chars().take(12).collect();
        let builder = ReactAgent::builder(name.clone(), slot.clone())
            .description(description.as_str())
            .instructions(Instructions::from_template(instructions.as_str(), format!("agent/{name}#{hash}")))
            .scope(ceiling(&self.files.catalogue, self.definition))
            .limits(self.definition.lowered(catalogue.limits));
        self.check_names()?;
        let fixed = self.fixed()?;
        let builder = self.sets().into_iter().fold(builder.tools(fixed), ReactBuilder::toolset);
        builder.build().map_err(|error| self.at(&error))
    }

    /// The team, whose lead has the model, the instructions and the tools of the definition.
    fn team(&self, team: &TeamDefinition) -> Result<Arc<dyn Agent>> {
        if self.definition.mcp.as_ref().is_some_and(|servers| !servers.is_empty()) {
            let text = "the lead of a team has no tools of MCP servers; give `mcp` to a member instead";
            return Err(self.wrong(text.to_owned()));
        }
        let alone = AgentDefinition { mcp: Some(Vec::new()), ..self.definition.clone() };
        let lead = Parts { definition: &alone, ..*self }.react()?;
        let tools = lead.tool_set();
        let mut builder = Team::builder(self.definition.name.clone(), lead.model().clone())
            .instructions(joined(&lead_prompt(), &lead.instructions()))
            .lead_tools(tools.iter().cloned().collect::<Vec<_>>())
            .lead_limits(self.definition.lowered(self.catalogue().limits));
        if let Some(items) = team.at_once {
            builder = builder.at_once(usize::try_from(items).unwrap_or(usize::MAX));
        }
        for member in &team.members {
            let replicas = usize::try_from(member.replicas).unwrap_or(usize::MAX);
            let of_file = Member::new(self.below(&member.name)?).size(member.size).replicas(replicas);
            builder = builder.member(of_file.specialist_in(member.specialist_in.iter().copied()));
        }
        Ok(Arc::new(builder.build().map_err(|error| self.at(&error))?))
    }

    /// The agent of this name, of the program or of a file.
    fn below(&self, name: &str) -> Result<Arc<dyn Agent>> {
        if let Some(agent) = self.catalogue().agents.get(name) {
            return Ok(Arc::clone(agent));
        }
        let description = self.below.get(name).ok_or_else(|| {
            let names = self.below.keys().chain(self.catalogue().agents.keys()).map(String::as_str);
            self.at(&unknown(ErrorKind::Config, "agent", name, names))
        })?;
        let known = self.known.cloned();
        Ok(Arc::new(FileAgent::new(self.files.clone(), name.to_owned(), description, known, false)))
    }

    /// The tools of the program and the agents, without those of servers.
    fn fixed(&self) -> Result<Tools> {
        let AgentDefinition { tools, agents, team, scope, disallowed_tools, .. } = self.definition;
        let starts = match team {
            Some(_) => Some("a `team`"),
            None => (!agents.is_empty()).then_some("`agents`"),
        };
        if let Some(starts) = starts.filter(|_| !scope.access().contains(Access::DELEGATE)) {
            return Err(self.wrong(format!("it has {starts}, and its `access` lacks `delegate`; add it")));
        }
        let is_offered =
            |name: &str| tools.as_ref().is_none_or(|tools| has(tools, name)) && !has(disallowed_tools, name);
        let own = self.catalogue().tools.iter().filter(|tool| is_offered(tool.spec().name())).cloned();
        let mut all: Vec<Arc<dyn Tool>> = own.collect();
        for name in agents {
            let tool = AgentTool::new(self.below(name)?).with_name(format!("agent_{name}"));
            all.push(Arc::new(tool));
        }
        Tools::new(all).map_err(|error| self.at(&error))
    }

    /// The tools of the servers that it may use.
    fn sets(&self) -> Vec<Arc<dyn Toolset>> {
        let AgentDefinition { mcp, tools, disallowed_tools, .. } = self.definition;
        let one = |(server, set): (&String, &Arc<dyn Toolset>)| {
            let is_whole = match (mcp, tools) {
                (Some(servers), _) => servers.contains(server),
                (None, tools) => tools.is_none(),
            };
            let names =
                tools.clone().filter(|names| names.iter().any(|name| is_of_server(name, server, set)));
            // A server that is not allowed has no tools, also where they are named.
            let names = names.filter(|_| mcp.as_ref().is_none_or(|servers| servers.contains(server)));
            if !is_whole && names.is_none() {
                return None;
            }
            let (without, disabled) = (disallowed_tools.clone(), self.catalogue().disabled.clone());
            let kept = move |name: &str| {
                let is_named = is_whole || names.as_ref().is_some_and(|names| has(names, name));
                is_named && !has(&without, name) && !disabled.contains(name)
            };
            let set: Arc<dyn Toolset> = Arc::new(Arc::clone(set).filtered(move |spec| kept(spec.name())));
            Some(set)
        };
        self.catalogue().mcp.iter().filter_map(one).collect()
    }

    /// Refuses names of tools and servers that there are not.
    fn check_names(&self) -> Result<()> {
        let Inner { tools, disabled, mcp, .. } = self.catalogue();
        let AgentDefinition { tools: allowed, disallowed_tools, mcp: servers, .. } = self.definition;
        for server in servers.iter().flatten() {
            if !mcp.contains_key(server) {
                let names = mcp.keys().map(String::as_str);
                return Err(self.at(&unknown(ErrorKind::Config, "MCP server", server, names)));
            }
        }
        let of_agents: Vec<_> = self.definition.agents.iter().map(|name| format!("agent_{name}")).collect();
        let names = || tools.iter().map(|tool| tool.spec().name());
        for name in allowed.iter().flatten().chain(disallowed_tools) {
            let is_known = names().chain(disabled.iter().map(String::as_str)).any(|it| matches(name, it))
                || of_agents.iter().any(|it| matches(name, it))
                || mcp.iter().any(|(server, set)| is_of_server(name, server, set));
            if !is_known {
                return Err(self.at(&unknown(ErrorKind::Config, "tool", name, names())));
            }
        }
        Ok(())
    }
}

/// True if `pattern` names the tool `name`, or ends in `*` and begins it.
fn matches(pattern: &str, name: &str) -> bool {
    pattern == name || pattern.strip_suffix('*').is_some_and(|start| name.starts_with(start))
}

fn has(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| matches(pattern, name))
}

/// True if `pattern` names tools of a server: one that it has now, or some by the prefix that its tools have.
fn is_of_server(pattern: &str, server: &str, set: &Arc<dyn Toolset>) -> bool {
    let prefix = format!("mcp_{server}_");
    let is_wide = pattern.strip_suffix('*').is_some_and(|start| prefix.starts_with(start));
    is_wide
        || pattern.starts_with(&prefix)
        || set.tools().iter().any(|tool| matches(pattern, tool.spec().name()))
}
