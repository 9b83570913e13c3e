//! Methods that cannot be tools.
#![allow(unused, mixed_script_confusables)]

use std::sync::Arc;

use entourage_macros::tool;

struct Counter;

impl Counter {
    /// By value.
    #[tool(crate = "entourage_core", access = "none")]
    async fn by_value(self) {}

    /// By exclusive reference.
    #[tool(crate = "entourage_core", access = "none")]
    async fn by_mut(&mut self) {}

    /// By a pointer.
    #[tool(crate = "entourage_core", access = "none")]
    async fn by_arc(self: Arc<Self>) {}

    /// State.
    #[tool(crate = "entourage_core", access = "none")]
    async fn state(&self, #[state] more: u8) {}

    /// Self as an argument.
    #[tool(crate = "entourage_core", access = "none")]
    async fn same(&self, other: Option<Self>) {}

    /// Blocks.
    #[tool(crate = "entourage_core", access = "none")]
    fn blocks(&self) {}
}

fn main() {}
