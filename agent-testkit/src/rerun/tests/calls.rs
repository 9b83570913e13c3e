//! Calls of a rerun: answered from the record, marked, performed.

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, Result,
    message::Arguments,
    permission::{ApprovalRequest, Approver, Decision},
    run::{RunContext, Status},
    tool::{
        Access, Footprint, LayerVerdict, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolLayer,
        ToolOutput, ToolSpec,
    },
};
use entourage_runners::{AgentTool, TodoTool, ToolsetExt, layered};

use super::*;
use crate::rerun::{TranscriptCall, answers::MARKED, exact::canonical};

#[tokio::test]
async fn unchanged_calls_are_answered_from_the_record_and_never_performed() {
    let tool = send();
    let old = ScriptedProvider::new().call("send", json!({"to": "Ada", "copies": 2})).text("Sent.");
    let original = recorded(&agent(&old, [tool.clone()]), &["Send it"]).await;
    assert_eq!(tool.started(), 1);
    for unmatched in [Unmatched::Mark, Unmatched::Perform] {
        // Another order of keys and another spelling of the number.
        let mut new = ScriptedProvider::new();
        new = new.step(
            Script::new().raw_call("send", r#"{ "copies":2.0, "to":"Ada"}"#).finish(FinishReason::ToolCalls),
        );
        let new = new.text("Done.");
        let case =
            rerun(original.clone(), &agent(&new, [tool.clone().returning("sent anew")]), unmatched).await;
        assert_eq!(figures(&case), [1, 0, 0, 0], "{case:?}");
        assert_eq!(told(&new), [["sent"]]);
        assert_eq!((tool.started(), case.rerun.answer()), (1, "Done."));
        assert!(case.is_completed() && case.has_same_calls() && !case.has_same_answers());
    }
}

#[tokio::test]
async fn calls_that_are_marked_never_run_whatever_the_runtime_allows() {
    let (sends, looks) = (send(), FakeTool::new("look").returning("a tree"));
    let old = ScriptedProvider::new().call("send", to("Ada")).text("Sent.");
    let original = recorded(&agent(&old, [sends.clone()]), &["Send it"]).await;
    let new = ScriptedProvider::new()
        .calls([("send", to("Eve")), ("look", json!({})), ("send", to("Ada")), ("send", to("Ada"))])
        .text("Done.");
    let all = agent(&new, [sends.clone(), looks.clone()]);
    let rerun = Rerun::of([original], all).runtime(crate::runtime().policy(Policy::allow_all()));
    let report = rerun.score("same calls", RerunCase::has_same_calls).run().await.unwrap();
    let case = &report.cases()[0];
    // One record answers one call.
    assert_eq!(figures(case), [1, 3, 0, 0]);
    assert_eq!(told(&new), [[MARKED, MARKED, "sent", MARKED]]);
    assert_eq!((sends.started(), looks.started(), report.passed()), (1, 0, 0));
    let changed: Vec<_> = case.changed.iter().map(|it| (&*it.tool, &*it.arguments, it.performed)).collect();
    let ada = r#"{"to":"Ada"}"#;
    assert_eq!(changed, [("send", r#"{"to":"Eve"}"#, false), ("look", "{}", false), ("send", ada, false)]);
    // The rerun can be the next original, and what was marked answers nothing.
    let next = Transcript::from_jsonl(&case.rerun.to_jsonl().unwrap()).unwrap();
    assert_eq!(
        next.calls.iter().map(|call| call.is_answered).collect::<Vec<_>>(),
        [false, false, true, false]
    );
    let new = ScriptedProvider::new().calls([("send", to("Eve")), ("send", to("Ada"))]).text("Done.");
    let again = super::rerun(next, &agent(&new, [sends.clone()]), Unmatched::Mark).await;
    assert_eq!((figures(&again), sends.started()), ([1, 1, 0, 0], 1));
}

#[tokio::test]
async fn other_calls_are_performed_under_the_rules_of_the_runtime() {
    let tool = send();
    let old = ScriptedProvider::new().call("send", to("Ada")).text("Sent.");
    let original = recorded(&agent(&old, [tool.clone()]), &["Send it"]).await;
    let replies =
        || ScriptedProvider::by_history().call("send", to("Ada")).call("send", to("Eve")).text("Done.");

    let (new, unmatched) = (replies(), Unmatched::Perform);
    let case = rerun(original.clone(), &agent(&new, [tool.clone().returning("anew")]), unmatched).await;
    assert_eq!(
        (figures(&case), told(&new)),
        ([1, 0, 1, 0], vec![vec!["sent".to_owned()], vec!["anew".to_owned()]])
    );
    assert_eq!(tool.started(), 2);

    // The default policy asks about a change; nobody is asked about what the record answers.
    let new = replies();
    let rerun = Rerun::of([original.clone()], agent(&new, [tool.clone()])).unmatched(unmatched);
    let report = rerun.score("completed", RerunCase::is_completed).run().await.unwrap();
    let case = &report.cases()[0];
    assert_eq!((figures(case), tool.started(), report.passed()), ([1, 0, 0, 0], 2, 0));
    assert!(matches!(case.rerun.status(), Some(Status::Paused(_))), "{:?}", case.rerun.status());

    let new = replies();
    let denied = crate::runtime().policy(Policy::new().deny("send"));
    let rerun = Rerun::of([original], agent(&new, [tool.clone()])).unmatched(unmatched).runtime(denied);
    let report = rerun.score("ran", |_: &RerunCase| true).run().await.unwrap();
    assert_eq!((figures(&report.cases()[0]), tool.started()), ([0, 0, 0, 1], 2));
}

#[tokio::test]
async fn equal_calls_are_answered_in_the_order_of_the_original() {
    let runtime = open();
    let session = runtime.session();
    let old = (0..3).fold(ScriptedProvider::new(), |old, _| old.call("read", json!({})).text("Read."));
    for answer in ["one", "two", "three"] {
        let tool = FakeTool::new("read").returning(answer);
        session.start(agent(&old, [tool]), "Read").outcome().await.unwrap();
    }
    let original = transcript(&runtime, &session).await;
    assert_eq!(
        original.calls.iter().map(|call| (call.run, call.text())).collect::<Vec<_>>(),
        [(0, "one".to_owned()), (1, "two".to_owned()), (2, "three".to_owned())]
    );
    let new = ScriptedProvider::new()
        .calls([("read", json!({})), ("read", json!({}))])
        .text("1")
        .call("read", json!({}))
        .text("2")
        .call("read", json!({}))
        .text("3");
    let case = rerun(original, &agent(&new, [FakeTool::new("read")]), Unmatched::Mark).await;
    assert_eq!(figures(&case), [3, 1, 0, 0]);
    let answers: Vec<_> = case.rerun.calls.iter().map(TranscriptCall::text).collect();
    assert_eq!(answers, ["one", "two", "three", MARKED]);
}

#[tokio::test]
async fn tools_of_the_run_itself_run_in_every_rerun() {
    let list = |content: &str| json!({"todos": [{"content": content, "status": "pending"}]});
    let (add, clock) =
        (FakeTool::new("add").access(Access::NONE), FakeTool::new("clock").access(Access::NONE));
    let clerk = |provider: &ScriptedProvider| -> Arc<dyn Agent> {
        let all = ReactAgent::builder("clerk", provider.model()).tool(TodoTool::new());
        Arc::new(all.tool(add.clone()).tool(clock.clone()).build().unwrap())
    };
    let calls = || [("todos", list("Look")), ("add", json!({})), ("clock", json!({}))];
    let old = ScriptedProvider::new().calls(calls()).text("Listed.");
    let original = recorded(&clerk(&old), &["Plan"]).await;
    let new = ScriptedProvider::new()
        .calls(calls())
        .calls([("clock", json!({})), ("todos", list("Go"))])
        .text("Listed.");
    let store = Arc::new(entourage_runtime::MemoryStore::new());
    let runtime = crate::runtime().shared_store(Arc::clone(&store) as _);
    let plan = Rerun::of([original], clerk(&new)).runtime(runtime).running(["add"]);
    let report = plan.score("ran", RerunCase::is_completed).run().await.unwrap();
    let case = &report.cases()[0];
    // A clock is answered although it declares no access.
    assert_eq!((figures(case), add.started(), clock.started()), ([1, 1, 0, 0], 2, 1));
    let stored = crate::runtime().shared_store(store).build();
    let id = entourage_core::SessionId::new(case.rerun.session.as_str()).unwrap();
    assert_eq!(stored.session_with_id(id).state().await.unwrap().todos()[0].content, "Go");

    // A tool of such a name that somebody else wrote is a tool like any other, whatever it declares.
    for name in
        ["todos", "reply", "send_message", "task_complete", "final_answer", "find_tools", "my_find_tools"]
    {
        let other = FakeTool::new(name).access(Access::NONE).returning("done");
        let old = ScriptedProvider::new().calls([(name, json!({})), (name, json!({"a": 2}))]).text("Listed.");
        let original = recorded(&agent(&old, [other.clone()]), &["Plan"]).await;
        assert_eq!(other.started(), 2);
        let new = ScriptedProvider::new().calls([(name, json!({})), (name, json!({"a": 1}))]).text("Listed.");
        let case = rerun(original.clone(), &agent(&new, [other.clone()]), Unmatched::Mark).await;
        assert_eq!((figures(&case), other.started()), ([1, 1, 0, 1], 2), "{name}");
        let new = ScriptedProvider::new().call(name, json!({"a": 1})).text("Listed.");
        let case = rerun(original, &agent(&new, [other.clone()]), Unmatched::Perform).await;
        assert_eq!((figures(&case), other.started()), ([0, 0, 1, 2], 3), "{name}");
    }
    let other = FakeTool::new("todos").access(Access::WRITE);
    let old = ScriptedProvider::new().call("todos", json!({})).text("Listed.");
    let original = recorded(&agent(&old, [other.clone()]), &["Plan"]).await;
    let new =
        ScriptedProvider::new().calls([("todos", json!({})), ("todos", json!({"a": 1}))]).text("Listed.");
    let case = rerun(original, &agent(&new, [other.clone()]), Unmatched::Mark).await;
    assert_eq!((figures(&case), other.started()), ([1, 1, 0, 0], 1));
}

#[tokio::test]
async fn agents_below_are_answered_or_run_with_the_calls_of_the_whole_original() {
    let tool = send();
    let lead = |lead: &ScriptedProvider, helper: &ScriptedProvider| -> Arc<dyn Agent> {
        let helper = ReactAgent::builder("helper", helper.model()).tool(tool.clone()).build().unwrap();
        let all = ReactAgent::builder("lead", lead.model()).tool(AgentTool::new(helper));
        Arc::new(all.build().unwrap())
    };
    let ask = |prompt: &str| json!({"prompt": prompt});
    let top = ScriptedProvider::new().call("agent", ask("Tell Ada")).text("Told.");
    let below = ScriptedProvider::new().call("send", to("Ada")).text("I told her.");
    let original = recorded(&lead(&top, &below), &["Tell her"]).await;
    let calls: Vec<_> = original.calls.iter().map(|call| (&*call.agent, &*call.tool)).collect();
    assert_eq!((calls, original.steps), (vec![("lead", "agent"), ("lead/helper", "send")], 4));

    // The same request: the agent below does not run.
    let (top, below) =
        (ScriptedProvider::new().call("agent", ask("Tell Ada")).text("Told."), ScriptedProvider::new());
    let case = rerun(original.clone(), &lead(&top, &below), Unmatched::Mark).await;
    assert_eq!(
        (figures(&case), told(&top), tool.started()),
        ([1, 0, 0, 0], vec![vec!["I told her.".to_owned()]], 1)
    );

    // Another request: it runs, and its calls are those of the original, or marked.
    let top = ScriptedProvider::new().call("agent", ask("Tell Ada and Eve")).text("Told.");
    let below = ScriptedProvider::new().calls([("send", to("Ada")), ("send", to("Eve"))]).text("I told one.");
    let case = rerun(original, &lead(&top, &below), Unmatched::Mark).await;
    assert_eq!((figures(&case), case.rerun.steps), ([1, 1, 1, 1], 4));
    assert_eq!((told(&below), tool.started()), (vec![vec!["sent".to_owned(), MARKED.to_owned()]], 1));
    assert_eq!(told(&top), [["I told one."]]);
}

/// A tool whose calls say that they touch more than it declares.
#[derive(Debug)]
struct Wider(FakeTool, ToolSpec, Footprint);

#[async_trait]
impl Tool for Wider {
    fn spec(&self) -> &ToolSpec {
        &self.1
    }

    fn footprint(&self, _: &Value) -> Footprint {
        self.2.clone()
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        self.0.call(input, cx).await
    }
}

#[tokio::test]
async fn a_call_that_touches_more_than_its_tool_declares_is_not_performed() {
    let delegates = ToolSpec::new("post", "Posts.", json!({"type": "object"}))
        .with_access(Access::DELEGATE)
        .with_repeat(Repeat::Resume);
    let own = TodoTool::new().spec().clone().with_name("post");
    let (none, delegate) = (Footprint::new(Access::NONE), Footprint::new(Access::DELEGATE));
    let mut unclear = none.clone();
    unclear.unclear = true;
    let cases = [
        (&delegates, delegate.clone(), [0, 0, 1, 0], 1),
        (&delegates, none.clone(), [0, 0, 1, 0], 1),
        (&delegates, Footprint::new(Access::DELEGATE | Access::WRITE), [0, 1, 0, 0], 0),
        (&delegates, delegate.clone().talking_to("example.org"), [0, 1, 0, 0], 0),
        (&delegates, unclear, [0, 1, 0, 0], 0),
        (&own, none.clone(), [0, 0, 0, 0], 1),
        (&own, Footprint::new(Access::NETWORK), [0, 1, 0, 0], 0),
        (&own, none.writing("notes.md"), [0, 1, 0, 0], 0),
    ];
    for (spec, footprint, expected, count) in cases {
        let old = ScriptedProvider::new().text("Hello.");
        let original = recorded(&agent(&old, []), &["Post it"]).await;
        let tool = FakeTool::new("post").returning("posted");
        let new = ScriptedProvider::new().call("post", json!({"todos": []})).text("Done.");
        let wider = Wider(tool.clone(), spec.clone(), footprint.clone());
        let clerk: Arc<dyn Agent> =
            Arc::new(ReactAgent::builder("clerk", new.model()).tool(wider).build().unwrap());
        let case = rerun(original, &clerk, Unmatched::Mark).await;
        assert_eq!((figures(&case), tool.started()), (expected, count), "{spec:?} {footprint:?}");
    }
}

#[derive(Debug)]
struct Edits;

#[async_trait]
impl Approver for Edits {
    async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
        Ok(Decision::Edit(Arguments::from(&to("Grace"))))
    }
}

/// Writes names in small letters.
#[derive(Debug)]
struct Small;

#[async_trait]
impl ToolLayer for Small {
    async fn before(&self, _: &ToolSpec, arguments: &mut Value, _: &RunContext) -> Result<LayerVerdict> {
        let name = arguments["to"].as_str().unwrap_or_default().to_lowercase();
        *arguments = to(&name);
        Ok(LayerVerdict::Pass)
    }
}

#[tokio::test]
async fn calls_are_compared_as_the_model_made_them() {
    let tool = FakeTool::new("send").access(Access::WRITE).echoing();
    let layers = |provider: &ScriptedProvider| -> Arc<dyn Agent> {
        let all = ReactAgent::builder("clerk", provider.model()).tool(layered(tool.clone(), Small));
        Arc::new(all.build().unwrap())
    };
    let replies = || ScriptedProvider::new().call("send", to("Ada")).text("Sent.");
    let (old, new) = (replies(), replies());
    let case = rerun(recorded(&layers(&old), &["Send it"]).await, &layers(&new), Unmatched::Mark).await;
    assert_eq!((figures(&case), tool.started()), ([1, 0, 0, 0], 1));

    // An approver gave other arguments: the record says so, and the rerun is told the same.
    let (old, new) = (replies(), replies());
    let runtime = crate::runtime().approver(Edits).build();
    let session = runtime.session();
    session.start(agent(&old, [tool.clone()]), "Send it").outcome().await.unwrap();
    let original = transcript(&runtime, &session).await;
    let case = rerun(original.clone(), &agent(&new, [tool.clone()]), Unmatched::Mark).await;
    assert_eq!((figures(&case), tool.started()), ([1, 0, 0, 0], 2));
    assert_eq!(case.rerun.calls[0].content, original.calls[0].content);
    assert!(original.calls[0].text().contains("Grace"), "{original:?}");
}

#[tokio::test]
async fn refusals_and_failures_are_answers_and_errors_of_the_runtime_are_none() {
    let tool = send();
    let old = ScriptedProvider::new().call("send", to("Ada"));
    let runtime = crate::runtime().policy(Policy::new().deny("send")).build();
    let session = runtime.session();
    session.start(agent(&old, [tool.clone()]), "Send it").outcome().await.unwrap();
    let original = transcript(&runtime, &session).await;
    let new = ScriptedProvider::new().call("send", to("Ada"));
    let case = rerun(original.clone(), &agent(&new, [tool.clone()]), Unmatched::Perform).await;
    assert_eq!((figures(&case), tool.started()), ([1, 0, 0, 0], 0), "{original:?}");
    assert_eq!(case.rerun.calls[0].content, original.calls[0].content);

    let fatal = send().failing(ErrorKind::Config, "no server is set");
    let old = ScriptedProvider::new().call("send", to("Ada"));
    let original = recorded(&agent(&old, [fatal]), &["Send it"]).await;
    let new = ScriptedProvider::new().call("send", to("Ada"));
    let case = rerun(original, &agent(&new, [tool.clone()]), Unmatched::Perform).await;
    assert_eq!((figures(&case), tool.started()), ([1, 0, 0, 0], 0));
    let Some(Status::Failed(error)) = case.rerun.status() else { panic!("{case:?}") };
    assert_eq!((error.kind, &*error.message), (ErrorKind::Config, "no server is set"));

    // There was no such tool, and its arguments were wrong: that says nothing about the tool.
    let strict = send().requiring(&["to"]);
    let old = ScriptedProvider::new().calls([("sent", to("Ada")), ("send", json!({}))]).text("No.");
    let original = recorded(&agent(&old, [strict]), &["Send it"]).await;
    assert_eq!(original.calls.iter().map(|call| call.is_answered).collect::<Vec<_>>(), [false, false]);
    let new = ScriptedProvider::new().call("send", json!({})).text("Yes.");
    let case = rerun(original, &agent(&new, [tool]), Unmatched::Mark).await;
    assert_eq!(figures(&case), [0, 1, 0, 0]);
}

#[tokio::test]
async fn calls_of_deferred_tools_are_those_of_the_real_ones() {
    let tool = send();
    let deferred = |provider: &ScriptedProvider| -> Arc<dyn Agent> {
        let tools = entourage_core::tool::Tools::new([Arc::new(tool.clone()) as Arc<dyn Tool>]).unwrap();
        let all = ReactAgent::builder("clerk", provider.model()).toolset(tools.deferred());
        Arc::new(all.build().unwrap())
    };
    let through = json!({"name": "send", "arguments": to("Ada")});
    let old = ScriptedProvider::new().call("use_tool", through).text("Sent.");
    let original = recorded(&deferred(&old), &["Send it"]).await;
    assert_eq!((&*original.calls[0].tool, tool.started()), ("send", 1), "{original:?}");
    // The other agent has the tool itself.
    let new = ScriptedProvider::new().call("send", to("Ada")).text("Sent.");
    let case = rerun(original, &agent(&new, [tool.clone()]), Unmatched::Mark).await;
    assert_eq!((figures(&case), tool.started()), ([1, 0, 0, 0], 1));
}

#[tokio::test]
async fn an_answer_has_all_that_the_record_has() {
    let output = ToolOutput::text("the end").with_metadata(json!({"pages": 3})).stopping();
    let tool = send().giving(output);
    let old = ScriptedProvider::new().call("send", to("Ada"));
    let original = recorded(&agent(&old, [tool.clone()]), &["Send it"]).await;
    let read = Transcript::from_jsonl(&original.to_jsonl().unwrap()).unwrap();
    let new = ScriptedProvider::new().call("send", to("Ada"));
    let case = rerun(read, &agent(&new, [send()]), Unmatched::Mark).await;
    assert_eq!(case.rerun.calls[0], original.calls[0]);
    assert_eq!(case.rerun.calls[0].metadata, Some(json!({"pages": 3})));
    assert_eq!(case.rerun.status(), original.status());
    assert_eq!(tool.started(), 1);
}

#[test]
fn arguments_are_compared_as_json() {
    let same = [
        (r#"{"a":1,"b":[1.5,{"d":null,"c":"x"}]}"#, r#"{ "b" : [1.50, {"c":"\u0078","d":null}], "a":1e0 }"#),
        ("-0.0", "0"),
        ("100", "1e2"),
        ("18446744073709551615", "18446744073709551615"),
        ("12345678901234567890.50e+1", "123456789012345678905"),
        (r#"{"a":0,"a":[ ]}"#, r#" {"a":[]} "#),
    ];
    let different = [
        (r#"{"a":1}"#, r#"{"a":"1"}"#),
        (r#"{"a":1}"#, r#"{"a":1,"b":null}"#),
        ("[1,2]", "[2,1]"),
        ("18446744073709551615", "18446744073709551614"),
        ("9007199254740993", "9007199254740992"),
        (r#"{"a\":1,\"b":2}"#, r#"{"a":1,"b":2}"#),
        ("0.1", "0.2"),
        ("0.1", "0.10000000000000001"),
        ("1", "-1"),
        ("1e400", "1e401"),
        ("123456789012345678901234567890", "123456789012345678901234567891"),
    ];
    let text = canonical;
    for (one, other) in same {
        assert_eq!(text(one), text(other));
    }
    for (one, other) in different {
        assert_ne!(text(one), text(other));
    }
}

#[tokio::test]
async fn each_digit_of_a_number_counts() {
    let numbers = |ends: [u8; 2]| {
        let calls = ends.iter().fold(Script::new(), |script, end| {
            script.raw_call("send", &format!("{{\"to\": 12345678901234567890123456789{end}}}"))
        });
        ScriptedProvider::new().step(calls.finish(FinishReason::ToolCalls)).text("Sent.")
    };
    let original = recorded(&agent(&numbers([0, 1]), [send()]), &["Send both"]).await;
    let original = Transcript::from_jsonl(&original.to_jsonl().unwrap()).unwrap();
    for (ends, expected) in [([0, 1], [2, 0, 0, 0]), ([1, 0], [2, 0, 0, 0]), ([0, 2], [1, 1, 0, 1])] {
        let case = rerun(original.clone(), &agent(&numbers(ends), [send()]), Unmatched::Mark).await;
        assert_eq!(figures(&case), expected, "{ends:?}");
        let changed: Vec<_> = case.changed.iter().map(|call| call.arguments.as_str()).collect();
        assert!(changed.iter().all(|it| it.contains("123456789012345678901234567892")), "{changed:?}");
    }
}
