//! Generated code passes strict lints, since the author cannot fix it.
#![deny(warnings, missing_docs, missing_debug_implementations, unreachable_pub, rust_2018_idioms, unused_qualifications)]
#![forbid(unsafe_code)]

use std::sync::Arc;

use entourage_core::tool::{Tool, ToolContext, ToolError};
use entourage_macros::tool;

/// Count.
#[tool(crate = "entourage_core", access = "none")]
pub async fn count(text: String, cx: &ToolContext<'_>) -> Result<usize, ToolError> {
    cx.progress("counting");
    Ok(text.len())
}

#[tool(crate = "entourage_core", description = "Add.", access = "write", repeat = "once")]
pub async fn add(#[state] to: Arc<u64>, by: u64) -> u64 {
    *to + by
}

/// A tool of nothing.
#[tool(crate = "entourage_core", access = "none")]
async fn nothing() {}

mod inner {
    /// Seen outside.
    #[entourage_macros::tool(crate = "entourage_core", access = "none")]
    pub(crate) async fn visible(#[state] one: u8, #[state] _two: String) -> u8 {
        one
    }
}

/// Has a method.
#[derive(Debug)]
pub struct Owner;

impl Owner {
    /// Do it.
    #[tool(crate = "entourage_core", access = "none")]
    pub async fn act(&self, how: Option<String>) -> String {
        how.unwrap_or_default()
    }
}

fn main() {
    let tools: [Arc<dyn Tool>; 5] = [
        count.into(),
        add(Arc::new(1)).into(),
        nothing.into(),
        inner::visible(1, String::new()).into(),
        Arc::new(Owner).act_tool(),
    ];
    assert_eq!(tools.map(|tool| tool.spec().name().to_owned()), ["count", "add", "nothing", "visible", "act"]);
}
