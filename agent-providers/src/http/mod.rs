//! What the wires share: the connection, event streams, and refusals turned into errors.
//!
//! Nothing here knows what a wire's JSON means beyond the shapes in which services report failures.

mod client;
mod failure;
mod headers;
mod secret;
pub(crate) mod sse;

pub(crate) use client::{Endpoint, Reply, Settings};
pub(crate) use failure::{Failing, Failure, says_something};
pub(crate) use secret::Redactor;
