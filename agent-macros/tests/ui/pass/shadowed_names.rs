//! Generated code does not depend on the names in the author's scope.
#![allow(dead_code)]

type Result<T> = ::std::result::Result<T, ::std::num::ParseIntError>;
struct Arc;
struct Tool;
struct ToolError;
struct ToolContext;
struct Access;
struct Duration;
trait Into {}
trait From {}
trait Clone {}
trait Copy {}
trait Debug {}
trait Deserialize {}
trait JsonSchema {}
mod std {}
mod core {}
mod serde {}
mod schemars {}
mod entourage_core {}

/// Count.
#[entourage_macros::tool(crate = "::entourage_core", access = "read", timeout = "1s", repeat = "safe")]
async fn count(#[state] by: u64, text: String, _cx: &::entourage_core::tool::ToolContext<'_>) -> Result<u64> {
    text.parse::<u64>().map(|number| number + by)
}

struct Owner;

impl Owner {
    /// Count.
    #[entourage_macros::tool(crate = "::entourage_core", access = "none")]
    async fn count(&self, text: String) -> usize {
        text.len()
    }
}

fn main() {
    let _: ::std::sync::Arc<dyn ::entourage_core::tool::Tool> = ::std::convert::Into::into(count(1));
    let _ = ::std::sync::Arc::new(Owner).count_tool();
}
