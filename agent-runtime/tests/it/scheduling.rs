//! Scheduling of tool calls: the calls that overlap, and the order of their results.

use std::{num::NonZeroUsize, time::Duration};

use entourage_core::{run::Limits, tool::Access};
use entourage_testkit::{FakeTool, Gate, ScriptedProvider};
use serde_json::json;

use crate::common::{agent, assert_valid, open_runtime, results};

fn limits(parallel: usize) -> Limits {
    let mut limits = Limits::default();
    limits.parallel_tools = NonZeroUsize::new(parallel).unwrap();
    limits
}

#[tokio::test]
async fn cm04_five_readers_overlap_and_no_more() {
    for (limit, expected) in [(None, 5), (Some(2), 2), (Some(1), 1), (Some(20), 12)] {
        let gate = Gate::new();
        let tool = FakeTool::new("look").behind(&gate);
        let provider = ScriptedProvider::new().calls(vec![("look", json!({})); 12]).text("Done.");
        let mut builder = agent(provider.model()).tool(tool.clone());
        if let Some(limit) = limit {
            builder = builder.limits(limits(limit));
        }
        let agent = builder.build().unwrap();
        let run = open_runtime().session().start(&agent, "Go");
        gate.arrived(expected).await;
        // Everything that can run has had its turn: nothing else comes to the gate.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(tool.running(), expected, "limit {limit:?}");
        gate.open();
        run.outcome().await.unwrap();
        assert_eq!((tool.most_at_once(), tool.finished()), (expected, 12), "limit {limit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn cm04_results_go_back_in_call_order_however_they_end() {
    let names = ["a", "b", "c", "d"];
    let provider = ScriptedProvider::new().calls(names.map(|name| (name, json!({})))).text("Done.");
    let mut builder = agent(provider.model());
    for (place, name) in names.iter().enumerate() {
        let time = Duration::from_secs(10 - place as u64);
        builder = builder.tool(FakeTool::new(name).taking(time).returning(format!("{name} done")));
    }
    let agent = builder.build().unwrap();
    let mut run = open_runtime().session().start(&agent, "Go");
    let events = crate::common::drain(&mut run).await;
    run.outcome().await.unwrap();
    let ended: Vec<_> = crate::common::settled(&events).into_iter().map(|(name, _)| name).collect();
    assert_eq!(ended, ["d", "c", "b", "a"], "they do end in reverse");
    let request = &provider.requests()[1];
    assert_valid(&request.messages);
    assert_eq!(results(request.messages.last().unwrap()), ["a done", "b done", "c done", "d done"]);
}

#[tokio::test]
async fn cm04_a_writer_runs_alone_and_holds_back_later_calls() {
    let (before, during, after) = (Gate::new(), Gate::new(), Gate::new());
    let first = FakeTool::new("first").behind(&before);
    let writer = FakeTool::new("writer").access(Access::WRITE).behind(&during);
    let late = FakeTool::new("late").behind(&after);
    let calls = [("first", json!({})), ("writer", json!({})), ("late", json!({})), ("late", json!({}))];
    let provider = ScriptedProvider::new().calls(calls).text("Done.");
    let agent =
        agent(provider.model()).tool(first.clone()).tool(writer.clone()).tool(late.clone()).build().unwrap();
    let settle = || async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    };
    let run = open_runtime().session().start(&agent, "Go");
    before.arrived(1).await;
    settle().await;
    assert_eq!((first.running(), writer.started(), late.started()), (1, 0, 0));
    before.open();
    during.arrived(1).await;
    settle().await;
    assert_eq!((first.finished(), writer.running(), late.started()), (1, 1, 0));
    during.open();
    after.arrived(2).await;
    assert_eq!((writer.finished(), late.running()), (1, 2), "readers after it run together again");
    after.open();
    run.outcome().await.unwrap();
}

#[tokio::test]
async fn cm04_programs_and_questions_run_alone_and_network_reads_together() {
    for (access, most) in [
        (Access::NONE, 2),
        (Access::READ, 2),
        (Access::NETWORK, 2),
        (Access::DELEGATE, 2),
        (Access::WRITE, 1),
        (Access::EXECUTE, 1),
        (Access::ASK, 1),
    ] {
        let gate = Gate::new();
        let tool = FakeTool::new("it").access(access).behind(&gate);
        let provider = ScriptedProvider::new().calls(vec![("it", json!({})); 2]).text("Done.");
        let agent = agent(provider.model()).tool(tool.clone()).build().unwrap();
        let run = open_runtime().session().start(&agent, "Go");
        gate.arrived(most).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        gate.open();
        run.outcome().await.unwrap();
        assert_eq!(tool.most_at_once(), most, "{access}");
    }
}
