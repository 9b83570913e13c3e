//! A tool for each kind of result, for suites that check servers of the Model Context Protocol:
//!
//! ```text
//! cargo run -p entourage-mcp-server --example everything -- 8808
//! npx @modelcontextprotocol/conformance server --url http://127.0.0.1:8808/mcp --scenario tools-call-image
//! ```

use std::{env, sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    message::{Media, MediaSource},
    tool::{Access, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec, Tools},
};
use entourage_mcp_server::ToolServer;
use entourage_runtime::Runtime;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// An image of one red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// A sound without samples.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";
/// A JSON object with one key.
const JSON: &str = "eyJ0ZXN0IjoiZGF0YSJ9";

/// A tool that answers by its name.
struct Answer(ToolSpec);

impl Answer {
    fn tool(name: &str, description: &str, schema: Value) -> Arc<dyn Tool> {
        Arc::new(Self(ToolSpec::new(name, description, schema).with_access(Access::NONE)))
    }
}

#[async_trait]
impl Tool for Answer {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let file = |mime: &str, data: &str| Media::new(mime, MediaSource::Base64(data.to_owned()));
        match self.0.name() {
            "test_image_content" => Ok(ToolOutput::default().with_media(file("image/png", PNG))),
            "test_audio_content" => Ok(ToolOutput::default().with_media(file("audio/wav", WAV))),
            "test_embedded_resource" => Ok(ToolOutput::default().with_media(file("application/json", JSON))),
            "test_multiple_content_types" => Ok(ToolOutput::text("Several kinds of content:")
                .with_media(file("image/png", PNG))
                .with_media(file("application/json", JSON))),
            "test_error_handling" => Err(ToolError::tell("This tool always fails.")),
            "test_tool_with_progress" => {
                for step in ["none", "half", "all"] {
                    cx.progress(format!("{step} of it is done"));
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Ok(ToolOutput::text("All of it is done."))
            }
            _ => Ok(ToolOutput::text("This is a simple text.")),
        }
    }
}

fn tools() -> Result<Tools> {
    let plain = [
        ("test_simple_text", "Answers with a text."),
        ("test_image_content", "Answers with an image."),
        ("test_audio_content", "Answers with a sound."),
        ("test_embedded_resource", "Answers with a file."),
        ("test_multiple_content_types", "Answers with a text, an image and a file."),
        ("test_error_handling", "Fails."),
        ("test_tool_with_progress", "Reports its progress three times."),
    ];
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
            },
        },
        "properties": { "name": { "type": "string" }, "address": { "$ref": "#/$defs/address" } },
        "additionalProperties": false,
    });
    let special = Answer::tool("json_schema_2020_12_tool", "Has a schema with references.", schema);
    let plain = plain.map(|(name, description)| Answer::tool(name, description, json!({"type": "object"})));
    Tools::new(plain.into_iter().chain([special]))
}

#[tokio::main]
async fn main() -> Result<()> {
    let failed =
        |error| Error::new(ErrorKind::Io, "the port cannot be opened; try another one").caused_by(error);
    let port = env::args().nth(1).and_then(|port| port.parse::<u16>().ok()).unwrap_or(8808);
    let listener = TcpListener::bind(("127.0.0.1", port)).await.map_err(failed)?;
    let server = ToolServer::new("everything", &Runtime::in_memory()).toolset(tools()?);
    server.serve_http(listener, CancellationToken::new()).await
}
