//! Tools whose results come from outside: handed out, answered once, listed while they wait.

use std::sync::Arc;

use entourage_core::{
    ErrorKind, Result, SessionId,
    agent::Agent,
    event::Event,
    permission::Decision,
    run::{Outcome, Pause, RunContext, Status, Task},
    session::SharedStore,
    tool::{Access, CallId, Tool, ToolOutput, ToolSpec, Tools},
};
use entourage_runtime::permission::Policy;
use entourage_runtime::{Runtime, Session, Waiting};
use entourage_testkit::{self as testkit, FakeTool, ScriptedProvider};
use serde_json::json;

use crate::common::{agent, assert_valid, count, memory, settled, stored};

fn click(access: Access) -> impl Tool {
    entourage_runners::external(
        ToolSpec::new("click", "Clicks.", json!({"type": "object"})).with_access(access),
    )
}

fn on(store: &SharedStore) -> Runtime {
    testkit::runtime().shared_store(Arc::clone(store)).policy(Policy::allow_all()).build()
}

/// The calls that wait, with their arguments.
async fn open(session: &Session) -> Vec<(CallId, String)> {
    let calls = session.pending().await.unwrap().into_iter().filter_map(|it| match it.waits_for {
        Waiting::Call { id, call } => Some((id, call.arguments.as_str().to_owned())),
        _ => None,
    });
    calls.collect()
}

#[tokio::test]
async fn issue_13_calls_are_handed_out_together_and_answered_by_other_processes() {
    let store = memory();
    let provider = ScriptedProvider::new()
        .calls([("click", json!({"on": "a"})), ("look", json!({})), ("click", json!({"on": "b"}))])
        .text("Done.");
    let look = FakeTool::new("look");
    let agent = agent(provider.model()).tool(click(Access::READ)).tool(look.clone()).build().unwrap();
    let session = on(&store).session();
    let outcome = session.start(&agent, "Go").outcome().await.unwrap();
    let Status::Paused(Pause::Call(first)) = &outcome.status else { panic!("{outcome}") };
    assert_eq!(look.finished(), 1, "the call between them ran");
    let waiting = open(&session).await;
    assert_eq!(waiting.iter().map(|it| &*it.1).collect::<Vec<_>>(), [r#"{"on":"a"}"#, r#"{"on":"b"}"#]);
    assert_eq!(waiting[0].0, *first);

    let (one, two) = (on(&store), on(&store));
    one.answer(&waiting[1].0, ToolOutput::text("b clicked")).await.unwrap();
    let other = two.open(session.id()).await.unwrap();
    // The other call has no result yet: the run waits for it again, and hands nothing out twice.
    let outcome = other.resume(&agent).outcome().await.unwrap();
    assert!(matches!(&outcome.status, Status::Paused(Pause::Call(id)) if id == first), "{outcome}");
    assert_eq!(count(&stored(&store, session.id()).await, "tool_started"), 3);
    let error = one.answer(&waiting[1].0, ToolOutput::text("again")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    two.answer(first, ToolOutput::error("no such button")).await.unwrap();
    let outcome = other.resume(&agent).outcome().await.unwrap();
    assert_eq!((outcome.status, &*outcome.text), (Status::Completed, "Done."));
    let told = settled(&stored(&store, session.id()).await);
    let told: Vec<_> = told.iter().filter(|it| it.0 == "click").map(|it| &*it.1).collect();
    assert_eq!(told, ["b clicked", "no such button"], "in the order in which they came");
    assert_valid(&provider.requests()[1].messages);
    assert_eq!((look.started(), open(&other).await.len()), (1, 0));
    let error = two.answer(first, ToolOutput::text("late")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    for id in ["", "x", "../a.1$$0", "no-session.3$$0-00"] {
        let error = two.answer(&CallId::from(id), ToolOutput::text("x")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{id}: {error}");
    }
}

#[tokio::test]
async fn issue_13_a_call_that_changes_something_is_handed_out_alone_and_with_the_approvers_arguments() {
    let store = memory();
    let provider =
        ScriptedProvider::new().calls([("click", json!({"on": "a"})), ("look", json!({}))]).text("Done.");
    let look = FakeTool::new("look");
    let agent = agent(provider.model()).tool(click(Access::WRITE)).tool(look.clone()).build().unwrap();
    let runtime =
        testkit::runtime().shared_store(Arc::clone(&store)).policy(Policy::new().ask("click")).build();
    let session = runtime.session();
    session.start(&agent, "Go").outcome().await.unwrap();
    let pending = runtime.pending().await.unwrap();
    let Waiting::Approval(request) = &pending[0].waits_for else { panic!("{pending:?}") };
    runtime.decide(&request.id, Decision::edit(&json!({"on": "z"})).unwrap()).await.unwrap();
    session.resume(&agent).outcome().await.unwrap();
    let waiting = open(&session).await;
    assert_eq!((waiting.len(), &*waiting[0].1, look.started()), (1, r#"{"on":"z"}"#, 0));
    runtime.answer(&waiting[0].0, "clicked").await.unwrap();
    session.resume(&agent).outcome().await.unwrap();
    assert_eq!(look.finished(), 1);
}

#[tokio::test]
async fn issue_13_a_prompt_or_a_stop_closes_what_was_handed_out() {
    let store = memory();
    let provider = ScriptedProvider::new().call("click", json!({})).text("Fine.");
    let agent = agent(provider.model()).tool(click(Access::READ)).build().unwrap();
    let session = on(&store).session();
    session.start(&agent, "Go").outcome().await.unwrap();
    let waiting = open(&session).await;
    session.start(&agent, "Never mind").outcome().await.unwrap();
    assert_valid(&provider.requests()[1].messages);
    assert_eq!(open(&session).await.len(), 0);
    let error = session.answer(&waiting[0].0, "late").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

/// Calls an external tool by hand.
#[derive(Clone)]
struct ByHand(Tools);

#[async_trait::async_trait]
impl Agent for ByHand {
    fn name(&self) -> &str {
        "by-hand"
    }

    async fn run(&self, _: Task, cx: &RunContext) -> Result<Outcome> {
        let one = cx.call_tool(&self.0, "click", &json!({"on": "a"})).await?;
        let two = cx.call_tool(&self.0, "click", &json!({"on": "b"})).await?;
        let mut outcome = Outcome::new(Status::Completed);
        outcome.text = format!("{} {}", one.to_text(), two.to_text());
        Ok(outcome)
    }
}

#[tokio::test]
async fn issue_13_a_hand_written_agents_calls_are_answered_too() {
    let store = memory();
    let agent = ByHand(Tools::new([Arc::new(click(Access::READ)) as Arc<dyn Tool>]).unwrap());
    let session = on(&store).session();
    let mut outcome = session.start(&agent, "Go").outcome().await.unwrap();
    for text in ["one", "two"] {
        assert!(matches!(outcome.status, Status::Paused(Pause::Call(_))), "{outcome}");
        let waiting = open(&session).await;
        assert_eq!(waiting.len(), 1);
        on(&store).answer(&waiting[0].0, text).await.unwrap();
        outcome = session.resume(&agent).outcome().await.unwrap();
    }
    assert_eq!((outcome.status, &*outcome.text), (Status::Completed, "one two"));
    let events = stored(&store, session.id()).await;
    let keys =
        events.iter().filter(|it| matches!(&it.event, Event::ToolFinished(call) if call.key.is_some()));
    assert_eq!(keys.count(), 2);
}

#[tokio::test]
async fn issue_13_what_waits_is_listed_across_sessions_with_its_root() {
    let store = memory();
    let runtime = on(&store);
    let leaf = ScriptedProvider::new().call("click", json!({}));
    let leaf = agent(leaf.model()).tool(click(Access::READ)).build().unwrap();
    let root = ScriptedProvider::new().call("agent", json!({"prompt": "Click."}));
    let root = agent(root.model()).tool(entourage_runners::AgentTool::new(leaf)).build().unwrap();
    let session = runtime.session();
    session.start(&root, "Go").outcome().await.unwrap();
    let pending = runtime.pending().await.unwrap();
    let calls: Vec<_> = pending.iter().filter(|it| matches!(it.waits_for, Waiting::Call { .. })).collect();
    assert_eq!(calls.len(), 1, "{pending:?}");
    assert_eq!(&calls[0].root, session.id());
    assert_ne!(&calls[0].session, session.id());
    assert!(calls[0].session.as_str().starts_with(session.id().as_str()));
    let odd = runtime.session_with_id(SessionId::new("v1.3").unwrap());
    assert!(odd.pending().await.unwrap().is_empty());
}

#[tokio::test]
async fn issue_13_one_process_opens_the_session_answers_and_resumes() {
    let store = memory();
    let provider = ScriptedProvider::new().call("click", json!({})).call("click", json!({})).text("Done.");
    let agent = agent(provider.model()).tool(click(Access::READ)).build().unwrap();
    let person = entourage_runners::person("ada");
    let (clicks, asked) = (SessionId::new("clicks").unwrap(), SessionId::new("asked").unwrap());
    let runtime = on(&store);
    runtime.session_with_id(clicks.clone()).start(&agent, "Go").outcome().await.unwrap();
    runtime.session_with_id(asked.clone()).start(&person, "May I?").outcome().await.unwrap();

    let runtime = on(&store);
    let session = runtime.open(&asked).await.unwrap();
    session.answer(&open(&session).await[0].0, "Yes").await.unwrap();
    assert_eq!(session.resume(&person).outcome().await.unwrap().text, "Yes");
    let session = runtime.open(&clicks).await.unwrap();
    session.answer(&open(&session).await[0].0, "once").await.unwrap();
    let outcome = session.resume(&agent).outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Paused(Pause::Call(_))), "{outcome}");
    session.answer(&open(&session).await[0].0, "twice").await.unwrap();
    assert_eq!(session.resume(&agent).outcome().await.unwrap().text, "Done.");
}
