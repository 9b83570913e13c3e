//! A person who checks: a verdict is refused or taken where it is given, and the rounds go on from there.

use std::sync::Arc;

use entourage_core::{
    ErrorKind, Result,
    agent::Agent,
    event::Event,
    permission::Scope,
    run::{Outcome, Status, StopReason},
    session::SharedStore,
    tool::{CallId, ToolOutput},
};
use entourage_runners::{AgentTool, DualAgent, ReactAgent, Verdict, graph::TaskGraph, person};
use entourage_runtime::permission::Policy;
use entourage_runtime::{MemoryStore, Pending, Runtime, Waiting};
use entourage_testkit::{self as testkit, ScriptedProvider};
use serde_json::json;

fn on(store: &SharedStore) -> Runtime {
    testkit::runtime().shared_store(Arc::clone(store)).policy(Policy::allow_all()).build()
}

fn memory() -> SharedStore {
    Arc::new(MemoryStore::new())
}

/// Questions to persons, and the ids of these calls.
async fn asked(runtime: &Runtime) -> Vec<(Pending, CallId, String)> {
    let pending = runtime.pending().await.unwrap().into_iter().filter_map(|it| match &it.waits_for {
        Waiting::Call { id, call } => {
            let prompt = call.arguments.to_value()["prompt"].as_str().unwrap().to_owned();
            Some((it.clone(), id.clone(), prompt))
        }
        _ => None,
    });
    pending.collect()
}

fn pair(provider: &ScriptedProvider) -> DualAgent {
    let executor = ReactAgent::builder("writer", provider.model()).build().unwrap();
    DualAgent::reviewed_by("pair", executor, "ada").iterations(3).build().unwrap()
}

async fn resumed(store: &SharedStore, session: &entourage_core::SessionId, agent: &impl Shared) -> Outcome {
    agent.resumed(&on(store).open(session).await.unwrap()).await.unwrap()
}

/// An agent that is resumed in a new process.
#[async_trait::async_trait]
trait Shared {
    async fn resumed(&self, session: &entourage_runtime::Session) -> Result<Outcome>;
}

#[async_trait::async_trait]
impl<A: Agent + Clone + 'static> Shared for A {
    async fn resumed(&self, session: &entourage_runtime::Session) -> Result<Outcome> {
        session.resume(self).outcome().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_person_rejects_with_feedback_and_then_accepts_each_time_from_another_process() {
    let store = memory();
    let provider =
        ScriptedProvider::new().text("Draft.").text("A draft.").text("Better.").text("A better one.");
    let pair = pair(&provider);
    let session = on(&store).session();
    let outcome = session.start(&pair, "Write a page").outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Paused(_)), "{outcome}");

    let other = on(&store);
    let waiting = asked(&other).await;
    let [(pending, id, prompt)] = waiting.as_slice() else { panic!("{waiting:?}") };
    assert_eq!((&*pending.agent, &pending.root), ("ada", session.id()));
    assert!(prompt.contains("Write a page") && prompt.contains("A draft."), "{prompt}");
    other.answer(id, Verdict::rejected("Add a title.")).await.unwrap();
    let outcome = resumed(&store, session.id(), &pair).await;
    assert!(matches!(outcome.status, Status::Paused(_)), "{outcome}");
    let said = provider.requests()[2].messages.last().unwrap().text();
    assert!(said.contains("Add a title."), "{said}");

    let waiting = asked(&on(&store)).await;
    assert_eq!(waiting.len(), 1, "{waiting:?}");
    assert!(waiting[0].2.contains("A better one."), "{waiting:?}");
    let json = json!({"accepted": true, "reason": "It has one."});
    on(&store).answer(&waiting[0].1, json).await.unwrap();
    let outcome = resumed(&store, session.id(), &pair).await;
    assert_eq!((outcome.status, &*outcome.text), (Status::Completed, "A better one."));
    assert_eq!(asked(&on(&store)).await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_verdict_is_refused_and_the_check_still_waits() {
    let store = memory();
    let provider = ScriptedProvider::new().text("Draft.").text("A draft.");
    let pair = pair(&provider);
    let session = on(&store).session();
    session.start(&pair, "Write a page").outcome().await.unwrap();
    let id = asked(&on(&store)).await.remove(0).1;
    for answer in [
        ToolOutput::text("Fine!"),
        ToolOutput::text("{}"),
        ToolOutput::text(r#"{"accepted": "yes", "reason": "Fine."}"#),
        ToolOutput::text(r#"{"accepted": true}"#),
        ToolOutput::text(r#"{"accepted": false, "reason": ""}"#),
        ToolOutput::text("{\"accepted\": false, \"reason\": \" \\n \"}"),
        ToolOutput::text(r#"{"accepted": false, "accepted": true, "reason": "Fine."}"#),
        ToolOutput::text(r#"{"accepted": true, "reason": "No.", "reason": "Fine."}"#),
        ToolOutput::text(r#"{"accepted": true, "reason": "Fine.", "evidence": 7}"#),
        ToolOutput::text(r#"{"accepted": true, "reason": "Fine."} {"accepted": false, "reason": "No."}"#),
        ToolOutput::error(r#"{"accepted": true, "reason": "Fine."}"#),
    ] {
        let shown = format!("{answer:?}");
        let error = on(&store).answer(&id, answer).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{shown}: {error}");
        assert!(error.message().contains("still waits"), "{error}");
    }
    assert_eq!(asked(&on(&store)).await.len(), 1);
    on(&store).answer(&id, Verdict::accepted("")).await.unwrap();
    assert_eq!(resumed(&store, session.id(), &pair).await.text, "A draft.");
}

#[tokio::test(start_paused = true)]
async fn of_two_persons_who_answer_at_once_the_second_is_told() {
    let store = memory();
    let provider = ScriptedProvider::new().text("Draft.").text("A draft.");
    let pair = pair(&provider);
    let session = on(&store).session();
    session.start(&pair, "Write a page").outcome().await.unwrap();
    let id = asked(&on(&store)).await.remove(0).1;
    let (one, two) = (on(&store), on(&store));
    let (one, two) =
        tokio::join!(one.answer(&id, Verdict::accepted("Fine.")), two.answer(&id, Verdict::rejected("No.")));
    let errors: Vec<_> = [one, two].into_iter().filter_map(Result::err).collect();
    let [error] = errors.as_slice() else { panic!("{errors:?}") };
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let late = on(&store).answer(&id, Verdict::rejected("No.")).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Conflict, "{late}");
    resumed(&store, session.id(), &pair).await;
    let late = on(&store).answer(&id, Verdict::rejected("No.")).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::NotFound, "{late}");
}

#[tokio::test(start_paused = true)]
async fn a_person_who_rejects_each_round_ends_the_task_with_the_newest_feedback() {
    let store = memory();
    let provider =
        ScriptedProvider::by_history().text("Draft.").text("A draft.").text("Draft.").text("A draft.");
    let executor = ReactAgent::builder("writer", provider.model()).build().unwrap();
    let pair = DualAgent::reviewed_by("pair", executor, "ada").read_only().iterations(2).build().unwrap();
    let session = on(&store).session();
    let mut outcome = session.start(&pair, "Write a page").outcome().await.unwrap();
    for round in 1..=2 {
        assert!(matches!(outcome.status, Status::Paused(_)), "{outcome}");
        let id = asked(&on(&store)).await.remove(0).1;
        on(&store).answer(&id, Verdict::rejected(format!("No {round}."))).await.unwrap();
        outcome = resumed(&store, session.id(), &pair).await;
    }
    let incomplete = StopReason::Incomplete { iterations: 2, feedback: "No 2.".into() };
    assert_eq!(outcome.status, Status::Stopped(incomplete));
}

#[tokio::test(start_paused = true)]
async fn a_person_in_a_child_in_a_node_is_listed_with_the_root() {
    let store = memory();
    let asks = ScriptedProvider::new().call("agent", json!({"prompt": "Red or blue?"})).text("Red.");
    let lead = ReactAgent::builder("lead", asks.model()).tool(AgentTool::new(person("grace")));
    let lead = lead.build().unwrap();
    let graph = TaskGraph::builder("shop");
    let colour = graph.agent("colour", &lead, "Find out.");
    let graph = graph.returning(&colour).build().unwrap();
    let session = on(&store).session();
    let outcome = session.start(&graph, "Buy it").outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Paused(_)), "{outcome}");
    let waiting = asked(&on(&store)).await;
    let [(pending, id, prompt)] = waiting.as_slice() else { panic!("{waiting:?}") };
    assert_eq!((&*pending.agent, &pending.root, prompt.as_str()), ("grace", session.id(), "Red or blue?"));
    assert_ne!(&pending.session, session.id());
    on(&store).answer(id, "Red").await.unwrap();
    let outcome = on(&store).open(session.id()).await.unwrap().resume(&graph).outcome().await.unwrap();
    assert_eq!((outcome.status, &*outcome.text), (Status::Completed, "Red."));
}

#[tokio::test(start_paused = true)]
async fn a_person_answers_prompt_after_prompt_in_one_session_and_an_error_fails_the_run() {
    let store = memory();
    let (runtime, ada) = (on(&store), person("ada"));
    let session = runtime.session();
    for text in ["One.", "Two."] {
        session.start(&ada, format!("{text}?")).outcome().await.unwrap();
        let (_, id, prompt) = asked(&runtime).await.remove(0);
        assert_eq!(prompt, format!("{text}?"));
        runtime.answer(&id, text).await.unwrap();
        assert_eq!(session.resume(&ada).outcome().await.unwrap().text, text);
    }
    session.start(&ada, "Three?").outcome().await.unwrap();
    let id = asked(&runtime).await.remove(0).1;
    runtime.answer(&id, ToolOutput::error("I am away")).await.unwrap();
    let error = session.resume(&ada).outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tool, "{error}");
    assert!(error.message().contains("`ada` gave no answer: I am away"), "{error}");

    session.start(&ada, "Four?").outcome().await.unwrap();
    assert!(session.stop().await.unwrap());
    assert_eq!(asked(&runtime).await.len(), 0);
    let events = session.events(0, 1_000).await.unwrap();
    assert_eq!(events.iter().filter(|it| matches!(it.event, Event::RunFinished(_))).count(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_scope_that_names_other_tools_keeps_a_person_from_being_asked() {
    let tool = AgentTool::new(person("ada")).with_scope(Scope::all().with_tools(["look"]));
    let root = ScriptedProvider::new().call("agent", json!({"prompt": "Well?"})).text("Nobody answers.");
    let root = ReactAgent::builder("root", root.model()).tool(tool).build().unwrap();
    let store = memory();
    let outcome = on(&store).session().start(&root, "Ask").outcome().await.unwrap();
    assert_eq!(&*outcome.text, "Nobody answers.");
    assert_eq!(asked(&on(&store)).await.len(), 0);
}

#[test]
fn a_person_cannot_be_required_to_show_evidence() {
    let executor = ReactAgent::builder("writer", ScriptedProvider::new().model()).build().unwrap();
    let pair = DualAgent::reviewed_by("pair", executor, "ada").requires_evidence();
    let error = pair.build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
}
