// The snippets are compiled and run by the package `examples`.
// The first definition of a link wins: here the pages are modules, on their own they are files.
#![cfg_attr(
    not(doctest),
    doc = "[agents]: guide::agents\n[layers]: guide::layers\n[models]: guide::models\n\
           [performance]: guide::performance\n[permissions]: guide::permissions\n[sandbox]: guide::sandbox\n\
           [sessions]: guide::sessions\n"
)]
#![cfg_attr(not(doctest), doc = include_str!("../README.md"))]
#![cfg_attr(docsrs, feature(doc_cfg))]

/// Used by `#[tool]`; not part of the public interface.
#[doc(hidden)]
pub use entourage_core::__private;
pub use entourage_core::{
    Error, ErrorKind, Money, Prices, Result, RetryStatus, RunId, SessionId, Timestamp, Usage,
};
pub use entourage_runtime::{Agents, Moment, Recovery, Runtime, RuntimeBuilder, Session, SkipReason, Titles};

/// Agents that take a task.
pub mod agent {
    pub use entourage_core::agent::{Agent, AgentPart, IntoAgent};
    pub use entourage_runners::{
        AgentTool, Prepare, Prepared, ReactAgent, ReactBuilder, Step, per_run, person,
    };
    pub use entourage_runners::{Autonomy, AutonomyLevel, DualAgent, Verdict};
    pub use entourage_runners::{TypedAgent, typed::Partial};
    pub use entourage_runtime::AgentExt;
    pub use entourage_runtime::Mode;
}

#[cfg(feature = "agents")]
pub mod agent_files;
pub use entourage_runners::builtin;

/// The context that a model sees.
pub mod context {
    pub use entourage_core::context::{Compaction, Instructions, PromptFacts, estimate_tokens};
    pub use entourage_runtime::context::repair;
    #[cfg(feature = "templates")]
    pub use entourage_runtime::context::{PromptTemplate, Templates};
    pub use entourage_runtime::context::{shown_to, without_media};
}

/// The one event type, and the contents of the events that programs read most.
pub mod event {
    pub use entourage_core::event::{
        Envelope, Event, FORMAT, ModelFinished, ModelStarted, Origin, Record, RunFinished, RunStarted,
        ToolFinished, ToolStarted,
    };
    pub use entourage_runners::checked::PhaseFinished;
    pub use entourage_runners::graph::{NodeFinished, NodeStarted};
}

/// Tasks that depend on each other.
pub mod graph {
    pub use entourage_runners::graph::{
        GraphControl, GraphReport, Handle, Intervention, Interventions, NodeEnd, NodeState, OnFailure,
        Output, Plan, PlanTask, SkipAs, TaskGraph, TaskGraphBuilder,
    };
}

/// Layers around every model call.
pub mod layers {
    pub use entourage_core::{
        budget::{Budget, BudgetLimits, Exhausted},
        provider::Layer,
    };
    pub use entourage_runtime::layers::{
        BudgetLayer, Check, CredentialRefresh, Fallback, ModelChoice, RateLimit, Recorder, Refresh, Replay,
        ResponseCache, Retry, Tier, Timeout,
    };
}

/// Messages, their parts, and the shared history.
pub mod message {
    pub use entourage_core::message::{
        Arguments, Content, History, Media, MediaSource, Message, Part, Role, ToolCall, ToolResult,
    };
}

/// Scopes, policies and approvers.
pub mod permission {
    pub use entourage_core::permission::{
        Answer, ApprovalId, ApprovalRequest, Approver, Decision, Grants, RuleEffect, Scope,
    };
    pub use entourage_runtime::{
        AllowAll, DenyAll,
        permission::{Policy, Preset, Rule, Ruling, judge},
    };
    #[cfg(feature = "policy-file")]
    pub use entourage_tools::GrantFile;
}

/// Model services: requests, deltas, models, and texts as vectors.
pub mod provider {
    pub use entourage_core::provider::{
        CallContext, Delta, DeltaStream, Effort, Egress, Embedder, Embeddings, Finish, FinishReason, Model,
        OutputFormat, Params, Profile, PromptCache, Provider, ReasoningParams, Request, Size, ToolChoice,
    };
    pub use entourage_runners::typed::{Generate, Generated, ModelExt, NoValue, NoValueReason};
    pub use entourage_runtime::cosine;
}

/// A planner whose executors look into the steps of its plans.
pub mod planner {
    pub use entourage_runners::planner::{
        ConversationLimits, PartBudgets, PlannedStep, Planner, PlannerProgress, PlannerStrategy,
        StepExecution, StepMessage, StepMessageKind, StepReport, StepStatus, VIEWS,
    };
}

/// Questions that several agents look into side by side.
pub mod research {
    pub use entourage_runners::research::{
        Complexity, Research, ResearchProgress, ResearchTask, Researcher, TaskTiers,
    };
}

/// One prompt to one outcome.
pub mod run {
    pub use entourage_core::run::{
        Child, Limits, Observer, Outcome, Pause, RunContext, Spawn, Status, StopReason, Task, Waited,
    };
    pub use entourage_runners::{
        LoopDetection, StopWhen,
        typed::{OutcomeExt, RunExt},
    };
    pub use entourage_runtime::RunHandle;
}

/// Sessions and the contract of stores.
pub mod session {
    pub use entourage_core::session::{
        Restored, SessionFilter, SessionHead, SessionInfo, SessionStatus, SessionStore, SharedStore,
        Snapshots,
    };
    pub use entourage_runners::SqlViews;
    pub use entourage_runtime::{MemoryStore, Pending, Rewound, Waiting};
}

/// Models of different sizes that work together, and the todo list that agents share.
pub mod team {
    pub use entourage_core::team::{Todo, TodoStatus};
    pub use entourage_runners::{
        Cascade, CascadeBuilder, CascadeStarted, CascadeStep, Memory, TodoTool,
        team::{
            Member, MemberReport, MemberStatus, MessageKind, Performance, TaskType, Team, TeamBuilder,
            TeamItem, TeamMessage, TeamPlanned, TeamReport, VIEWS,
        },
    };
}

/// Queries over stored sessions, and spans.
pub mod telemetry {
    #[cfg(feature = "tracing")]
    pub use entourage_runtime::telemetry::Spans;
    pub use entourage_runtime::telemetry::{ModelStats, SessionStats, Telemetry, ToolStats, Totals};
}

/// Tools and what they declare.
pub mod tool {
    pub use entourage_core::tool::{
        Access, CallId, Footprint, IntoToolOutput, Json, Labels, LayerVerdict, NextCall, Repeat, Tool,
        ToolContext, ToolError, ToolInput, ToolLayer, ToolOutput, ToolSpec, Tools, Toolset, schema_of,
    };
    pub use entourage_runners::{
        Combined, Question, QuestionKind, ToolsetExt, agentic_fetch, external,
        from_fn::{from_fn, typed},
        layered, question,
    };
    pub use entourage_runtime::reply::repair_json;
    #[cfg(feature = "hooks")]
    pub use entourage_tools::Hooks;
}

#[cfg(doc)]
pub mod guide;

#[doc(inline)]
#[cfg(feature = "testkit")]
pub use entourage_testkit as testkit;

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
pub mod providers {
    pub mod env;

    pub use entourage_providers::{catalog, vendor};

    /// The messages API of Anthropic.
    #[cfg(feature = "anthropic-messages")]
    pub mod anthropic_messages {
        pub use entourage_providers::anthropic_messages::AnthropicMessages;
    }

    /// The API of Gemini.
    #[cfg(feature = "gemini")]
    pub mod gemini {
        pub use entourage_providers::gemini::Gemini;
    }

    /// The API of Ollama.
    #[cfg(feature = "ollama")]
    pub mod ollama {
        pub use entourage_providers::ollama::Ollama;
    }

    /// Chat completions, and their dialects.
    #[cfg(feature = "openai-chat")]
    pub mod openai_chat {
        pub use entourage_providers::openai_chat::{DEFAULT_MODEL, Dialect, OpenAiChat, encode};
    }

    /// The responses API of OpenAI.
    #[cfg(feature = "openai-responses")]
    pub mod openai_responses {
        pub use entourage_providers::openai_responses::OpenAiResponses;
    }
}

/// File tools, all through one confined workspace.
#[cfg(feature = "fs")]
pub use entourage_tools::fs;

/// Command lines as tools, read before they run.
#[cfg(feature = "shell")]
pub use entourage_tools::shell;

/// Facts about a project for prompt templates, gathered from the machine.
#[cfg(feature = "project")]
pub use entourage_tools::project;

/// Folders of instructions that models load when a task needs them.
#[cfg(feature = "skills")]
pub use entourage_tools::skills;

/// Language servers: diagnostics after edits, and tools that ask them.
#[cfg(feature = "lsp")]
pub use entourage_tools::lsp;
/// Tools of MCP servers.
#[cfg(feature = "mcp")]
pub use entourage_tools::mcp;
/// Commands that the operating system confines.
#[cfg(feature = "sandbox")]
pub use entourage_tools::sandbox;
/// Pages of the web, by a client that asks hosts of the internet alone.
#[cfg(feature = "web")]
pub use entourage_tools::web;

/// Tools and agents for clients of the Model Context Protocol.
#[cfg(feature = "mcp-server")]
pub use entourage_mcp_server as mcp_server;

/// Spans to an OpenTelemetry collector.
#[cfg(feature = "otel")]
pub use entourage_otel as otel;
/// Runs on a terminal: their events as lines, questions to the person there, Ctrl-C.
#[cfg(feature = "terminal")]
pub use entourage_terminal as terminal;

/// Stores for sessions.
#[cfg(any(feature = "json", feature = "sqlite", feature = "postgres"))]
pub mod store {
    #[cfg(any(feature = "json", feature = "sqlite"))]
    pub use entourage_store::Durability;
    #[cfg(feature = "json")]
    pub use entourage_store::JsonStore;
    #[cfg(feature = "postgres")]
    pub use entourage_store::PostgresStore;
    #[cfg(feature = "sqlite")]
    pub use entourage_store::SqliteStore;
    #[cfg(feature = "hybrid")]
    pub use entourage_store::{Held, HybridStore, Leave};
}

#[macro_use]
mod missing;

/// The items that most programs use, for `use entourage::prelude::*`.
///
/// Use of an item whose feature is off is a compile error that names the feature.
#[cfg_attr(
    not(feature = "sqlite"),
    doc = "\n```compile_fail,E0277\nuse entourage::prelude::*;\nlet store = SqliteStore::open(\"sessions.db\");\n```"
)]
pub mod prelude {
    pub use entourage_core::{
        Error, ErrorKind, Money, Result, SessionId, Usage,
        agent::Agent,
        event::{Envelope, Event, Record},
        message::Message,
        permission::{ApprovalRequest, Approver, Decision, Scope},
        provider::{CallContext, Delta, Model, Params, Provider},
        run::{Limits, Outcome, RunContext, Status, Task},
        session::{SessionFilter, SessionStore},
        tool::{Access, Json, Tool, ToolContext, ToolError, ToolOutput, Tools},
    };
    pub use entourage_runners::{
        AgentTool, ReactAgent, StopWhen, TypedAgent,
        typed::{ModelExt, OutcomeExt, RunExt},
    };
    pub use entourage_runners::{Autonomy, AutonomyLevel, DualAgent, graph::TaskGraph};
    pub use entourage_runtime::{
        AgentExt, MemoryStore, RunHandle, Runtime, Session, layers::Retry, permission::Policy,
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
    pub use crate::providers::env::ModelFromEnv;

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

    #[cfg(feature = "shell")]
    pub use entourage_tools::shell::Shell;

    #[cfg(feature = "hybrid")]
    pub use entourage_store::HybridStore;

    #[cfg(feature = "json")]
    pub use entourage_store::JsonStore;

    #[cfg(feature = "postgres")]
    pub use entourage_store::PostgresStore;

    #[cfg(feature = "sqlite")]
    pub use entourage_store::SqliteStore;

    missing! {
        pub AnthropicMessages: AnthropicMessages of "anthropic-messages";
        pub fs: Fs of "fs";
        pub Workspace: Fs of "fs";
        pub Gemini: Gemini of "gemini";
        pub HybridStore: Hybrid of "hybrid";
        pub JsonStore: Json of "json";
        pub Ollama: Ollama of "ollama";
        pub OpenAiChat: OpenAiChat of "openai-chat";
        pub OpenAiResponses: OpenAiResponses of "openai-responses";
        pub PostgresStore: Postgres of "postgres";
        pub Shell: Shell of "shell";
        pub SqliteStore: Sqlite of "sqlite";
    }
}
