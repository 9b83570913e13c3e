//! What is offered of a server: its tools, and one tool each for its resources and its prompts.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use entourage_core::{
    Digest, Result,
    run::RunContext,
    tool::{Access, LayerVerdict, NextCall, Repeat, ToolError, ToolLayer, ToolOutput, ToolSpec},
};
use rmcp::model::Tool;
use serde_json::{Value, json};

use super::{content, pins::Pins, server::McpServer};

/// A tool as it is offered.
#[derive(Debug)]
pub(super) struct Declared {
    pub(super) kind: Kind,
    pub(super) spec: ToolSpec,
    /// Of what the server says of it.
    pub(super) digest: Digest,
    /// What is asked about the tool, if it changed.
    pub(super) layers: Vec<Arc<dyn ToolLayer>>,
}

/// What a call of it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A call of the server's tool of this name.
    Tool(String),
    Resources,
    Prompts,
}

impl Declared {
    /// A tool of the server; `None` if it cannot be offered.
    pub(super) fn tool(server: &McpServer, tool: &Tool) -> Option<Self> {
        let spec = timed(content::spec_of(&server.name, server.is_remote(), tool)?, server);
        let (kind, digest) = (Kind::Tool(tool.name.to_string()), content::digest_of(tool));
        Some(Self { kind, spec, digest, layers: Vec::new() })
    }

    /// The same, whose first call is asked about.
    pub(super) fn asked_about(self, server: &str, pins: &Arc<Pins>) -> Self {
        let changed = Changed {
            pins: Arc::clone(pins),
            server: server.to_owned(),
            tool: self.spec.name().to_owned(),
            digest: self.digest,
            is_accepted: AtomicBool::new(false),
        };
        Self { layers: vec![Arc::new(changed)], ..self }
    }

    /// The tool that lists and reads the server's resources.
    pub(super) fn resources(server: &McpServer) -> Self {
        let text = format!(
            "Lists the resources of the MCP server `{}`, or reads one of them. Give `uri` to read.",
            server.name
        );
        let schema = json!({"type": "object", "properties": {
            "uri": {"type": "string", "description": "Address of the resource to read, as it was listed."}
        }});
        Self::own(server, Kind::Resources, "resources", text, schema)
    }

    /// The tool that lists and fills in the server's prompts.
    pub(super) fn prompts(server: &McpServer) -> Self {
        let text = format!(
            "Lists the prompts of the MCP server `{}`, or fills one of them in. Give `name` to fill one in.",
            server.name
        );
        let schema = json!({"type": "object", "properties": {
            "name": {"type": "string", "description": "Name of the prompt, as it was listed."},
            "arguments": {"type": "object", "additionalProperties": {"type": "string"},
                "description": "Its arguments by name, each a text."}
        }});
        Self::own(server, Kind::Prompts, "prompts", text, schema)
    }

    fn own(server: &McpServer, kind: Kind, name: &str, text: String, schema: Value) -> Self {
        let spec = ToolSpec::new(content::name_of(&server.name, name), text, schema);
        let spec = spec.with_access(Access::READ | Access::NETWORK).with_repeat(Repeat::Safe);
        let digest = spec.digest();
        Self { kind, spec: timed(spec, server), digest, layers: Vec::new() }
    }

    /// True if one of these names of the server's tools is offered under its name.
    pub(super) fn is_among<'n>(&self, server: &str, tools: impl IntoIterator<Item = &'n String>) -> bool {
        tools.into_iter().any(|tool| content::name_of(server, tool) == self.spec.name())
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        (&self.kind, self.digest, &self.spec) == (&other.kind, other.digest, &other.spec)
            && self.layers.len() == other.layers.len()
    }
}

fn timed(spec: ToolSpec, server: &McpServer) -> ToolSpec {
    match server.call_time {
        Some(time) => spec.with_timeout(time),
        None => spec,
    }
}

/// Asks about the first call of a tool that is not what was accepted (ATTACKS 43).
#[derive(Debug)]
struct Changed {
    pins: Arc<Pins>,
    server: String,
    tool: String,
    digest: Digest,
    is_accepted: AtomicBool,
}

#[async_trait]
impl ToolLayer for Changed {
    async fn before(&self, _: &ToolSpec, _: &mut Value, _: &RunContext) -> Result<LayerVerdict> {
        if self.is_accepted.load(Ordering::Acquire) {
            return Ok(LayerVerdict::Pass);
        }
        let Self { server, tool, .. } = self;
        // The answer holds for what the server says now.
        let now = self.digest.to_string();
        let now = now.get(..8).unwrap_or(&now);
        Ok(LayerVerdict::Ask(format!(
            "the MCP server `{server}` says something else of its tool `{tool}` than when it was accepted (now {now})"
        )))
    }

    async fn around(&self, next: NextCall<'_>) -> Result<ToolOutput, ToolError> {
        // It runs, so whoever was asked has allowed it.
        if !self.is_accepted.swap(true, Ordering::AcqRel) {
            // A file that cannot be written asks again in another process, no less.
            let _ = self.pins.accept(&self.server, &self.tool, self.digest).await;
        }
        next.run().await
    }
}
