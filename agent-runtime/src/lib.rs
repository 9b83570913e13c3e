//! The runtime of Entourage: it performs the effects of agents, and records them in sessions.
//!
//! | room | owns |
//! |---|---|
//! | [`layers`] | layers around every model call |
//! | [`context`] | repair of foreign histories, and prompt templates |
//! | [`schema`] | the check of JSON values against a schema |
//! | [`telemetry`] | queries over stored sessions, and spans |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod agent_ext;
mod approvers;
mod caught;
pub mod context;
pub mod layers;
mod memory;
mod names;
#[cfg(feature = "templates")]
mod prompt;
mod random;
mod run;
mod runtime;
pub mod schema;
pub mod telemetry;

pub use agent_ext::AgentExt;
pub use approvers::{AllowAll, DenyAll};
pub use caught::{Caught, caught};
pub use memory::MemoryStore;
pub use names::check_agent_name;
pub use run::{RunHandle, Subscription, check_prompt};
pub use runtime::{
    Agents, CurrentModeUpdate, Mode, Moment, Recovery, Runtime, RuntimeBuilder, Session, SkipReason, Skipped,
    Titles,
};
