//! A run that continues after a restart: recorded effects answer, a different effect is refused, and consumed signals
//! are gone.

use std::{sync::Arc, time::Duration};

use entourage_core::{
    Error, ErrorKind, Result,
    provider::Model,
    run::{Outcome, Pause, Status},
    session::{SessionFilter, SharedStore},
    tool::{Tool, Tools},
};
use entourage_testkit::{FakeTool, ScriptedProvider};
use serde_json::json;

use crate::{
    captain::{self, OUTCOME, World},
    common::{Do, act, count, memory, runtime_on, stored},
};

/// Runs `first` until it pauses for the signal `go`, then resumes with `second` in another process.
async fn replayed(first: &Do, second: &Do) -> (Result<Outcome>, SharedStore) {
    let store = memory();
    let session = runtime_on(&store).session();
    let outcome = session.start(first, "Go").outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Paused(_)), "{outcome}");
    let again = runtime_on(&store).open(session.id()).await.unwrap();
    again.signal("go", json!("now")).await.unwrap();
    (again.resume(second).outcome().await, store)
}

fn asks(model: Model, text: &'static str) -> Do {
    act(move |cx| {
        let model = model.clone();
        Box::pin(async move {
            let request = model.request(text);
            let reply = cx.call_model(&model, request).await?;
            cx.signal("go").await?;
            Ok(reply.message.text())
        })
    })
}

#[tokio::test]
async fn design_3_a_changed_request_diverges_and_is_not_sent() {
    let provider = ScriptedProvider::new().text("Four.");
    let first = asks(provider.model(), "Two and two?");
    assert_eq!(replayed(&first, &first).await.0.unwrap().text, "Four.");

    let provider = ScriptedProvider::new().text("Four.");
    let first = asks(provider.model(), "Two and two?");
    let error = replayed(&first, &asks(provider.model(), "Three and three?")).await.0.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Diverged);
    assert_eq!(provider.count(), 1);

    let provider = ScriptedProvider::new().text("Four.");
    let first = asks(provider.model(), "Two and two?");
    let other = act(|cx| Box::pin(async move { cx.new_id().await }));
    let error = replayed(&first, &other).await.0.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Diverged, "another effect in its place");
}

#[tokio::test]
async fn design_3_a_run_that_diverged_can_still_be_resumed_with_the_right_code() {
    let provider = ScriptedProvider::new().text("Four.");
    let first = asks(provider.model(), "Two and two?");
    let (outcome, store) = replayed(&first, &asks(provider.model(), "Three and three?")).await;
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Diverged);
    let id = store.query(&SessionFilter::all()).await.unwrap().pop().unwrap().record.id;
    let session = runtime_on(&store).open(&id).await.unwrap();
    assert_eq!(session.resume(&first).outcome().await.unwrap().text, "Four.", "as the error advises");
}

#[tokio::test]
async fn design_3_a_failure_that_the_agent_handled_is_the_same_failure_after_a_restart() {
    let fatal = FakeTool::new("fatal").failing(ErrorKind::Transport, "the line is dead");
    let tools = Tools::new([Arc::new(fatal.clone()) as Arc<dyn Tool>]).unwrap();
    let provider = ScriptedProvider::new().fail(ErrorKind::Overloaded, "no room");
    let model = provider.model();
    let doer = act(move |cx| {
        let (tools, model) = (tools.clone(), model.clone());
        Box::pin(async move {
            let kind = |error: Error| format!("{:?}", error.kind());
            let tool = cx.call_tool(&tools, "fatal", &json!({})).await.map_or_else(kind, |_| "fine".into());
            let request = model.request("?");
            let model = cx.call_model(&model, request).await.map_or_else(kind, |_| "fine".into());
            cx.signal("go").await?;
            Ok(format!("{tool} {model}"))
        })
    });
    let (outcome, _) = replayed(&doer, &doer).await;
    assert_eq!(outcome.unwrap().text, "Transport Overloaded");
    assert_eq!((fatal.started(), provider.count()), (1, 1));
}

#[tokio::test]
async fn design_3_a_narrowed_context_counts_its_effects_with_the_others() {
    let doer = act(|cx| {
        Box::pin(async move {
            let narrow = cx.narrowed(&entourage_core::permission::Scope::read_only());
            let (a, b, c) = (narrow.new_id().await?, cx.new_id().await?, narrow.new_id().await?);
            cx.signal("go").await?;
            Ok(format!("{a} {b} {c}"))
        })
    });
    let (outcome, store) = replayed(&doer, &doer).await;
    let text = outcome.unwrap().text;
    let ids: std::collections::HashSet<_> = text.split(' ').collect();
    assert_eq!(ids.len(), 3, "{text}");
    let id = store.query(&SessionFilter::all()).await.unwrap().pop().unwrap().record.id;
    assert_eq!(count(&stored(&store, &id).await, "observed"), 4, "each is recorded once, and replayed");
}

#[tokio::test(start_paused = true)]
async fn design_3_a_signal_that_was_taken_is_gone_after_a_restart_too() {
    let store = memory();
    captain::one_life(&store).await;
    let waits = act(|cx| Box::pin(async move { Ok(cx.signal("go").await?.to_string()) }));
    let session = runtime_on(&store).open(&captain::session_id()).await.unwrap();
    let outcome = session.start(&waits, "Again").outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Paused(Pause::Signal { .. })), "{outcome}");
    session.signal("other", json!(1)).await.unwrap();
    session.signal("go", json!(2)).await.unwrap();
    session.signal("go", json!(3)).await.unwrap();
    assert_eq!(session.resume(&waits).outcome().await.unwrap().text, "2", "the oldest of its name");
    let session = runtime_on(&store).open(session.id()).await.unwrap();
    assert_eq!(
        session.start(&waits, "Again").outcome().await.unwrap().text,
        "3",
        "and one that nobody took is kept"
    );
}

#[tokio::test(start_paused = true)]
async fn design_3_the_same_session_object_resumes_without_repeating_anything() {
    let world = World::new();
    let store = memory();
    let runtime = captain::runtime(&store, Duration::ZERO);
    let held = runtime.session_with_id(captain::session_id());
    let mut steps = 0;
    while let Some(step) = captain::advance(&runtime, &world.captain).await {
        step.unwrap();
        steps += 1;
        assert!(steps < 6);
    }
    assert_eq!(held.history().await.unwrap().len(), 2);
    assert_eq!(captain::outcome(&store).await.text, OUTCOME);
    assert_eq!((world.planner.count(), world.measure.started(), world.launch.started()), (2, 1, 1));
    assert_eq!(world.scouts.each_ref().map(ScriptedProvider::count), [1, 1]);
}
