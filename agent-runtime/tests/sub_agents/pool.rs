//! The limit on agents that work in parallel below a root: first come first served, at any depth.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use entourage_core::{
    ErrorKind,
    agent::Agent,
    context::Compaction,
    provider::{FinishReason, Profile},
    run::{Limits, Outcome, RunContext, Status, Waited},
    session::SessionFilter,
};
use entourage_runners::{AgentTool, ReactAgent};
use entourage_runtime::permission::Policy;
use entourage_runtime::{AgentExt, Runtime};
use entourage_testkit::{self as testkit, FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    common::{act, agent, memory, results},
    workers::{Worker, await_all, few, spawn_all},
};

/// Creates a lead that delegates `count` prompts to `worker` in one step, in parallel.
fn lead(count: usize, worker: impl Agent + 'static) -> (ScriptedProvider, ReactAgent) {
    let calls: Vec<_> = (0..count).map(|n| ("agent", json!({"prompt": format!("part {n}")}))).collect();
    let provider = ScriptedProvider::new().calls(calls).text("All done.");
    let mut limits = Limits::default();
    limits.parallel_tools = NonZeroUsize::new(count).unwrap();
    let lead = agent(provider.model()).tool(AgentTool::new(worker)).limits(limits).build().unwrap();
    (provider, lead)
}

#[tokio::test(start_paused = true)]
async fn ai04_of_25_tasks_10_run_at_once_and_none_is_dropped() {
    for in_memory_alone in [false, true] {
        let worker = Worker::second();
        let (provider, lead) = lead(25, worker.clone());
        let began = Instant::now();
        if in_memory_alone {
            assert_eq!(lead.ask("Go").await.unwrap(), "All done.");
        } else {
            let runtime = testkit::runtime().policy(Policy::allow_all()).build();
            assert_eq!(runtime.session().start(&lead, "Go").outcome().await.unwrap().text, "All done.");
        }
        assert_eq!(worker.shift.most(), 10);
        assert_eq!(began.elapsed().as_secs(), 3, "10, 10 and 5");
        let answers = results(provider.requests()[1].messages.last().unwrap());
        let expected: Vec<_> = (0..25).map(|n| format!("did part {n}")).collect();
        assert_eq!(answers, expected);
        assert_eq!(worker.shift.began(), (0..25).map(|n| format!("part {n}")).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn ai04_the_number_is_the_runtimes_and_each_root_has_its_own() {
    let worker = Worker::second();
    let shared = worker.shared();
    let doer = act(move |cx| {
        let shared = Arc::clone(&shared);
        Box::pin(async move {
            let children = spawn_all(cx, &shared, (0..6).map(|n| n.to_string())).await?;
            Ok(await_all(cx, children).await?.len().to_string())
        })
    });
    let runtime = few(&memory(), 2);
    let (one, other) = (runtime.session().start(&doer, "Go"), runtime.session().start(&doer, "Go"));
    let began = Instant::now();
    assert_eq!(
        (one.outcome().await.unwrap().text, other.outcome().await.unwrap().text),
        ("6".into(), "6".into())
    );
    assert_eq!((worker.shift.most(), began.elapsed().as_secs()), (4, 3), "two of each at once");
    let none = Runtime::builder().sub_agents(0).build();
    assert_eq!(none.session().start(&doer, "Go").outcome().await.unwrap().text, "6", "0 is taken as 1");
}

/// Creates `levels` of agents that delegate `gives` parts each, above workers.
fn nest(levels: usize, worker: &Worker, gives: usize) -> Arc<dyn Agent> {
    if levels == 0 {
        return worker.shared();
    }
    let below = nest(levels - 1, worker, gives);
    let calls: Vec<_> =
        (0..gives).map(|n| ("agent", json!({"prompt": format!("level {levels}, {n}")}))).collect();
    let provider = ScriptedProvider::by_history().calls(calls).text(format!("level {levels} done"));
    Arc::new(agent(provider.model()).tool(AgentTool::new(below)).build().unwrap())
}

#[tokio::test(start_paused = true)]
async fn ai04_nested_agents_end_with_a_single_place() {
    for at_once in [1, 2, 3] {
        let worker = Worker::second();
        let tree = nest(3, &worker, 2);
        let store = memory();
        let began = Instant::now();
        let outcome = few(&store, at_once).session().start(&tree, "Go").outcome().await.unwrap();
        assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "level 3 done"));
        assert_eq!((worker.shift.began().len(), worker.shift.most()), (8, at_once));
        assert_eq!(began.elapsed().as_secs(), 8_u64.div_ceil(at_once as u64));
        assert_eq!(store.query(&SessionFilter::all()).await.unwrap().len(), 1 + 2 + 4 + 8);
    }
}

#[tokio::test(start_paused = true)]
async fn ai04_hand_written_agents_nest_too_and_work_while_their_children_wait() {
    let worker = Worker::second();
    let leaf = worker.shared();
    let middle = Worker::new(move |prompt, cx| {
        let leaf = Arc::clone(&leaf);
        Box::pin(async move {
            let children = spawn_all(cx, &leaf, ["a", "b", "c"].map(|it| format!("{prompt}{it}"))).await?;
            // It holds the only slot meanwhile: its children wait for it.
            cx.sleep(Duration::from_secs(1)).await?;
            Ok(await_all(cx, children).await?.len().to_string())
        })
    });
    let above = middle.shared();
    let doer = act(move |cx| {
        let above = Arc::clone(&above);
        Box::pin(async move {
            let children = spawn_all(cx, &above, ["1".into(), "2".into()]).await?;
            let ends = await_all(cx, children).await?;
            Ok(ends.iter().map(|end| end.text.as_str()).collect::<Vec<_>>().join(" "))
        })
    });
    let began = Instant::now();
    let outcome = few(&memory(), 1).session().start(&doer, "Go").outcome().await.unwrap();
    assert_eq!(outcome.text, "3 3");
    assert_eq!((worker.shift.most(), began.elapsed().as_secs()), (1, 8));
}

#[tokio::test(start_paused = true)]
async fn ai04_try_spawn_at_the_cap_is_refused_and_later_it_is_not() {
    let gate = Gate::new();
    let worker = Worker::behind(&gate);
    let shared = worker.shared();
    let open = gate.clone();
    let doer = act(move |cx| {
        let (shared, open) = (Arc::clone(&shared), open.clone());
        Box::pin(async move {
            let mut children = vec![
                cx.try_spawn(Arc::clone(&shared), "one").await?,
                cx.try_spawn(Arc::clone(&shared), "two").await?,
            ];
            let refused = cx.try_spawn(Arc::clone(&shared), "three").await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::TooMany);
            assert!(refused.message().starts_with("2 agents run below the root session"), "{refused}");
            open.open();
            let Waited::Ended { index, .. } = cx.wait_any(&children, None).await? else { panic!() };
            children.remove(index);
            children.push(cx.try_spawn(shared, "four").await?);
            Ok(await_all(cx, children).await?.len().to_string())
        })
    });
    let outcome = few(&memory(), 2).session().start(&doer, "Go").outcome().await.unwrap();
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "2"));
    assert_eq!(worker.shift.began(), ["one", "two", "four"]);
}

#[tokio::test(start_paused = true)]
async fn ai04_what_waits_goes_before_try_spawn() {
    let gate = Gate::new();
    let worker = Worker::behind(&gate);
    let shared = worker.shared();
    let open = gate.clone();
    let doer = act(move |cx| {
        let (shared, open) = (Arc::clone(&shared), open.clone());
        Box::pin(async move {
            let children = spawn_all(cx, &shared, (0..3).map(|n| n.to_string())).await?;
            let refused = cx.try_spawn(Arc::clone(&shared), "late").await.unwrap_err();
            open.open();
            let ends = await_all(cx, children).await?;
            Ok(format!("{:?} {}", refused.kind(), ends.len()))
        })
    });
    let outcome = few(&memory(), 1).session().start(&doer, "Go").outcome().await.unwrap();
    assert_eq!(outcome.text, "TooMany 3");
    assert_eq!(worker.shift.began(), ["0", "1", "2"]);
}

/// Creates a sub-agent whose conversation is compacted between its two steps, by a slow model.
fn compacting(writer: &ScriptedProvider) -> ReactAgent {
    let mut profile = Profile::default();
    profile.context_window = Some(200_000);
    let call = Script::new().call("look", &json!({})).usage(180_000, 10).finish(FinishReason::ToolCalls);
    let provider = ScriptedProvider::by_history().step(call).text("Seen.");
    let tool = FakeTool::new("look").returning("x".repeat(4_000).as_str());
    ReactAgent::builder("looker", provider.model().with_profile(profile))
        .tool(tool)
        .compaction(Compaction::new().with_model(writer.model()).without_clearing())
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn ai04_a_summary_takes_no_place_and_gives_none_away() {
    let gate = Gate::new();
    let summary = Script::new().wait(&gate).text("It looked.").usage(10, 5).finish(FinishReason::Stop);
    let writer = ScriptedProvider::new().step(summary);
    let (looker, worker) = (Arc::new(compacting(&writer)), Worker::second());
    let (next, shared) = (gate.clone(), worker.shared());
    let counting = Arc::clone(&worker.shift);
    let doer = act(move |cx: &RunContext| {
        let (looker, shared) = (Arc::clone(&looker) as Arc<dyn Agent>, Arc::clone(&shared));
        let (next, counting) = (next.clone(), Arc::clone(&counting));
        Box::pin(async move {
            let children = [cx.spawn(looker, "Look!").await?, cx.spawn(shared, "next").await?];
            next.arrived(1).await;
            tokio::task::yield_now().await;
            assert_eq!(counting.began().len(), 0, "the agent that has the place is still at work");
            next.open();
            let ends = await_all(cx, children.to_vec()).await?;
            Ok(ends.iter().map(|end: &Outcome| end.text.as_str()).collect::<Vec<_>>().join(", "))
        })
    });
    let outcome = few(&memory(), 1).session().start(&doer, "Go").outcome().await.unwrap();
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "Seen., did next"));
}
