//! Tools for Entourage's agents.
//!
//! Each group of tools is a feature, and none is on by default. A tool here implements [`entourage_core::tool::Tool`]
//! and nothing else: the core decides if a call may run, never a tool.
//!
//! | module | feature | tools |
//! |---|---|---|
//! | `agents` | `agents` | no tools: files that describe agents |
//! | `fs` | `fs` | `view`, `ls`, `glob`, `grep`, `write`, `edit`, `multiedit`, `undo`, confined to a workspace |
//! | root | `hooks` | no tools: [`Hooks`] asks programs of the user before tool calls |
//! | `lsp` | `lsp` | `lsp_diagnostics`, `lsp_references` and more, and diagnostics with the results of file tools |
//! | root | `grants` | no tools: [`GrantFile`] keeps what was allowed always |
//! | `mcp` | `mcp` | the tools of MCP servers |
//! | `project` | `project` | no tools: facts about a project for prompt templates, gathered from the machine |
//! | `sandbox` | `sandbox` | no tools: commands that Landlock or bubblewrap confines |
//! | `shell` | `shell` | `bash`, `job_output`, `job_kill`: command lines, read before they run |
//! | `skills` | `skills` | `skill`: instructions that models load when a task needs them |
//! | `web` | `web` | `fetch`, `web_fetch`, `web_search`, `download`: the web by a guarded client |

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(any(
    feature = "mcp",
    feature = "web",
    all(feature = "sandbox", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))
))]
mod address;
#[cfg(feature = "agents")]
pub mod agents;
#[cfg(any(feature = "agents", feature = "skills"))]
mod front_matter;
#[cfg(feature = "fs")]
pub mod fs;
#[cfg(feature = "grants")]
mod grants;
#[cfg(any(feature = "agents", feature = "skills"))]
mod held;
#[cfg(feature = "hooks")]
mod hooks;
#[cfg(any(feature = "lsp", feature = "mcp", feature = "project", feature = "skills"))]
mod invisible;
#[cfg(feature = "lsp")]
pub mod lsp;
#[cfg(feature = "mcp")]
pub mod mcp;
#[cfg(any(feature = "agents", feature = "hooks"))]
mod nesting;
#[cfg(any(feature = "grants", feature = "mcp"))]
mod private_file;
#[cfg(any(feature = "hooks", feature = "lsp", feature = "mcp", feature = "shell"))]
mod process;
#[cfg(feature = "project")]
pub mod project;
#[cfg(feature = "sandbox")]
pub mod sandbox;
#[cfg(feature = "shell")]
pub mod shell;
#[cfg(feature = "skills")]
pub mod skills;
#[cfg(any(feature = "mcp", feature = "web"))]
mod tls;
#[cfg(feature = "web")]
pub mod web;

#[cfg(feature = "grants")]
pub use grants::GrantFile;
#[cfg(feature = "hooks")]
pub use hooks::Hooks;
