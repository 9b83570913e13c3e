//! Calls without a known largest reply, in runs with a budget.

use std::{num::NonZeroUsize, sync::Arc};

use entourage_core::{
    Money,
    agent::Agent,
    budget::Spend,
    provider::{FinishReason, Model},
    run::{Limits, Status, StopReason, Task},
    session::SessionFilter,
};
use entourage_runners::{AgentTool, ReactAgent};
use entourage_testkit::{self as testkit, Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::{
    common::{agent, memory, open_runtime, process},
    layers_common::priced,
    run_budget::{Seen, go, leader, none, stopped_by},
};

/// A provider that says far more than requested, each call once the gate is open.
fn talker(gate: &Gate) -> ScriptedProvider {
    let script = Script::new().wait(gate).text("x").usage(1_000, 60_000).finish(FinishReason::Stop);
    ScriptedProvider::by_history().step(script)
}

#[tokio::test]
async fn attack_23_parallel_children_of_unknown_length_exceed_a_budget_by_one_call_at_most() {
    let calls = (0..10).map(|n| ("agent", json!({"prompt": format!("part {n}")})));
    let (gate, above) = (Gate::new(), ScriptedProvider::by_history().calls(calls).text("Done."));
    let below = talker(&gate);
    let child = ReactAgent::builder("child", below.model()).build().unwrap();
    let mut limits = Limits::default();
    limits.parallel_tools = NonZeroUsize::new(10).unwrap();
    let parent = agent(above.model()).limits(limits).tool(AgentTool::new(child)).build().unwrap();
    let store = memory();
    let runtime =
        testkit::runtime().shared_store(Arc::clone(&store)).budget(none().with_tokens(60_000)).build();
    let run = runtime.session().start(&parent, "Go");
    gate.arrived(1).await;
    gate.open();
    let outcome = run.outcome().await.unwrap();
    assert_eq!(stopped_by(&outcome).0, "tokens");
    let infos = store.query(&SessionFilter::all()).await.unwrap();
    let used: u64 = infos.iter().filter_map(|info| info.head.usage.total()).sum();
    // One call may exceed the budget, and no other begins beside or after it.
    assert_eq!((below.count(), used), (1, 15 + 61_000));
}

#[tokio::test]
async fn attack_23_a_refused_child_is_told_that_a_bound_on_replies_sets_less_aside() {
    let gate = Gate::new();
    let provider = talker(&gate);
    let scout = |model: Model| -> Arc<dyn Agent> { Arc::new(agent(model).build().unwrap()) };
    for (limits, bound) in
        [(none().with_tokens(60_000), "tokens"), (none().with_money(Money::from_pico(900_000)), "money")]
    {
        let scouts =
            (0..6).map(|_| (scout(provider.model().with_profile(priced(3, 15))), Task::new("Go"))).collect();
        let seen = Seen::default();
        let leader = seen.agent(leader(scouts));
        let run = open_runtime().session().start(&leader, go(limits));
        gate.arrived(1).await;
        gate.open();
        let outcome = run.outcome().await.unwrap();
        assert_eq!(outcome.text, format!("completed {}", [bound; 5].join(" ")));
        assert_eq!(seen.budget().spent().model_calls, 1);
        assert_eq!(seen.budget().reserved(), Spend::default());
    }
}

/// The way in which a run is stopped after a number of polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Cancel,
    Drop,
}

#[test]
fn attack_23_nothing_stays_set_aside_wherever_a_run_ends() {
    for end in [End::Cancel, End::Drop] {
        for polls in 0..200 {
            let done = process(async move {
                let gate = Gate::new();
                gate.open();
                let provider = talker(&gate);
                let scouts = (0..3)
                    .map(|_| -> (Arc<dyn Agent>, Task) {
                        (Arc::new(agent(provider.model()).build().unwrap()), Task::new("Go"))
                    })
                    .collect();
                let seen = Seen::default();
                let leader = seen.agent(leader(scouts));
                let run = open_runtime().session().start(&leader, go(none().with_tokens(60_000)));
                for _ in 0..polls {
                    tokio::task::yield_now().await;
                }
                match end {
                    End::Cancel => {
                        run.cancel();
                        let outcome = run.outcome().await.unwrap();
                        let ended = matches!(
                            outcome.status,
                            Status::Completed | Status::Cancelled | Status::Stopped(StopReason::Budget(_))
                        );
                        assert!(ended, "{end:?} after {polls} polls: {outcome}");
                    }
                    End::Drop => drop(run),
                }
                seen.get()
            });
            if let Some(budget) = done {
                assert_eq!(budget.reserved(), Spend::default(), "{end:?} after {polls} polls");
                assert!(budget.spent().tokens <= 61_000, "{end:?} after {polls} polls: {budget:?}");
            }
        }
    }
}
