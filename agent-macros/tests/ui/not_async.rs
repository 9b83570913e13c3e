//! A function that blocks cannot be a tool.
#![allow(unused, mixed_script_confusables)]

use entourage_macros::tool;

#[tool(crate = "entourage_core", access = "none")]
/// Count.
fn count(text: String) -> usize {
    text.len()
}

fn main() {}
