//! What Entourage's agents can do.
//!
//! Each group of tools is a feature, and none is on by default. A tool here implements [`entourage_core::tool::Tool`]
//! and nothing else: whether a call may run is decided in the core, never here.
//!
//! | module | feature | tools |
//! |---|---|---|
//! | `fs` | `fs` | `view`, `ls`, `glob`, `grep`: read-only, confined to a workspace |
//! | `project` | `project` | no tools: what a prompt template may say of a project, gathered from the machine |

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "fs")]
pub mod fs;
#[cfg(feature = "project")]
pub mod project;
