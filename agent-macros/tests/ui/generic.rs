//! A tool has one schema.
#![allow(unused, mixed_script_confusables)]

use entourage_core::tool::ToolContext;
use entourage_macros::tool;

/// Generic.
#[tool(crate = "entourage_core", access = "none")]
async fn generic<T: Into<String>>(text: T) -> usize {
    text.into().len()
}

/// Hidden generics.
#[tool(crate = "entourage_core", access = "none")]
async fn hidden(text: impl Into<String>) -> usize {
    text.into().len()
}

/// A lifetime.
#[tool(crate = "entourage_core", access = "none")]
async fn lifetime<'a>(cx: &'a ToolContext<'a>) -> usize {
    cx.call_id().len()
}

/// A clause.
#[tool(crate = "entourage_core", access = "none")]
async fn clause(text: String) -> usize
where
    String: Clone,
{
    text.len()
}

fn main() {}
