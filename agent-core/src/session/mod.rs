//! Sessions: the lasting conversation that runs happen in, the fold that gives its state, and the contract of its
//! store.
//!
//! A store never looks inside an event: core computes the columns of each row, the body is opaque.

mod account;
mod cleared;
pub(crate) mod context_usage;
mod gauge;
mod lease;
mod memory;
pub(crate) mod mode;
mod open;
mod record;
mod sound;
mod state;
mod store;
pub(crate) mod windows;

pub(crate) use account::{Account, reply_charge};
pub(crate) use cleared::cleared;
pub(crate) use context_usage::ContextUsage;
pub(crate) use gauge::{Gauge, reserve};
pub use lease::Lease;
pub use memory::MemoryStore;
pub use open::QueuedPrompt;
pub(crate) use open::{Closing, OpenRun};
pub use record::{SessionHead, SessionInfo, SessionRecord, SessionStatus};
pub use state::SessionState;
pub use store::{Batch, Columns, ReadRange, Row, SessionFilter, SessionStore, SharedStore};
