//! Sessions: the lasting conversation that runs happen in, the fold that gives its state, and the contract of its
//! store.
//!
//! A store never looks inside an event: core computes the columns of each row, the body is opaque.

pub(crate) mod context_usage;
mod lease;
mod memory;
mod open;
mod record;
mod sound;
mod state;
mod store;

pub(crate) use context_usage::ContextUsage;
pub use lease::Lease;
pub use memory::MemoryStore;
pub use open::QueuedPrompt;
pub(crate) use open::{Closing, OpenRun};
pub use record::{SessionHead, SessionInfo, SessionRecord, SessionStatus};
pub use state::SessionState;
pub use store::{Batch, Columns, ReadRange, Row, SessionFilter, SessionStore, SharedStore};
