//! Model services for Entourage. Each wire protocol is a folder behind a feature of its name; without features
//! nothing is compiled and nothing is depended on.
//!
//! | room | owns |
//! |---|---|
//! | `openai_chat` | chat completions: OpenAI's first wire, spoken by most services and local servers |
//! | `vendor` | the known services, as data |
//! | `env` | finding a model from environment variables and local servers |
//! | `http` | what the wires share: connections, event streams, refusals turned into errors |
//!
//! A wire is three things: `encode` (a request to bytes, pure), `decode` (bytes to deltas, pure, cut anywhere) and a
//! provider that puts both on a connection. This crate never imports tools or stores, and decides nothing
//! about agents.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "openai-chat")]
pub mod env;
#[cfg(feature = "http")]
#[cfg_attr(not(feature = "openai-chat"), allow(dead_code, unused_imports, reason = "it serves the wires"))]
mod http;
#[cfg(feature = "openai-chat")]
pub mod openai_chat;
#[cfg(feature = "openai-chat")]
pub mod vendor;
