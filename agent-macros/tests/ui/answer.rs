//! Return types that a tool cannot have.
#![allow(unused, mixed_script_confusables)]

use entourage_macros::tool;

struct Report;

/// A success of no known form.
#[tool(crate = "entourage_core", access = "none")]
async fn success() -> Result<Report, std::io::Error> {
    Ok(Report)
}

/// The same without `Result`.
#[tool(crate = "entourage_core", access = "none")]
async fn plain() -> Vec<String> {
    Vec::new()
}

/// A failure that is no error.
#[tool(crate = "entourage_core", access = "none")]
async fn failure() -> Result<(), String> {
    Ok(())
}

fn main() {}
