//! Child sessions: whatever is tried with them directly, their agents run through their root only, with its scope and
//! within its budget.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    budget::BudgetLimits,
    context::Compaction,
    event::Event,
    permission::{ApprovalId, Decision, Scope},
    run::{Pause, Status},
    session::{SessionFilter, SharedStore},
    tool::{Access, ToolOutput},
};
use entourage_runners::{AgentTool, ReactAgent};
use entourage_runtime::permission::Policy;
use entourage_runtime::{Agents, Moment, RunHandle, Runtime, Session};
use entourage_testkit::{self as testkit, FakeTool, ScriptedProvider};
use proptest::prelude::*;
use serde_json::json;
use tokio::time::Instant;

use crate::common::{agent, assert_valid, count, memory, process, runtime_on, settled, stored};

/// An agent of a tree: it calls those below it one after another, looks around, which needs approval, and writes.
#[derive(Debug, Clone)]
struct Node {
    below: Vec<Node>,
    looks: bool,
    writes: usize,
}

fn nodes() -> impl Strategy<Value = Node> {
    let leaf = (any::<bool>(), 0..3_usize).prop_map(|(looks, writes)| Node { below: vec![], looks, writes });
    leaf.prop_recursive(3, 8, 3, |inner| {
        let below = prop::collection::vec(inner, 1..3);
        (below, any::<bool>(), 0..3_usize).prop_map(|(below, looks, writes)| Node { below, looks, writes })
    })
}

/// The environment of the agents of a tree.
#[derive(Debug, Clone)]
struct World {
    store: SharedStore,
    look: FakeTool,
    write: FakeTool,
    agents: Arc<Mutex<HashMap<String, ReactAgent>>>,
    budget: u64,
}

impl World {
    fn runtime(&self) -> Runtime {
        let limits = BudgetLimits::none().with_tool_calls(self.budget);
        let builder = testkit::runtime().policy(Policy::allow_all().ask("look"));
        builder.shared_store(Arc::clone(&self.store)).budget(limits).build()
    }

    fn agent(&self, node: &Node, name: &str, scope: &Scope) -> ReactAgent {
        let mut provider = ScriptedProvider::by_history();
        let mut tools = Vec::new();
        for (index, below) in node.below.iter().enumerate() {
            let tool = format!("ask{index}");
            provider = provider.call(&tool, json!({"prompt": "Look around."}));
            let below = self.agent(below, &format!("{name}-{index}"), &Scope::all());
            tools.push(AgentTool::new(below).with_name(tool));
        }
        if node.looks {
            provider = provider.call("look", json!({}));
        }
        for _ in 0..node.writes {
            provider = provider.call("write", json!({}));
        }
        let provider = provider.text("Done.");
        let builder = ReactAgent::builder(name, provider.model()).scope(scope.clone());
        let builder = builder.tool(self.look.clone()).tool(self.write.clone());
        let agent = tools.into_iter().fold(builder, |builder, tool| builder.tool(tool)).build().unwrap();
        self.agents.lock().unwrap().insert(name.to_owned(), agent.clone());
        agent
    }

    async fn events(&self) -> usize {
        let mut events = 0;
        for info in self.store.query(&SessionFilter::all()).await.unwrap() {
            events += usize::try_from(info.head.seq).unwrap();
        }
        events
    }

    /// Tries everything that could run something in a child session, through `runtime` and through older handles.
    async fn attack(&self, runtime: &Runtime, kept: &[Session], root: &SessionId) {
        let before = (self.events().await, self.write.started(), self.look.started());
        let mut sessions: Vec<Session> = kept.to_vec();
        for info in self.store.query(&SessionFilter::tree(root.clone())).await.unwrap() {
            sessions.push(runtime.open(&info.record.id).await.unwrap());
        }
        for session in sessions.into_iter().filter(|session| session.id() != root) {
            let name = session.head().await.unwrap().agent;
            let agent = self.agents.lock().unwrap()[&*name].clone();
            assert_refused(&session, &agent, root).await;
        }
        let agents = self.agents.lock().unwrap().values().cloned().fold(Agents::new(), Agents::with);
        let recovery = runtime.recover(&agents).await.unwrap();
        assert!(recovery.resumed.is_empty() && recovery.skipped.is_empty(), "{recovery:?}");
        assert_eq!((self.events().await, self.write.started(), self.look.started()), before);
    }
}

fn assert_names<T: std::fmt::Debug>(root: &SessionId, refused: Result<T>) {
    let error: Error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.message().contains(&format!("`{root}`")), "{error}");
}

async fn assert_refused(session: &Session, agent: &ReactAgent, root: &SessionId) {
    let never = ScriptedProvider::new();
    assert_names(root, session.resume(agent).outcome().await);
    assert_names(root, session.start(agent, "Write!").outcome().await);
    // Two at once: the second one would wait for the first.
    let both = [session.start(agent, "Write!"), session.start(agent, "Write more!")];
    for run in both.map(RunHandle::outcome) {
        assert_names(root, run.await);
    }
    assert_names(root, session.steer("Write!").await);
    assert_names(root, session.fork(Moment::Event(u64::MAX)).await);
    assert_names(root, session.compact(&Compaction::default(), &never.model()).await);
    assert!(!session.history().await.unwrap().is_empty() && never.count() == 0, "it can be read");
}

/// Runs a tree in several processes, each up to a request for approval; between them everything is tried.
fn lives(node: &Node, writes: bool, budget: u64) {
    let world = World {
        store: memory(),
        look: FakeTool::new("look"),
        write: FakeTool::new("write").access(Access::WRITE).echoing(),
        agents: Arc::default(),
        budget,
    };
    let scope = if writes { Scope::all() } else { Scope::all().with_access(Access::READ | Access::DELEGATE) };
    let root = SessionId::new("root").unwrap();
    let mut asked: Option<ApprovalId> = None;
    for _ in 0..40 {
        let ended = process(async {
            let runtime = world.runtime();
            let top = world.agent(node, "top", &scope);
            let session = runtime.session_with_id(root.clone());
            let mut kept = Vec::new();
            let outcome = match &asked {
                None => session.start(&top, "Go").outcome().await,
                Some(question) => {
                    kept.push(runtime.open(&question.session().unwrap()).await.unwrap());
                    world.attack(&runtime, &kept, &root).await;
                    world.runtime().decide(question, Decision::Allow).await.unwrap();
                    session.resume(&top).outcome().await
                }
            };
            let outcome = outcome.unwrap();
            world.attack(&runtime, &kept, &root).await;
            outcome
        });
        match ended.status {
            Status::Paused(Pause::Approval(question)) => asked = Some(question),
            status => {
                assert!(matches!(status, Status::Completed | Status::Stopped(_)), "{status}");
                break;
            }
        }
    }
    process(async {
        let mut started = 0;
        for info in world.store.query(&SessionFilter::all()).await.unwrap() {
            started += count(&stored(&world.store, &info.record.id).await, "tool_started");
            assert_ne!(info.head.status, entourage_core::session::SessionStatus::Running);
        }
        assert!(started as u64 <= budget, "{started} calls of {budget}");
        assert!(writes || world.write.started() == 0, "it wrote {} times", world.write.started());
    });
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48, failure_persistence: None, rng_seed: prop::test_runner::RngSeed::Fixed(11), ..ProptestConfig::default()
    })]

    #[test]
    fn attack_20_no_run_below_a_root_leaves_its_scope_or_its_budget(
        node in nodes(), writes in any::<bool>(), budget in 1..12_u64,
    ) {
        lives(&node, writes, budget);
    }
}

#[test]
fn attack_20_a_child_that_was_answered_goes_on_through_its_root_alone() {
    let leaf = Node { below: vec![], looks: true, writes: 4 };
    lives(&Node { below: vec![leaf], looks: false, writes: 1 }, false, 4);
}

#[tokio::test(start_paused = true)]
async fn attack_07_an_id_of_a_session_below_others_is_not_to_be_had() {
    let store = memory();
    let runtime = testkit::runtime().shared_store(Arc::clone(&store)).build();
    let provider = ScriptedProvider::by_history().text("Hi.");
    let agent = agent(provider.model()).build().unwrap();
    for id in ["work.3$$0", "work$$0", "work$$executor", "$$"] {
        let session = runtime.session_with_id(SessionId::new(id).unwrap());
        let error = session.start(&agent, "Mine now").outcome().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.message().contains("`$$`"), "{error}");
        assert!(session.history().await.unwrap().is_empty());
    }
    assert!(store.query(&SessionFilter::all()).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_a_tool_ends_cancels_the_agent_that_an_earlier_call_runs() {
    let (store, hangs) = (memory(), FakeTool::new("look").timeout(Duration::from_secs(1_800)).hanging());
    let small = ScriptedProvider::by_history().call("look", json!({})).text("Seen.");
    let below = agent(small.model()).tool(hangs.clone()).build().unwrap();
    let plain = FakeTool::new("plain").taking(Duration::from_secs(5));
    let stop =
        FakeTool::new("stop").taking(Duration::from_secs(2)).giving(ToolOutput::text("Enough.").stopping());
    let calls = [("agent", json!({"prompt": "Look."})), ("plain", json!({})), ("stop", json!({}))];
    let provider = ScriptedProvider::new().calls(calls);
    let lead = agent(provider.model()).tool(AgentTool::new(below)).tool(plain.clone()).tool(stop);
    let (session, begun) = (runtime_on(&store).session(), Instant::now());
    let outcome = session.start(&lead.build().unwrap(), "Go").outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Completed, "{outcome}");
    assert_eq!(begun.elapsed(), Duration::from_secs(5), "other calls run to their end");
    assert_eq!((hangs.started(), hangs.running(), plain.finished()), (1, 0, 1), "nothing outlives the run");
    let told = settled(&stored(&store, session.id()).await);
    let told = |name: &str| told.iter().find(|it| it.0 == name).unwrap().1.clone();
    assert!(
        told("agent").contains("stopped, since another call of its step ended the turn"),
        "{}",
        told("agent")
    );
    assert_eq!((&*told("plain"), &*told("stop")), ("ok", "Enough."));
    assert_valid(&session.history().await.unwrap());
    let mut children = SessionFilter::default();
    children.parent = Some(Some(session.id().clone()));
    let [child] = &store.query(&children).await.unwrap()[..] else { panic!() };
    let events = stored(&store, &child.record.id).await;
    let Event::RunFinished(end) = &events.last().unwrap().event else { panic!("{events:?}") };
    assert_eq!(end.outcome.status, Status::Cancelled);
}
