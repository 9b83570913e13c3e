//! Names that model services refuse.
#![allow(unused, mixed_script_confusables)]

use entourage_macros::tool;

/// Of Greece.
#[tool(crate = "entourage_core", access = "none")]
async fn αβγ() {}

/// Spaces.
#[tool(crate = "entourage_core", access = "none", name = "count lines")]
async fn count() {}

/// Empty.
#[tool(crate = "entourage_core", access = "none", name = "")]
async fn empty() {}

/// Long.
#[tool(crate = "entourage_core", access = "none")]
async fn a_name_that_goes_on_and_on_until_no_service_of_any_vendor_accepts_it() {}

fn main() {}
