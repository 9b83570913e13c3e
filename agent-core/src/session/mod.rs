//! Sessions: the lasting conversation that runs happen in, the fold that gives its state, and the contract of its
//! store.
//!
//! A store never looks inside an event: core computes the columns of each row, the body is opaque.

mod account;
mod cleared;
pub(crate) mod context_usage;
mod fold;
mod gauge;
mod lease;
mod open;
mod record;
mod snapshots;
mod sound;
mod state;
mod store;

pub use account::{Account, reply_charge};
pub use cleared::cleared;
pub(crate) use context_usage::ContextUsage;
pub use gauge::{Gauge, reserve};
pub use lease::Lease;
pub use open::{Closing, OpenCall, OpenQuestion, OpenRun, QueuedPrompt};
pub use record::{SessionHead, SessionInfo, SessionRecord, SessionStatus};
pub use snapshots::{Restored, Snapshots};
pub use state::SessionState;
pub use store::{Batch, Columns, ReadRange, Row, SessionFilter, SessionStore, SharedStore};
