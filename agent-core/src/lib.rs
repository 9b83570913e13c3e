//! The vocabulary of Entourage: nouns, traits, and the pure folds that these need.
//!
//! A program that only uses agents wants the `entourage` crate, which re-exports this one. A provider, a tool, a store
//! or a runner depends on this crate alone: it knows no HTTP, files, processes, databases or vendors. What performs and
//! records is in `entourage-runtime`, agents are in `entourage-runners`.
//!
//! | room | owns |
//! |---|---|
//! | [`message`] | messages, their parts, and the shared history |
//! | [`event`] | the one event type, and records of an agent's own |
//! | [`provider`] | model services: requests, deltas, models, layers |
//! | [`tool`] | tools and what they declare |
//! | [`permission`] | scopes, policies and approvers |
//! | [`budget`] | bounds on what a tree of agents may use |
//! | [`session`] | the fold over events, and the contract of stores |
//! | [`context`] | instructions, facts for them, and settings of compaction |
//! | [`run`] | the context of a run, its effects and its outcome |
//! | [`agent`] | agents that take a task |
//! | [`team`] | the todo list that agents share |
//! | [`bound`] | bounds on values that come from outside |

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod agent;
pub mod budget;
pub mod context;
pub mod event;
pub mod message;
pub mod permission;
pub mod provider;
pub mod run;
pub mod session;
pub mod team;
pub mod tool;

mod base;
mod outcome;
mod spec;

pub use base::{
    Clock, Digest, Error, ErrorKind, ErrorRecord, Money, PriceTier, Prices, RequestId, Result, RetryStatus,
    RunId, SessionId, SystemClock, Timestamp, Usage,
};

/// Bounds on values that come from outside: an event that is accepted can be stored and read again.
pub mod bound {
    pub use crate::base::bound::{EVENT, Flaw, ID, TEXT, VALUE, WORD, check, check_name, shortened, value};
}

/// Used by `#[tool]`; not part of the public interface.
#[doc(hidden)]
pub mod __private {
    pub use {async_trait::async_trait, schemars, serde, serde_json};
}
