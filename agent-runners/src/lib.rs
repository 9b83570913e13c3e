//! Agents that drive other agents: in rounds of work and check, and in graphs of tasks.
//!
//! | type | runs |
//! |---|---|
//! | [`DualAgent`] | an executor, and a checker that alone may complete the task |
//! | [`Autonomy`] | one agent at the level of checking that its session's mode names |
//! | [`TaskGraph`](graph::TaskGraph) | tasks that depend on each other, side by side where they may |
//! | [`Team`](team::Team) | a lead that plans, and members of different sizes that work |
//! | [`Cascade`] | a cheap agent first, and a dearer one where its answer is refused |
//! | [`Research`](research::Research) | a question, divided among agents that only look |
//! | [`FileAgent`](agent_files::FileAgent) | an agent that a file describes |
//! | [`Planner`](planner::Planner) | a request: an answer, some work, or a plan whose steps executors look into |
//!
//! Each is an [`Agent`](entourage_core::agent::Agent): it runs in a session, resumes after a crash, and can be a node,
//! a tool or a member of any other.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use entourage_runners::ReactAgent;
//! use entourage_runners::graph::TaskGraph;
//! use entourage_testkit::ScriptedProvider;
//!
//! let provider = ScriptedProvider::by_history().text("Core 2 is out.");
//! let writer = ReactAgent::builder("writer", provider.model()).build()?;
//! let graph = TaskGraph::builder("release");
//! let notes = graph.agent("notes", &writer, "What is new?");
//! assert_eq!(*graph.returning(&notes).build()?.ask("Release notes").await?, "Core 2 is out.");
//! # Ok::<_, entourage_core::Error>(())
//! # }).unwrap();
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod agent_files;
mod agent_tool;
mod autonomy;
mod below;
pub mod builtin;
mod cascade;
pub mod checked;
mod combined;
mod cut;
mod deferred;
mod dual;
mod external;
mod fetch_tool;
mod finality;
pub mod from_fn;
pub mod graph;
mod kept;
mod layered;
mod loops;
mod memory;
mod newest;
mod per_run;
mod person;
pub mod planner;
mod question;
mod react;
pub mod research;
mod shelf;
mod sql_views;
pub mod team;
mod todo_tool;
mod turn;
pub mod typed;

pub use agent_tool::AgentTool;
pub use autonomy::{
    Autonomy, AutonomyBuilder, AutonomyLevel, CheckedTask, ConfigChoice, ConfigKind, ConfigOption, Evidence,
    ModeState, Phase, StopKind, Verdict,
};
pub use cascade::{Cascade, CascadeBuilder, CascadeStarted, CascadeStep};
pub use combined::{Combined, ToolsetExt};
pub use dual::{DualAgent, DualBuilder};
pub use external::external;
pub use fetch_tool::agentic_fetch;
pub use layered::layered;
pub use loops::LoopDetection;
pub use memory::Memory;
pub use per_run::per_run;
pub use person::person;
pub use question::{Question, QuestionKind, question};
pub use react::{IntoTools, Prepare, Prepared, ReactAgent, ReactBuilder, Step, TypedAgent, TypedBuilder};
pub use sql_views::SqlViews;
pub use todo_tool::TodoTool;
pub use turn::{Action, StopWhen, Turn};
