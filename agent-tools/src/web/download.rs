//! `download`: writes what is at an address into a file of the workspace.

use std::time::Duration;

use async_trait::async_trait;
use entourage_core::tool::{
    Access, Footprint, Labels, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec,
    schema_of,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    client::Client,
    fetch::{footprint, page, time},
};
use crate::fs::Workspace;

/// Most bytes of a file; more is nothing that the file tools could change or undo.
pub(super) const LARGEST: usize = 16 << 20;
/// Time for a file, and the most that a call may ask for.
const TIME: Duration = Duration::from_secs(300);
const LONGEST: Duration = Duration::from_secs(600);
/// Time that the runtime waits beyond that.
const GRACE: Duration = Duration::from_secs(30);

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    /// The address, with http:// or https://.
    url: String,
    /// The file to write, relative to the workspace's root. Missing directories are made.
    path: String,
    /// Seconds to wait, at most 600. Default: 300.
    #[serde(default)]
    timeout: Option<f64>,
}

/// Writes what is at an address into a file.
#[derive(Debug)]
pub(super) struct Download {
    spec: ToolSpec,
    client: Client,
    workspace: Workspace,
    largest: usize,
}

impl Download {
    pub(super) fn new(client: Client, workspace: Workspace, largest: usize) -> Self {
        const DESCRIPTION: &str = "Writes what is at an address of the web into a file of the workspace, whole or not \
            at all. A file that exists must have been viewed in this session.";
        let spec = ToolSpec::new("download", DESCRIPTION, schema_of::<Arguments>())
            .with_access(Access::NETWORK | Access::WRITE)
            // What it writes is what it shows.
            .with_labels(Labels::UNTRUSTED)
            .with_repeat(Repeat::Once)
            .naming_subjects()
            .changing_files()
            .with_timeout(LONGEST + GRACE);
        Self { spec, client, workspace, largest }
    }
}

#[async_trait]
impl Tool for Download {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn footprint(&self, arguments: &Value) -> Footprint {
        let mut footprint = footprint(arguments);
        footprint.access |= Access::WRITE;
        let path = arguments.get("path").and_then(Value::as_str).unwrap_or_default();
        self.workspace.subjects(path).into_iter().fold(footprint, Footprint::writing)
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let Arguments { url, path, timeout } = input.parse()?;
        let time = time(timeout, TIME, LONGEST);
        // Before the host is asked: a place that cannot be written needs no page.
        self.workspace.can_receive(&path, cx).await?;
        let reply = page(self.client.get(&url, cx.footprint(), self.largest, time).await?)?;
        if reply.is_cut {
            let largest = self.largest;
            return Err(ToolError::tell(format!(
                "`{}` has more than {largest} bytes; nothing was written",
                reply.url
            )));
        }
        let (bytes, mime) = (reply.body.len(), reply.mime);
        let mut metadata = self.workspace.receive(&path, reply.body, cx).await?;
        if let Some(fields) = metadata.as_object_mut() {
            fields
                .extend([("url".to_owned(), json!(reply.url.as_str())), ("bytes".to_owned(), json!(bytes))]);
        }
        let kind = if mime.is_empty() { String::new() } else { format!(" ({mime})") };
        let text = format!("wrote {bytes} bytes{kind} from {} to `{path}`", reply.url);
        Ok(ToolOutput::text(text).with_metadata(metadata))
    }
}
