//! State that cannot be given to each call.
#![allow(unused)]

use entourage_macros::tool;

struct Unique;

/// State that does not clone.
#[tool(crate = "entourage_core", access = "none")]
async fn unique(#[state] unique: Unique) {}

fn main() {}
