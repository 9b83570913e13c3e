//! Arguments that the attribute does not take.
#![allow(unused, mixed_script_confusables)]

use entourage_macros::tool;

/// Unknown key.
#[tool(crate = "entourage_core", acces = "read")]
async fn unknown_key() {}

/// Unknown words.
#[tool(crate = "entourage_core", access = "read+fly", repeat = "always")]
async fn unknown_words() {}

/// No access.
#[tool(crate = "entourage_core", access = "")]
async fn no_access() {}

/// Times.
#[tool(crate = "entourage_core", access = "none", timeout = "30")]
async fn no_unit() {}

/// Times.
#[tool(crate = "entourage_core", access = "none", timeout = "0s")]
async fn no_time() {}

/// Times.
#[tool(crate = "entourage_core", access = "none", timeout = "99999999999999999999s")]
async fn long_time() {}

/// Twice.
#[tool(crate = "entourage_core", access = "read", access = "write")]
async fn twice() {}

/// Not a string.
#[tool(crate = "entourage_core", access = "none", timeout = 30)]
async fn not_a_string() {}

/// Without a value.
#[tool(crate = "entourage_core", access)]
async fn no_value() {}

/// Of another form.
#[tool(crate = "entourage_core", access("read"))]
async fn list() {}

/// No key.
#[tool("count things")]
async fn no_key() {}

/// No path.
#[tool(crate = "entourage core", access = "none")]
async fn no_path() {}

/// No description.
#[tool(crate = "entourage_core", access = "none", description = 1 + 1)]
async fn no_text() {}

fn main() {}
