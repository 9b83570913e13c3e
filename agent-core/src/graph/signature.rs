//! What a graph is recognised by when a run of it is resumed: never the names of types.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{Edge, Node, problem::shown};
use crate::digest::Digest;

/// A graph's nodes and edges, as far as they decide whether a run of it can go on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Signature {
    /// In the order in which they were added.
    pub nodes: Vec<NodeSignature>,
}

/// One node of a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeSignature {
    /// Its name.
    pub id: Arc<str>,
    /// The nodes that it depends on, in the order of its inputs.
    pub after: Vec<EdgeSignature>,
    /// Who works on it; `None` for a step of the program itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Arc<str>>,
    /// What the program says of its version; empty when it says nothing.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub version: Box<str>,
    /// Digest of the JSON schema of what it returns, where that is stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Digest>,
}

/// An edge to a node from one that it depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EdgeSignature {
    /// The node that comes first.
    pub from: Arc<str>,
    /// Whether a condition decides if it is followed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub conditional: bool,
    /// Whether the dependent runs also when that node gave nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// The signature of these nodes.
pub(crate) fn of(nodes: &[Node]) -> Signature {
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
    Signature { nodes: nodes.iter().map(sign).collect() }
}

/// One way in which two signatures differ. `Display` says it in words, as a change from the first to the second.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// A node is there no more.
    Removed {
        /// It.
        node: Arc<str>,
    },
    /// A node is new.
    Added {
        /// It.
        node: Arc<str>,
    },
    /// A node depends on another one that it did not depend on.
    EdgeAdded {
        /// The node.
        node: Arc<str>,
        /// What it depends on.
        from: Arc<str>,
    },
    /// A node does not depend on another one any more.
    EdgeRemoved {
        /// The node.
        node: Arc<str>,
        /// What it depended on.
        from: Arc<str>,
    },
    /// A node depends on another one in another way.
    EdgeChanged {
        /// The node.
        node: Arc<str>,
        /// What it depends on.
        from: Arc<str>,
        /// How it depends on it now.
        to: EdgeSignature,
    },
    /// Somebody else works on a node.
    Agent {
        /// The node.
        node: Arc<str>,
        /// Who did; `None` for a step of the program itself.
        was: Option<Arc<str>>,
        /// Who does.
        is: Option<Arc<str>>,
    },
    /// A node has another version.
    Version {
        /// The node.
        node: Arc<str>,
        /// The version that it had.
        was: Box<str>,
        /// The version that it has.
        is: Box<str>,
    },
    /// A node returns values of another schema.
    Output {
        /// The node.
        node: Arc<str>,
    },
}

impl Signature {
    /// How `other` differs from this one; empty when a run of a graph of this signature can go on with a graph of the
    /// other one. In which order nodes and edges were added makes no difference.
    ///
    /// ```
    /// use entourage_core::graph::TaskGraph;
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
