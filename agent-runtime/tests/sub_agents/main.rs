//! Agents below agents: as tools and as children, their limits, permissions and records.

#![allow(clippy::indexing_slicing, clippy::large_futures, clippy::panic, clippy::unwrap_used)]

#[path = "../it/common.rs"]
#[allow(dead_code)]
mod common;
mod depth;
mod offered;
mod pool;
mod pool_ends;
mod records;
mod restart;
mod slow_store;
mod talk;
mod tool;
mod workers;
