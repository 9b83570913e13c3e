//! Budgets over several lives of a process, and over a tree whose runs are cut short.

use std::{collections::HashMap, sync::Arc, time::Duration};

use entourage_core::{
    RequestId, SessionId,
    agent::Agent,
    budget::{BudgetLimits, Spend},
    event::{Envelope, Event},
    provider::{FinishReason, Model, Request},
    run::{Outcome, Status, Task},
    session::{SessionFilter, SharedStore},
};
use entourage_testkit::{FakeTool, Script, ScriptedProvider};
use proptest::prelude::*;
use serde_json::json;

use crate::{
    common::{Do, Fault, FaultyStore, agent, count, memory, open_runtime, process, stored, until_killed},
    layers_common::{priced, up_to},
    run_budget::{Seen, id, leader, none, runtime},
};

fn bounded(provider: &ScriptedProvider) -> Model {
    provider.model().with_profile(priced(3, 15)).with_params(up_to(20))
}

fn asks(model: &Model) -> Request {
    model.request("Go")
}

/// Everything of one process: a captain that calls its model, sends two scouts out and calls it again.
struct Life {
    seen: Seen,
    captain: Do,
    providers: [ScriptedProvider; 3],
    tool: FakeTool,
}

impl Life {
    fn new(of_scouts: Option<BudgetLimits>) -> Self {
        let planner = ScriptedProvider::by_history().text("Go.");
        let tool = FakeTool::new("look").taking(Duration::from_secs(1)).echoing();
        let walks =
            [1, 2].map(|n| ScriptedProvider::by_history().call("look", json!({"n": n})).text("Found."));
        let scouts: Vec<(Arc<dyn Agent>, Task)> = walks
            .iter()
            .map(|walk| {
                let scout = agent(bounded(walk)).tool(tool.clone()).build().unwrap();
                let mut task = Task::new("Look");
                task.budget = of_scouts;
                (Arc::new(scout) as Arc<dyn Agent>, task)
            })
            .collect();
        let (model, seen) = (bounded(&planner), Seen::default());
        let captain = seen.agent(move |cx| {
            let (model, scouts) = (model.clone(), scouts.clone());
            Box::pin(async move {
                cx.call_model(&model, asks(&model)).await?;
                let found = leader(scouts)(cx).await?;
                cx.call_model(&model, asks(&model)).await?;
                Ok(found)
            })
        });
        let [left, right] = walks;
        Self { seen, captain, providers: [planner, left, right], tool }
    }

    fn model_calls(&self) -> usize {
        self.providers.iter().map(ScriptedProvider::count).sum()
    }

    /// Starts the run, or continues it; `None` if it is over.
    async fn live(&self, store: &SharedStore, limits: BudgetLimits) -> Option<Outcome> {
        let session = runtime(store).session_with_id(id());
        if session.unfinished().await.unwrap().is_some() {
            return Some(session.resume(&self.captain).outcome().await.unwrap());
        }
        if session.head().await.unwrap().seq > 0 {
            return None;
        }
        Some(session.start(&self.captain, Task::new("Go").with_budget(limits)).outcome().await.unwrap())
    }
}

async fn tree(store: &SharedStore) -> Vec<Envelope> {
    let mut events = Vec::new();
    for info in store.query(&SessionFilter::all()).await.unwrap() {
        events.extend(stored(store, &info.record.id).await);
    }
    events
}

/// Lives until the run is over; the first and the second life end at these appends.
fn lives(limits: BudgetLimits, of_scouts: Option<BudgetLimits>, at: [Option<(usize, Fault)>; 2]) -> Lived {
    let inner = memory();
    let mut lived = Lived::default();
    for fault in at.into_iter().chain([None]) {
        let life = Life::new(of_scouts);
        let faulty = match fault {
            Some((at, fault)) => FaultyStore::new(&inner, at, fault),
            None => FaultyStore::new(&inner, usize::MAX, Fault::Fail),
        };
        let killed = faulty.killed.clone();
        let store = faulty as SharedStore;
        let ended = process(until_killed(life.live(&store, limits), &killed));
        lived.model_calls += life.model_calls();
        lived.tool_calls += life.tool.started();
        match ended {
            None => lived.deaths += 1,
            Some(None) => break,
            Some(Some(outcome)) => {
                lived.spent = Some((life.seen.budget().spent(), life.seen.budget().reserved()));
                lived.outcome = Some(outcome);
                break;
            }
        }
    }
    lived.events = process(tree(&inner));
    lived
}

#[derive(Default)]
struct Lived {
    deaths: usize,
    model_calls: usize,
    tool_calls: usize,
    /// Amounts spent and reserved at the end of the last life.
    spent: Option<(Spend, Spend)>,
    outcome: Option<Outcome>,
    events: Vec<Envelope>,
}

impl Lived {
    #[track_caller]
    fn check(&self, limits: BudgetLimits, label: &str) {
        let within = |used: usize, limit: Option<u64>| limit.is_none_or(|limit| used as u64 <= limit);
        assert!(within(self.model_calls, limits.model_calls), "{label}: {} model calls", self.model_calls);
        assert!(within(self.tool_calls, limits.tool_calls), "{label}: {} tool calls", self.tool_calls);
        // Each call that was made used 15 tokens, whether anybody heard of it or not.
        assert!(within(15 * self.model_calls, limits.tokens), "{label}: {} model calls", self.model_calls);
        assert_eq!(count(&self.events, "run_started"), count(&self.events, "run_finished"), "{label}");
        let Some((spent, reserved)) = self.spent else { return };
        assert_eq!(reserved, Spend::default(), "{label}");
        // What was begun is paid for once, in whichever life.
        let begun = ["model_started", "tool_started"].map(|kind| count(&self.events, kind));
        assert_eq!([spent.model_calls, spent.tool_calls], begun.map(|begun| begun as u64), "{label}");
        assert!(self.model_calls <= begun[0] && self.tool_calls <= begun[1], "{label}");
        assert_eq!(spent.tokens, owed(&self.events).tokens, "{label}");
    }
}

/// The spend according to a tree's events: 15 tokens per reply, nothing for a call that never left, and the reservation
/// where the end is unknown.
fn owed(events: &[Envelope]) -> Spend {
    let mut open: HashMap<RequestId, Vec<u64>> = HashMap::new();
    let mut owed = Spend::default();
    for event in events {
        match &event.event {
            Event::ModelStarted(call) => {
                let reserved = call.reserved.expect("a bounded call").tokens;
                open.entry(call.request.unwrap()).or_default().push(reserved);
            }
            Event::ModelFinished(reply) => {
                let reserved = open.get_mut(&reply.request.unwrap()).and_then(Vec::pop).unwrap();
                owed.tokens += match &reply.error {
                    None => 15,
                    Some(error) if error.unsent => 0,
                    Some(_) => reserved,
                };
            }
            _ => {}
        }
    }
    owed.tokens += open.values().flatten().sum::<u64>();
    owed
}

#[test]
fn design_7_undisturbed_the_limits_are_just_enough() {
    let limits = none().with_model_calls(6).with_tool_calls(2);
    let lived = lives(limits, None, [None, None]);
    lived.check(limits, "undisturbed");
    let outcome = lived.outcome.unwrap();
    assert_eq!((outcome.text.as_str(), outcome.status), ("completed completed", Status::Completed));
    assert_eq!((lived.model_calls, lived.tool_calls), (6, 2));
}

#[test]
fn design_7_over_all_lives_no_more_is_called_than_the_limit() {
    let cases = [
        (none().with_model_calls(6).with_tool_calls(2), None),
        (none().with_model_calls(9), Some(none().with_model_calls(2).with_tool_calls(1))),
        (
            none().with_tokens(120).with_money(entourage_core::Money::from_pico(1_500)),
            Some(none().with_tokens(60)),
        ),
    ];
    for (limits, of_scouts) in cases {
        let (mut deaths, mut stopped) = (0, 0);
        for fault in [Fault::HangBefore, Fault::HangAfter] {
            for at in 0.. {
                let first = Some((at, fault));
                let lived = lives(limits, of_scouts, [first, None]);
                lived.check(limits, &format!("{limits:?}: {fault:?} at append {at}"));
                let undisturbed = |it: Outcome| it.is_completed() && it.text == "completed completed";
                stopped += usize::from(lived.outcome.is_some_and(|it| !undisturbed(it)));
                if lived.deaths == 0 {
                    break;
                }
                deaths += 1;
                // A second death soon after the first, and one further on.
                for second in [0, 1, 2, 4, 7] {
                    let lived = lives(limits, of_scouts, [first, Some((second, fault))]);
                    lived.check(limits, &format!("{limits:?}: {fault:?} at appends {at} and {second}"));
                }
            }
        }
        assert!(deaths > 25, "{deaths}");
        assert!(stopped > 0, "a call that was lost is missing in the end");
    }
}

/// The behaviour of an agent of a tree: it starts those below it, makes its calls, and waits for them.
#[derive(Debug, Clone)]
struct Plan {
    tokens: Option<u64>,
    /// Milliseconds until it is cut short.
    time: Option<u64>,
    calls: u64,
    /// Milliseconds of each call.
    each: u64,
    below: Vec<Plan>,
}

fn plan() -> impl Strategy<Value = Plan> {
    let leaf = (prop::option::of(15_u64..90), prop::option::of(1_u64..60), 0_u64..4, 1_u64..30);
    let leaf = leaf.prop_map(|(tokens, time, calls, each)| Plan { tokens, time, calls, each, below: vec![] });
    leaf.prop_recursive(3, 12, 4, |inner| {
        let below = prop::collection::vec(inner, 0..4);
        (prop::option::of(30_u64..300), prop::option::of(20_u64..120), 0_u64..3, 1_u64..20, below)
            .prop_map(|(tokens, time, calls, each, below)| Plan { tokens, time, calls, each, below })
    })
}

impl Plan {
    fn limits(&self) -> Option<BudgetLimits> {
        let tokens = self.tokens.map(|tokens| none().with_tokens(tokens));
        match self.time {
            Some(time) => Some(tokens.unwrap_or_default().with_time(Duration::from_millis(time))),
            None => tokens,
        }
    }

    fn agent(&self, seen: &Seen) -> Do {
        let script = Script::new().delay(Duration::from_millis(self.each)).usage(10, 5);
        let provider = ScriptedProvider::by_history().step(script.finish(FinishReason::Stop));
        let (model, calls) = (bounded(&provider), self.calls);
        let below: Vec<(Arc<dyn Agent>, Task)> = self
            .below
            .iter()
            .map(|plan| {
                let mut task = Task::new("Go");
                task.budget = plan.limits();
                (Arc::new(plan.agent(&Seen::default())) as Arc<dyn Agent>, task)
            })
            .collect();
        seen.agent(move |cx| {
            let (model, below) = (model.clone(), below.clone());
            Box::pin(async move {
                let mut children = Vec::new();
                for (child, task) in below {
                    children.push(cx.spawn(child, task).await?);
                }
                for _ in 0..calls {
                    cx.call_model(&model, asks(&model)).await?;
                }
                while !children.is_empty() {
                    if let entourage_core::run::Waited::Ended { index, .. } =
                        cx.wait_any(&children, None).await?
                    {
                        children.remove(index);
                    }
                }
                Ok("done".into())
            })
        })
    }
}

/// Runs the plan within `limit` tokens, cancelled after this many milliseconds. Checks that reservations and spend
/// never exceed the limit; that nothing is reserved in the end; and that the spend equals the events, agent by agent.
async fn carry_out(plan: &Plan, limit: u64, cancel: Option<u64>) {
    let store = memory();
    let seen = Seen::default();
    let task = Task::new("Go").with_budget(none().with_tokens(limit));
    let session = runtime(&store).session_with_id(SessionId::new("root").unwrap());
    let run = session.start(&plan.agent(&seen), task);
    let mut time = 0;
    while session.is_busy() && time < 5_000 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        time += 1;
        if cancel == Some(time) {
            run.cancel();
        }
        if let Some(budget) = seen.get() {
            assert!(budget.spent().tokens + budget.reserved().tokens <= limit, "{budget:?}");
        }
    }
    run.outcome().await.unwrap();
    let Some(budget) = seen.get() else { return };
    assert_eq!(budget.reserved(), Spend::default());
    let events = tree(&store).await;
    assert_eq!(budget.spent().tokens, owed(&events).tokens);
    let mut by_agent: HashMap<String, Vec<Envelope>> = HashMap::new();
    for event in events {
        by_agent.entry(event.origin.agent.to_string()).or_default().push(event);
    }
    let report = budget.report();
    for (agent, events) in &by_agent {
        let told = report.get(agent.as_str()).copied().unwrap_or_default();
        assert_eq!(told.tokens, owed(events).tokens, "{agent}");
    }
    assert_eq!(report.values().map(|spend| spend.tokens).sum::<u64>(), budget.spent().tokens);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn design_7_budgets_stay_exact_when_runs_are_cut_short(
        plan in plan(), limit in 20_u64..400, cancel in prop::option::of(1_u64..100),
    ) {
        process(carry_out(&plan, limit, cancel));
    }
}

#[tokio::test]
async fn design_7_an_unbounded_run_has_no_budget_and_its_calls_reserve_nothing() {
    let provider = ScriptedProvider::new().text("Hi.");
    let agent = agent(provider.model()).build().unwrap();
    let mut run = open_runtime().session().start(&agent, "Hello");
    let events = crate::common::drain(&mut run).await;
    let reserved = events.iter().find_map(|event| match &event.event {
        Event::ModelStarted(call) => Some(call.reserved),
        _ => None,
    });
    assert_eq!(reserved, Some(None));
}
