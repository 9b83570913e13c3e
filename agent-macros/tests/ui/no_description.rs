//! A model chooses a tool by its description.
#![allow(unused, mixed_script_confusables)]

use entourage_macros::tool;

#[tool(crate = "entourage_core", access = "none")]
async fn count(text: String) -> usize {
    text.len()
}

#[tool(crate = "entourage_core", access = "none", description = "  ")]
async fn blank(text: String) -> usize {
    text.len()
}

#[tool(crate = "entourage_core", access = "none")]
///
async fn blank_comment(text: String) -> usize {
    text.len()
}

fn main() {}
