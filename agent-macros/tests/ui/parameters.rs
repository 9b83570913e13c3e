//! Parameters that make no sense alone or together.
#![allow(unused, mixed_script_confusables)]

use entourage_core::tool::ToolContext;
use entourage_macros::tool;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct All {
    path: String,
}

/// Patterns.
#[tool(crate = "entourage_core", access = "none")]
async fn patterns(All { path }: All, (a, b): (u8, u8), _: u8, ref c: u8) {}

/// All and more.
#[tool(crate = "entourage_core", access = "none")]
async fn all_and_more(#[args] all: All, more: u8) {}

/// All twice.
#[tool(crate = "entourage_core", access = "none")]
async fn all_twice(#[args] all: All, #[args] again: All) {}

/// Docs nobody sees.
#[tool(crate = "entourage_core", access = "none")]
async fn unseen(
    /// The model never reads this.
    #[args]
    all: All,
) {
}

/// Contexts.
#[tool(crate = "entourage_core", access = "none")]
async fn contexts(cx: &ToolContext<'_>, again: &ToolContext<'_>, #[state] marked: &ToolContext<'_>) {}

/// Attributes.
#[tool(crate = "entourage_core", access = "none")]
async fn attributes(
    #[describe("x")] unknown: u8,
    #[arg(name = "x")] unknown_key: u8,
    #[arg] nothing: u8,
    #[arg(description = "")] blank: u8,
    #[cfg(unix)] conditional: u8,
    #[state] #[args] both: All,
    #[state] #[arg(description = "x")] described: u8,
    #[state(x)] with_value: u8,
) {
}

fn main() {}
