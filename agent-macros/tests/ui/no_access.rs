//! The access of a tool is never assumed.
#![allow(unused, mixed_script_confusables)]

use entourage_macros::tool;

/// Nothing said at all.
#[tool]
async fn bare() {}

/// Everything else said.
#[tool(crate = "entourage_core", name = "remove", repeat = "once", timeout = "5s")]
async fn remove_all(path: String) {}

struct Disk;

impl Disk {
    /// A method.
    #[tool(crate = "entourage_core")]
    async fn wipe(&self) {}
}

fn main() {}
