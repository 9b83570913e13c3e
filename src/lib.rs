//! Entourage.
pub use entourage_core as core;
