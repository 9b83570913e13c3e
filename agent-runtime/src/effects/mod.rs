//! Effects of a run, performed on this machine: model calls, tool calls and compactions.

pub(crate) mod asked;
pub(crate) mod compaction;
pub(crate) mod model_call;
pub(crate) mod site;
pub(crate) mod snapshot;
pub(crate) mod stopwatch;
pub(crate) mod subtree;
pub(crate) mod tool_ask;
pub(crate) mod tool_bound;
pub(crate) mod tool_call;
pub(crate) mod tool_check;
pub(crate) mod tool_judge;
pub(crate) mod tool_layers;
mod tool_past;
pub(crate) mod tool_run;
pub(crate) mod tool_schedule;
mod tool_settle;
