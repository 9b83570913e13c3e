//! The trait of everything that watches events.

use std::fmt;

use super::Envelope;

/// Sees every event of every run of a runtime, streamed ones included.
///
/// # Contract
/// Quick, and never blocks: it is called from within the run.
///
/// An observer that panics is not called again, and the panic hook of the process reports it, once. The run, the stored
/// events and the other observers are not affected.
pub trait Observer: Send + Sync + fmt::Debug {
    /// An event happened.
    fn on_event(&self, event: &Envelope);
}
