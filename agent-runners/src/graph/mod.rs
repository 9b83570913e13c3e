//! Graphs of tasks that depend on each other: steps, agents and nested graphs, run in parallel as far as their edges
//! and limits allow. A graph has no cycle, and is never changed once built.

mod builder;
mod change;
mod control;
mod draft;
mod durations;
mod end;
mod handle;
mod inputs;
mod needs;
mod node;
mod picture;
mod plan;
mod problem;
mod prompt;
mod records;
mod report;
mod run;
mod schedule;
mod schema;
mod signature;
mod supervisor;
mod task_graph;
mod typed;
mod validate;
mod value;
mod work;

pub use builder::TaskGraphBuilder;
pub use change::{Change, SkipAs};
pub use control::GraphControl;
pub(crate) use control::Live;
pub use durations::Durations;
pub use end::{NodeEnd, SkipCause};
pub use handle::Handle;
pub(crate) use inputs::{EdgeNumbers, Inputs, Slots};
pub use needs::{Each, Needs, Optional, Output};
pub(crate) use needs::{GraphInput, GraphMessage};
pub(crate) use node::{
    AgentWork, Attempting, Beside, Condition, Edge, GatherFn, MapWork, Node, ReadFn, Retries, StepFn, TaskFn,
    Work,
};
pub use plan::{Plan, PlanTask};
pub use problem::{GraphError, Problem};
pub use records::{
    GraphChanged, GraphStarted, NodeFinished, NodeStarted, SupervisorAnswered, SupervisorAsked,
};
pub use report::{GraphReport, NodeReport, NodeState};
pub(crate) use report::{Places, each_event};
pub use run::GraphRun;
pub(crate) use run::Shape;
pub use signature::GraphSignature;
pub(crate) use signature::{EdgeSignature, NodeSignature};
pub use supervisor::{Intervention, Interventions};
pub(crate) use supervisor::{News, Supervisor};
pub(crate) use task_graph::{GraphLimits, Inner};
pub use task_graph::{OnFailure, TaskGraph};
pub use value::NodeValue;
pub(crate) use {prompt::section, work::with_text};
