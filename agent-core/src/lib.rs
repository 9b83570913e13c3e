//! The nouns, traits and pure machines of Entourage, and the agent loop.
//!
//! A program that only uses agents wants the `entourage` crate, which re-exports this one. A provider, a tool or a
//! store depends on this crate alone: it knows no HTTP, files, processes, databases or vendors.
//!
//! | room | owns |
//! |---|---|
//! | [`message`] | messages, their parts, and the shared history |
//! | [`event`] | the one event type |
//! | [`provider`] | model services: requests, deltas, models |
//! | [`layers`] | layers around every model call |
//! | [`tool`] | tools and what they declare |
//! | [`permission`] | scopes, policies and approvers |
//! | [`session`] | the fold over events, and the contract of stores |
//! | [`context`] | the context that a model sees |
//! | [`run`] | one prompt to one outcome: the pure turn, effects, the journal |
//! | [`agent`] | agents that take a task |
//! | [`team`] | the todo list that agents share |
//! | [`telemetry`] | queries over stored sessions, and spans |

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod agent;
pub mod context;
pub mod event;
pub mod layers;
pub mod message;
pub mod permission;
pub mod provider;
pub mod run;
pub mod session;
pub mod team;
pub mod telemetry;
pub mod tool;

mod base;
mod budget;
mod outcome;
mod runtime;
mod schema;
mod spec;

pub use base::{
    Clock, Digest, Error, ErrorKind, ErrorRecord, Money, PriceTier, Prices, RequestId, Result, RetryStatus,
    RunId, SessionId, SystemClock, Timestamp, Usage,
};
pub use runtime::{Agents, Moment, Recovery, Runtime, RuntimeBuilder, Session, SkipReason, Skipped, Titles};

/// Used by `#[tool]`; not part of the public interface.
#[doc(hidden)]
pub mod __private {
    pub use {async_trait::async_trait, schemars, serde, serde_json};
}
