//! Items that are not functions with a body.
#![allow(unused, mixed_script_confusables)]

use entourage_macros::tool;

#[tool(crate = "entourage_core", access = "none")]
/// A struct.
struct Count;

trait Counts {
    #[tool(crate = "entourage_core", access = "none")]
    /// Only declared.
    async fn count(&self) -> usize;
}

/// Unsafe.
#[tool(crate = "entourage_core", access = "none")]
async unsafe fn risky() {}

/// Foreign.
#[tool(crate = "entourage_core", access = "none")]
async extern "C" fn foreign() {}

fn main() {}
