//! Doubles and conformance suites for authors of agents, tools, providers and stores.
//!
//! Nothing here touches the network or a key, and only the suite for tools takes real time and makes files. [`rerun`]
//! reads files. Unlike the rest of the library it panics: that is how a test fails.

#![allow(clippy::panic, clippy::missing_panics_doc)]

mod clock;
pub mod crash;
mod distant;
mod embed;
mod live;
mod playbook;
mod provider;
mod report;
pub mod rerun;
pub mod scenarios;
pub mod store;
pub mod stream;
pub mod tool;
mod tools;

pub use clock::PausedClock;
pub use distant::Distant;
pub use embed::HashEmbedder;
#[doc(no_inline)]
pub use entourage_runners::ReactAgent;
pub use live::{LiveCall, LiveProvider};
pub use playbook::Playbook;
pub use provider::{Script, ScriptedProvider};
pub use report::ConformanceReport;
pub use tools::{FakeTool, Gate, assert_plain_text, assert_plain_words, run_tool};

use entourage_core::provider::Egress;
use entourage_runtime::RuntimeBuilder;
#[doc(no_inline)]
pub use entourage_runtime::{MemoryStore, Runtime, permission::Policy};

/// A runtime builder that forbids models every network call: an attempt fails with
/// [`entourage_core::ErrorKind::PermissionDenied`]. Sessions are in memory and time is tokio's.
pub fn runtime() -> RuntimeBuilder {
    Runtime::builder().egress(Egress::Forbidden).clock(PausedClock::new())
}
