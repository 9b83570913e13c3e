//! Model services for Entourage. Each wire protocol is a folder behind a feature of its name; without features
//! nothing is compiled and nothing is depended on.
//!
//! | room | owns |
//! |---|---|
//! | `anthropic_messages` | messages: Anthropic's wire, spoken by llama.cpp and gateways too |
//! | `openai_chat` | chat completions: OpenAI's first wire, spoken by most services and local servers |
//! | `openai_responses` | responses: OpenAI's second wire, with items instead of messages |
//! | `gemini` | generateContent: Google's Gemini API, and the same models in its cloud |
//! | `ollama` | Ollama's own chat: models on this machine |
//! | `vendor` | the known services, as data |
//! | `env` | finding a model from environment variables and local servers |
//! | `catalog` | facts about models: windows, abilities, prices |
//! | `http` | shared by the wires: connections, event streams, limits, refusals turned into errors |
//! | `body` | shared by the wires: request bodies, assembled from bytes |
//! | `framing`, `json` | shared by the wires: replies cut into frames, and JSON that tolerates wrong types |
//! | `service`, `stream` | shared by the wires: a wire on a connection, and the connection's bytes through a decoder |
//! | `new_messages` | shared by the wires: the messages that warnings are about |
//! | `schema` | shared by the wires: JSON Schema in the dialects of the services |
//! | `dialect`, `models` | differences between services that speak chat completions, and the models of a server |
//! | `media` | shared by the wires: files that can be passed on, and notes for the others |
//!
//! A wire is three things: `encode` (a request to bytes, pure), `decode` (bytes to deltas, pure, cut anywhere) and a
//! provider that puts both on a connection. This crate never imports tools or stores, and decides nothing
//! about agents.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "anthropic-messages")]
pub mod anthropic_messages;
#[cfg(feature = "http")]
#[allow(dead_code, unused_imports, reason = "it serves all wires, and none needs the whole of it")]
mod body;
#[cfg(feature = "http")]
pub mod catalog;
#[cfg(feature = "http")]
mod dialect;
#[cfg(feature = "http")]
pub mod env;
#[cfg(feature = "http")]
#[allow(dead_code, unused_imports, reason = "it serves all wires, and none needs the whole of it")]
mod framing;
#[cfg(feature = "gemini")]
pub mod gemini;
#[cfg(feature = "http")]
#[allow(dead_code, unused_imports, reason = "it serves all wires, and none needs the whole of it")]
mod http;
#[cfg(feature = "http")]
#[allow(dead_code, unused_imports, reason = "it serves all wires, and none needs the whole of it")]
mod intake;
#[cfg(feature = "http")]
#[allow(dead_code, unused_imports, reason = "it serves all wires, and none needs the whole of it")]
mod json;
#[cfg(feature = "http")]
#[allow(dead_code, reason = "all wires use it")]
mod limit;
#[cfg(feature = "http")]
#[allow(dead_code, unused_imports, reason = "it serves all wires, and none needs the whole of it")]
mod media;
#[cfg(feature = "http")]
#[allow(dead_code, unused_imports, reason = "it serves all wires, and none needs the whole of it")]
mod models;
#[cfg(feature = "http")]
#[allow(dead_code, unused_imports, reason = "it serves all wires, and none needs the whole of it")]
mod new_messages;
#[cfg(feature = "ollama")]
pub mod ollama;
#[cfg(any(feature = "anthropic-messages", feature = "openai-responses"))]
mod on_demand;
#[cfg(feature = "openai-chat")]
pub mod openai_chat;
#[cfg(feature = "openai-responses")]
pub mod openai_responses;
#[cfg(feature = "http")]
#[allow(dead_code, unused_imports, reason = "it serves all wires, and none needs the whole of it")]
mod schema;
#[cfg(feature = "http")]
#[allow(dead_code, unused_imports, reason = "it serves all wires, and none needs the whole of it")]
mod service;
#[cfg(feature = "http")]
#[allow(dead_code, unused_imports, reason = "it serves all wires, and none needs the whole of it")]
mod stream;
#[cfg(feature = "http")]
pub mod vendor;
