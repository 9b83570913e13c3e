//! What a graph is recognised by when a run of it is resumed: never the names of types.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

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
