//! The events of a run: their order and their numbers.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use entourage_core::{
    event::{Envelope, Event},
    provider::{Delta, FinishReason},
    run::Observer,
    tool::{Access, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};
use entourage_testkit::{self as testkit, FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::common::{agent, drain, kinds, memory, open_runtime, runtime_on, stored};

fn line(event: &Envelope) -> String {
    let what = match &event.event {
        Event::Delta(Delta::Text(text)) => format!("text {text:?}"),
        Event::Delta(Delta::ToolCallStart(call)) => format!("call {}", call.name),
        Event::Delta(Delta::ToolCallArguments { text, .. }) => format!("arguments {text}"),
        Event::Delta(Delta::Usage(_)) => "usage".to_owned(),
        Event::Delta(Delta::Finish(finish)) => format!("finish {:?}", finish.reason),
        Event::ModelStarted(call) => format!("model_started {}", call.step),
        Event::ModelFinished(reply) => format!("model_finished {} {:?}", reply.step, reply.finish.reason),
        Event::ToolStarted(call) => format!("tool_started {} {}", call.index, call.tool),
        Event::ToolFinished(call) => format!("tool_finished {} {}", call.index, call.result.to_text()),
        other => other.kind().to_owned(),
    };
    format!("{} {what}", event.seq)
}

#[tokio::test]
async fn cm03_the_log_of_two_steps() {
    let gate = Gate::new();
    let step = Script::new()
        .text("\nI look.")
        .call("slow", &json!({"n": 1}))
        .call("fast", &json!({}))
        .usage(10, 5)
        .finish(FinishReason::ToolCalls);
    let last = Script::new().text("\n").text("\nTwo").text(" lines\n\nhere.").finish(FinishReason::Stop);
    let provider = ScriptedProvider::new().step(step).step(last);
    let slow = FakeTool::new("slow").behind(&gate).returning("slow done");
    let agent = agent(provider.model()).tool(slow).tool(FakeTool::new("fast")).build().unwrap();
    let store = memory();
    let session = runtime_on(&store).session();
    let mut run = session.start(&agent, "Go");
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        // The slow tool ends only after the fast one's result was told.
        if matches!(&event.event, Event::ToolFinished(_)) {
            gate.open();
        }
        events.push(event);
    }
    let outcome = run.outcome().await.unwrap();
    assert_eq!(outcome.text, "Two lines\n\nhere.", "only the reply's first newline goes");

    let log: Vec<_> = events.iter().map(line).collect();
    let expected = [
        "1 run_started",
        "2 model_started 1",
        "2 text \"I look.\"",
        "2 call slow",
        "2 arguments {\"n\":1}",
        "2 call fast",
        "2 arguments {}",
        "2 usage",
        "2 finish ToolCalls",
        "3 model_finished 1 ToolCalls",
        "4 tool_started 0 slow",
        "5 tool_started 1 fast",
        "6 tool_finished 1 ok",
        "7 tool_finished 0 slow done",
        "8 model_started 2",
        "8 text \"\"",
        "8 text \"Two\"",
        "8 text \" lines\\n\\nhere.\"",
        "8 finish Stop",
        "9 model_finished 2 Stop",
        "10 run_finished",
    ];
    assert_eq!(log, expected);
    let kept: Vec<_> = events.into_iter().filter(|event| event.event.is_stored()).collect();
    assert_eq!(stored(&store, session.id()).await, kept, "what is stored is what was streamed, deltas aside");
}

#[tokio::test]
async fn cm03_no_result_is_told_before_all_calls_that_can_start_have() {
    let provider = ScriptedProvider::new().calls(vec![("look", json!({})); 5]).text("Done.");
    let agent = agent(provider.model()).tool(FakeTool::new("look")).build().unwrap();
    let mut run = open_runtime().session().start(&agent, "Go");
    let events = drain(&mut run).await;
    let told = kinds(&events);
    let first_result = told.iter().position(|kind| *kind == "tool_finished").unwrap();
    let last_start = told.iter().rposition(|kind| *kind == "tool_started").unwrap();
    assert!(last_start < first_result, "{told:?}");
    run.outcome().await.unwrap();
}

#[derive(Debug, Clone, Default)]
struct Recorder(Arc<Mutex<Vec<Envelope>>>);

impl Observer for Recorder {
    fn on_event(&self, event: &Envelope) {
        self.0.lock().unwrap().push(event.clone());
    }
}

#[tokio::test]
async fn cm03_an_observer_sees_what_the_handle_sees() {
    let recorder = Recorder::default();
    let provider = ScriptedProvider::new().call("look", json!({})).text("Done.");
    let agent = agent(provider.model()).tool(FakeTool::new("look")).build().unwrap();
    let session = testkit::runtime().observer(recorder.clone()).build().session();
    let mut run = session.start(&agent, "Go");
    let events = drain(&mut run).await;
    run.outcome().await.unwrap();
    assert_eq!(*recorder.0.lock().unwrap(), events);
    assert!(events.iter().any(|event| !event.event.is_stored()));
}

#[derive(Debug)]
struct Talker(ToolSpec);

#[async_trait]
impl Tool for Talker {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        cx.progress("half way");
        Ok(ToolOutput::text("done"))
    }
}

#[tokio::test]
async fn cm03_progress_is_streamed_under_the_number_before_it_and_not_stored() {
    let provider = ScriptedProvider::new().call("talk", json!({})).text("Done.");
    let talker = Talker(ToolSpec::new("talk", "Talks.", json!({"type": "object"})).with_access(Access::NONE));
    let agent = agent(provider.model()).tool(talker).build().unwrap();
    let store = memory();
    let session = runtime_on(&store).session();
    let mut run = session.start(&agent, "Go");
    let events = drain(&mut run).await;
    run.outcome().await.unwrap();
    let place = events.iter().position(|event| event.event.kind() == "progress").unwrap();
    assert_eq!(events[place - 1].event.kind(), "tool_started");
    assert_eq!(events[place].seq, events[place - 1].seq);
    assert!(!kinds(&stored(&store, session.id()).await).contains(&"progress"));
}
