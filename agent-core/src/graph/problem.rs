//! What is wrong with a graph, found before anything runs.

use std::{error::Error as StdError, fmt, sync::Arc};

use crate::{Error, ErrorKind};

/// Problems that the text of an error names.
const SHOWN: usize = 8;
/// Characters of a name that may be anything: as many as the id of an item of a map has.
const SHOWN_OF_NAME: usize = 80;
/// Nodes of a cycle that the text of an error names.
const SHOWN_OF_CYCLE: usize = 12;

/// Why a graph was refused: everything that was found, not only the first of it.
///
/// ```
/// use entourage_core::graph::{GraphError, Problem, TaskGraph};
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
    /// What is wrong with a graph, when `error` says so.
    #[must_use]
    pub fn of(error: &Error) -> Option<&Self> {
        StdError::source(error)?.downcast_ref()
    }

    /// All that was found; at least one.
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

/// One thing that is wrong with a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// There is nothing to do.
    Empty,
    /// There are more nodes, or edges between them, than a graph may have.
    TooMany {
        /// What there are too many of: `nodes`, `edges`, `tasks`, `dependencies`.
        what: &'static str,
        /// How many.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// A graph, node or agent cannot be called this.
    BadName {
        /// What it names: `graph`, `node`, `task` or `agent`.
        what: &'static str,
        /// The name, or its beginning.
        name: Arc<str>,
    },
    /// Two nodes have one id.
    Duplicate {
        /// It.
        node: Arc<str>,
    },
    /// A node depends on one that does not exist.
    UnknownDependency {
        /// The node.
        node: Arc<str>,
        /// What it depends on, or its beginning.
        dependency: Arc<str>,
    },
    /// Nodes wait for each other.
    Cycle {
        /// They, each before the one that waits for it; the first is the last.
        nodes: Vec<Arc<str>>,
    },
    /// Nobody has this name.
    UnknownAgent {
        /// The node that is for it; `None` for a limit.
        node: Option<Arc<str>>,
        /// The name, or its beginning.
        agent: Arc<str>,
    },
    /// A handle of another graph was used.
    Foreign {
        /// The node that it was used for; the graph itself for what it returns.
        node: Arc<str>,
        /// The node that it is a handle of.
        dependency: Arc<str>,
    },
    /// A handle was used that has the type from before [`returns`](super::Handle::returns) or
    /// [`partial`](super::Handle::partial).
    Retyped {
        /// The node where it was used, or that was changed twice.
        node: Arc<str>,
    },
    /// A setting was made that the node does not have.
    Misused {
        /// The node.
        node: Arc<str>,
        /// The setting.
        setting: &'static str,
        /// What has it.
        only: &'static str,
    },
    /// A node is to escalate to nobody.
    NoSizes {
        /// The node.
        node: Arc<str>,
    },
    /// A bound would let nothing happen.
    Zero {
        /// Which.
        what: &'static str,
        /// Of what; empty for the graph itself.
        of: Arc<str>,
    },
    /// A limit is for a provider that no node names.
    UnusedLimit {
        /// The provider.
        provider: Arc<str>,
    },
    /// A task says nothing.
    NoTask {
        /// It.
        node: Arc<str>,
    },
}

/// What is shown of a name that may be anything.
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
                write!(f, "`{}` is for `{}`, and no agent has that name", shown(node), shown(agent))
            }
            Self::UnknownAgent { node: None, agent } => {
                write!(f, "a limit is for `{}`, and no agent has that name; remove it", shown(agent))
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
            Self::NoSizes { node } => write!(f, "`{}` is to escalate to nobody; name an agent", shown(node)),
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
    // The last one closes the cycle, so it is shown however long that is.
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
