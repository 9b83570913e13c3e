//! A definition with its types. Pure.

use std::{fmt, net::Ipv6Addr, num::NonZeroUsize, time::Duration};

use entourage_core::{Digest, Result, permission::Scope, run::Limits, tool::Access};

use super::{settings::Settings, source::AgentText, team::TeamDefinition};

/// The keys of a definition.
const KEYS: [&str; 15] = [
    "description",
    "mode",
    "model",
    "tools",
    "disallowed_tools",
    "mcp",
    "agents",
    "access",
    "paths",
    "hosts",
    "max_steps",
    "max_parallel_tools",
    "tool_timeout",
    "context",
    "team",
];
/// Most characters of a description.
const DESCRIPTION: usize = 1_024;
/// Most seconds of a call, and most steps and calls at once.
const SECONDS: u32 = 24 * 60 * 60;
const STEPS: u32 = 10_000;
const PARALLEL: u32 = 100;

/// The callers of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum AgentMode {
    /// A person picks it; no agent delegates to it.
    Primary,
    /// Agents delegate to it; no person picks it.
    Subagent,
    /// People pick it, and agents delegate to it.
    #[default]
    All,
}

impl AgentMode {
    /// True if a person may pick the agent.
    #[must_use]
    pub fn is_selectable(self) -> bool {
        self != Self::Subagent
    }

    /// True if agents may delegate to it.
    #[must_use]
    pub fn is_callable(self) -> bool {
        self != Self::Primary
    }
}

impl fmt::Display for AgentMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Primary => "primary",
            Self::Subagent => "subagent",
            Self::All => "all",
        })
    }
}

/// An agent as a file describes it. Nothing in it gives the agent more than its program does.
///
/// | key | content |
/// |---|---|
/// | `description` | required: the agent's purpose, for those who pick it or delegate to it |
/// | `mode` | `primary`, `subagent` or `all`; default `all` |
/// | `model` | `large`, `small`, or another name that the program gives; default `large` |
/// | `tools` | the tools that it has, also as `mcp_github_*`; default all, with none of MCP servers if it is given |
/// | `disallowed_tools` | tools that neither it nor agents below it may use |
/// | `mcp` | the MCP servers whose tools it has; default all, or none where `tools` is given |
/// | `agents` | the agents that it may delegate to, each by a tool `agent_NAME`; default none |
/// | `access` | its access at most: `read`, `write`, `execute`, `network`, `delegate`, `ask` |
/// | `paths`, `hosts` | the files and hosts that it may reach at most, see [`Scope`] |
/// | `max_steps`, `max_parallel_tools`, `tool_timeout` | limits below those of the program; the last in seconds |
/// | `context` | files whose text joins the instructions |
/// | `team` | a team in place of one model, see [`TeamDefinition`] |
///
/// A list may be one text with commas. Other keys are refused.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AgentDefinition {
    /// Its name.
    pub name: String,
    /// Its purpose.
    pub description: String,
    /// Its callers.
    pub mode: AgentMode,
    /// The name of its model.
    pub model: Option<String>,
    /// The names of its tools.
    pub tools: Option<Vec<String>>,
    /// The names of tools that it may not use.
    pub disallowed_tools: Vec<String>,
    /// The names of its MCP servers.
    pub mcp: Option<Vec<String>>,
    /// The names of agents that it may delegate to.
    pub agents: Vec<String>,
    /// The ceiling that it sets for itself.
    pub scope: Scope,
    /// Model calls of one run, at most.
    pub max_steps: Option<u32>,
    /// Tool calls at once, at most.
    pub max_parallel_tools: Option<NonZeroUsize>,
    /// Time that a tool call may take, unless its tool says otherwise.
    pub tool_timeout: Option<Duration>,
    /// Its team.
    pub team: Option<TeamDefinition>,
    /// Its instructions.
    pub instructions: String,
    /// The path of its file.
    pub path: String,
    /// True if it comes with a project.
    pub from_project: bool,
    /// The digest of its text.
    pub digest: Digest,
}

impl AgentDefinition {
    /// Reads a definition.
    ///
    /// # Errors
    /// [`InvalidInput`](entourage_core::ErrorKind::InvalidInput) for an unknown key, with the nearest one that there
    /// is, and for a value of another form, with the key.
    pub fn read(text: &AgentText) -> Result<Self> {
        let settings = Settings { place: text.place(), map: &text.settings };
        settings.check_keys(&KEYS)?;
        let description = settings.text("description")?;
        let description =
            description.ok_or_else(|| settings.wrong("there is no `description`; say what it is for"))?;
        if description.chars().count() > DESCRIPTION {
            return Err(
                settings.wrong(format!("the description has more than {DESCRIPTION} characters; shorten it"))
            );
        }
        let team = TeamDefinition::read(&settings)?;
        if text.instructions.trim().is_empty() && team.is_none() {
            return Err(settings.wrong(
                "there are no instructions; write them behind the front matter, or under \
                                       `instructions` in TOML",
            ));
        }
        let number = |key, most| settings.number(key, most);
        let parallel = number("max_parallel_tools", PARALLEL)?.and_then(|it| usize::try_from(it).ok());
        settings.list("context")?;
        Ok(Self {
            name: text.name.clone(),
            description: description.to_owned(),
            mode: mode(&settings)?,
            model: settings.text("model")?.map(str::to_owned),
            tools: settings.list("tools")?,
            disallowed_tools: settings.list("disallowed_tools")?.unwrap_or_default(),
            mcp: settings.list("mcp")?,
            agents: settings.list("agents")?.unwrap_or_default(),
            scope: scope(&settings)?,
            max_steps: number("max_steps", STEPS)?,
            max_parallel_tools: parallel.and_then(NonZeroUsize::new),
            tool_timeout: number("tool_timeout", SECONDS)?.map(|it| Duration::from_secs(it.into())),
            team,
            instructions: text.instructions.clone(),
            path: text.path.clone(),
            from_project: text.from_project,
            digest: text.digest(),
        })
    }

    /// Returns the path for errors, or the name where there is none.
    pub(super) fn place(&self) -> &str {
        if self.path.is_empty() { &self.name } else { &self.path }
    }

    /// Returns `limits`, lowered to those of the definition.
    pub(super) fn lowered(&self, mut limits: Limits) -> Limits {
        limits.steps = limits.steps.min(self.max_steps.unwrap_or(u32::MAX));
        limits.parallel_tools =
            limits.parallel_tools.min(self.max_parallel_tools.unwrap_or(NonZeroUsize::MAX));
        limits.tool_timeout = limits.tool_timeout.min(self.tool_timeout.unwrap_or(Duration::MAX));
        limits
    }

    /// Returns the names of the agents that it needs.
    pub(super) fn needs(&self) -> impl Iterator<Item = &str> {
        let members =
            self.team.iter().flat_map(|team| team.members.iter().map(|member| member.name.as_str()));
        self.agents.iter().map(String::as_str).chain(members)
    }
}

fn mode(settings: &Settings<'_>) -> Result<AgentMode> {
    match settings.text("mode")? {
        None | Some("all") => Ok(AgentMode::All),
        Some("primary") => Ok(AgentMode::Primary),
        Some("subagent") => Ok(AgentMode::Subagent),
        Some(other) => {
            let other: String = other.chars().take(80).collect();
            Err(settings.wrong(format!("`{other}` is no mode; use primary, subagent or all")))
        }
    }
}

fn scope(settings: &Settings<'_>) -> Result<Scope> {
    let mut scope = Scope::all();
    if let Some(words) = settings.list("access")? {
        let access = Access::parse(&words.join("+")).map_err(|error| settings.wrong(error.message()))?;
        scope = scope.with_access(access);
    }
    if let Some(paths) = settings.list("paths")? {
        scope = scope.with_roots(paths);
    }
    if let Some(hosts) = settings.list("hosts")? {
        let is_more = |host: &&String| {
            let host = host.trim_matches(['[', ']']);
            host.contains(['/', '?', '#', '@']) || host.contains(':') && host.parse::<Ipv6Addr>().is_err()
        };
        if let Some(wrong) = hosts.iter().find(is_more) {
            let text = format!("`{wrong}` is not a host alone; write it without scheme, port and path");
            return Err(settings.wrong(text));
        }
        scope = scope.with_hosts(hosts);
    }
    Ok(scope)
}
