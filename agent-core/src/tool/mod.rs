//! Tools of agents: the [`Tool`] trait, the declarations of a tool, and sets of tools.
//!
//! Nothing here runs a tool or decides if it may run: see `run` and `permission`.

mod call;
mod layer;
mod output;
mod repair;
mod schema;
mod toolset;

pub use crate::base::CallId;
pub use crate::spec::{Access, Footprint, Labels, Repeat, ToolSpec, normal_path};
pub use call::{Tool, ToolContext, ToolInput, idempotency_key};
pub use layer::{LayerVerdict, NextCall, ToolLayer};
pub use output::{IntoToolOutput, Json, ToolError, ToolOutput};
pub use repair::Repair;
pub use schema::schema_of;
pub use toolset::{Tools, Toolset};
