//! The nouns, traits, pure machines and runners of Entourage.
//!
//! A program that only uses agents wants the `entourage` crate, which re-exports this one. Who writes a provider, a
//! tool or a store depends on this crate alone: it knows no HTTP, files, processes, databases or vendors.
//!
//! | room | owns |
//! |---|---|
//! | [`message`] | what was said |
//! | [`event`] | what happened: the one event type |
//! | [`provider`] | model services: requests, deltas, models |
//! | [`layers`] | what happens around every model call |
//! | [`tool`] | what agents can do |
//! | [`permission`] | whether they may |
//! | [`session`] | where it is kept, and the fold over events |
//! | [`context`] | what the model sees |
//! | [`run`] | one prompt to one outcome: the pure turn, effects, the journal |
//! | [`agent`] | who takes a task |
//! | [`graph`] | tasks that depend on each other |
//! | [`team`] | what agents share |
//! | [`telemetry`] | what happened, asked of a store |

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod agent;
pub mod context;
pub mod event;
pub mod graph;
pub mod layers;
pub mod message;
pub mod permission;
pub mod provider;
pub mod run;
pub mod session;
pub mod team;
pub mod telemetry;
#[cfg(feature = "testkit")]
pub mod testkit;
pub mod tool;

mod bound;
mod digest;
mod error;
mod id;
mod plain;
mod runtime;
mod shown;
mod usage;

pub use digest::Digest;
pub use error::{Error, ErrorKind, ErrorRecord, Result, Retry};
pub use id::{Clock, RequestId, RunId, SessionId, SystemClock, Timestamp};
pub use runtime::{Agents, Moment, Recovery, Runtime, RuntimeBuilder, Session, SkipReason, Skipped, Titles};
pub use usage::{Money, PriceTier, Prices, Usage};

/// Used by `#[tool]`; not part of the public interface.
#[doc(hidden)]
pub mod __private {
    pub use {async_trait::async_trait, schemars, serde, serde_json};
}
