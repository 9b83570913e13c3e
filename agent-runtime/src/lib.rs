//! The runtime of Entourage: it performs the effects of agents, and records them in sessions.
//!
//! | room | owns |
//! |---|---|
//! | [`engine`] | the door for other implementations of a run's effects |
//! | [`layers`] | layers around every model call |
//! | [`context`] | repair of foreign histories, and prompt templates |
//! | [`schema`] | the check of JSON values against a schema |
//! | [`telemetry`] | queries over stored sessions, and spans |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod agent_ext;
mod agents;
mod approvers;
mod caught;
mod children;
pub mod context;
mod cosine;
mod deferred;
mod deps;
mod effects;
pub mod engine;
mod env;
mod guards;
pub mod layers;
mod memory;
mod names;
mod own;
pub mod permission;
#[cfg(feature = "templates")]
mod prompt;
mod random;
mod replay;
pub mod reply;
mod run;
mod runtime;
pub mod schema;
mod session;
pub mod telemetry;
mod texts;
mod titles;

pub use agent_ext::{AgentExt, unanswered};
pub use agents::Agents;
pub use approvers::{AllowAll, DenyAll};
pub use caught::{Caught, caught};
pub use cosine::cosine;
pub use guards::AnswersGuarded;
pub use memory::MemoryStore;
pub use names::check_agent_name;
pub use run::{RunHandle, check_prompt};
pub use runtime::{Recovery, Runtime, RuntimeBuilder, SkipReason, Skipped};
pub use session::{
    AnswerForm, CurrentModeUpdate, Mode, Moment, Pending, Rewound, Session, Waiting,
    delivery::bus::Subscription,
};
pub use titles::Titles;
