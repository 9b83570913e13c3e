//! The tools: their declarations, and their arguments.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::tool::{
    Access, Footprint, Labels, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec, schema_of,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::LanguageServers;

/// Time of a call, beyond that for the servers.
pub(super) const TIME: Duration = Duration::from_secs(40);
/// Path that is read when the model names none.
const ROOT: &str = ".";

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct DiagnosticsArguments {
    /// The file, relative to the workspace's root. Default: what is known of all files.
    #[serde(default)]
    pub(super) path: Option<String>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(super) struct PlaceArguments {
    /// The file, relative to the workspace's root.
    pub(super) path: String,
    /// The number of the line, from 1, as `view` shows it.
    pub(super) line: usize,
    /// The name in that line to ask about, exactly as it stands there.
    pub(super) symbol: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct SymbolsArguments {
    /// A file, for the symbols in it.
    #[serde(default)]
    pub(super) path: Option<String>,
    /// A name or a part of one, for symbols of the whole project. Give a path or a query.
    #[serde(default)]
    pub(super) query: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct RenameArguments {
    /// The file, relative to the workspace's root.
    pub(super) path: String,
    /// The number of the line, from 1, as `view` shows it.
    pub(super) line: usize,
    /// The name in that line to change, exactly as it stands there.
    pub(super) symbol: String,
    /// The new name.
    pub(super) new_name: String,
    /// The files to change, as a first call without them listed them. Without: nothing is changed, and the changes are
    /// shown.
    #[serde(default)]
    pub(super) files: Option<Vec<String>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct RestartArguments {
    /// The name of the server. Default: all that run or failed.
    #[serde(default)]
    pub(super) server: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Definition,
    Diagnostics,
    References,
    Rename,
    Restart,
    Symbols,
}

impl Kind {
    const ALL: [Self; 6] =
        [Self::Definition, Self::Diagnostics, Self::References, Self::Rename, Self::Restart, Self::Symbols];

    fn name(self) -> &'static str {
        match self {
            Self::Definition => "lsp_definition",
            Self::Diagnostics => "lsp_diagnostics",
            Self::References => "lsp_references",
            Self::Rename => "lsp_rename",
            Self::Restart => "lsp_restart",
            Self::Symbols => "lsp_symbols",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Definition => {
                "Finds where a symbol is defined, by the language server of the file. Returns places with their lines."
            }
            Self::Diagnostics => {
                "Returns the errors and warnings that language servers find: in one file and the others, or without \
                 `path` in all that are known. Changes by `write` and `edit` return them already."
            }
            Self::References => {
                "Finds all uses of a symbol, by the language server of the file; better than `grep` for a name that \
                 other things have too. Returns places with their lines."
            }
            Self::Rename => {
                "Renames a symbol and all its uses, by the language server of the file. Call it first without `files`: \
                 it shows what would change, and in which files. Then call it with these `files`: it changes all of \
                 them, or none."
            }
            Self::Restart => "Restarts a language server that failed, hangs or says what is not so any more.",
            Self::Symbols => {
                "Lists the symbols of a file with their lines, or finds symbols of the project by name."
            }
        }
    }

    /// The declaration, with labels of the files that its results show.
    fn spec(self, labels: Labels) -> ToolSpec {
        let schema = match self {
            Self::Definition | Self::References => schema_of::<PlaceArguments>(),
            Self::Diagnostics => schema_of::<DiagnosticsArguments>(),
            Self::Rename => schema_of::<RenameArguments>(),
            Self::Restart => schema_of::<RestartArguments>(),
            Self::Symbols => schema_of::<SymbolsArguments>(),
        };
        let spec = ToolSpec::new(self.name(), self.description(), schema);
        let spec = spec.with_labels(labels).naming_subjects().with_timeout(TIME);
        match self {
            Self::Rename => {
                spec.with_access(Access::READ | Access::WRITE).with_access_by_call().changing_files()
            }
            _ => spec.with_access(Access::READ),
        }
    }
}

/// A tool that asks language servers.
#[derive(Debug)]
struct LspTool {
    spec: ToolSpec,
    kind: Kind,
    servers: LanguageServers,
}

/// All tools.
pub(super) fn all(servers: &LanguageServers) -> Vec<Arc<dyn Tool>> {
    let labels = servers.workspace().labels();
    let tool = |kind: Kind| {
        Arc::new(LspTool { spec: kind.spec(labels), kind, servers: servers.clone() }) as Arc<dyn Tool>
    };
    Kind::ALL.into_iter().map(tool).collect()
}

#[async_trait]
impl Tool for LspTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let servers = &self.servers;
        // Apart, since each kind would have room for all of them otherwise.
        match self.kind {
            Kind::Definition => Box::pin(servers.definition(input.parse()?, cx)).await,
            Kind::Diagnostics => Box::pin(servers.diagnostics(input.parse()?, cx)).await,
            Kind::References => Box::pin(servers.references(input.parse()?, cx)).await,
            Kind::Rename => Box::pin(servers.rename(input.parse()?, cx)).await,
            Kind::Restart => Box::pin(servers.restart(input.parse()?)).await,
            Kind::Symbols => Box::pin(servers.symbols(input.parse()?, cx)).await,
        }
    }

    async fn preview(&self, input: ToolInput, cx: &ToolContext<'_>) -> Option<String> {
        match self.kind {
            Kind::Rename => Box::pin(self.servers.rename_preview(input.parse().ok()?, cx)).await,
            _ => None,
        }
    }

    /// Names the file as the workspace knows it, and those that a rename changes.
    fn footprint(&self, arguments: &Value) -> Footprint {
        let files = arguments.get("files").and_then(Value::as_array).filter(|files| !files.is_empty());
        let files = files.filter(|_| self.kind == Kind::Rename);
        let access = if files.is_some() { self.spec.access() } else { Access::READ };
        let workspace = self.servers.workspace();
        let path = arguments.get("path").and_then(Value::as_str).unwrap_or(ROOT);
        let footprint = workspace.subjects(path).into_iter().fold(Footprint::new(access), Footprint::reading);
        let written = files.into_iter().flatten().filter_map(Value::as_str);
        written.flat_map(|file| workspace.subjects(file)).fold(footprint, Footprint::writing)
    }
}
