//! Shared parts of the wires: the connection, event streams, limits, and refusals turned into errors.
//!
//! Nothing here knows what a wire's JSON means beyond the shapes in which services report failures.

pub(crate) mod base64;
mod client;
mod connections;
mod failure;
mod given;
mod headers;
mod limits;
mod refusal;
mod secret;
mod spelling;
pub(crate) mod sse;
mod tap;
mod tls;
mod transport;

pub(crate) use client::{Auth, Endpoint, Reply, Settings, Target};
pub(crate) use failure::Failure;
pub(crate) use given::Given;
pub(crate) use refusal::Failing;
pub(crate) use secret::Redactor;
pub(crate) use tap::Protocol;
pub(crate) use transport::{BoxError, Fault};
