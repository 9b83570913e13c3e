//! Arguments cannot be borrowed.
#![allow(unused, mixed_script_confusables)]

use std::path::Path;

use entourage_core::tool::ToolContext;
use entourage_macros::tool;

/// Many.
#[tool(crate = "entourage_core", access = "none")]
async fn many(text: &str, path: &Path, bytes: &[u8], number: &u64, deep: Option<Vec<&'static str>>) -> usize {
    0
}

/// State.
#[tool(crate = "entourage_core", access = "none")]
async fn state(#[state] db: &Vec<u8>) -> usize {
    db.len()
}

/// Contexts.
#[tool(crate = "entourage_core", access = "none")]
async fn contexts(owned: ToolContext<'_>, changed: &mut ToolContext<'_>) {}

fn main() {}
