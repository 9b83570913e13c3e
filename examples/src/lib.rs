//! The snippets of the README and of the pages in `docs/`, compiled and run here: they use more than the facade's own
//! tests may depend on.
#![cfg_attr(doctest, doc = include_str!("../../README.md"))]

#[cfg(doctest)]
#[doc = include_str!("../../docs/agent-files.md")]
mod agent_files {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/agents.md")]
mod agents {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/evals.md")]
mod evals {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/coming-from.md")]
mod coming_from {}

#[cfg(doctest)]
mod concepts {
    #[doc = include_str!("../../docs/concepts/crash.md")]
    mod crash {}

    #[doc = include_str!("../../docs/concepts/flow.md")]
    mod flow {}

    #[doc = include_str!("../../docs/concepts/graph.md")]
    mod graph {}

    #[doc = include_str!("../../docs/concepts/narrowing.md")]
    mod narrowing {}

    #[doc = include_str!("../../docs/concepts/tree.md")]
    mod tree {}
}

#[cfg(doctest)]
#[doc = include_str!("../../docs/layers.md")]
mod layers {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/limits.md")]
mod limits {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/lsp.md")]
mod lsp {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/mcp.md")]
mod mcp {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/models.md")]
mod models {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/performance.md")]
mod performance {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/permissions.md")]
mod permissions {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/planner.md")]
mod planner {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/recipes.md")]
mod recipes {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/questions.md")]
mod questions {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/sandbox.md")]
mod sandbox {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/sessions.md")]
mod sessions {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/teams.md")]
mod teams {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/testing.md")]
mod testing {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/tools.md")]
mod tools {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/web.md")]
mod web {}
