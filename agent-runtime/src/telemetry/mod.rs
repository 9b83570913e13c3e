//! Queries over past runs in any store: sessions as users saw them, the sessions below them, and statistics; and runs
//! as `tracing` spans.
//!
//! Everything is computed from the events on demand, and read in windows. Nothing here writes.

mod query;
mod request;
#[cfg(feature = "tracing")]
mod spans;
mod stats;
mod trace;

pub use query::{External, ExternalTrace, Telemetry};
#[cfg(feature = "tracing")]
pub use spans::Spans;
pub use stats::{ModelStats, SessionStats, ToolStats, Totals};
pub use trace::{Exchange, ModelCallTrace, ToolCallTrace, Trace};
