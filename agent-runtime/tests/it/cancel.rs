//! A cancel at each phase of a run: the state that it leaves, and that nothing of the run is alive afterwards.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, Result, Timestamp,
    event::{Envelope, Event},
    permission::{ApprovalRequest, Approver, Decision},
    provider::{Delta, FinishReason},
    run::{Pause, Status, StopReason, Task},
    session::{SessionStatus, SharedStore},
    tool::Access,
};
use entourage_runtime::{RunHandle, Runtime};
use entourage_testkit::{self as testkit, FakeTool, Gate, LiveProvider, Script, ScriptedProvider};
use serde_json::json;

use crate::common::{agent, assert_valid, drain, memory, open_runtime, results, runtime_on, stored};

/// The newest reply's finish reason and text.
fn last_reply(events: &[Envelope]) -> (FinishReason, String) {
    let reply = events.iter().rev().find_map(|event| match &event.event {
        Event::ModelFinished(reply) => Some((reply.finish.reason, reply.message.text())),
        _ => None,
    });
    reply.unwrap()
}

/// Cancels a run and returns its remaining events. Checks that its outcome is the cancel, and that the next run sends
/// a valid history.
async fn cancelled(mut run: RunHandle, store: &SharedStore) -> Vec<Envelope> {
    let id = run.session().clone();
    run.cancel();
    drain(&mut run).await;
    let outcome = run.outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Cancelled);
    let events = stored(store, &id).await;
    assert_eq!(events.last().unwrap().event.kind(), "run_finished");

    let provider = ScriptedProvider::new().text("Here.");
    let next = agent(provider.model()).build().unwrap();
    let session = runtime_on(store).open(&id).await.unwrap();
    assert_eq!(session.head().await.unwrap().status, SessionStatus::Idle);
    assert_eq!(session.unfinished().await.unwrap(), None);
    assert_eq!(session.start(&next, "And now?").outcome().await.unwrap().text, "Here.");
    assert_valid(&provider.requests()[0].messages);
    assert_eq!(provider.requests()[0].messages.last().unwrap().text(), "And now?");
    events
}

#[tokio::test]
async fn cm13_before_the_run_gets_to_do_anything() {
    let store = memory();
    let provider = LiveProvider::new();
    let agent = agent(provider.model()).build().unwrap();
    let run = runtime_on(&store).session().start(&agent, "Go");
    let events = cancelled(run, &store).await;
    assert_eq!(last_reply(&events), (FinishReason::Cancelled, String::new()));
    provider.assert_silent().await;
}

#[tokio::test]
async fn cm13_before_the_model_answers() {
    let store = memory();
    let provider = LiveProvider::new();
    let agent = agent(provider.model()).build().unwrap();
    let run = runtime_on(&store).session().start(&agent, "Go");
    let call = provider.asked().await;
    let events = cancelled(run, &store).await;
    assert!(call.is_abandoned());
    assert_eq!(last_reply(&events), (FinishReason::Cancelled, String::new()));
}

#[tokio::test]
async fn cm13_in_the_middle_of_text() {
    let store = memory();
    let provider = LiveProvider::new();
    let agent = agent(provider.model()).build().unwrap();
    let session = runtime_on(&store).session();
    let mut run = session.start(&agent, "Go");
    let mut call = provider.asked().await;
    call.text("I beg");
    while !matches!(run.next().await.unwrap().event, Event::Delta(_)) {}
    let events = cancelled(run, &store).await;
    assert!(call.is_abandoned());
    assert_eq!(last_reply(&events), (FinishReason::Cancelled, "I beg".into()), "what was said is kept");
}

#[tokio::test]
async fn cm14_in_the_middle_of_a_calls_arguments() {
    let store = memory();
    let provider = LiveProvider::new();
    let tool = FakeTool::new("look");
    let agent = agent(provider.model()).tool(tool.clone()).build().unwrap();
    let mut run = runtime_on(&store).session().start(&agent, "Go");
    let mut call = provider.asked().await;
    call.send(Delta::Reasoning("hm".into()));
    call.call(0, "look", "{\"whole\": 1}");
    call.call(1, "look", "{\"path\": \"/ho");
    while !matches!(&run.next().await.unwrap().event, Event::Delta(Delta::ToolCallArguments { index: 1, .. }))
    {
    }
    let events = cancelled(run, &store).await;
    assert_eq!(tool.started(), 0);
    let Some(Event::ModelFinished(reply)) =
        events.iter().map(|event| &event.event).find(|event| event.kind() == "model_finished")
    else {
        panic!("no reply")
    };
    let arguments: Vec<_> = reply.message.tool_calls().map(|call| call.arguments.as_str()).collect();
    assert_eq!(arguments, ["{}", "{}"], "a cut call has no arguments");
    let told: Vec<_> = crate::common::settled(&events).into_iter().map(|(_, text)| text).collect();
    assert_eq!(told, ["cancelled before it ran", "cancelled before it ran"]);
}

#[tokio::test]
async fn cm14_while_tools_run() {
    let store = memory();
    let gate = Gate::new();
    let slow = FakeTool::new("slow").behind(&gate);
    let writer = FakeTool::new("writer").access(Access::WRITE);
    let calls = [("fast", json!({})), ("slow", json!({})), ("writer", json!({}))];
    let provider = ScriptedProvider::new().calls(calls);
    let agent = agent(provider.model())
        .tool(FakeTool::new("fast"))
        .tool(slow.clone())
        .tool(writer.clone())
        .build()
        .unwrap();
    let mut run = runtime_on(&store).session().start(&agent, "Go");
    gate.arrived(1).await;
    // The fast one has settled once the run waits again.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    run.cancellation().cancel();
    drain(&mut run).await;
    let events = cancelled(run, &store).await;
    assert_eq!((slow.running(), slow.finished(), writer.started()), (0, 0, 0));
    assert_eq!(
        crate::common::settled(&events),
        [
            ("fast".to_owned(), "ok".to_owned()),
            ("slow".to_owned(), "cancelled while it ran; its outcome is unknown".to_owned()),
            ("writer".to_owned(), "cancelled before it ran".to_owned()),
        ]
    );
}

#[derive(Debug, Clone)]
struct Slow(Gate);

#[async_trait]
impl Approver for Slow {
    async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
        self.0.pass().await;
        Ok(Decision::Allow)
    }
}

#[tokio::test]
async fn cm14_while_an_approver_is_asked() {
    let store = memory();
    let gate = Gate::new();
    let tool = FakeTool::new("write").access(Access::WRITE);
    let provider = ScriptedProvider::new().call("write", json!({}));
    let agent = agent(provider.model()).tool(tool.clone()).build().unwrap();
    let runtime = testkit::runtime().shared_store(Arc::clone(&store)).approver(Slow(gate.clone())).build();
    let run = runtime.session().start(&agent, "Go");
    gate.arrived(1).await;
    let events = cancelled(run, &store).await;
    gate.open();
    assert_eq!(tool.started(), 0);
    assert_eq!(crate::common::count(&events, "approval_decided"), 0, "a cancel is no refusal");
    assert_eq!(crate::common::settled(&events)[0].1, "cancelled before it ran");
}

#[tokio::test]
async fn cm13_an_idle_cancel_does_nothing_to_the_next_run() {
    let provider = ScriptedProvider::new().text("One.").text("Two.");
    let agent = agent(provider.model()).build().unwrap();
    let runtime = open_runtime();
    let session = runtime.session();
    session.cancel();
    runtime.cancel(session.id());
    assert_eq!(session.start(&agent, "One?").outcome().await.unwrap().text, "One.");
    runtime.cancel(session.id());
    assert!(runtime.cancel_all().await);
    assert_eq!(session.start(&agent, "Two?").outcome().await.unwrap().text, "Two.");
}

async fn many(
    runtime: &Runtime,
    gate: &Gate,
    provider: &ScriptedProvider,
    tool: &FakeTool,
) -> Vec<RunHandle> {
    let agent = agent(provider.model()).tool(tool.clone()).build().unwrap();
    let runs: Vec<_> = (0..3).map(|_| runtime.session().start(&agent, "Go")).collect();
    gate.arrived(3).await;
    runs
}

#[tokio::test]
async fn cm13_cancel_all_waits_until_every_run_has_unwound() {
    let gate = Gate::new();
    let tool = FakeTool::new("slow").behind(&gate);
    let provider = ScriptedProvider::by_history().call("slow", json!({}));
    let runtime = open_runtime();
    let runs = many(&runtime, &gate, &provider, &tool).await;
    assert_eq!(tool.running(), 3);
    assert!(runtime.cancel_all().await);
    assert_eq!(tool.running(), 0);
    for run in runs {
        assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
    }
}

#[tokio::test]
async fn cm13_dropping_the_handle_cancels_and_detaching_does_not() {
    let gate = Gate::new();
    let tool = FakeTool::new("slow").behind(&gate);
    let provider = ScriptedProvider::by_history().call("slow", json!({})).text("Done.");
    let runtime = open_runtime();
    drop(many(&runtime, &gate, &provider, &tool).await);
    while tool.running() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!((tool.started(), tool.finished()), (3, 0));

    let agent = agent(provider.model()).tool(tool.clone()).build().unwrap();
    let session = runtime.session();
    session.start(&agent, "Go").detach();
    gate.arrived(4).await;
    gate.open();
    while session.is_busy() {
        tokio::task::yield_now().await;
    }
    assert_eq!(session.history().await.unwrap().last().unwrap().text(), "Done.");
}

#[tokio::test(start_paused = true)]
async fn cm14_a_failure_is_worded_differently_from_a_cancel() {
    let store = memory();
    let provider = ScriptedProvider::new().step(
        Script::new().text("I will").call("look", &json!({})).fail(ErrorKind::Overloaded, "no room; wait"),
    );
    let tool = FakeTool::new("look");
    let agent = agent(provider.model()).tool(tool.clone()).build().unwrap();
    let session = runtime_on(&store).session();
    let error = session.start(&agent, "Go").outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    let events = stored(&store, session.id()).await;
    assert_eq!(last_reply(&events), (FinishReason::Error, "I will".into()));
    let told = &crate::common::settled(&events)[0].1;
    assert!(told.contains("no room") && !told.contains("cancelled"), "{told}");
    assert_eq!(tool.started(), 0);

    let provider = ScriptedProvider::new().text("Here.");
    let next = crate::common::agent(provider.model()).build().unwrap();
    let session = runtime_on(&store).open(session.id()).await.unwrap();
    session.start(&next, "And now?").outcome().await.unwrap();
    let sent = &provider.requests()[0].messages;
    assert_valid(sent);
    assert_eq!(&results(sent.get(2).unwrap())[0], told);
}

#[tokio::test(start_paused = true)]
async fn cm13_a_run_whose_deadline_has_passed_begins_nothing() {
    let tool = FakeTool::new("pay").access(Access::WRITE);
    let provider = ScriptedProvider::by_history().call("pay", json!({})).text("Paid.");
    let agent = agent(provider.model()).tool(tool.clone()).build().unwrap();
    let clock = testkit::PausedClock::new();
    let now = || entourage_core::Clock::now(&clock);
    let late = Task::new("Go").with_deadline(now());
    let outcome = open_runtime().session().start(&agent, late).outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Stopped(StopReason::Deadline));
    assert_eq!((provider.count(), tool.started()), (0, 0));

    // A person answers when it is too late.
    let runtime = Runtime::builder().clock(clock).build();
    let session = runtime.session();
    let soon = Task::new("Go").with_deadline(now().after(Duration::from_secs(60)));
    let asked = session.start(&agent, soon).outcome().await.unwrap();
    let Status::Paused(Pause::Approval(id)) = &asked.status else { panic!("{asked:?}") };
    tokio::time::advance(Duration::from_secs(61)).await;
    runtime.decide(id, Decision::Allow).await.unwrap();
    let outcome = session.resume(&agent).outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Stopped(StopReason::Deadline));
    assert_eq!((provider.count(), tool.started()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn cm13_a_deadline_stops_the_run_and_what_it_runs() {
    let tool = FakeTool::new("hang").hanging();
    let provider = ScriptedProvider::new().call("hang", json!({}));
    let agent = agent(provider.model()).tool(tool.clone()).build().unwrap();
    let runtime = open_runtime();
    let clock = testkit::PausedClock::new();
    let now: Timestamp = entourage_core::Clock::now(&clock);
    let started = tokio::time::Instant::now();
    let deadline = now.after(Duration::from_secs(90));
    let outcome =
        runtime.session().start(&agent, Task::new("Go").with_deadline(deadline)).outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Stopped(StopReason::Deadline));
    assert_eq!(tool.running(), 0);
    assert!(started.elapsed() >= Duration::from_secs(89) && started.elapsed() < Duration::from_secs(120));
}
