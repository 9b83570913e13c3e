//! Processes that die at every append: completed work is not repeated, the outcome is the same, and the log has every
//! event once.

use std::{collections::HashMap, time::Duration};

use entourage_core::{
    ErrorKind, SessionId,
    event::{Envelope, Event},
    run::Status,
    session::{SessionFilter, SharedStore},
    tool::{Access, Repeat},
};
use entourage_testkit::{FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::{
    captain::{self, OUTCOME, World},
    common::{
        Fault, FaultyStore, agent, assert_valid, count, memory, process, results, runtime_on, stored,
        until_killed,
    },
};

const UNKNOWN: &str = "outcome is unknown";

/// Work in a log: replies that ended, calls that were claimed, calls that were settled.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Work {
    replies: usize,
    claimed: usize,
    settled: usize,
}

fn work(events: &[Envelope], tool: &str) -> Work {
    let named = |event: &&Envelope| match &event.event {
        Event::ToolStarted(call) => &*call.tool == tool,
        Event::ToolFinished(call) => &*call.result.name == tool,
        _ => true,
    };
    let of_tool: Vec<_> = events.iter().filter(named).cloned().collect();
    Work {
        replies: count(events, "model_finished"),
        claimed: count(&of_tool, "tool_started"),
        settled: count(&of_tool, "tool_finished"),
    }
}

async fn log(store: &SharedStore, id: &SessionId) -> Vec<Envelope> {
    let known = store.query(&SessionFilter::id(id.clone())).await.unwrap();
    if known.is_empty() { Vec::new() } else { stored(store, id).await }
}

#[test]
fn design_3_a_hand_written_agent_survives_death_at_every_append() {
    let mut deaths = 0;
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        for at in 0.. {
            if !voyage(at, fault) {
                break;
            }
            deaths += 1;
        }
    }
    assert!(deaths > 30, "{deaths}");
}

/// Runs a voyage whose store stands still at append `at`. False if it has fewer appends.
fn voyage(at: usize, fault: Fault) -> bool {
    let inner = memory();
    let faulty = FaultyStore::new(&inner, at, fault);
    let killed = faulty.killed.clone();
    let store = faulty as SharedStore;
    let mut worlds = Vec::new();
    for life in 0..9 {
        let world = World::new();
        // Each process begins a minute after the one before it.
        let runtime = || captain::runtime(&store, Duration::from_secs(60 * life));
        let lived =
            process(until_killed(async { captain::advance(&runtime(), &world.captain).await }, &killed));
        assert_eq!((world.measure.running(), world.launch.running()), (0, 0), "nothing outlives its process");
        worlds.push(world);
        match lived {
            None => {
                revive(&inner, &worlds, &process(snapshot(&inner)), &format!("{fault:?} at append {at}"));
                return true;
            }
            Some(Some(step)) => step.unwrap(),
            Some(None) => break,
        }
    }
    assert_eq!(process(captain::outcome(&inner)).text, OUTCOME);
    false
}

type Snapshot = HashMap<String, Vec<Envelope>>;

async fn snapshot(store: &SharedStore) -> Snapshot {
    let mut logs = HashMap::new();
    for info in store.query(&SessionFilter::all()).await.unwrap() {
        logs.insert(info.record.id.to_string(), stored(store, &info.record.id).await);
    }
    logs
}

/// Continues a voyage after a death. `seen` is the content of the store at that time.
fn revive(store: &SharedStore, before: &[World], seen: &Snapshot, label: &str) {
    let mut after = Vec::new();
    for life in 10..20 {
        let world = World::new();
        let runtime = || captain::runtime(store, Duration::from_secs(60 * life));
        let step = process(async { captain::advance(&runtime(), &world.captain).await });
        after.push(world);
        match step {
            Some(step) => step.unwrap_or_else(|error| panic!("{label}: {error:?}")),
            None => break,
        }
    }
    let logs = process(snapshot(store));
    let outcome = process(captain::outcome(store));
    // A tool that may not be repeated and was claimed is the one thing that cannot be made good.
    let root = captain::session_id().to_string();
    let nothing = Vec::new();
    let old = seen.get(&root).unwrap_or(&nothing);
    let launch = work(old, "launch");
    let lost = launch.claimed > launch.settled;
    if lost {
        assert!(outcome.text.contains(UNKNOWN), "{label}: {outcome}");
    } else {
        assert_eq!(outcome.text, OUTCOME, "{label}");
    }
    let sum = |worlds: &[World], of: &dyn Fn(&World) -> usize| worlds.iter().map(of).sum::<usize>();
    // What was recorded is not done again; what was not, is done once more.
    let planner = |world: &World| world.planner.count();
    assert_eq!(sum(&after, &planner), 2 - work(old, "").replies, "{label}: the captain's model");
    for (place, scout) in [(0, "left"), (1, "right")] {
        let child = |logs: &Snapshot| {
            let mut found =
                logs.iter().filter(|(id, log)| **id != root && log[0].to_string().ends_with(scout));
            found.next().map(|(_, log)| work(log, "").replies)
        };
        let calls = sum(&after, &|world: &World| world.scouts[place].count());
        assert_eq!(calls, 1 - child(seen).unwrap_or(0), "{label}: the scout's model");
        assert_eq!(child(&logs), Some(1), "{label}");
    }
    assert_eq!(
        sum(&after, &|world: &World| world.measure.started()),
        1 - work(old, "measure").settled,
        "{label}"
    );
    let launches = if lost { 0 } else { 1 - launch.settled };
    assert_eq!(sum(&after, &|world: &World| world.launch.started()), launches, "{label}");
    assert!(sum(before, &|world: &World| world.launch.started()) + launches <= 1, "{label}: launched twice");
    assert_eq!(logs.len(), 3, "{label}");
    let log = &logs[&root];
    assert_eq!(&log[..old.len()], &old[..], "{label}: what is written stays");
    for (kind, times) in [
        ("model_finished", 2),
        ("tool_finished", 2),
        ("child_started", 2),
        ("child_finished", 2),
        ("run_started", 1),
        ("run_finished", 1),
        ("observed", 5),
    ] {
        assert_eq!(count(log, kind), times, "{label}: {kind}");
    }
}

struct Crew {
    provider: ScriptedProvider,
    safe: FakeTool,
    slow: FakeTool,
    once: FakeTool,
    again: FakeTool,
}

impl Crew {
    fn new() -> Self {
        let calls =
            [("safe", json!({"n": 1})), ("slow", json!({})), ("once", json!({})), ("safe", json!({"n": 2}))];
        let provider = ScriptedProvider::by_history().calls(calls).call("again", json!({})).text("Done.");
        let second = Duration::from_secs(1);
        Self {
            provider,
            safe: FakeTool::new("safe").returning("safe done"),
            slow: FakeTool::new("slow").taking(second).returning("slow done"),
            once: FakeTool::new("once").repeat(Repeat::Once).taking(second).returning("once done"),
            again: FakeTool::new("again")
                .access(Access::WRITE)
                .repeat(Repeat::Idempotent)
                .returning("again done"),
        }
    }

    fn agent(&self) -> entourage_runners::ReactAgent {
        let [safe, slow, once, again] =
            [&self.safe, &self.slow, &self.once, &self.again].map(FakeTool::clone);
        agent(self.provider.model()).tool(safe).tool(slow).tool(once).tool(again).build().unwrap()
    }

    fn tools(&self) -> [(&'static str, &FakeTool); 4] {
        [("safe", &self.safe), ("slow", &self.slow), ("once", &self.once), ("again", &self.again)]
    }
}

#[test]
fn attack_11_a_run_with_parallel_tools_survives_death_at_every_append() {
    let id = SessionId::new("work").unwrap();
    let mut deaths = 0;
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        for at in 0.. {
            let inner = memory();
            let faulty = FaultyStore::new(&inner, at, fault);
            let killed = faulty.killed.clone();
            let first = Crew::new();
            let store = faulty as SharedStore;
            let lived = process(until_killed(
                async {
                    let session = runtime_on(&store).session_with_id(id.clone());
                    session.start(&first.agent(), "Go").outcome().await
                },
                &killed,
            ));
            if let Some(outcome) = lived {
                assert_eq!(outcome.unwrap().text, "Done.");
                break;
            }
            deaths += 1;
            resurrect(&inner, &id, &first, &format!("{fault:?} at append {at}"));
        }
    }
    assert!(deaths > 12, "{deaths}");
}

fn resurrect(store: &SharedStore, id: &SessionId, first: &Crew, label: &str) {
    let old = process(log(store, id));
    let second = Crew::new();
    process(async {
        let session = runtime_on(store).session_with_id(id.clone());
        let outcome = match session.unfinished().await.unwrap() {
            Some(_) => session.resume(&second.agent()).outcome().await.unwrap(),
            None if old.is_empty() => session.start(&second.agent(), "Go").outcome().await.unwrap(),
            None => return,
        };
        assert_eq!(
            (outcome.status, outcome.text.as_str(), outcome.steps),
            (Status::Completed, "Done.", 3),
            "{label}"
        );
    });
    let new = process(log(store, id));
    assert_eq!(&new[..old.len()], &old[..], "{label}: what is written stays");
    assert_eq!(second.provider.count(), 3 - work(&old, "").replies, "{label}: model calls");
    let planned = HashMap::from([("safe", 2), ("slow", 1), ("once", 1), ("again", 1)]);
    for (name, tool) in second.tools() {
        let Work { claimed, settled, .. } = work(&old, name);
        let unknown = if name == "once" { claimed - settled } else { 0 };
        assert_eq!(tool.started(), planned[name] - settled - unknown, "{label}: {name} {old:?}");
        assert_eq!(work(&new, name).settled, planned[name], "{label}: {name} is settled once");
    }
    assert!(first.once.started() + second.once.started() <= 1, "{label}");
    let told = crate::common::settled(&new).into_iter().find(|(name, _)| name == "once").unwrap().1;
    let once = work(&old, "once");
    assert_eq!(told.contains(UNKNOWN), once.claimed > once.settled, "{label}: {told}");
    assert_eq!((count(&new, "model_finished"), count(&new, "run_finished")), (3, 1), "{label}");
    process(async {
        let session = runtime_on(store).open(id).await.unwrap();
        let history = session.history().await.unwrap();
        assert_valid(&history);
        assert_eq!(history.len(), 6, "{label}");
        let told = results(history.get(2).unwrap());
        assert_eq!(
            (told[0].as_str(), told[1].as_str(), told[3].as_str()),
            ("safe done", "slow done", "safe done")
        );
    });
}

#[test]
fn attack_09_of_two_processes_that_resume_one_run_one_is_admitted() {
    let id = SessionId::new("work").unwrap();
    let inner = memory();
    let faulty = FaultyStore::new(&inner, 1, Fault::HangBefore);
    let killed = faulty.killed.clone();
    let first = Crew::new();
    process(until_killed(
        async {
            let session = runtime_on(&(faulty as _)).session_with_id(id.clone());
            session.start(&first.agent(), "Go").outcome().await
        },
        &killed,
    ));
    process(async {
        let gate = Gate::new();
        let script =
            Script::new().wait(&gate).text("Done.").finish(entourage_core::provider::FinishReason::Stop);
        let winner = ScriptedProvider::by_history().step(script.clone());
        let other = ScriptedProvider::by_history().step(script);
        let (a, b) =
            (runtime_on(&inner).open(&id).await.unwrap(), runtime_on(&inner).open(&id).await.unwrap());
        let agents = [&winner, &other].map(|provider| agent(provider.model()).build().unwrap());
        let runs = [a.resume(&agents[0]), b.resume(&agents[1])];
        gate.arrived(1).await;
        gate.open();
        let [a, b] = runs;
        let outcomes = [a.outcome().await, b.outcome().await];
        let done = outcomes.iter().filter(|it| it.as_ref().is_ok_and(|it| it.text == "Done.")).count();
        let late = outcomes
            .iter()
            .filter(|it| it.as_ref().is_err_and(|it| it.kind() == ErrorKind::Conflict))
            .count();
        assert_eq!((done, late), (1, 1), "{outcomes:?}");
        assert_eq!(winner.count() + other.count(), 1);
        assert_eq!(count(&log(&inner, &id).await, "run_resumed"), 1);
    });
}

#[test]
fn attack_10_a_process_whose_run_was_taken_over_writes_nothing_more() {
    let id = SessionId::new("work").unwrap();
    let store = memory();
    process(async {
        let gate = Gate::new();
        let crew = Crew::new();
        let slow = FakeTool::new("slow").behind(&gate);
        let stale = agent(crew.provider.model())
            .tool(slow)
            .tool(crew.safe.clone())
            .tool(crew.once.clone())
            .tool(crew.again.clone())
            .build()
            .unwrap();
        let run = runtime_on(&store).session_with_id(id.clone()).start(&stale, "Go");
        gate.arrived(1).await;
        let second = Crew::new();
        let taken =
            runtime_on(&store).open(&id).await.unwrap().resume(&second.agent()).outcome().await.unwrap();
        assert_eq!(taken.text, "Done.");
        let written = log(&store, &id).await;
        gate.open();
        assert_eq!(run.outcome().await.unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(log(&store, &id).await, written, "the stale owner is fenced");
        assert_eq!(crew.again.started(), 0);
    });
}
