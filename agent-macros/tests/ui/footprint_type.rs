//! Marked arguments whose types are no text.

use entourage_macros::tool;

/// A number is no path.
#[tool(crate = "entourage_core", access = "read")]
async fn number(#[arg(read)] path: Vec<u8>) {}

fn main() {}
