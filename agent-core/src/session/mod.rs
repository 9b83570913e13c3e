//! Sessions: the lasting conversation that runs happen in, and where it is kept.
//!
//! A store never looks inside an event: core computes the columns of each row, the body is opaque.

mod memory;
mod record;
mod state;
mod store;

pub use memory::MemoryStore;
pub use record::{SessionHead, SessionInfo, SessionRecord, SessionStatus};
pub(crate) use state::Closing;
pub use state::SessionState;
pub use store::{Batch, Columns, ReadRange, Row, SessionFilter, SessionStore, SharedStore};
