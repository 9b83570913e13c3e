//! Without `crate = …` the generated code finds the core through the facade, `::entourage`.

use std::sync::Arc;

use entourage_core::tool::{Access, Tool};
use entourage_macros::tool;

#[tool(access = "none")]
/// Count the letters of a text.
async fn letters(text: String) -> usize {
    text.chars().count()
}

struct Clock;

impl Clock {
    #[tool(access = "read")]
    /// Tell the time.
    async fn now(&self) -> &'static str {
        "noon"
    }
}

#[test]
fn the_facade_is_the_default() {
    let tools: [Arc<dyn Tool>; 2] = [letters.into(), Arc::new(Clock).now_tool()];
    let [counting, now] = tools;
    assert_eq!(counting.spec().access(), Access::NONE);
    assert_eq!(counting.spec().schema()["required"], serde_json::json!(["text"]));
    assert_eq!((now.spec().name(), now.spec().access()), ("now", Access::READ));
}
