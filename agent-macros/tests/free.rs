//! The code that `#[tool]` writes, called through a run.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use entourage_core::tool::{Access, Json, Repeat, Tool, ToolContext, ToolError, ToolOutput};
use entourage_macros::tool;
use serde_json::json;

use crate::common::{call, declared};

#[tool(access = "read", crate = "entourage_core")]
/// Count the lines of a text.
///
/// Blank lines count too.
async fn line_count(
    /// The text.
    text: String,
    #[arg(description = "Count only lines that hold this.")] matching: Option<String>,
) -> Result<usize, ToolError> {
    // The tool's own name is free within it.
    let line_count = text.lines().filter(|line| matching.as_ref().is_none_or(|it| line.contains(it))).count();
    Ok(line_count)
}

#[tool(
    access = "write + network",
    name = "put-file",
    description = "Upload a file.",
    repeat = "idempotent",
    timeout = "2m",
    crate = "entourage_core"
)]
async fn put() {}

#[tool(crate = "entourage_core", access = "none", description = include_str!("described.md"))]
pub async fn from_a_file() -> &'static str {
    "x"
}

#[tool(crate = "entourage_core", access = "none")]
#[doc = "First."]
#[doc = include_str!("described.md")]
pub(crate) async fn joined() -> &'static str {
    "x"
}

#[test]
fn the_spec_says_what_was_written() {
    let spec = declared(line_count);
    assert_eq!(spec.name(), "line_count");
    assert_eq!(spec.description(), "Count the lines of a text.\n\nBlank lines count too.");
    assert_eq!(spec.access(), Access::READ);
    assert_eq!((spec.repeat(), spec.timeout()), (Repeat::Safe, None));
    assert_eq!(
        *spec.schema(),
        json!({
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "The text."},
                "matching": {"type": ["string", "null"], "description": "Count only lines that hold this."},
            },
            "required": ["text"],
        })
    );

    let spec = declared(put);
    assert_eq!((spec.name(), spec.description()), ("put-file", "Upload a file."));
    assert_eq!(spec.access(), Access::WRITE | Access::NETWORK);
    assert_eq!(
        (spec.repeat(), spec.timeout()),
        (Repeat::Idempotent, Some(std::time::Duration::from_secs(120)))
    );
    assert_eq!(spec.schema()["type"], "object");

    assert_eq!(declared(from_a_file).description(), "Described in a file.\n\nIn two paragraphs.");
    assert_eq!(declared(joined).description(), format!("First.\n{}", include_str!("described.md").trim()));
    assert_eq!(declared(joined).access(), Access::NONE);
}

#[test]
fn an_idle_tool_costs_nothing() {
    assert_eq!(size_of_val(&line_count), 0);
    let (one, other): (Arc<dyn Tool>, Arc<dyn Tool>) = (line_count.into(), line_count.into());
    assert!(std::ptr::eq(one.spec(), other.spec()), "the spec is made once");
    assert_eq!(format!("{line_count:?}"), "Tool(line_count)");
}

#[tokio::test]
async fn arguments_reach_the_function() {
    assert_eq!(call(line_count, json!({"text": "a\nb\nab"})).await, Ok("3".into()));
    assert_eq!(call(line_count, json!({"text": "a\nb\nab", "matching": "b"})).await, Ok("2".into()));
    assert_eq!(
        call(line_count, json!({"text": "a", "matching": null, "unknown": [1]})).await,
        Ok("1".into())
    );
    assert_eq!(call(put, json!({})).await, Ok("done".into()));
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_told_and_nothing_runs() {
    #[tool(crate = "entourage_core", access = "none")]
    /// Counts its calls.
    async fn counted(#[state] calls: Arc<AtomicU64>, _by: u8) -> u64 {
        calls.fetch_add(1, Ordering::Relaxed)
    }

    let calls = Arc::new(AtomicU64::new(0));
    let problem = call(counted(calls.clone()), json!({"_by": 256})).await.unwrap_err();
    assert!(problem.contains("do not fit") && problem.contains("256"), "{problem}");
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    assert_eq!(call(counted(calls.clone()), json!({"_by": 255})).await, Ok("0".into()));
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn names_may_be_awkward() {
    // A unit struct of such a name breaks every binding of that name in its scope.
    #[tool(crate = "entourage_core", access = "none")]
    /// One.
    async fn args(mut args: String) -> String {
        args.push('!');
        args
    }
    #[tool(crate = "entourage_core", access = "none")]
    /// Two.
    async fn input(input: u8, r#type: u8) -> u8 {
        input + r#type
    }
    #[tool(crate = "entourage_core", access = "none")]
    /// Three.
    async fn cx(cx: &ToolContext<'_>) -> bool {
        cx.call_id().is_empty()
    }
    #[tool(crate = "entourage_core", access = "none")]
    /// Four.
    async fn f(#[state] given: u8) -> u8 {
        given
    }
    #[tool(crate = "entourage_core", access = "none")]
    /// Five.
    async fn tool(value: u8) -> Result<u8, ToolError> {
        Ok(value)
    }
    #[tool(crate = "entourage_core", access = "none")]
    /// Six.
    async fn r#match() -> bool {
        true
    }

    assert_eq!(call(args, json!({"args": "a"})).await, Ok("a!".into()));
    assert_eq!(call(input, json!({"input": 1, "type": 4})).await, Ok("5".into()));
    assert_eq!(call(cx, json!({})).await, Ok("false".into()));
    assert_eq!(call(f(3), json!({})).await, Ok("3".into()));
    assert_eq!(call(tool, json!({"value": 4})).await, Ok("4".into()));
    assert_eq!(declared(r#match).name(), "match");
    assert_eq!(call(r#match, json!({})).await, Ok("true".into()));
}

#[tokio::test]
async fn serde_and_schemars_attributes_go_to_the_argument() {
    #[tool(crate = "entourage_core", access = "none")]
    /// Search.
    async fn search(
        #[serde(rename = "q")] query: String,
        #[serde(default = "ten")]
        #[schemars(range(min = 1, max = 50))]
        limit: u32,
    ) -> String {
        format!("{query} {limit}")
    }
    fn ten() -> u32 {
        10
    }

    let spec = declared(search);
    let limit = &spec.schema()["properties"]["limit"];
    assert_eq!((&limit["default"], &limit["maximum"]), (&json!(10), &json!(50)));
    assert_eq!(spec.schema()["required"], json!(["q"]));
    assert_eq!(call(search, json!({"q": "x"})).await, Ok("x 10".into()));
}

/// A place to go to.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Place {
    /// Degrees north.
    latitude: f64,
    #[serde(default)]
    names: Vec<String>,
}

#[tokio::test]
async fn one_struct_may_be_all_arguments() {
    #[tool(crate = "entourage_core", access = "none")]
    /// Go there.
    async fn go(#[state] by: &'static str, #[args] place: Place) -> String {
        format!("{by} to {} {:?}", place.latitude, place.names)
    }

    assert_eq!(declared(go("")).schema()["properties"]["latitude"]["description"], "Degrees north.");
    assert_eq!(call(go("car"), json!({"latitude": 1.5})).await, Ok("car to 1.5 []".into()));
}

#[tokio::test]
async fn the_context_is_given_by_the_run() {
    #[tool(crate = "entourage_core", access = "none")]
    /// Tell the session.
    async fn whoami(cx: &ToolContext<'_>, greeting: String) -> String {
        format!("{greeting} {}", cx.session().as_str() == cx.run().session().as_str())
    }

    assert_eq!(declared(whoami).schema()["required"], json!(["greeting"]));
    assert_eq!(call(whoami, json!({"greeting": "hi"})).await, Ok("hi true".into()));
}

/// A state without `Debug`, whose text must not be shown.
#[derive(Clone)]
struct Secret(&'static str);

#[tokio::test]
async fn state_is_given_when_the_tool_is_made() {
    #[tool(crate = "entourage_core", access = "none")]
    /// Note something down.
    async fn note(#[state] notes: Arc<Mutex<Vec<String>>>, text: String, #[state] secret: Secret) -> usize {
        let mut notes = notes.lock().unwrap();
        notes.push(format!("{text} {}", secret.0.len()));
        notes.len()
    }

    let notes = Arc::default();
    let tool = note(Arc::clone(&notes), Secret("abc"));
    assert_eq!(format!("{tool:?}"), "Tool(note)");
    assert_eq!(call(tool.clone(), json!({"text": "a"})).await, Ok("1".into()));
    assert_eq!(call(tool, json!({"text": "b"})).await, Ok("2".into()));
    assert_eq!(*notes.lock().unwrap(), ["a 3", "b 3"]);
}

#[derive(Debug)]
struct Missing;

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it is missing; look elsewhere")
    }
}

impl std::error::Error for Missing {}

#[tokio::test]
async fn answers_and_failures_of_every_kind() {
    #[tool(crate = "entourage_core", access = "none")]
    /// Fails with its own error.
    async fn own_error() -> Result<(), Missing> {
        Err(Missing)
    }
    #[tool(crate = "entourage_core", access = "none")]
    /// Uses an alias with one parameter.
    async fn io() -> std::io::Result<Json<Vec<u8>>> {
        Ok(Json(vec![1, 2]))
    }
    #[tool(crate = "entourage_core", access = "none")]
    /// Ends with the error of the core.
    async fn fatal() -> entourage_core::Result<bool> {
        Err(entourage_core::Error::cancelled())
    }
    #[tool(crate = "entourage_core", access = "none")]
    /// Makes its answer itself.
    async fn whole() -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::error("no"))
    }

    assert_eq!(call(own_error, json!({})).await, Err("it is missing; look elsewhere".into()));
    assert_eq!(call(io, json!({})).await, Ok("[1,2]".into()));
    assert!(call(fatal, json!({})).await.unwrap_err().contains("cancelled"));
    assert_eq!(call(whole, json!({})).await, Err("no".into()));
}

#[tokio::test]
async fn tools_of_macros_have_the_same_parameters() {
    macro_rules! tool_of {
        ($name:ident, $text:literal, $type:ty, $context:ty) => {
            #[tool(crate = "entourage_core", access = "none", description = $text)]
            async fn $name(value: Option<$type>, _cx: $context) -> String {
                format!("{value:?}")
            }
        };
    }
    tool_of!(made, "Made by a macro.", u8, &ToolContext<'_>);

    assert_eq!(declared(made).description(), "Made by a macro.");
    assert_eq!(declared(made).schema().get("required"), None);
    assert_eq!(call(made, json!({"value": 7})).await, Ok("Some(7)".into()));
    assert_eq!(call(made, json!({})).await, Ok("None".into()));
}

#[tokio::test]
async fn attributes_of_the_function_stay() {
    #[tool(crate = "entourage_core", access = "none")]
    /// Is never there.
    #[cfg(any())]
    async fn absent(value: TypeThatDoesNotExist) {}

    #[tool(crate = "entourage_core", access = "none")]
    /// Is an old one.
    #[deprecated = "use another"]
    #[allow(clippy::let_and_return)]
    async fn old(#[allow(unused_variables)] value: u8) -> u8 {
        let answer = 1;
        answer
    }

    #[allow(deprecated)]
    let tool = old;
    assert_eq!(call(tool, json!({"value": 1})).await, Ok("1".into()));
}
