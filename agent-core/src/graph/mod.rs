//! Tasks that depend on each other: a graph of steps, agents and graphs, run as far in parallel as its edges allow.

mod change;
mod end;
mod inputs;
mod node;
mod schedule;
mod signature;
mod value;

pub use change::{Change, SkipAs};
pub(crate) use inputs::{Inputs, Slots};
pub(crate) use node::{AgentWork, Condition, Edge, MapWork, Node, Retries, StepFn, Work};
pub use end::{NodeEnd, SkipCause};
pub use signature::{EdgeSignature, NodeSignature, Signature};
pub use value::NodeValue;
