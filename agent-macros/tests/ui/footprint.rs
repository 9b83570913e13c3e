//! Arguments whose marks say too much, too little or nothing.
#![allow(unused)]

use entourage_core::tool::ToolContext;
use entourage_macros::tool;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct All {
    path: String,
}

/// Marks without their access.
#[tool(crate = "entourage_core", access = "read")]
async fn undeclared(#[arg(write)] path: String, #[arg(host)] url: String, #[arg(command)] line: String) {}

/// Accesses without their marks.
#[tool(crate = "entourage_core", access = "write+network")]
async fn unmarked(#[arg(write)] path: String, url: String) {}

/// Two kinds, the same one twice, an unknown one, a value.
#[tool(crate = "entourage_core", access = "read+write")]
async fn words(
    #[arg(read, write)] two: String,
    #[arg(read)]
    #[arg(read)]
    twice: String,
    #[arg(path)] unknown: String,
    #[arg(read = "yes")] with_value: String,
) {
}

/// Commands.
#[tool(crate = "entourage_core", access = "execute")]
async fn commands(#[arg(command)] one: String, #[arg(command)] several: Option<Vec<String>>) {}

/// Marks on what the model does not give, and on all that it gives.
#[tool(crate = "entourage_core", access = "read+write")]
async fn elsewhere(
    #[arg(write)]
    #[state]
    root: String,
    #[arg(read)] cx: &ToolContext<'_>,
    #[arg(write)]
    #[args]
    all: All,
) {
}

fn main() {}
