//! Deferred tools, for the wires of services that search and load them. Pure.

use entourage_core::tool::ToolSpec;

/// The tools that a service is told of: where it has some to search, those by which any other model finds and calls
/// deferred ones are left out.
pub(crate) fn told(tools: &[ToolSpec]) -> Vec<ToolSpec> {
    let searches = searches(tools);
    let is_told = |tool: &&ToolSpec| !searches || !(tool.finds_deferred() || tool.calls_deferred());
    tools.iter().filter(is_told).cloned().collect()
}

/// True if the service has tools to search.
pub(crate) fn searches(tools: &[ToolSpec]) -> bool {
    tools.iter().any(ToolSpec::is_deferred)
}
