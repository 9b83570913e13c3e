//! Effects of agents written by hand: waits, children, signals, replay and divergence.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    agent::Agent,
    message::Message,
    provider::{FinishReason, Model},
    run::{Child, Outcome, Pause, RunContext, Status, Task, Waited},
    session::{SessionFilter, SharedStore},
    testkit::{FakeTool, Gate, LiveProvider, Script, ScriptedProvider},
    tool::{Tool, Tools},
};
use futures_util::future::BoxFuture;
use serde_json::json;

use crate::{
    captain::{self, OUTCOME, World},
    common::{
        Fault, FaultyStore, agent, assert_valid, count, memory, open_runtime, process, runtime_on, stored,
        until_killed,
    },
};

type Body = dyn for<'a> Fn(&'a RunContext) -> BoxFuture<'a, Result<String>> + Send + Sync;

/// An agent made of a closure.
#[derive(Clone)]
struct Do(Arc<Body>);

fn act(body: impl for<'a> Fn(&'a RunContext) -> BoxFuture<'a, Result<String>> + Send + Sync + 'static) -> Do {
    Do(Arc::new(body))
}

#[async_trait]
impl Agent for Do {
    fn name(&self) -> &'static str {
        "doer"
    }

    async fn run(&self, _: Task, cx: &RunContext) -> Result<Outcome> {
        (self.0)(cx).await.map(Outcome::completed)
    }
}

fn child(provider: &ScriptedProvider) -> Arc<dyn Agent> {
    Arc::new(agent(provider.model()).build().unwrap())
}

fn late(seconds: u64, text: &str) -> ScriptedProvider {
    let script = Script::new().delay(Duration::from_secs(seconds)).text(text);
    ScriptedProvider::by_history().step(script.finish(FinishReason::Stop))
}

async fn wait(cx: &RunContext, children: &[Child], seconds: Option<u64>) -> Result<String> {
    Ok(match cx.wait_any(children, seconds.map(Duration::from_secs)).await? {
        Waited::Ended { index, outcome } => format!("{index} {}: {}", outcome.status, outcome.text),
        Waited::TimedOut => "in vain".into(),
    })
}

#[tokio::test(start_paused = true)]
async fn lo_an_undisturbed_voyage() {
    let store = memory();
    let outcome = captain::one_life(&store).await;
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, OUTCOME));
    let session = runtime_on(&store).open(&captain::session_id()).await.unwrap();
    let history = session.history().await.unwrap();
    assert_valid(&history);
    assert_eq!(
        (history.len(), history.last().unwrap().text().as_str()),
        (2, OUTCOME),
        "its own talk stays its own"
    );
    let children =
        runtime_on(&store).sessions(&SessionFilter::children_of(captain::session_id())).await.unwrap();
    assert_eq!(children.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn lo_a_signal_that_was_taken_is_gone_after_a_restart_too() {
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
async fn lo_the_same_session_object_resumes_without_repeating_anything() {
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

#[tokio::test(start_paused = true)]
async fn lo_waits_end_with_the_first_child_or_in_time() {
    let slow = late(50, "slow");
    let quick = late(10, "quick");
    let (a, b) = (child(&slow), child(&quick));
    let doer = act(move |cx| {
        let (a, b) = (Arc::clone(&a), Arc::clone(&b));
        Box::pin(async move {
            let children = [cx.spawn(a, "go").await?, cx.spawn(b, "go").await?];
            let early = wait(cx, &children, Some(5)).await?;
            let first = wait(cx, &children, Some(100)).await?;
            let again = wait(cx, &children, None).await.unwrap_err().kind();
            let second = wait(cx, &children[..1], None).await?;
            let none = wait(cx, &[], None).await.unwrap_err().kind();
            Ok(format!("{early}, {first}, {again:?}, {second}, {none:?}"))
        })
    });
    let outcome = open_runtime().session().start(&doer, "Go").outcome().await.unwrap();
    assert_eq!(outcome.text, "in vain, 1 completed: quick, InvalidInput, 0 completed: slow, InvalidInput");
}

#[test]
fn lo_a_timeout_survives_a_restart() {
    let waiter = |provider: &ScriptedProvider| {
        let slow = child(provider);
        act(move |cx| {
            let slow = Arc::clone(&slow);
            Box::pin(async move {
                let children = [cx.spawn(slow, "go").await?];
                let text = wait(cx, &children, Some(100)).await?;
                let stuck = cx.sleep(Duration::from_secs(1_000)).await;
                stuck.map(|()| text)
            })
        })
    };
    let inner = memory();
    let id = captain::session_id();
    let forever = late(1_000_000, "never");
    // Forty seconds into the wait the machine goes down.
    process(async {
        let run = captain::runtime(&inner, Duration::ZERO)
            .session_with_id(id.clone())
            .start(&waiter(&forever), "Go");
        tokio::select! {
            _ = run.outcome() => panic!("too early"),
            () = tokio::time::sleep(Duration::from_secs(40)) => {}
        }
    });
    // The second process begins at 70 s, sees the wait end and dies in the sleep after it; the third begins at 500 s.
    for later in [70, 500] {
        let lived = process(async {
            let started = tokio::time::Instant::now();
            let runtime = captain::runtime(&inner, Duration::from_secs(later));
            let run = runtime.open(&id).await.unwrap().resume(&waiter(&forever));
            let limit = if later == 70 { 400 } else { 10_000 };
            tokio::select! {
                outcome = run.outcome() => Some((outcome.unwrap().text, started.elapsed().as_secs())),
                () = tokio::time::sleep(Duration::from_secs(limit)) => None,
            }
        });
        if later == 70 {
            assert_eq!(lived, None);
            let events = process(stored(&inner, &id));
            let ended = events.iter().find(|event| event.event.kind() == "child_finished").unwrap();
            assert_eq!(
                ended.at.since(events[0].at).as_secs(),
                100,
                "not 40 s more, nor 100 s from the restart"
            );
        } else {
            assert_eq!(lived, Some(("in vain".into(), 100 + 1_000 - 500)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lo_a_child_that_fails_is_an_outcome() {
    let broken = ScriptedProvider::new().fail(ErrorKind::Authentication, "no key; set one");
    let fine = late(1, "fine");
    let (a, b) = (child(&broken), child(&fine));
    let wild: Arc<dyn Agent> = Arc::new(act(|_| Box::pin(async { panic!("no map") })));
    let doer = act(move |cx| {
        let (a, b, c) = (Arc::clone(&a), Arc::clone(&b), Arc::clone(&wild));
        Box::pin(async move {
            let children = [cx.spawn(a, "go").await?, cx.spawn(b, "go").await?, cx.spawn(c, "go").await?];
            let mut told = Vec::new();
            for child in &children {
                told.push(wait(cx, std::slice::from_ref(child), None).await?);
            }
            Ok(told.join(" | "))
        })
    });
    let text = open_runtime().session().start(&doer, "Go").outcome().await.unwrap().text;
    let told: Vec<_> = text.split(" | ").collect();
    assert!(told[0].starts_with("0 failed: no key"), "{text}");
    assert_eq!(told[1], "0 completed: fine");
    assert!(told[2].contains("panicked: no map"), "{text}");
}

#[tokio::test]
async fn lo_a_cancel_ends_the_children_and_what_they_do() {
    let gate = Gate::new();
    let hang = FakeTool::new("hang").behind(&gate);
    let calls = ScriptedProvider::new().call("hang", json!({}));
    let live = LiveProvider::new();
    let a: Arc<dyn Agent> = Arc::new(agent(calls.model()).tool(hang.clone()).build().unwrap());
    let b: Arc<dyn Agent> = Arc::new(agent(live.model()).build().unwrap());
    let doer = act(move |cx| {
        let (a, b) = (Arc::clone(&a), Arc::clone(&b));
        Box::pin(async move {
            let children = [cx.spawn(a, "go").await?, cx.spawn(b, "go").await?];
            wait(cx, &children, None).await
        })
    });
    let store = memory();
    let session = runtime_on(&store).session();
    let run = session.start(&doer, "Go");
    gate.arrived(1).await;
    let call = live.asked().await;
    run.cancel();
    assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
    assert_eq!(hang.running(), 0, "nothing is alive after the outcome");
    assert!(call.is_abandoned());
    for info in store.query(&SessionFilter::children_of(session.id().clone())).await.unwrap() {
        let events = stored(&store, &info.record.id).await;
        let last = events.last().unwrap().to_string();
        assert!(last.contains("cancelled"), "{last}");
    }
}

#[tokio::test]
async fn lo_children_that_nobody_waited_for_end_with_their_parent() {
    let live = LiveProvider::new();
    let asked = Gate::new();
    let (b, at) = (Arc::new(agent(live.model()).build().unwrap()) as Arc<dyn Agent>, asked.clone());
    let doer = act(move |cx| {
        let (b, at) = (Arc::clone(&b), at.clone());
        Box::pin(async move {
            cx.spawn(b, "go").await?;
            at.pass().await;
            Ok("left early".into())
        })
    });
    let run = open_runtime().session().start(&doer, "Go");
    let call = live.asked().await;
    asked.open();
    let outcome = run.outcome().await.unwrap();
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "left early"));
    assert!(call.is_abandoned());
}

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
            let request = model.request([Message::user(text)].into_iter().collect());
            let reply = cx.call_model(&model, request).await?;
            cx.signal("go").await?;
            Ok(reply.message.text())
        })
    })
}

#[tokio::test]
async fn lo_a_changed_request_diverges_and_is_not_sent() {
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
async fn lo_a_run_that_diverged_can_still_be_resumed_with_the_right_code() {
    let provider = ScriptedProvider::new().text("Four.");
    let first = asks(provider.model(), "Two and two?");
    let (outcome, store) = replayed(&first, &asks(provider.model(), "Three and three?")).await;
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Diverged);
    let id = store.query(&SessionFilter::all()).await.unwrap().pop().unwrap().record.id;
    let session = runtime_on(&store).open(&id).await.unwrap();
    assert_eq!(session.resume(&first).outcome().await.unwrap().text, "Four.", "as the error advises");
}

#[tokio::test]
async fn lo_a_failure_that_the_agent_handled_is_the_same_failure_after_a_restart() {
    let fatal = FakeTool::new("fatal").failing(ErrorKind::Transport, "the line is dead");
    let tools = Tools::new([Arc::new(fatal.clone()) as Arc<dyn Tool>]).unwrap();
    let provider = ScriptedProvider::new().fail(ErrorKind::Overloaded, "no room");
    let model = provider.model();
    let doer = act(move |cx| {
        let (tools, model) = (tools.clone(), model.clone());
        Box::pin(async move {
            let kind = |error: Error| format!("{:?}", error.kind());
            let tool = cx.call_tool(&tools, "fatal", &json!({})).await.map_or_else(kind, |_| "fine".into());
            let request = model.request([Message::user("?")].into_iter().collect());
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
async fn lo_a_narrowed_context_counts_its_effects_with_the_others() {
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

#[test]
fn lo_a_child_under_way_goes_on_after_its_parent_paused() {
    let slow = late(60, "found");
    let store = memory();
    let id = captain::session_id();
    let parent = |provider: &ScriptedProvider| {
        let slow = child(provider);
        act(move |cx| {
            let slow = Arc::clone(&slow);
            Box::pin(async move {
                let children = [cx.spawn(slow, "go").await?];
                cx.signal("go").await?;
                wait(cx, &children, None).await
            })
        })
    };
    process(async {
        let session = captain::runtime(&store, Duration::ZERO).session_with_id(id.clone());
        let outcome = session.start(&parent(&slow), "Go").outcome().await.unwrap();
        assert!(matches!(outcome.status, Status::Paused(_)));
    });
    process(async {
        let session = captain::runtime(&store, Duration::from_secs(9)).open(&id).await.unwrap();
        session.signal("go", json!(1)).await.unwrap();
        assert_eq!(session.resume(&parent(&slow)).outcome().await.unwrap().text, "0 completed: found");
    });
}

#[test]
fn lo_a_paused_child_pauses_its_parent_and_both_go_on() {
    let inner = memory();
    let id = captain::session_id();
    let parent = || {
        let waits: Arc<dyn Agent> =
            Arc::new(act(|cx| Box::pin(async move { Ok(cx.signal("child").await?.to_string()) })));
        let quick = Arc::new(act(|_| Box::pin(async { Ok("quick".into()) }))) as Arc<dyn Agent>;
        act(move |cx| {
            let (waits, quick) = (Arc::clone(&waits), Arc::clone(&quick));
            Box::pin(async move {
                let children = [cx.spawn(waits, "go").await?, cx.spawn(quick, "go").await?];
                let first = wait(cx, &children, None).await?;
                Ok(format!("{first}, {}", wait(cx, &children[..1], None).await?))
            })
        })
    };
    let child = process(async {
        let session = runtime_on(&inner).session_with_id(id.clone());
        let outcome = session.start(&parent(), "Go").outcome().await.unwrap();
        assert!(matches!(outcome.status, Status::Paused(Pause::Signal { .. })), "{outcome}");
        let children = inner.query(&SessionFilter::children_of(id.clone())).await.unwrap();
        children.into_iter().find(|info| info.head.run.is_some()).unwrap().record.id
    });
    process(async {
        runtime_on(&inner).open(&child).await.unwrap().signal("child", json!("here")).await.unwrap();
    });
    // Killed once more on the way.
    let faulty = FaultyStore::new(&inner, 2, Fault::HangBefore);
    let killed = faulty.killed.clone();
    process(until_killed(
        async { runtime_on(&(faulty as _)).open(&id).await.unwrap().resume(&parent()).outcome().await },
        &killed,
    ));
    process(async {
        let outcome = runtime_on(&inner).open(&id).await.unwrap().resume(&parent()).outcome().await.unwrap();
        assert_eq!(outcome.text, "1 completed: quick, 0 completed: \"here\"");
    });
}
