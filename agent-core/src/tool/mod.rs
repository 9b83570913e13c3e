//! Tools of agents: the [`Tool`] trait, the declarations of a tool, and sets of tools.
//!
//! Nothing here runs a tool or decides if it may run: see `run` and `permission`.

mod call;
mod from_fn;
mod layer;
mod output;
mod repair;
mod toolset;

pub use crate::base::CallId;
pub use crate::spec::{Access, Footprint, Repeat, ToolSpec, normal_path};
pub use call::{Tool, ToolContext, ToolInput, idempotency_key};
pub use from_fn::{from_fn, schema_of, typed};
pub use layer::{LayerVerdict, NextCall, ToolLayer};
pub use output::{IntoToolOutput, Json, ToolError, ToolOutput};
pub use repair::Repair;
pub use toolset::{Tools, Toolset};
