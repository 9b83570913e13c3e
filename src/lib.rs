// The snippets are compiled and run by the package `examples`.
// The first definition of a link wins: here the pages are modules, on their own they are files.
#![cfg_attr(
    not(doctest),
    doc = "[agents]: guide::agents\n[layers]: guide::layers\n[models]: guide::models\n\
           [performance]: guide::performance\n[permissions]: guide::permissions\n[sessions]: guide::sessions\n"
)]
#![cfg_attr(not(doctest), doc = include_str!("../README.md"))]
#![cfg_attr(docsrs, feature(doc_cfg))]

/// The nouns, traits, pure machines and runners that everything else builds on.
pub use entourage_core as core;
pub use entourage_core::{
    Agents, Digest, Error, ErrorKind, Moment, Money, Prices, Recovery, Result, RetryStatus, RunId, Runtime,
    RuntimeBuilder, Session, SessionId, SkipReason, Skipped, Timestamp, Titles, Usage, agent, context, event,
    graph, layers, message, permission, provider, run, session, team, telemetry, tool,
};

#[cfg(doc)]
pub mod guide;

#[cfg(feature = "testkit")]
pub use entourage_core::testkit;

/// Turns an async function into a tool.
#[cfg(feature = "macros")]
pub use entourage_macros::tool;

/// Model services, one wire protocol per feature.
#[cfg(any(
    feature = "openai-chat",
    feature = "openai-responses",
    feature = "anthropic-messages",
    feature = "gemini",
    feature = "ollama"
))]
pub use entourage_providers as providers;

/// File tools, all through one confined workspace.
#[cfg(feature = "fs")]
pub use entourage_tools::fs;

/// Facts about a project for prompt templates, gathered from the machine.
#[cfg(feature = "project")]
pub use entourage_tools::project;

/// Spans to an OpenTelemetry collector.
#[cfg(feature = "otel")]
pub use entourage_otel as otel;

/// Stores for sessions.
#[cfg(any(feature = "json", feature = "sqlite", feature = "postgres"))]
pub use entourage_store as store;

/// The items that most programs use, for `use entourage::prelude::*`.
pub mod prelude {
    pub use entourage_core::{
        Error, ErrorKind, Money, Result, Runtime, Session, SessionId, Usage,
        agent::{Agent, AgentTool, Autonomy, AutonomyLevel, DualAgent, ReactAgent},
        event::{Envelope, Event, Record},
        graph::TaskGraph,
        layers::Retry,
        message::Message,
        permission::{ApprovalRequest, Approver, Decision, Policy, Scope},
        provider::{CallContext, Delta, Model, ModelExt, Params, Provider},
        run::{Limits, Outcome, RunContext, RunHandle, Status, StopWhen, Task},
        session::{MemoryStore, SessionFilter, SessionStore},
        tool::{Access, Json, Tool, ToolContext, ToolError, ToolOutput, Tools},
    };

    #[cfg(feature = "macros")]
    pub use entourage_macros::tool;

    #[cfg(any(
        feature = "openai-chat",
        feature = "openai-responses",
        feature = "anthropic-messages",
        feature = "gemini",
        feature = "ollama"
    ))]
    pub use entourage_providers::env::ModelFromEnv;

    #[cfg(feature = "anthropic-messages")]
    pub use entourage_providers::anthropic_messages::AnthropicMessages;

    #[cfg(feature = "gemini")]
    pub use entourage_providers::gemini::Gemini;

    #[cfg(feature = "ollama")]
    pub use entourage_providers::ollama::Ollama;

    #[cfg(feature = "openai-chat")]
    pub use entourage_providers::openai_chat::OpenAiChat;

    #[cfg(feature = "openai-responses")]
    pub use entourage_providers::openai_responses::OpenAiResponses;

    #[cfg(feature = "fs")]
    pub use entourage_tools::fs::{self, Workspace};

    #[cfg(feature = "hybrid")]
    pub use entourage_store::HybridStore;

    #[cfg(feature = "json")]
    pub use entourage_store::JsonStore;

    #[cfg(feature = "postgres")]
    pub use entourage_store::PostgresStore;

    #[cfg(feature = "sqlite")]
    pub use entourage_store::SqliteStore;
}
