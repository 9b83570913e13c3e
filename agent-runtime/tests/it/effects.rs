//! Effects of a hand-written agent: starting children, waiting for them, sleeping, waiting for signals.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    agent::Agent,
    permission::Scope,
    provider::FinishReason,
    run::{Child, Pause, RunContext, Status, Waited},
    session::SessionFilter,
    tool::{Access, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec, Tools},
};
use entourage_testkit::{FakeTool, Gate, LiveProvider, Script, ScriptedProvider};
use serde_json::json;

use crate::{
    captain::{self, OUTCOME},
    common::{
        Fault, FaultyStore, act, agent, assert_valid, memory, open_runtime, process, runtime_on, stored,
        until_killed,
    },
};

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
async fn design_4_an_undisturbed_voyage() {
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
async fn design_4_waits_end_with_the_first_child_or_in_time() {
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
fn design_4_a_timeout_survives_a_restart() {
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
async fn design_4_a_child_that_fails_is_an_outcome() {
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
async fn design_4_a_cancel_ends_the_children_and_what_they_do() {
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
async fn design_4_children_without_a_waiter_end_with_their_parent() {
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

#[tokio::test]
async fn design_4_a_run_is_over_only_when_its_children_have_unwound() {
    for cancel in [true, false] {
        let (begun, unwinding) = (Gate::new(), Gate::new());
        let (at, last) = (begun.clone(), unwinding.clone());
        let slow_to_end: Arc<dyn Agent> = Arc::new(act(move |cx| {
            let (at, last) = (at.clone(), last.clone());
            Box::pin(async move {
                at.open();
                cx.cancellation().cancelled().await;
                last.pass().await;
                Err(Error::cancelled())
            })
        }));
        let at = begun.clone();
        let doer = act(move |cx| {
            let (slow_to_end, at) = (Arc::clone(&slow_to_end), at.clone());
            Box::pin(async move {
                let children = [cx.spawn(slow_to_end, "go").await?];
                at.pass().await;
                if cancel { wait(cx, &children, None).await } else { Ok("left early".into()) }
            })
        });
        let session = open_runtime().session();
        let run = session.start(&doer, "Go");
        begun.arrived(1).await;
        if cancel {
            run.cancel();
        }
        unwinding.arrived(1).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(session.is_busy(), "a child still unwinds");
        unwinding.open();
        let status = if cancel { Status::Cancelled } else { Status::Completed };
        assert_eq!(run.outcome().await.unwrap().status, status);
    }
}

#[test]
fn design_4_a_child_under_way_goes_on_after_its_parent_paused() {
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
fn design_4_a_paused_child_pauses_its_parent_and_both_go_on() {
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

/// Uses an effect of its run, once for each of the effects that a tool could try.
#[derive(Debug)]
struct Meddler(ToolSpec, Arc<ScriptedProvider>);

#[async_trait]
impl Tool for Meddler {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let run = match input.arguments["narrow"].as_bool() {
            Some(true) => cx.run().narrowed(&Scope::none()),
            _ => cx.run().clone(),
        };
        let model = self.1.model();
        let refused = [
            run.call_model(&model, model.request("Hi")).await.map(drop),
            run.call_tool(&Tools::none(), "x", &json!({})).await.map(drop),
            run.spawn(child(&self.1), "go").await.map(drop),
            run.ask("friend", child(&self.1), "who?").await.map(drop),
            run.signal("bell").await.map(drop),
            run.sleep(Duration::from_secs(1)).await,
            run.now().await.map(drop),
            run.new_id().await.map(drop),
        ];
        for refused in refused {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains("ToolContext::run_agent"), "{error}");
        }
        Ok(ToolOutput::text("refused"))
    }
}

/// Calls of one step run side by side, so a number in the order of their effects would not hold after a restart.
#[tokio::test]
async fn attack_run_i2_a_tool_has_no_effects_of_its_run() {
    let asked = Arc::new(ScriptedProvider::new());
    let spec = ToolSpec::new("meddle", "", json!({"type": "object"})).with_access(Access::READ);
    let script = Script::new()
        .call("meddle", &json!({"narrow": false}))
        .call("meddle", &json!({"narrow": true}))
        .usage(1, 1)
        .finish(FinishReason::ToolCalls);
    let provider = ScriptedProvider::new().step(script).text("Done.");
    let tester = agent(provider.model()).tool(Meddler(spec, Arc::clone(&asked))).build().unwrap();
    let store = memory();
    let session = runtime_on(&store).session();
    let run = session.start(&tester, "Go");
    let id = run.id();
    let outcome = run.outcome().await.unwrap();
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "Done."));
    let results: Vec<_> = session
        .history()
        .await
        .unwrap()
        .iter()
        .flat_map(|message| {
            message.tool_results().map(entourage_core::message::ToolResult::to_text).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(results, ["refused", "refused"]);
    assert_eq!(asked.count(), 0);
    let events = stored(&store, session.id()).await;
    assert!(
        !events
            .iter()
            .any(|event| matches!(event.event.kind(), "child_started" | "wait_started" | "observed"))
    );
    session.replay(&tester, id).await.unwrap();
}
