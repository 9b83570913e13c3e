//! Delivery of events: from the run that made them to its handle, to subscribers and to observers.

pub(crate) mod bus;
pub(crate) mod emit;
pub(crate) mod nest;
