//! Delivery of events: from the run that made them to its handle, to subscribers and to observers.

pub(crate) mod bus;
pub(crate) mod emit;
pub(crate) mod nest;

use std::{fmt, sync::Arc};

use entourage_core::{RunId, event::Origin};

use crate::session::{delivery::emit::Sink, journal::Journal};

/// A session as its runs see it.
pub(crate) trait Desk: Send + Sync + fmt::Debug {
    /// Returns the sink of another run of the session.
    fn sink_of(&self, run: RunId) -> Option<Arc<Sink>>;

    /// Adds the queued prompts that join the run to its conversation.
    fn fold(&self, journal: &Journal, origin: &Arc<Origin>);

    /// True while prompts wait for the end of the active run.
    fn is_awaited(&self) -> bool;

    /// Ends the active run. The next one begins, unless `hold` keeps the queue.
    fn ended(self: Arc<Self>, hold: bool);
}
