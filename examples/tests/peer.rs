//! Composed agents against a real llama.cpp server, each killed and continued from an SQLite file:
//! `LLM_PEER_URL=http://127.0.0.1:PORT cargo test -p entourage-examples --test peer -- --ignored`.
//!
//! Its model knows one byte per token and produces gibberish, so nothing here depends on its words: a user's turn with
//! tools gives a call of any of them, a tool's result gives text. The crash suite judges the result: no completed work
//! is done or asked for again, and no event is lost.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a test may panic and print, in its helpers too"
)]

#[path = "peer/lives.rs"]
mod lives;

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use entourage::{
    agent::{AgentTool, DualAgent},
    event::PhaseFinished,
    graph::{GraphReport, NodeState},
    prelude::*,
    provider::Egress,
    run::StopReason,
    store::Durability,
    testkit::{
        FakeTool,
        crash::{DriveStep, Expected, Life, Note, Scenario, Tree, Witness, judge},
    },
};

/// Most bytes of one reply of the model.
const MAX_OUTPUT: u64 = 1_500;
/// Most processes for one run.
const MOST_LIVES: usize = 20;
/// Attempts to get a reply that the model gives only by chance.
const TRIES: usize = 10;

/// The wires that the server speaks. The agents use one of them.
const WIRES: [&str; 3] = ["chat", "responses", "messages"];

fn model(wire: &str) -> Model {
    let url = std::env::var("LLM_PEER_URL").expect("set LLM_PEER_URL to the server's address, without /v1");
    let url = format!("{}/v1", url.trim_end_matches('/'));
    let key = "sk-peer-0123456789-secret";
    match wire {
        "chat" => OpenAiChat::builder().base_url(&url).api_key(key).build().unwrap().model("default"),
        "responses" => {
            OpenAiResponses::builder().base_url(&url).api_key(key).build().unwrap().model("default")
        }
        _ => AnthropicMessages::builder()
            .base_url(&url)
            .bearer()
            .api_key(key)
            .build()
            .unwrap()
            .model("default"),
    }
}

/// An agent that may call `tools`.
fn agent(
    life: &Life,
    wire: &str,
    name: &str,
    tools: impl IntoIterator<Item = Arc<dyn Tool>>,
) -> Result<ReactAgent> {
    let mut params = Params::default();
    params.max_output = Some(MAX_OUTPUT);
    ReactAgent::builder(name, life.model(&model(wire)))
        .instructions("Answer briefly.")
        .tools(tools)
        .params(params)
        .build()
}

/// A tool whose calls may not be repeated.
fn pay(life: &Life) -> Arc<dyn Tool> {
    life.tool(FakeTool::new("pay").access(Access::WRITE).returning("paid"))
}

fn set_up(scenario: Scenario) -> Scenario {
    scenario.runtime(|it| it.policy(Policy::allow_all()).egress(Egress::Loopback).checkpoint_every(8))
}

fn login(wire: &'static str) -> Scenario {
    let scenario = Scenario::new("login", move |life| {
        let worker = |name: &str| agent(life, wire, name, [pay(life)]);
        let graph = TaskGraph::builder("login");
        let design = graph.agent("design", &worker("architect")?, "Design the login.");
        let backend = graph.agent("backend", &worker("coder")?, "Write the backend.").after(&design);
        let frontend = graph.agent("frontend", &worker("artist")?, "Draw the frontend.").after(&design);
        let manual = graph.agent("manual", &agent(life, wire, "writer", [])?, "Explain it.").after(&design);
        let tests = graph.agent("tests", &worker("tester")?, "Test both.").after((&backend, &frontend));
        let reviewer = agent(life, wire, "reviewer", [])?;
        let review = graph.agent("review", &reviewer, "Review it.").after((&tests, &manual));
        graph.limit(2).returning(&review).build()
    });
    set_up(scenario).prompt("Customers shall be able to log in.")
}

fn pair(wire: &'static str) -> Scenario {
    let scenario = Scenario::new("pair", move |life| {
        let look = life.tool(FakeTool::new("look").returning("It is there."));
        let executor = agent(life, wire, "worker", [pay(life)])?;
        let discriminator = agent(life, wire, "checker", [look])?;
        DualAgent::builder("pair", executor, discriminator).iterations(2).build()
    });
    set_up(scenario).prompt("Buy a pear.")
}

fn lead(wire: &'static str) -> Scenario {
    let scenario = Scenario::new("lead", move |life| {
        let below = agent(life, wire, "below", [pay(life)])?;
        agent(life, wire, "lead", [life.tool(AgentTool::new(below))])
    });
    set_up(scenario).prompt("Have it paid.")
}

/// The moment at which a process dies: `points` points after `times` events of `kind` were shown.
#[derive(Debug, Clone, Copy)]
struct Death {
    kind: &'static str,
    times: usize,
    points: usize,
}

#[derive(Debug)]
struct Watch(Mutex<Watched>);

#[derive(Debug)]
struct Watched {
    notes: Vec<Note>,
    death: Option<Death>,
}

impl Witness for Watch {
    fn note(&self, note: Note) {
        let mut watched = self.0.lock().unwrap();
        if let (Note::Shown { kind: shown, .. }, Some(Death { kind, times: times @ 1.., .. })) =
            (&note, &mut watched.death)
            && shown == kind
        {
            *times -= 1;
        }
        watched.notes.push(note);
    }

    fn point(&self) -> bool {
        let mut watched = self.0.lock().unwrap();
        let Some(Death { times: 0, points, .. }) = &mut watched.death else { return false };
        *points = points.saturating_sub(1);
        *points == 0 && watched.death.take().is_some()
    }
}

/// Runs one process; `None` if it died.
fn live(scenario: &Scenario, file: &Path, watch: &Arc<Watch>) -> Option<DriveStep> {
    let (store, step) = process(async {
        let store = open(file).await;
        let life = Life::new(Arc::clone(&store) as _, Arc::clone(watch) as _);
        let root = root();
        let step = tokio::select! {
            biased;
            () = life.died() => None,
            step = scenario.step(&life, &root) => Some(step.unwrap()),
        };
        (store, step)
    });
    process(async { store.close().await });
    step
}

/// Runs the work to its end, with one death on the way; `None` if it ended before that.
fn survives(scenario: &Scenario, death: Death) -> Option<Tree> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sessions.db");
    let watch = Arc::new(Watch(Mutex::new(Watched { notes: Vec::new(), death: Some(death) })));
    let over = (0..MOST_LIVES).any(|_| live(scenario, &file, &watch) == Some(DriveStep::Over));
    assert!(over, "{} got nowhere: {death:?}", scenario.name());
    let watched = watch.0.lock().unwrap();
    let tree = process(async {
        let store = open(&file).await;
        let tree = Tree::load(&(Arc::clone(&store) as _), &root()).await.unwrap();
        let differ = tree.reopened(&(Arc::clone(&store) as _)).await.unwrap();
        assert!(differ.is_empty(), "{differ:?}");
        store.close().await;
        tree
    });
    // The replies are random: the run is compared with itself.
    let faults = judge(&Expected::of(&tree), &watched.notes, &tree);
    assert!(faults.is_empty(), "{death:?}: {faults}");
    watched.death.is_none().then_some(tree)
}

fn process<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

async fn open(file: &Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::builder(file).durability(Durability::ProcessDeath).build().await.unwrap())
}

fn root() -> SessionId {
    SessionId::new("work").unwrap()
}

/// Repeats until the replies allow this death and satisfy `good`.
fn until(scenario: &Scenario, death: Death, good: impl Fn(&Tree) -> bool) -> Tree {
    let tried = (0..TRIES).find_map(|_| survives(scenario, death).filter(|tree| good(tree)));
    tried.unwrap_or_else(|| panic!("{}: {TRIES} times nothing came of {death:?}", scenario.name()))
}

fn events(tree: &Tree) -> &[Envelope] {
    &tree.get(&root()).unwrap().events
}

#[test]
#[ignore = "needs LLM_PEER_URL, the address of a llama.cpp server"]
fn design_3_a_graph_of_six_agents_goes_on_after_a_kill() {
    for wire in WIRES {
        // Two nodes are in flight after the second start.
        for death in [
            Death { kind: "record:graph.node_started", times: 3, points: 9 },
            Death { kind: "record:graph.node_finished", times: 2, points: 12 },
            Death { kind: "record:graph.node_finished", times: 4, points: 4 },
        ] {
            let tree = until(&login(wire), death, |_| true);
            let outcome = tree.outcome(&root()).unwrap();
            assert!(outcome.is_completed() && !outcome.text.is_empty(), "{wire}: {outcome}");
            let report = GraphReport::from_events(events(&tree)).unwrap();
            assert_eq!(report.count(NodeState::Completed), 6, "{wire}: {report}");
            assert!(report.nodes.iter().all(|node| node.attempts == 1), "{wire}: {report}");
            assert_eq!(tree.iter().count(), 7, "{wire}: a session each");
            println!("{wire}: {death:?}: {outcome}");
        }
    }
}

#[test]
#[ignore = "needs LLM_PEER_URL, the address of a llama.cpp server"]
fn cw03_a_pair_ends_and_goes_on_after_a_kill_in_each_phase() {
    for wire in WIRES {
        // Work, summary, check.
        for times in 1..=3 {
            let death = Death { kind: "keep:checked.phase_started", times, points: 9 };
            let tree = until(&pair(wire), death, |_| true);
            let outcome = tree.outcome(&root()).unwrap();
            let phases =
                events(&tree).iter().filter_map(|event| event.event.record::<PhaseFinished>().unwrap());
            let phases: Vec<_> = phases.collect();
            let names = phases.iter().map(|end| (end.iteration, end.phase));
            let once: std::collections::HashSet<_> = names.collect();
            assert_eq!(once.len(), phases.len(), "{wire}: each phase ended once");
            let verdict = |end: &PhaseFinished| end.verdict.as_ref().is_some_and(|it| it.accepted);
            match &outcome.status {
                Status::Completed => assert!(verdict(phases.last().unwrap()), "{wire}: nobody said so"),
                Status::Stopped(StopReason::Incomplete { iterations, feedback }) => {
                    assert_eq!((*iterations, phases.len()), (2, 6), "{wire}");
                    assert!(!feedback.is_empty() && !phases.iter().any(|it| verdict(it)), "{wire}");
                }
                other => panic!("{wire}: {other}"),
            }
            println!("{wire}: {death:?}: {}", outcome.status);
        }
    }
}

#[test]
#[ignore = "needs LLM_PEER_URL, the address of a llama.cpp server"]
fn design_3_an_agent_as_a_tool_goes_on_after_a_kill() {
    for wire in WIRES {
        for death in [
            Death { kind: "tool_started", times: 1, points: 6 },
            Death { kind: "tool_started", times: 2, points: 1 },
            Death { kind: "tool_finished", times: 1, points: 5 },
        ] {
            // A prompt may be empty: then no agent is called.
            let tree = until(&lead(wire), death, |tree| tree.iter().count() == 2);
            let outcome = tree.outcome(&root()).unwrap();
            assert!(outcome.is_completed() && !outcome.text.is_empty(), "{wire}: {outcome}");
            let child = tree.iter().map(|(id, _)| id).find(|id| **id != root()).unwrap();
            let told = &tree.outcome(child).unwrap().text;
            let known = events(&tree).iter().any(|event| match &event.event {
                Event::ToolFinished(call) => call.result.to_text() == *told,
                _ => false,
            });
            assert!(known, "{wire}: the answer is what the agent was told");
            println!("{wire}: {death:?}: {outcome}");
        }
    }
}
