//! Sessions of composed agents as version 0.1 stored them, in every state in which a process can leave one. Later
//! versions rename and move what they record, and still continue and replay these.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use entourage_core::{
    ErrorKind, SessionId,
    agent::Agent,
    event::{Envelope, Event},
    permission::Decision,
    provider::FinishReason,
    run::{Outcome, Pause, Status},
    session::SharedStore,
    tool::Access,
};
use entourage_runners::{
    AgentTool, CheckedTask, DualAgent, Phase, ReactAgent, ReactBuilder,
    graph::{GraphReport, NodeState, SkipAs, TaskGraph},
};
use entourage_runtime::permission::Policy;
use entourage_runtime::{MemoryStore, Runtime};
use entourage_store::SqliteStore;
use entourage_testkit::{self as testkit, FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;
use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::{
    engines,
    seed::{copy, id, process},
};

const FROZEN: &str = include_str!("../../../tests/corpus/sqlite/runners.sql");

/// A checked task that was stopped in its second round and begun again, after a checkpoint; its process died.
const ABANDONED: &str = "abandoned";
/// A checked task that is complete.
const CHECKED: &str = "checked";
/// A graph that was paused after a map and after a node's second attempt.
const PAUSED: &str = "paused";
/// A graph with a node that was skipped, whose process died within a map.
const KILLED: &str = "killed";
/// A graph that is complete.
const PLANNED: &str = "planned";
/// A graph that waits for leave to call a tool, in an agent that is a tool of the agent at a node.
const SHOP: &str = "shop";

fn runtime(store: &SharedStore) -> Runtime {
    let policy = Policy::allow_all().ask("pay");
    testkit::runtime().shared_store(Arc::clone(store)).policy(policy).checkpoint_every(1).build()
}

fn agent(name: &str, provider: &ScriptedProvider) -> ReactBuilder {
    ReactAgent::builder(name, provider.model())
}

fn says(text: &str) -> ScriptedProvider {
    ScriptedProvider::by_history().text(text)
}

fn waits(gate: &Gate, text: &str) -> Script {
    Script::new().wait(gate).text(text).usage(10, 5).finish(FinishReason::Stop)
}

/// Models of a checked task: its work is rejected once, and its second round waits at the gate.
struct Pair {
    works: ScriptedProvider,
    checks: ScriptedProvider,
}

impl Pair {
    fn new(gate: &Gate) -> Self {
        let works = ScriptedProvider::by_history()
            .text("I wrote it.")
            .text("Summary one.")
            .step(waits(gate, "I tested it."))
            .text("Summary two.");
        let done = json!({"summary": "It is tested."});
        let checks = ScriptedProvider::by_history().text("Test it.").call("task_complete", done);
        Self { works, checks }
    }

    fn agent(&self) -> DualAgent {
        let (coder, reviewer) = (agent("coder", &self.works), agent("reviewer", &self.checks));
        let reviewer = reviewer.tool(FakeTool::new("look").returning("a file"));
        DualAgent::builder("pair", coder.build().unwrap(), reviewer.build().unwrap()).build().unwrap()
    }
}

/// A list, a map over it, a node with two attempts, one that may be skipped, and an end.
fn plan(scout: &ScriptedProvider, writer: &ScriptedProvider) -> TaskGraph {
    let built = |name: &str, provider: &ScriptedProvider| agent(name, provider).build().unwrap();
    let graph = TaskGraph::builder("plan").limit(1);
    let sides = graph.step("sides", (), |()| async { Ok(vec!["left".to_owned(), "right".to_owned()]) });
    let looks = graph.map_agent("looks", &sides, &built("scout", scout), |side| format!("Look {side}."));
    let report = graph.agent("report", &built("writer", writer), "Report.").after(&looks).attempts(2);
    let picture = graph.agent("picture", &built("artist", &says("Drawn.")), "Draw it.").after(&looks);
    let signed = graph.agent("sign", &built("head", &says("Signed.")), "Sign it.").after((&report, &picture));
    graph.returning(&signed).build().unwrap()
}

fn ready_plan() -> TaskGraph {
    plan(&says("Looked."), &says("All is well."))
}

fn shop() -> TaskGraph {
    let pays = ScriptedProvider::by_history().call("pay", json!({"sum": 3})).text("Paid.");
    let pay = FakeTool::new("pay").access(Access::WRITE).returning("paid");
    let cashier = agent("cashier", &pays).tool(pay).build().unwrap();
    let buys = ScriptedProvider::by_history().call("agent", json!({"prompt": "Pay."})).text("It is paid.");
    let buyer = agent("buyer", &buys).tool(AgentTool::new(cashier)).build().unwrap();
    let graph = TaskGraph::builder("shop");
    let buy = graph.agent("buy", &buyer, "Buy a pear.");
    let keeper = agent("keeper", &says("Closed.")).build().unwrap();
    let close = graph.agent("close", &keeper, "Close the shop.").after(&buy);
    graph.returning(&close).build().unwrap()
}

/// Returns a store in memory with all sessions of this file.
fn sessions() -> SharedStore {
    let store: SharedStore = Arc::new(MemoryStore::new());
    process(checked(&store));
    process(planned(&store));
    store
}

async fn checked(store: &SharedStore) {
    let (gate, runtime) = (Gate::new(), runtime(store));
    let open = Gate::new();
    open.open();
    let run = runtime.session_with_id(id(CHECKED)).start(&Pair::new(&open).agent(), "Write it.");
    assert_eq!(run.outcome().await.unwrap().text, "Summary two.");

    let (session, agent) = (runtime.session_with_id(id(ABANDONED)), Pair::new(&gate).agent());
    let run = session.start(&agent, "Write it.");
    gate.arrived(1).await;
    run.cancel();
    assert_eq!(run.outcome().await.unwrap().status, Status::Paused(Pause::Asked));
    let _run = session.start(&agent, "Also the docs.");
    gate.arrived(2).await;
}

async fn planned(store: &SharedStore) {
    let runtime = runtime(store);
    let run = runtime.session_with_id(id(PLANNED)).start(&ready_plan(), "It is spring.");
    assert_eq!(run.outcome().await.unwrap().text, "Signed.");

    let run = runtime.session_with_id(id(SHOP)).start(&shop(), "It is evening.");
    assert!(matches!(run.outcome().await.unwrap().status, Status::Paused(Pause::Approval(_))));

    let gate = Gate::new();
    let writer =
        ScriptedProvider::new().fail(ErrorKind::Overloaded, "no room").step(waits(&gate, "All is well."));
    let run = runtime.session_with_id(id(PAUSED)).start(&plan(&says("Looked."), &writer), "It is spring.");
    gate.arrived(1).await;
    run.pause();
    gate.open();
    assert_eq!(run.outcome().await.unwrap().status, Status::Paused(Pause::Asked));

    let gate = Gate::new();
    let scout = ScriptedProvider::new().text("Looked.").step(waits(&gate, "Looked."));
    let graph = plan(&scout, &says("All is well."));
    let run = runtime.session_with_id(id(KILLED)).start(&graph, "It is spring.");
    gate.arrived(1).await;
    graph.control(&run).skip("picture", SkipAs::Satisfied).await.unwrap();
}

#[tokio::test]
#[ignore = "writes a file into the repository"]
async fn freeze() {
    assert!(FROZEN.is_empty(), "the sessions of composed agents are frozen");
    let mut lite = engines::lite_of(sessions).await;
    let dump = engines::dump(&mut lite.db, "Sessions of composed agents as version 0.1 stored them.").await;
    std::fs::write(format!("{}/../tests/corpus/sqlite/runners.sql", env!("CARGO_MANIFEST_DIR")), dump)
        .unwrap();
}

/// Returns the frozen sessions, read by today's store from a file of that time, in memory.
fn thawed() -> SharedStore {
    let read = async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runners.db");
        let options = SqliteConnectOptions::new().filename(&path).create_if_missing(true);
        let mut frozen = SqliteConnection::connect_with(&options).await.unwrap();
        sqlx::raw_sql(FROZEN).execute(&mut frozen).await.unwrap();
        frozen.close().await.unwrap();
        let file = Arc::new(SqliteStore::open(&path).await.unwrap());
        let memory = Arc::new(MemoryStore::new());
        copy(&(Arc::clone(&file) as SharedStore), &*memory).await;
        file.close().await;
        memory as SharedStore
    };
    tokio::runtime::Runtime::new().unwrap().block_on(read)
}

/// Runs `future` as a process long after the one that left these sessions.
fn later<T>(future: impl Future<Output = T>) -> T {
    process(async {
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        future.await
    })
}

async fn events(store: &SharedStore, session: &SessionId) -> Vec<Envelope> {
    runtime(store).session_with_id(session.clone()).events(0, usize::MAX).await.unwrap()
}

/// Replays every finished run of a session, and returns how many there are.
async fn replayed<A: Agent + Clone + 'static>(store: &SharedStore, name: &str, agent: &A) -> usize {
    let session = runtime(store).session_with_id(id(name));
    let mut count = 0;
    for event in events(store, &id(name)).await {
        if let Event::RunFinished(end) = &event.event {
            let outcome = session.replay(agent, event.origin.run).await;
            assert_eq!(outcome.unwrap_or_else(|error| panic!("{name}: {error:?}")), end.outcome, "{name}");
            count += 1;
        }
    }
    count
}

async fn resumed<A: Agent + Clone + 'static>(store: &SharedStore, name: &str, agent: &A) -> Outcome {
    runtime(store).session_with_id(id(name)).resume(agent).outcome().await.unwrap()
}

#[test]
fn finished_runs_of_version_0_1_replay() {
    let store = thawed();
    later(async {
        let pair = Pair::new(&Gate::new());
        assert_eq!(replayed(&store, CHECKED, &pair.agent()).await, 1);
        assert_eq!((pair.works.count(), pair.checks.count()), (0, 0));
        let (scout, writer) = (says("Looked."), says("All is well."));
        assert_eq!(replayed(&store, PLANNED, &plan(&scout, &writer)).await, 1);
        assert_eq!((scout.count(), writer.count()), (0, 0));
    });
}

#[test]
fn a_checked_task_of_version_0_1_goes_on_in_its_round() {
    let store = thawed();
    later(async {
        let gate = Gate::new();
        gate.open();
        let pair = Pair::new(&gate);
        let session = runtime(&store).session_with_id(id(ABANDONED));
        let state = session.state().await.unwrap();
        let progress = CheckedTask::of(&state).unwrap().unwrap();
        assert_eq!((progress.iteration(), progress.phase()), (2, Phase::Execute));
        assert_eq!(
            (progress.request().text().as_str(), progress.feedback()),
            ("Write it.", Some("Test it."))
        );
        assert!(state.head().checkpoint > 0, "the state was read from a checkpoint");
        let outcome = resumed(&store, ABANDONED, &pair.agent()).await;
        assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "Summary two."));
        // The rest of the second round, and its check.
        assert_eq!((pair.works.count(), pair.checks.count()), (2, 1));
        assert_eq!(replayed(&store, ABANDONED, &pair.agent()).await, 1);
    });
}

#[test]
fn graphs_of_version_0_1_go_on_where_they_were() {
    let store = thawed();
    later(async {
        let report = GraphReport::from_events(&events(&store, &id(PAUSED)).await).unwrap();
        let state = |node: &str| report.node(node).unwrap().state();
        assert_eq!((state("looks"), state("report")), (NodeState::Completed, NodeState::Completed));
        for (name, looks, reports) in [(PAUSED, 0, 0), (KILLED, 1, 1)] {
            let (scout, writer) = (says("Looked."), says("All is well."));
            let graph = plan(&scout, &writer);
            let outcome = resumed(&store, name, &graph).await;
            assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "Signed."), "{name}");
            assert_eq!((scout.count(), writer.count()), (looks, reports), "{name}");
            assert_eq!(replayed(&store, name, &graph).await, 1);
        }
        let report = GraphReport::from_events(&events(&store, &id(KILLED)).await).unwrap();
        assert_eq!(report.node("picture").unwrap().state(), NodeState::Skipped);
    });
}

#[test]
fn an_approval_below_a_node_of_version_0_1_is_decided() {
    let store = thawed();
    later(async {
        let runtime = runtime(&store);
        let asked = events(&store, &id(SHOP)).await.into_iter().rev().find_map(|event| match &event.event {
            Event::RunPaused(paused) => match &paused.pause {
                Pause::Approval(question) => Some(question.clone()),
                _ => None,
            },
            _ => None,
        });
        runtime.decide(&asked.unwrap(), Decision::Allow).await.unwrap();
        let outcome = resumed(&store, SHOP, &shop()).await;
        assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "Closed."));
        assert_eq!(replayed(&store, SHOP, &shop()).await, 1);
    });
}

#[test]
fn the_frozen_sessions_hold_every_kind_of_composed_agents() {
    let kind = |line: &str| {
        let values = line.strip_prefix("INSERT INTO events VALUES (")?;
        values.split(", ").nth(3).map(|kind| kind.trim_matches('\'').to_owned())
    };
    let kinds: BTreeSet<_> = FROZEN.lines().filter_map(kind).collect();
    for wanted in [
        "phase_started",
        "phase_finished",
        "graph_started",
        "node_started",
        "node_finished",
        "graph_changed",
        "checkpoint",
        "approval_requested",
    ] {
        assert!(kinds.contains(wanted), "{wanted} is not among {kinds:?}");
    }
}
