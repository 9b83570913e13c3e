//! Agents below a run: their sessions, their slots, and their ends.

pub(crate) mod child;
mod delegate;
pub(crate) mod pool;
