//! The pages of `docs/`, for readers of this documentation. Nothing here is code.
//!
//! To begin: [questions], each answered in ten lines; [coming_from] another library; [concepts], with pictures;
//! [limits].
//!
//! The module exists in documentation builds alone. The package `examples` compiles and runs the snippets.

/// Agents that files describe, and the first look at a project.
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/agent-files.md"))]
pub mod agent_files {}

/// More than one agent: each runner, and an agent by hand.
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/agents.md"))]
pub mod agents {}

/// Stored sessions that run again as tests, and the table of what changed.
///
/// [sessions]: crate::guide::sessions
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/evals.md"))]
pub mod evals {}

/// The words of other libraries beside those of this one.
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/coming-from.md"))]
pub mod coming_from {}

/// Pictures of real runs, a page each.
pub mod concepts {
    /// The one way data flows.
    ///
    #[cfg_attr(not(doctest), doc = include_str!("../docs/concepts/flow.md"))]
    pub mod flow {}

    /// The life of a run with a crash in it.
    ///
    #[cfg_attr(not(doctest), doc = include_str!("../docs/concepts/crash.md"))]
    pub mod crash {}

    /// Permissions only narrow.
    ///
    #[cfg_attr(not(doctest), doc = include_str!("../docs/concepts/narrowing.md"))]
    pub mod narrowing {}

    /// A graph run.
    ///
    #[cfg_attr(not(doctest), doc = include_str!("../docs/concepts/graph.md"))]
    pub mod graph {}

    /// The tree of sessions.
    ///
    #[cfg_attr(not(doctest), doc = include_str!("../docs/concepts/tree.md"))]
    pub mod tree {}
}

/// Layers around model calls, typed output, costs and budgets.
///
/// [models]: crate::guide::models
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/layers.md"))]
pub mod layers {}

/// Facts to know before building on this library.
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/limits.md"))]
pub mod limits {}

/// Language servers: errors after changes, and tools that find and rename.
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/lsp.md"))]
pub mod lsp {}

/// Tools of MCP servers: files of servers, logins, and what they may do.
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/mcp.md"))]
pub mod mcp {}

/// Wires, models from the environment, dialects and prices.
///
/// [layers]: crate::guide::layers
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/models.md"))]
pub mod models {}

/// Measured ratios, and the commands that repeat them.
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/performance.md"))]
pub mod performance {}

/// Scopes, policies, approvers, guards and the subjects of tools.
///
/// [agents]: crate::guide::agents
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/permissions.md"))]
pub mod permissions {}

/// Five known systems, each as one file on the public API.
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/recipes.md"))]
pub mod recipes {}

/// Questions of newcomers, each with an answer of ten lines.
///
/// [agents]: crate::guide::agents
/// [layers]: crate::guide::layers
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/questions.md"))]
pub mod questions {}

/// Commands that the operating system confines: levels, protected paths, and what each backend holds.
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/sandbox.md"))]
pub mod sandbox {}

/// Stores, stopping, waiting for a person, looking back and watching.
///
/// [agents]: crate::guide::agents
/// [evals]: crate::guide::evals
/// [layers]: crate::guide::layers
/// [permissions]: crate::guide::permissions
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/sessions.md"))]
pub mod sessions {}

/// A planner with executors: strategies, plans, conversations, and their bounds.
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/planner.md"))]
pub mod planner {}

/// Models of different sizes that work for each other, and questions in SQL about them.
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/teams.md"))]
pub mod teams {}

/// Stand-ins for models, tools and people, and the prompts of each runner.
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/testing.md"))]
pub mod testing {}

/// Tools of your own: previews, footprints, progress, files, and the suite that each passes.
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/tools.md"))]
pub mod tools {}

/// Pages of the web: which hosts are asked, and what models are shown.
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/web.md"))]
pub mod web {}
