//! Tools whose results come from outside.

use async_trait::async_trait;

use entourage_core::{
    Error, ErrorKind,
    tool::{Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};

/// Makes a tool whose calls somebody else answers: a browser, a queue, another team.
///
/// A call is checked, judged and recorded like any other. The run then pauses, and `Session::answer` gives the result
/// from any process, days later; the resumed run goes on in place. The calls of one step are handed out together. One
/// whose access changes something is handed out alone, and the calls after it wait for its result.
///
/// ```
/// use entourage_core::tool::{Access, Repeat, Tool, ToolSpec};
/// use entourage_runners::external;
/// use serde_json::json;
///
/// let schema = json!({"type": "object", "properties": {"selector": {"type": "string"}}});
/// let click = ToolSpec::new("click", "Clicks in the user's browser.", schema).with_access(Access::READ);
/// let click = external(click);
/// assert_eq!(click.spec().repeat(), Repeat::External);
/// ```
pub fn external(spec: ToolSpec) -> impl Tool {
    External(spec.with_repeat(Repeat::External))
}

struct External(ToolSpec);

#[async_trait]
impl Tool for External {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: ToolInput, _: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let text = "the result of this tool comes from outside; give it with `Session::answer`";
        Err(ToolError::Fatal(Error::new(ErrorKind::Unsupported, text)))
    }
}
