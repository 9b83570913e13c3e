//! Servers and their clients: rmcp's own client over a pipe in this process and over HTTP, and raw bytes.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may panic")]

mod approvals;
mod attack_42;
mod calls;
mod cancel;
mod changes;
mod ends;
mod floods;
mod http;
mod ids;
mod kit;
mod listeners;
mod progress;
mod races;
#[cfg(unix)]
mod streams;
mod unreadable;
