//! What happened, asked of any store: sessions as users saw them, what worked below them, and figures (CW08, CW09,
//! CW14).
//!
//! Everything is computed from the events when it is asked for, and read in windows. Nothing here writes.

mod query;
#[cfg(feature = "tracing")]
mod spans;
mod stats;
mod trace;

pub use query::{External, ExternalTrace, Telemetry};
#[cfg(feature = "tracing")]
pub use spans::Spans;
pub use stats::{ModelStats, SessionStats, ToolStats, Totals};
pub use trace::{Exchange, ModelCallTrace, ToolCallTrace, Trace};
