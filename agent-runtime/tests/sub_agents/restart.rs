//! A process dies with sub-agents in flight: the next one continues, and repeats nothing that was completed.

use std::sync::Arc;

use entourage_core::{
    ErrorKind, SessionId,
    session::{SessionFilter, SharedStore},
    tool::Access,
};
use entourage_runners::{AgentTool, ReactAgent};
use entourage_testkit::{FakeTool, Gate, ScriptedProvider};
use serde_json::json;

use crate::{
    common::{Fault, FaultyStore, act, agent, count, memory, process, settled, stored, until_killed},
    workers::{Worker, await_all, few, spawn_all},
};

fn root() -> SessionId {
    SessionId::new("work").unwrap()
}

/// Creates a lead of three parallel sub-agents, each of which puts something once and then waits.
fn lead(put: &FakeTool, wait: &FakeTool) -> ReactAgent {
    let below = ScriptedProvider::by_history().call("put", json!({})).call("wait", json!({})).text("Put.");
    let sub = ReactAgent::builder("sub", below.model()).tool(put.clone()).tool(wait.clone()).build().unwrap();
    let calls = [0, 1, 2].map(|n| ("agent", json!({"prompt": format!("part {n}")})));
    let provider = ScriptedProvider::by_history().calls(calls).text("Done.");
    agent(provider.model()).tool(AgentTool::new(sub)).build().unwrap()
}

#[test]
fn design_3_three_sub_agents_in_flight_go_on_where_they_were() {
    for at_once in [1, 3] {
        let (store, gate) = (memory(), Gate::new());
        let put = FakeTool::new("put").access(Access::WRITE).returning("put");
        process(async {
            let wait = FakeTool::new("wait").behind(&gate);
            few(&store, at_once).session_with_id(root()).start(&lead(&put, &wait), "Go").detach();
            gate.arrived(at_once).await;
            assert_eq!(put.finished(), at_once);
        });
        process(async {
            let wait = FakeTool::new("wait");
            let session = few(&store, at_once).open(&root()).await.unwrap();
            let outcome = session.resume(&lead(&put, &wait)).outcome().await.unwrap();
            assert_eq!((outcome.text.as_str(), put.started(), wait.finished()), ("Done.", 3, 3));
            let told = settled(&stored(&store, &root()).await);
            assert!(told.iter().all(|(_, text)| text == "Put.") && told.len() == 3, "{told:?}");
            for child in store.query(&SessionFilter::children_of(root())).await.unwrap() {
                let events = stored(&store, &child.record.id).await;
                assert_eq!((count(&events, "run_started"), count(&events, "run_finished")), (1, 1));
            }
        });
    }
}

#[test]
fn design_3_death_at_every_append_of_a_tree_with_one_place() {
    let (mut deaths, mut runs) = (0, 0);
    for at in 0.. {
        let store = memory();
        let put = FakeTool::new("put").access(Access::WRITE).returning("put");
        let faulty =
            FaultyStore::new(&store, at, if at % 2 == 0 { Fault::HangBefore } else { Fault::HangAfter });
        let ended = process(async {
            let shared: SharedStore = Arc::clone(&faulty) as _;
            let session = few(&shared, 1).session_with_id(root());
            let run = session.start(&lead(&put, &FakeTool::new("wait")), "Go");
            until_killed(run.outcome(), &faulty.killed).await.map(Result::unwrap)
        });
        runs += 1;
        if let Some(outcome) = ended {
            assert_eq!(outcome.text, "Done.");
            break;
        }
        deaths += 1;
        process(async {
            let runtime = few(&store, 1);
            let session = runtime.session_with_id(root());
            let lead = lead(&put, &FakeTool::new("wait"));
            let outcome = match session.head().await.unwrap().seq {
                0 => session.start(&lead, "Go").outcome().await.unwrap(),
                _ if session.unfinished().await.unwrap().is_some() => {
                    session.resume(&lead).outcome().await.unwrap()
                }
                _ => return,
            };
            assert_eq!(outcome.text, "Done.", "died at append {at}");
        });
        // A call that was claimed and not settled is not repeated: three is the maximum.
        assert!(put.started() <= 3, "died at append {at}: {}", put.started());
    }
    assert!(deaths > 15, "{deaths} of {runs}");
}

/// Spawns one child, tries to spawn another, then calls a tool, and waits.
fn trying(worker: &Worker, tool: &FakeTool) -> crate::common::Do {
    let (worker, tool) = (worker.shared(), tool.clone());
    act(move |cx| {
        let (worker, tool) = (Arc::clone(&worker), tool.clone());
        Box::pin(async move {
            let mut children = spawn_all(cx, &worker, ["one".to_owned()]).await?;
            let second = cx.try_spawn(Arc::clone(&worker), "two").await;
            let refused = second.as_ref().err().map(entourage_core::Error::kind);
            children.extend(second.ok());
            let tools = entourage_core::tool::Tools::new([Arc::new(tool) as _])?;
            cx.call_tool(&tools, "look", &json!({})).await?;
            let ends = await_all(cx, children).await?;
            Ok(format!("{refused:?} {}", ends.len()))
        })
    })
}

#[test]
fn ai04_a_resumed_run_is_told_the_same_again() {
    for (first, then, expected) in [(1, 10, "Some(TooMany) 1"), (2, 1, "None 2")] {
        let (store, gate) = (memory(), Gate::new());
        process(async {
            let worker = Worker::behind(&Gate::new());
            let look = FakeTool::new("look").behind(&gate);
            few(&store, first).session_with_id(root()).start(&trying(&worker, &look), "Go").detach();
            gate.arrived(1).await;
        });
        process(async {
            let look = FakeTool::new("look");
            let session = few(&store, then).open(&root()).await.unwrap();
            let worker = Worker::second();
            let outcome = session.resume(&trying(&worker, &look)).outcome().await.unwrap();
            assert_eq!(outcome.text, expected, "{first} at once, then {then}");
            assert!(worker.shift.most() <= then);
            let run = stored(&store, &root()).await[0].origin.run;
            let replayed = session.replay(&trying(&worker, &look), run).await.unwrap();
            assert_eq!(replayed.text, expected);
        });
    }
}

#[test]
fn ai04_an_agent_that_now_waits_where_it_did_not_has_diverged() {
    let (store, gate) = (memory(), Gate::new());
    process(async {
        let worker = Worker::behind(&Gate::new());
        let look = FakeTool::new("look").behind(&gate);
        few(&store, 1).session_with_id(root()).start(&trying(&worker, &look), "Go").detach();
        gate.arrived(1).await;
    });
    process(async {
        let worker = Worker::second().shared();
        let other = act(move |cx| {
            let worker = Arc::clone(&worker);
            Box::pin(async move {
                let children = spawn_all(cx, &worker, ["one".to_owned(), "two".to_owned()]).await?;
                Ok(await_all(cx, children).await?.len().to_string())
            })
        });
        let session = few(&store, 1).open(&root()).await.unwrap();
        let error = session.resume(&other).outcome().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Diverged);
    });
}
