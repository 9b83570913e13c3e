//! Problems of a graph, found before anything runs.

use std::{error::Error as StdError, fmt, sync::Arc};

use entourage_core::{Error, ErrorKind};

/// Number of problems named in an error's text.
const SHOWN: usize = 8;
/// Characters shown of an untrusted name: as many as the id of a map's item can have.
const SHOWN_OF_NAME: usize = 80;
/// Nodes of a cycle named in an error's text.
const SHOWN_OF_CYCLE: usize = 12;

/// The reasons why a graph was refused: all problems that were found, not only the first.
///
/// ```
/// use entourage_runners::graph::{GraphError, Problem, TaskGraph};
///
/// let graph = TaskGraph::builder("loop");
/// let a = graph.step("a", (), |()| async { Ok(1_u32) });
/// let b = graph.step("b", &a, |a| async move { Ok(*a) });
/// let a = a.after(&b);
///
/// let error = graph.build().unwrap_err();
/// let Problem::Cycle { nodes } = &GraphError::of(&error).unwrap().problems()[0] else { panic!() };
/// assert_eq!(nodes.iter().map(|node| &**node).collect::<Vec<_>>(), ["a", "b", "a"]);
/// assert!(error.to_string().contains("`a` -> `b` -> `a`"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphError {
    graph: Box<str>,
    problems: Vec<Problem>,
}

impl GraphError {
    /// Returns the graph's problems, when `error` is such a refusal.
    #[must_use]
    pub fn of(error: &Error) -> Option<&Self> {
        StdError::source(error)?.downcast_ref()
    }

    /// Returns all problems; at least one.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    pub(super) fn into_error(graph: &str, kind: ErrorKind, problems: Vec<Problem>) -> Error {
        let found = Self { graph: shown(graph).into(), problems };
        Error::new(kind, found.to_string()).during("graph.build").caused_by(found)
    }
}

impl fmt::Display for GraphError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the graph `{}` cannot run: ", self.graph)?;
        for (number, problem) in self.problems.iter().take(SHOWN).enumerate() {
            write!(f, "{}{problem}", if number == 0 { "" } else { "; " })?;
        }
        match self.problems.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            1 => f.write_str("; and 1 problem more"),
            more => write!(f, "; and {more} problems more"),
        }
    }
}

impl StdError for GraphError {}

/// A problem of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The graph has no nodes.
    Empty,
    /// The graph has more nodes or edges than a graph may have.
    TooMany {
        /// Counted things: `nodes`, `edges`, `tasks`, `dependencies of one task`.
        what: &'static str,
        /// Number of them.
        count: usize,
        /// Maximum number.
        limit: usize,
    },
    /// A name that a graph, node, task or agent cannot have.
    BadName {
        /// Named thing: `graph`, `node`, `task` or `agent`.
        what: &'static str,
        /// Name, or its beginning.
        name: Arc<str>,
    },
    /// Two nodes have the same id.
    Duplicate {
        /// Id of both.
        node: Arc<str>,
    },
    /// A node depends on one that does not exist.
    UnknownDependency {
        /// Id of the node.
        node: Arc<str>,
        /// Id that it depends on, or its beginning.
        dependency: Arc<str>,
    },
    /// Nodes wait for each other in a cycle.
    Cycle {
        /// Nodes of the cycle, each before the one that waits for it; the first is repeated at the end.
        nodes: Vec<Arc<str>>,
    },
    /// No agent has this name.
    UnknownAgent {
        /// Node that names the agent; `None` for a limit.
        node: Option<Arc<str>>,
        /// Name of the agent, or its beginning.
        agent: Arc<str>,
    },
    /// A handle of another graph was used.
    Foreign {
        /// Node that the handle was used for, or the graph itself for its output.
        node: Arc<str>,
        /// Node that the handle belongs to.
        dependency: Arc<str>,
    },
    /// A handle was used that still has the type from before [`returns`](super::Handle::returns) or
    /// [`partial`](super::Handle::partial).
    Retyped {
        /// Node where the handle was used, or that was changed twice.
        node: Arc<str>,
    },
    /// A setting that the node does not have.
    Misused {
        /// Id of the node.
        node: Arc<str>,
        /// The setting.
        setting: &'static str,
        /// Kind of node that has the setting.
        only: &'static str,
    },
    /// A node escalates to an empty list of agents.
    NoSizes {
        /// Id of the node.
        node: Arc<str>,
    },
    /// A limit of zero, under which nothing could run.
    Zero {
        /// Name of the limit.
        what: &'static str,
        /// Node, agent or provider of the limit; empty for the graph itself.
        of: Arc<str>,
    },
    /// A limit for a provider that no node names.
    UnusedLimit {
        /// The provider.
        provider: Arc<str>,
    },
    /// A task without text.
    NoTask {
        /// Id of the task.
        node: Arc<str>,
    },
}

/// Shortens and escapes an untrusted name for display.
pub(super) fn shown(name: &str) -> String {
    let mut shown: String = name.chars().take(SHOWN_OF_NAME).flat_map(char::escape_default).collect();
    if name.chars().nth(SHOWN_OF_NAME).is_some() {
        shown.push('…');
    }
    shown
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it has no nodes; add one"),
            Self::TooMany { what, count, limit } => {
                write!(f, "it has {count} {what}; make it {limit} at most")
            }
            Self::BadName { what: what @ ("graph" | "agent"), name } => {
                let article = if *what == "agent" { "an" } else { "a" };
                let name = shown(name);
                write!(f, "`{name}` cannot name {article} {what}; use 1 to 64 letters, digits, _ and -")
            }
            Self::BadName { what: what @ "task", name } => {
                write!(
                    f,
                    "`{}` cannot be the id of a {what}; use 1 to 64 letters, digits, _ - and .",
                    shown(name)
                )
            }
            Self::BadName { what, name } => {
                write!(f, "`{}` cannot be the id of a {what}; ", shown(name))?;
                f.write_str("use 1 to 64 letters, digits, _ - and ., and single spaces between them")
            }
            Self::Duplicate { node } => {
                write!(f, "two nodes are called `{}`; rename one", shown(node))
            }
            Self::UnknownDependency { node, dependency } => {
                write!(f, "`{}` depends on `{}`, which does not exist", shown(node), shown(dependency))
            }
            Self::Cycle { nodes } => cycle(f, nodes),
            Self::UnknownAgent { node: Some(node), agent } => {
                write!(
                    f,
                    "`{}` names the agent `{}`, which does not exist; add it, or name another",
                    shown(node),
                    shown(agent)
                )
            }
            Self::UnknownAgent { node: None, agent } => {
                write!(f, "a limit names the agent `{}`, which does not exist; remove it", shown(agent))
            }
            Self::Foreign { node, dependency } => {
                write!(
                    f,
                    "`{}` takes from `{}`, which is a node of another graph; use one of this graph",
                    shown(node),
                    shown(dependency)
                )
            }
            Self::Retyped { node } => {
                write!(f, "`{}` is used with a handle of an old type; ", shown(node))?;
                f.write_str("use the handle that `returns` or `partial` gave back, and call either once")
            }
            Self::Misused { node, setting, only } => {
                write!(f, "`{}` has no setting `{setting}`, which is for {only}; leave it out", shown(node))
            }
            Self::NoSizes { node } => write!(f, "`{}` has no agents to escalate to; name one", shown(node)),
            Self::Zero { what, of } if of.is_empty() => write!(f, "{what} is 0; make it 1 at least"),
            Self::Zero { what, of } => write!(f, "{what} of `{}` is 0; make it more", shown(of)),
            Self::UnusedLimit { provider } => {
                write!(f, "a limit is for the provider `{}`, which no node names; remove it", shown(provider))
            }
            Self::NoTask { node } => {
                write!(f, "`{}` does not say what to do; describe the task", shown(node))
            }
        }
    }
}

fn cycle(f: &mut fmt::Formatter<'_>, nodes: &[Arc<str>]) -> fmt::Result {
    f.write_str("these wait for each other: ")?;
    // The last node closes the cycle, so it is always shown.
    let left_out = nodes.len().saturating_sub(SHOWN_OF_CYCLE);
    let last = nodes.len().saturating_sub(1);
    for (place, node) in nodes.iter().enumerate() {
        match place {
            0 => write!(f, "`{}`", shown(node))?,
            _ if place < SHOWN_OF_CYCLE || place == last => write!(f, " -> `{}`", shown(node))?,
            SHOWN_OF_CYCLE => write!(f, " -> {} more", left_out.saturating_sub(1))?,
            _ => {}
        }
    }
    Ok(())
}
