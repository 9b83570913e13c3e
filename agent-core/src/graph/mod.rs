//! Tasks that depend on each other: a graph of steps, agents and graphs, run as far in parallel as its edges allow.

mod change;
mod end;
mod schedule;
mod signature;
mod value;

pub use change::{Change, SkipAs};
pub use end::{NodeEnd, SkipCause};
pub use signature::{EdgeSignature, NodeSignature, Signature};
pub use value::NodeValue;
