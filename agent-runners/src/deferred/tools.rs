//! The two tools that every request carries: one searches the deferred tools, the other stands for a call of one.

use std::num::NonZeroUsize;

use async_trait::async_trait;
use entourage_core::tool::{
    Access, Footprint, Labels, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec, schema_of,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{
    rank::{Query, ranked},
    shown::{overview, results},
};

const FIND: &str = "find_tools";
const USE: &str = "use_tool";

const FINDS: &str = "Searches the tools that are not in your list. There may be hundreds: look here before you say that \
    you cannot do something. Returns the best matches with their name, description and the schema of their arguments. \
    Call one with `use_tool`.";

const USES: &str =
    "Calls a tool that `find_tools` found. It is checked, allowed and answered as a call of that tool.";

/// Number of results, unless the call asks for another one.
const RESULTS: usize = 5;
/// Number of results, at most.
const MOST: usize = 20;

#[derive(Debug, Deserialize, JsonSchema)]
struct Search {
    /// Some words for what the tool should do or work on, such as "create issue tracker", or a tool's name.
    query: String,
    /// The number of tools to return, at most 20. Default: 5.
    #[serde(default)]
    limit: Option<NonZeroUsize>,
}

/// Searches the deferred tools that are offered with it, and that the scope of its run may admit.
#[derive(Debug)]
pub(super) struct FindTools {
    spec: ToolSpec,
}

impl FindTools {
    pub(super) fn new() -> Self {
        let spec = ToolSpec::new(FIND, FINDS, schema_of::<Search>());
        Self { spec: spec.with_access(Access::NONE).finding_deferred().of_run() }
    }
}

#[async_trait]
impl Tool for FindTools {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let Search { query, limit } = input.parse()?;
        let scope = cx.run().scope();
        let specs = cx.offered().iter().map(|tool| tool.spec());
        let specs: Vec<_> = specs.filter(|spec| spec.is_deferred() && scope.offers(spec)).collect();
        let query = Query::new(&query);
        let found = ranked(&query, &specs, limit.map_or(RESULTS, NonZeroUsize::get).min(MOST));
        let (output, shown) = match (query.is_empty(), found.is_empty()) {
            (true, _) => {
                let text = "the query has no word; say what the tool should do.";
                (ToolOutput::error(format!("{text} {}", overview(&specs))), &specs)
            }
            (false, true) => {
                let text = "No tool matches; try other words.";
                (ToolOutput::text(format!("{text} {}", overview(&specs))), &specs)
            }
            (false, false) => (ToolOutput::text(results(&found)), &found),
        };
        let names: Vec<_> = found.iter().map(|spec| spec.name()).collect();
        let output = output.with_metadata(json!({ "found": names }));
        // A server whose results are a stranger's words has written the names and descriptions of its tools as well.
        let is_strange = |spec: &&ToolSpec| spec.labels_of(&Footprint::new(spec.access())).is_all();
        Ok(match shown.iter().any(is_strange) {
            true => output.with_labels(Labels::UNTRUSTED),
            false => output,
        })
    }
}

/// Stands for a call of a deferred tool.
#[derive(Debug)]
pub(super) struct UseTool {
    spec: ToolSpec,
}

impl UseTool {
    pub(super) fn new() -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "description": "Name of the tool." },
                "arguments": {
                    "type": "object",
                    "description": "The arguments, which follow the schema of that tool.",
                    "additionalProperties": true
                }
            },
            "required": ["name", "arguments"],
            "additionalProperties": false
        });
        Self { spec: ToolSpec::new(USE, USES, schema).with_access(Access::NONE).calling_deferred() }
    }
}

#[async_trait]
impl Tool for UseTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, _: ToolInput, _: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        // Whatever performs calls without resolving them would go round the checks of the real tool.
        Err(ToolError::tell("this tool cannot call another one here; call that one by its own name"))
    }
}
