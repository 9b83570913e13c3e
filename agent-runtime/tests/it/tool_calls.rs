//! Checks before a call runs, and repairs of its arguments.

use entourage_core::{
    provider::{FinishReason, RawCall},
    tool::{Access, Footprint, Repair, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec, Tools},
};
use entourage_testkit::{FakeTool, Script, ScriptedProvider};
use serde_json::{Value, json};

use crate::common::{agent, assert_valid, open_runtime, results};

/// Runs one call. Returns the text that the model gets, true if it is an error, the number of tool runs, and the
/// arguments that are kept.
async fn one_call(name: &str, arguments: &str) -> (String, bool, usize, String) {
    let script = Script::new().raw_call(name, arguments).finish(FinishReason::ToolCalls);
    let provider = ScriptedProvider::new().step(script).text("I see.");
    let (write, other) = (FakeTool::new("write").requiring(&["path"]).echoing(), FakeTool::new("other"));
    let agent = agent(provider.model()).tool(write.clone()).tool(other.clone()).build().unwrap();
    let outcome = open_runtime().session().start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(outcome.text, "I see.", "the loop goes on");
    let request = &provider.requests()[1];
    assert_valid(&request.messages);
    let call = request.messages.get(1).unwrap().tool_calls().next().unwrap().arguments.as_str().to_owned();
    let result = request.messages.last().unwrap().tool_results().next().unwrap().clone();
    (result.to_text(), result.is_error, write.started() + other.started(), call)
}

#[tokio::test]
async fn cm05_an_unknown_tool_is_an_error_that_lists_the_offered_ones() {
    let (text, is_error, ran, _) = one_call("wipe", "{}").await;
    assert!(is_error && ran == 0);
    assert!(text.contains("`wipe`") && text.contains("other, write"), "{text}");
}

#[tokio::test]
async fn cm05_a_missing_key_is_an_error_that_names_it() {
    let (text, is_error, ran, _) = one_call("write", "{\"file\": \"x\"}").await;
    assert!(is_error && ran == 0);
    assert!(text.contains("`path`"), "{text}");
}

#[tokio::test]
async fn arguments_of_a_wrong_type_are_refused_with_their_place_and_the_tool_does_not_run() {
    let (text, is_error, ran, _) = one_call("write", "{\"path\": [\"x\"]}").await;
    assert_eq!((is_error, ran), (true, 0), "{text}");
    assert!(
        text.contains("`write`") && text.contains("/path should be string and is an array of 1"),
        "{text}"
    );
    // Also where a hook looks at the calls first.
    let bad = Script::new().raw_call("write", "{\"path\": 5}").finish(FinishReason::ToolCalls);
    let provider = ScriptedProvider::new().step(bad).text("I see.");
    let write = FakeTool::new("write").requiring(&["path"]).echoing();
    let agent = agent(provider.model()).tool(write.clone()).repair(Stringer).build().unwrap();
    open_runtime().session().start(&agent, "Go").outcome().await.unwrap();
    let message = provider.requests()[1].messages.last().unwrap().clone();
    assert_eq!((write.started(), results(&message)[0].as_str()), (1, "{\"path\":\"5\"}"));
}

#[derive(Debug)]
struct Stringer;

impl Repair for Stringer {
    fn repair(&self, call: &RawCall, problem: &str, _: &Tools) -> Option<RawCall> {
        assert!(problem.contains("/path should be string and is 5"), "{problem}");
        let mut mended = call.clone();
        mended.arguments = json!({"path": "5"}).to_string();
        Some(mended)
    }
}

#[tokio::test]
async fn cm05_json_that_can_be_mended_runs() {
    for broken in ["{\"path\": \"x\",}", "{\"path\": \"x\"", "```json\n{\"path\": \"x\"}\n```"] {
        let (text, is_error, ran, kept) = one_call("write", broken).await;
        assert_eq!((is_error, ran, text.as_str()), (false, 1, "{\"path\":\"x\"}"), "{broken}");
        assert!(serde_json::from_str::<Value>(&kept).unwrap().is_object());
    }
}

#[tokio::test]
async fn cm05_json_that_cannot_is_an_error_and_kept_as_an_empty_object() {
    for broken in ["{\"path\": \"/ho", "[\"path\"]", "rm -rf /", "{\"path\": tru", "null", "\"path\"", "{{{"]
    {
        let (text, is_error, ran, kept) = one_call("write", broken).await;
        assert_eq!((is_error, ran, kept.as_str()), (true, 0, "{}"), "{broken}: {text}");
    }
}

#[tokio::test]
async fn cm05_blank_arguments_count_as_none() {
    assert_eq!(one_call("other", "").await, ("ok".into(), false, 1, "{}".into()));
    assert!(one_call("write", " ").await.1, "but a required key is still missing");
}

#[derive(Debug)]
struct Mender;

impl Repair for Mender {
    fn repair(&self, call: &RawCall, problem: &str, offered: &Tools) -> Option<RawCall> {
        assert!(!problem.is_empty() && offered.get("write").is_some());
        let mut mended = call.clone();
        match &*call.name {
            "wrte" => mended.name = "write".into(),
            "write" if call.arguments.starts_with("path=") => {
                mended.arguments = json!({"path": call.arguments.trim_start_matches("path=")}).to_string();
            }
            "write" if call.arguments == "worse" => mended.arguments = "{\"path".into(),
            _ => return None,
        }
        Some(mended)
    }
}

#[tokio::test]
async fn cm05_a_hook_mends_what_it_can_and_its_work_is_checked_again() {
    let script = Script::new()
        .raw_call("wrte", "{\"path\": \"a\"}")
        .raw_call("write", "path=b")
        .raw_call("write", "worse")
        .raw_call("write", "{\"path\": \"c\",}")
        .raw_call("nonsense", "{}")
        .finish(FinishReason::ToolCalls);
    let provider = ScriptedProvider::new().step(script).text("I see.");
    let write = FakeTool::new("write").requiring(&["path"]).echoing();
    let agent = agent(provider.model()).tool(write.clone()).repair(Mender).build().unwrap();
    open_runtime().session().start(&agent, "Go").outcome().await.unwrap();
    let message = provider.requests()[1].messages.last().unwrap().clone();
    let errors: Vec<_> = message.tool_results().map(|result| result.is_error).collect();
    assert_eq!(errors, [false, false, true, false, true], "{:?}", results(&message));
    assert_eq!(results(&message)[..2], ["{\"path\":\"a\"}", "{\"path\":\"b\"}"]);
    assert_eq!(write.started(), 3);
}

#[tokio::test]
async fn attack_17_names_of_another_languages_innards_are_no_tools() {
    for name in ["constructor", "__proto__", "__init__", "prototype", "toString", "call_0", "default"] {
        let (text, is_error, ran, _) = one_call(name, "{}").await;
        assert!(is_error && ran == 0, "{name}");
        assert!(text.contains("there is no tool"), "{text}");
    }
}

#[tokio::test]
async fn attack_17_such_a_name_can_be_given_to_a_tool_and_then_it_is_that_tool() {
    let provider = ScriptedProvider::new().call("constructor", json!({})).text("Built.");
    let tool = FakeTool::new("constructor");
    let agent = agent(provider.model()).tool(tool.clone()).build().unwrap();
    open_runtime().session().start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(tool.finished(), 1);
}

#[tokio::test]
async fn cm05_a_whole_number_with_a_point_is_an_integer_for_the_tool_and_its_footprint() {
    #[derive(serde::Deserialize)]
    struct Take {
        lines: u32,
        share: f64,
    }

    struct Counts(ToolSpec);

    #[async_trait::async_trait]
    impl Tool for Counts {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }

        fn footprint(&self, arguments: &Value) -> Footprint {
            let take = ToolInput::new(arguments.clone()).parse::<Take>().unwrap();
            Footprint::new(Access::WRITE).writing(take.lines.to_string())
        }

        async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
            let Take { lines, share } = input.parse()?;
            Ok(ToolOutput::text(format!(
                "{lines} of {share:?} at {:?}",
                cx.footprint().subjects().collect::<Vec<_>>()
            )))
        }
    }

    let schema = json!({
        "type": "object",
        "properties": {"lines": {"type": "integer"}, "share": {"type": "number"}},
        "required": ["lines", "share"],
    });
    for (lines, told) in
        [("3.0", "3 of 1.0 at [\"3\"]"), ("1e2", "100 of 1.0 at [\"100\"]"), ("3.5", "integer")]
    {
        let arguments = format!("{{\"lines\": {lines}, \"share\": 1.0}}");
        let script = Script::new().raw_call("count", &arguments).finish(FinishReason::ToolCalls);
        let provider = ScriptedProvider::new().step(script).text("I see.");
        let spec =
            ToolSpec::new("count", "Counts.", schema.clone()).with_access(Access::WRITE).naming_subjects();
        let agent = agent(provider.model()).tool(Counts(spec)).build().unwrap();
        open_runtime().session().start(&agent, "Go").outcome().await.unwrap();
        let requests = provider.requests();
        let (asked, answered) = (requests[1].messages.get(1).unwrap(), requests[1].messages.last().unwrap());
        assert!(results(answered)[0].contains(told), "{lines}: {:?}", results(answered));
        let kept = asked.tool_calls().next().unwrap().arguments.as_str().to_owned();
        assert!(kept.contains(lines), "the call is kept as the model made it: {kept}");
    }
}
