//! The code that `#[tool]` writes beside a method, called through a run.

use std::{
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use entourage_core::tool::{Access, Tool, ToolContext, ToolError};
use entourage_macros::tool;
use serde_json::json;

use crate::common::{call, declared};

struct Counter {
    name: &'static str,
    value: AtomicU64,
}

impl Counter {
    #[tool(access = "write", name = "counter_add", timeout = "500ms", crate = "entourage_core")]
    /// Add to the counter.
    pub(crate) async fn add(
        &self,
        /// How much.
        by: u64,
        cx: &ToolContext<'_>,
        twice: Option<bool>,
    ) -> Result<u64, ToolError> {
        cx.progress("adding");
        let by = if twice.unwrap_or(false) { by * 2 } else { by };
        Ok(self.value.fetch_add(by, Ordering::Relaxed) + by)
    }

    #[tool(crate = "entourage_core", access = "none")]
    /// The counter's name.
    async fn r#type(&self) -> &'static str {
        self.name
    }

    #[tool(crate = "entourage_core", access = "none")]
    /// Sum up.
    async fn sum(&self, #[args] terms: Terms) -> u64 {
        self.value.load(Ordering::Relaxed) + terms.terms.iter().sum::<u64>()
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Terms {
    terms: Vec<u64>,
}

/// A generic owner, whose tools need the bounds of its impl.
struct Shown<T>(T);

impl<T: Display> Shown<T> {
    #[tool(crate = "entourage_core", access = "none")]
    /// Show it.
    async fn show(&self, before: String) -> String {
        format!("{before}{}", self.0)
    }
}

fn counter() -> Arc<Counter> {
    Arc::new(Counter { name: "c", value: AtomicU64::new(1) })
}

#[test]
fn the_spec_says_what_was_written() {
    let spec = declared(counter().add_tool());
    assert_eq!((spec.name(), spec.description()), ("counter_add", "Add to the counter."));
    assert_eq!((spec.access(), spec.timeout()), (Access::WRITE, Some(std::time::Duration::from_millis(500))));
    assert_eq!(spec.schema()["required"], json!(["by"]));
    assert_eq!(spec.schema()["properties"]["by"]["description"], "How much.");
    assert_eq!(declared(counter().type_tool()).name(), "type");
}

#[tokio::test]
async fn tools_of_one_value_share_it() {
    let counter = counter();
    assert_eq!(call(counter.add_tool(), json!({"by": 2})).await, Ok("3".into()));
    assert_eq!(call(counter.add_tool(), json!({"by": 2, "twice": true})).await, Ok("7".into()));
    assert_eq!(call(counter.sum_tool(), json!({"terms": [1, 1]})).await, Ok("9".into()));
    assert_eq!(call(counter.type_tool(), json!({})).await, Ok("c".into()));
    assert_eq!(counter.r#type().await, "c", "the method itself is still there");
    assert!(call(counter.add_tool(), json!({"by": -1})).await.unwrap_err().contains("do not fit"));
    assert_eq!(counter.value.load(Ordering::Relaxed), 7);
}

#[tokio::test]
async fn a_generic_value_gives_one_tool_per_type() {
    let (number, word) = (Arc::new(Shown(7)), Arc::new(Shown("seven")));
    let tools: [Arc<dyn Tool>; 2] = [number.show_tool(), word.show_tool()];
    let [number, word] = tools;
    assert!(std::ptr::eq(number.spec(), word.spec()), "one spec serves all types");
    assert_eq!(call(number, json!({"before": "it is "})).await, Ok("it is 7".into()));
    assert_eq!(call(word, json!({"before": ""})).await, Ok("seven".into()));
}
