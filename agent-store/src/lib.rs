//! Session stores: where the sessions of Entourage live when they must outlast the process.
//!
//! A store implements [`SessionStore`](entourage_core::session::SessionStore) and never looks inside an event. Every
//! store here passes the suite in `entourage_testkit::store`.
//!
//! | store | feature | for |
//! |---|---|---|
//! | `HybridStore` | `hybrid` | active sessions as files, completed ones in an SQLite archive |
//! | `JsonStore` | `json` | one readable file a session, several processes |
//! | `PostgresStore` | `postgres` | many processes on many machines, readable with plain SQL |
//! | `SqliteStore` | `sqlite` | one file, several processes, readable with plain SQL |
//!
//! The in-memory store, `MemoryStore`, is part of `entourage-runtime`.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(any(feature = "json", feature = "sqlite"))]
mod durability;
#[cfg(feature = "hybrid")]
mod hybrid;
#[cfg(feature = "json")]
mod json;
#[cfg(feature = "json")]
mod listing;
#[cfg(any(feature = "json", feature = "sqlite"))]
mod os;
#[cfg(any(feature = "json", feature = "postgres", feature = "sqlite"))]
mod owned;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "hybrid")]
mod tiers;

#[cfg(any(feature = "json", feature = "sqlite"))]
#[cfg_attr(docsrs, doc(cfg(any(feature = "json", feature = "sqlite"))))]
pub use durability::Durability;

#[cfg(feature = "hybrid")]
#[cfg_attr(docsrs, doc(cfg(feature = "hybrid")))]
pub use hybrid::HybridStore;

#[cfg(feature = "json")]
#[cfg_attr(docsrs, doc(cfg(feature = "json")))]
pub use json::{FileProblem, FileProblemKind, JsonBuilder, JsonStore};

#[cfg(feature = "postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
pub use postgres::{PostgresBuilder, PostgresStore};

#[cfg(feature = "sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqlite")))]
pub use sqlite::{SqliteBuilder, SqliteStore};

#[cfg(feature = "hybrid")]
#[cfg_attr(docsrs, doc(cfg(feature = "hybrid")))]
pub use tiers::{ActiveStore, ArchiveStore, Held, Holdings, Leave};

/// The README's examples are compiled and run.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../README.md")]
mod readme {}
