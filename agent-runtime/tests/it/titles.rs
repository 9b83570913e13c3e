//! Titles: made in parallel with the first run, charged below the session, without disturbing anything.

use std::sync::Arc;

use entourage_core::{
    ErrorKind, Money, Prices, SessionId,
    provider::{FinishReason, Model, Profile},
    session::{SessionFilter, SessionInfo, SessionStatus, SharedStore},
};
use entourage_runners::ReactAgent;
use entourage_runtime::{Runtime, Session, Titles};
use entourage_testkit::{self as testkit, FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::common::{Fault, FaultyStore, agent, count, memory, process, stored, until_killed};

const PROMPT: &str = "Please mend the parser,\nand then the lexer";

fn titled(titles: Titles, store: &SharedStore) -> Runtime {
    testkit::runtime().shared_store(Arc::clone(store)).titles(titles).build()
}

fn talker() -> ReactAgent {
    agent(ScriptedProvider::by_history().text("Done.").text("Done again.").model()).build().unwrap()
}

async fn title_of(runtime: &Runtime, session: &Session) -> String {
    // Waits for what goes on in the background.
    assert!(runtime.cancel_all().await);
    session.head().await.unwrap().title.to_string()
}

async fn info(store: &SharedStore, id: &SessionId) -> SessionInfo {
    store.query(&SessionFilter::id(id.clone())).await.unwrap().pop().unwrap()
}

#[tokio::test(start_paused = true)]
async fn ct01_the_first_run_of_a_session_names_it_in_the_background() {
    let gate = Gate::new();
    let script =
        Script::new().text("<think>hm</think>Mend the\nparser").wait(&gate).finish(FinishReason::Stop);
    let small = ScriptedProvider::new().step(script);
    let store = memory();
    let runtime = titled(Titles::new(small.model()), &store);
    let session = runtime.session();
    let outcome = session.start(&talker(), PROMPT).outcome().await.unwrap();
    assert_eq!(outcome.text, "Done.", "the run waits for no title");
    assert_eq!(session.head().await.unwrap().title.as_ref(), "Please mend the parser, and then the lexer");
    gate.open();
    assert_eq!(title_of(&runtime, &session).await, "Mend the parser");
    assert!(session.state().await.unwrap().is_titled());

    let asked = &small.requests()[0];
    let said = asked.messages.last().unwrap().text();
    assert!(said.contains(PROMPT) && said.ends_with("<think>\n\n</think>"), "{said}");
    assert!(asked.instructions.contains("50 characters") && asked.instructions.contains("language"));
    assert_eq!((asked.params.max_output, asked.tools.len()), (Some(40), 0));

    session.start(&talker(), "And now?").outcome().await.unwrap();
    assert_eq!(title_of(&runtime, &session).await, "Mend the parser");
    assert_eq!(small.count(), 1, "a session is named once");
}

#[tokio::test(start_paused = true)]
async fn ct01_the_first_model_to_finish_wins() {
    let cut = || Script::new().text("Mend the par").finish(FinishReason::Length);
    let refused = || Script::refuse(ErrorKind::Overloaded, "busy");
    for (small, expected, larger) in [
        (cut(), "A larger one's", 1),
        (refused(), "A larger one's", 1),
        (Script::new().text("Small").finish(FinishReason::Stop), "Small", 0),
        (Script::new().finish(FinishReason::Stop), "Please mend the parser, and then the lexer", 0),
    ] {
        let store = memory();
        let small = ScriptedProvider::new().step(small);
        let large = ScriptedProvider::by_history().text("A larger one's");
        let runtime = titled(Titles::new(small.model()).or(large.model()), &store);
        let session = runtime.session();
        session.start(&talker(), PROMPT).outcome().await.unwrap();
        assert_eq!(title_of(&runtime, &session).await, expected);
        assert_eq!(large.count(), larger);
    }
    let store = memory();
    let small = ScriptedProvider::new().step(refused());
    let runtime = titled(Titles::new(small.model()), &store);
    let session = runtime.session();
    session.start(&talker(), PROMPT).outcome().await.unwrap();
    assert_eq!(title_of(&runtime, &session).await, "Untitled session");
}

#[tokio::test(start_paused = true)]
async fn ct01_a_model_that_reasons_has_its_own_limit() {
    let small = ScriptedProvider::new().text("Thought through");
    let mut profile = Profile::default();
    profile.reasoning = Some(true);
    let model = Model::new(small.provider(), "thinker").with_profile(profile);
    let store = memory();
    let runtime = titled(Titles::new(model), &store);
    let session = runtime.session();
    session.start(&talker(), PROMPT).outcome().await.unwrap();
    assert_eq!(title_of(&runtime, &session).await, "Thought through");
    assert_eq!(small.requests()[0].params.max_output, None);
}

#[tokio::test(start_paused = true)]
async fn ct01_a_title_survives_the_cancel_of_its_run() {
    let (gate, stuck) = (Gate::new(), Gate::new());
    let small =
        ScriptedProvider::new().step(Script::new().wait(&gate).text("Named").finish(FinishReason::Stop));
    let store = memory();
    let runtime = titled(Titles::new(small.model()), &store);
    let session = runtime.session();
    let slow = agent(ScriptedProvider::by_history().step(Script::new().wait(&stuck).text("Never")).model())
        .build()
        .unwrap();
    let run = session.start(&slow, PROMPT);
    stuck.arrived(1).await;
    gate.arrived(1).await;
    run.cancel();
    run.outcome().await.unwrap();
    gate.open();
    assert_eq!(title_of(&runtime, &session).await, "Named");
}

#[tokio::test(start_paused = true)]
async fn ct02_a_title_costs_below_the_session_and_overwrites_no_figures() {
    let (gate, tool_gate) = (Gate::new(), Gate::new());
    let priced = |provider: &ScriptedProvider, name: &str| {
        let mut profile = Profile::default();
        profile.prices = Some(Prices::per_million_micros(1_000_000, 1_000_000));
        Model::new(provider.provider(), name).with_profile(profile)
    };
    let title = Script::new().wait(&gate).text("Between steps").usage(7, 3).finish(FinishReason::Stop);
    let small = ScriptedProvider::new().step(title);
    let main = ScriptedProvider::new()
        .step(Script::new().call("look", &json!({})).usage(100, 10).finish(FinishReason::ToolCalls))
        .step(Script::new().text("Done.").usage(200, 20).finish(FinishReason::Stop));
    let store = memory();
    let runtime = titled(Titles::new(priced(&small, "small")), &store);
    let session = runtime.session();
    let look = FakeTool::new("look").behind(&tool_gate);
    let worker = agent(priced(&main, "main")).tool(look).build().unwrap();
    let run = session.start(&worker, PROMPT);
    tool_gate.arrived(1).await;
    gate.open();
    while !session.state().await.unwrap().is_titled() {
        tokio::task::yield_now().await;
    }
    tool_gate.open();
    run.outcome().await.unwrap();
    let state = session.state().await.unwrap();
    assert_eq!(state.head().title.as_ref(), "Between steps");
    assert_eq!((state.context_usage().input, state.context_usage().output), (200, 20), "the step's values");
    assert_eq!((state.head().usage.input, state.head().usage.output), (Some(300), Some(30)));
    assert!(runtime.cancel_all().await);
    let below = store.query(&SessionFilter::children_of(session.id().clone())).await.unwrap();
    assert_eq!(below.len(), 1);
    assert_eq!((&*below[0].record.role, below[0].head.usage.input), ("title", Some(7)));
    assert!(below[0].head.cost.unwrap() > Money::default());
    let log = stored(&store, session.id()).await;
    assert_eq!(count(&log, "titled"), 1);
}

#[tokio::test(start_paused = true)]
async fn ct02_children_are_not_named() {
    let small = ScriptedProvider::by_history().text("Root").text("Never");
    let store = memory();
    let runtime = titled(Titles::new(small.model()), &store);
    let parent = crate::common::act(|cx| {
        Box::pin(async move {
            let child = cx.spawn(Arc::new(talker()), "Help").await?;
            cx.wait_any(&[child], None).await?;
            Ok("Helped.".to_owned())
        })
    });
    let session = runtime.session();
    session.start(&parent, PROMPT).outcome().await.unwrap();
    assert_eq!(title_of(&runtime, &session).await, "Root");
    assert_eq!(small.count(), 1);
}

#[test]
fn ct01_a_process_that_dies_while_it_names_a_session_leaves_no_harm() {
    let mut deaths = 0;
    for at in 0.. {
        let inner = memory();
        let faulty = FaultyStore::new(&inner, at, Fault::HangAfter);
        let killed = faulty.killed.clone();
        let id = SessionId::new("s").unwrap();
        let life = process(until_killed(
            async {
                let runtime =
                    titled(Titles::new(ScriptedProvider::by_history().text("Named").model()), &(faulty as _));
                let session = runtime.session_with_id(SessionId::new("s").unwrap());
                session.start(&talker(), PROMPT).outcome().await.unwrap();
                assert_eq!(title_of(&runtime, &session).await, "Named");
            },
            &killed,
        ));
        if life.is_some() {
            break;
        }
        deaths += 1;
        process(async {
            let small = ScriptedProvider::by_history().text("Named");
            let runtime = titled(Titles::new(small.model()), &inner);
            let session = runtime.session_with_id(id.clone());
            if session.unfinished().await.unwrap().is_some() {
                session.resume(&talker()).outcome().await.unwrap();
            } else {
                session.start(&talker(), "Go on").outcome().await.unwrap();
            }
            assert_eq!(title_of(&runtime, &session).await, "Named", "after death at append {at}");
            let log = stored(&inner, &id).await;
            assert_eq!(count(&log, "titled"), 1, "after death at append {at}");
            assert_eq!(info(&inner, &id).await.head.status, SessionStatus::Idle);
            let below = inner.query(&SessionFilter::children_of(id.clone())).await.unwrap();
            assert_eq!(count(&stored(&inner, &below[0].record.id).await, "model_finished"), 1);
        });
    }
    assert!(deaths >= 5, "{deaths}");
}
