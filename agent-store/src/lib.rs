//! Session stores: where the sessions of Entourage live when they must outlast the process.
//!
//! A store implements [`SessionStore`](entourage_core::session::SessionStore) and never looks inside an event. Every
//! store here passes the suite in `entourage_core::testkit::store`.
//!
//! | store | feature | for |
//! |---|---|---|
//! | `SqliteStore` | `sqlite` | one file, several processes, readable with plain SQL |
//!
//! The in-memory store, `MemoryStore`, is part of the core.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqlite")))]
pub use sqlite::{Durability, SqliteBuilder, SqliteStore};

/// The README's examples are compiled and run.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../README.md")]
mod readme {}
