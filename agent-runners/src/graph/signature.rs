//! The identity of a graph for resuming its runs. It contains no names of types.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use entourage_core::Digest;
use serde::{Deserialize, Serialize};

use super::{Edge, Node, problem::shown};

/// The nodes and edges of a graph, as far as they decide whether a run of it can be resumed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GraphSignature {
    /// Nodes in the order in which they were added.
    pub nodes: Vec<NodeSignature>,
}

/// One node of a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeSignature {
    /// Id of the node.
    pub id: Arc<str>,
    /// Edges from the nodes that it depends on, in the order of its inputs.
    pub after: Vec<EdgeSignature>,
    /// Agent that works on it; `None` for a step of the program itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Arc<str>>,
    /// Version that the program gave it; empty if none.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub version: Box<str>,
    /// Digest of the JSON schema of its output, if declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Digest>,
}

/// An edge to a node from one that it depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EdgeSignature {
    /// Node that runs first.
    pub from: Arc<str>,
    /// True when a condition decides if the edge is followed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub conditional: bool,
    /// True when the dependent also runs when that node gave no value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// Returns the signature of these nodes.
pub(crate) fn of(nodes: &[Node]) -> GraphSignature {
    let id = |place: usize| nodes.get(place).map(|node| Arc::clone(&node.id));
    let edge = |edge: &Edge| {
        id(edge.from).map(|from| EdgeSignature {
            from,
            conditional: edge.when.is_some(),
            optional: edge.optional,
        })
    };
    let sign = |node: &Node| NodeSignature {
        id: Arc::clone(&node.id),
        after: node.edges.iter().filter_map(edge).collect(),
        agent: node.agent().map(Into::into),
        version: node.version.clone(),
        output: node.output,
    };
    GraphSignature { nodes: nodes.iter().map(sign).collect() }
}

/// One difference between two signatures. `Display` describes it as a change from the first to the second.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// A node no longer exists.
    Removed {
        /// Id of the node.
        node: Arc<str>,
    },
    /// A node is new.
    Added {
        /// Id of the node.
        node: Arc<str>,
    },
    /// A node has a new dependency.
    EdgeAdded {
        /// Id of the node.
        node: Arc<str>,
        /// Node that it depends on.
        from: Arc<str>,
    },
    /// A node lost a dependency.
    EdgeRemoved {
        /// Id of the node.
        node: Arc<str>,
        /// Node that it depended on.
        from: Arc<str>,
    },
    /// A dependency became conditional, optional or the opposite.
    EdgeChanged {
        /// Id of the node.
        node: Arc<str>,
        /// Node that it depends on.
        from: Arc<str>,
        /// The edge as it is now.
        to: EdgeSignature,
    },
    /// A node has another agent.
    Agent {
        /// Id of the node.
        node: Arc<str>,
        /// Former agent; `None` for a step of the program itself.
        was: Option<Arc<str>>,
        /// Present agent; `None` for a step of the program itself.
        is: Option<Arc<str>>,
    },
    /// A node has another version.
    Version {
        /// Id of the node.
        node: Arc<str>,
        /// The version that it had.
        was: Box<str>,
        /// The version that it has.
        is: Box<str>,
    },
    /// A node returns values of another schema.
    Output {
        /// Id of the node.
        node: Arc<str>,
    },
}

impl GraphSignature {
    /// Returns the changes from this signature to `other`. Empty when a graph of the other signature can resume a run
    /// of this one. The order of nodes and edges does not count.
    ///
    /// ```
    /// use entourage_runners::graph::TaskGraph;
    ///
    /// let graph = |version: &str| {
    ///     let graph = TaskGraph::builder("report");
    ///     graph.step("sales", (), |()| async { Ok(3_u32) }).version(version);
    ///     graph.build().unwrap()
    /// };
    /// let differences = graph("v1").signature().differences(graph("v2").signature());
    /// assert_eq!(differences[0].to_string(), "`sales` is version `v2` now, and was `v1`");
    /// ```
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<Difference> {
        let (old, new) = (self.by_id(), other.by_id());
        let mut found = Vec::new();
        for node in &self.nodes {
            match new.get(&node.id) {
                Some(now) => node.differences(now, &mut found),
                None => found.push(Difference::Removed { node: Arc::clone(&node.id) }),
            }
        }
        let added = other.nodes.iter().filter(|node| !old.contains_key(&node.id));
        found.extend(added.map(|node| Difference::Added { node: Arc::clone(&node.id) }));
        found
    }

    fn by_id(&self) -> HashMap<&Arc<str>, &NodeSignature> {
        self.nodes.iter().map(|node| (&node.id, node)).collect()
    }
}

impl NodeSignature {
    fn differences(&self, now: &Self, found: &mut Vec<Difference>) {
        let node = || Arc::clone(&self.id);
        if self.agent != now.agent {
            found.push(Difference::Agent { node: node(), was: self.agent.clone(), is: now.agent.clone() });
        }
        if self.version != now.version {
            let (was, is) = (self.version.clone(), now.version.clone());
            found.push(Difference::Version { node: node(), was, is });
        }
        if self.output != now.output {
            found.push(Difference::Output { node: node() });
        }
        let edges = |edges: &[EdgeSignature]| {
            edges.iter().map(|edge| (Arc::clone(&edge.from), edge.clone())).collect::<BTreeMap<_, _>>()
        };
        let (old, new) = (edges(&self.after), edges(&now.after));
        for (from, edge) in &old {
            match new.get(from) {
                None => found.push(Difference::EdgeRemoved { node: node(), from: Arc::clone(from) }),
                Some(to) if to != edge => {
                    let (from, to) = (Arc::clone(from), to.clone());
                    found.push(Difference::EdgeChanged { node: node(), from, to });
                }
                Some(_) => {}
            }
        }
        let added = new.into_keys().filter(|from| !old.contains_key(from));
        found.extend(added.map(|from| Difference::EdgeAdded { node: node(), from }));
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = |agent: &Option<Arc<str>>| match agent {
            Some(agent) => format!("for `{}`", shown(agent)),
            None => "a step of the program".to_owned(),
        };
        let called = |version: &str| match version {
            "" => "without a version".to_owned(),
            version => format!("version `{}`", shown(version)),
        };
        match self {
            Self::Removed { node } => write!(f, "`{}` was removed", shown(node)),
            Self::Added { node } => write!(f, "`{}` was added", shown(node)),
            Self::EdgeAdded { node, from } => write!(f, "`{}` now depends on `{}`", shown(node), shown(from)),
            Self::EdgeRemoved { node, from } => {
                write!(f, "`{}` no longer depends on `{}`", shown(node), shown(from))
            }
            Self::EdgeChanged { node, from, to } => {
                let condition = if to.conditional { "with a condition" } else { "without a condition" };
                let optional = if to.optional { "optional" } else { "required" };
                let (node, from) = (shown(node), shown(from));
                write!(f, "`{node}` now depends on `{from}` {condition}, as {optional}")
            }
            Self::Agent { node, was, is } => {
                write!(f, "`{}` is {} now, and was {}", shown(node), by(is), by(was))
            }
            Self::Version { node, was, is } => {
                let was = called(was);
                let was = was.strip_prefix("version ").unwrap_or(&was);
                write!(f, "`{}` is {} now, and was {was}", shown(node), called(is))
            }
            Self::Output { node } => write!(f, "`{}` returns values of another schema", shown(node)),
        }
    }
}
