//! Random graphs with failures, changes and crashes at any moment: everything ends, no node begins before its
//! dependencies, and no completed node runs again.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    agent::Agent,
    event::{Envelope, Event},
    run::{Outcome, RunContext, Status, Task},
    session::{SessionFilter, SharedStore},
};
use entourage_runners::graph::{
    Change, GraphChanged, GraphControl, GraphReport, NodeEnd, NodeFinished, NodeStarted, OnFailure, PlanTask,
    SkipAs, SkipCause, TaskGraph,
};
use proptest::{collection::vec, prelude::*};

use crate::{
    common::{Fault, FaultyStore, Through, memory, process, runtime_on, stored},
    crew::root,
    decided::{Single, assert_agree, assert_numbers, stand},
};

const AGENTS: [&str; 3] = ["ann", "bob", "cem"];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Needed,
    Optional,
    Conditional,
}

#[derive(Debug, Clone)]
struct Spec {
    edges: Vec<(usize, Kind)>,
    /// Its agent; `None` for a step of the program.
    agent: Option<usize>,
    seconds: u64,
    /// Number of initial attempts that fail.
    fails: u32,
    attempts: u32,
    delay: u64,
}

#[derive(Debug, Clone)]
struct Scene {
    nodes: Vec<Spec>,
    overall: usize,
    each_agent: usize,
    policy: OnFailure,
    /// Interventions: seconds to wait before each, node number, and kind.
    meddling: Vec<(u64, usize, u8)>,
    deaths: Vec<Death>,
    /// True for a store that takes one event at a time, so that a process may die between any two.
    single: bool,
}

#[derive(Debug, Clone, Copy)]
enum Death {
    At(u64),
    Append(usize, Fault),
}

fn spec(place: usize) -> impl Strategy<Value = Spec> {
    let kind = prop_oneof![4 => Just(Kind::Needed), 1 => Just(Kind::Optional), 1 => Just(Kind::Conditional)];
    let edges =
        if place == 0 { vec((0..1_usize, kind), 0..=0).boxed() } else { vec((0..place, kind), 0..4).boxed() };
    let fails = prop_oneof![6 => Just(0_u32), 2 => Just(1), 1 => Just(2), 1 => Just(99)];
    let agent = prop_oneof![1 => Just(None), 1 => (0..AGENTS.len()).prop_map(Some)];
    (edges, agent, 0..4_u64, fails, 1..4_u32, 0..3_u64).prop_map(
        |(mut edges, agent, seconds, fails, attempts, delay)| {
            edges.sort_by_key(|(from, _)| *from);
            edges.dedup_by_key(|(from, _)| *from);
            Spec { edges, agent, seconds, fails, attempts, delay }
        },
    )
}

fn scene(meddles: bool) -> impl Strategy<Value = Scene> {
    // Changes meet each other, failures and waits in few nodes only.
    let count =
        if meddles { prop_oneof![1 => 1..60_usize, 3 => 2..9_usize].boxed() } else { (1..60_usize).boxed() };
    let nodes = count.prop_flat_map(|count| (0..count).map(spec).collect::<Vec<_>>());
    let death = prop_oneof![
        (0..40_u64).prop_map(Death::At),
        (0..30_usize, prop_oneof![Just(Fault::HangBefore), Just(Fault::HangAfter)])
            .prop_map(|(at, fault)| Death::Append(at, fault)),
    ];
    let after = prop_oneof![1 => 0..12_u64, 3 => 0..2_u64];
    let meddling = vec((after, 0..60_usize, 0..7_u8), if meddles { 0..20 } else { 0..1 });
    let policy = prop_oneof![
        3 => Just(OnFailure::SkipDependents),
        2 => Just(OnFailure::Continue),
        1 => Just(OnFailure::FailFast),
    ];
    (nodes, 1..6_usize, 1..3_usize, policy, meddling, vec(death, 0..4), any::<bool>()).prop_map(
        move |(nodes, overall, each_agent, policy, meddling, deaths, single)| {
            let meddling = if meddles { meddling } else { Vec::new() };
            Scene { nodes, overall, each_agent, policy, meddling, deaths, single }
        },
    )
}

/// Observations of all lives of a run.
#[derive(Debug)]
struct World {
    store: SharedStore,
    flaws: Mutex<Vec<String>>,
    failed: Mutex<HashMap<String, u32>>,
    busy: Mutex<BTreeMap<Option<usize>, usize>>,
}

/// A running attempt; counted until dropped.
struct Busy<'a>(&'a World, Option<usize>);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        *self.0.busy.lock().unwrap().get_mut(&self.1).unwrap() -= 1;
    }
}

impl World {
    /// Starts a process: loads what the store knows.
    async fn wakes(&self) {
        self.busy.lock().unwrap().clear();
        let events = stored_or_none(&self.store, &root()).await;
        let mut failed = HashMap::<String, u32>::new();
        for event in &events {
            if let Some(start) = event.event.record::<NodeStarted>().unwrap() {
                let Some(child) = &start.child else { continue };
                let events = stored_or_none(&self.store, child).await;
                let ended_badly = events.iter().any(|event| {
                        matches!(&event.event, Event::RunFinished(end) if matches!(end.outcome.status, Status::Failed(_)))
                    });
                *failed.entry(start.node.to_string()).or_default() += u32::from(ended_badly);
            }
        }
        let by_agents: BTreeSet<_> = failed.keys().cloned().collect();
        for event in &events {
            if let Some(end) = event.event.record::<NodeFinished>().unwrap()
                && matches!(end.end, NodeEnd::Failed(_))
                && !by_agents.contains(&*end.node)
            {
                *failed.entry(end.node.to_string()).or_default() += 1;
            }
        }
        *self.failed.lock().unwrap() = failed;
    }

    async fn begins(&self, scene: &Scene, node: &str, agent: Option<usize>) -> Busy<'_> {
        let events = stored_or_none(&self.store, &root()).await;
        let done = |event: &Envelope| {
            let end = event.event.record::<NodeFinished>().unwrap();
            end.is_some_and(|end| &*end.node == node && end.end.is_completed())
        };
        if events.iter().any(done) {
            self.flaws.lock().unwrap().push(format!("{node} runs again"));
        }
        let mut busy = self.busy.lock().unwrap();
        *busy.entry(agent).or_default() += 1;
        let all: usize = busy.values().sum();
        let mine = agent.map_or(0, |agent| busy[&Some(agent)]);
        if all > scene.overall || mine > scene.each_agent {
            self.flaws.lock().unwrap().push(format!("{node} is one too many: {busy:?}"));
        }
        drop(busy);
        Busy(self, agent)
    }

    fn ends(&self, node: &str, spec: Option<&Spec>) -> Result<String> {
        let fails = spec.map_or(0, |spec| spec.fails);
        let mut failed = self.failed.lock().unwrap();
        let failed = failed.entry(node.to_owned()).or_default();
        if *failed < fails {
            *failed += 1;
            return Err(Error::new(ErrorKind::Tool, "as planned"));
        }
        Ok(format!("{node} is done"))
    }
}

async fn stored_or_none(store: &SharedStore, session: &SessionId) -> Vec<Envelope> {
    let known = store.query(&SessionFilter::id(session.clone())).await.unwrap();
    if known.is_empty() { Vec::new() } else { stored(store, session).await }
}

fn place_of(node: &str) -> Option<usize> {
    node.strip_prefix('n')?.parse().ok()
}

/// An agent that takes its time, even to unwind.
#[derive(Clone)]
struct Hand {
    agent: usize,
    world: Arc<World>,
    scene: Arc<Scene>,
}

#[async_trait]
impl Agent for Hand {
    fn name(&self) -> &str {
        AGENTS[self.agent]
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        let prompt = task.prompt.text();
        let node = prompt.split_whitespace().next().unwrap();
        let _busy = self.world.begins(&self.scene, node, Some(self.agent)).await;
        let spec = place_of(node).map(|place| &self.scene.nodes[place]);
        let time = Duration::from_secs(spec.map_or(1, |spec| spec.seconds));
        tokio::select! {
            () = tokio::time::sleep(time) => self.world.ends(node, spec).map(Outcome::completed),
            () = cx.cancellation().cancelled() => {
                tokio::time::sleep(Duration::from_millis(500)).await;
                Err(Error::cancelled())
            }
        }
    }
}

/// True for a node with an even number: the condition of conditional edges.
fn holds(value: &str) -> bool {
    value.split_whitespace().next().and_then(place_of).is_some_and(|place| place % 2 == 0)
}

fn build(scene: &Arc<Scene>, world: &Arc<World>) -> TaskGraph {
    let hand = |agent| Hand { agent, world: Arc::clone(world), scene: Arc::clone(scene) };
    let mut graph = TaskGraph::builder("random")
        .limit(scene.overall)
        .limit_each_agent(scene.each_agent)
        .on_failure(scene.policy);
    for agent in 0..AGENTS.len() {
        graph = graph.with_agent(hand(agent));
    }
    let mut handles = Vec::new();
    for (place, spec) in scene.nodes.iter().enumerate() {
        let id = format!("n{place}");
        let mut node = match spec.agent {
            Some(agent) => graph.agent(&id, &hand(agent), id.as_str()),
            None => {
                let (scene, world, node) = (Arc::clone(scene), Arc::clone(world), id.clone());
                graph.step(&id, (), move |()| {
                    let (scene, world, node) = (Arc::clone(&scene), Arc::clone(&world), node.clone());
                    async move {
                        let spec = &scene.nodes[place];
                        let _busy = world.begins(&scene, &node, None).await;
                        if spec.seconds > 0 {
                            tokio::time::sleep(Duration::from_secs(spec.seconds)).await;
                        }
                        world.ends(&node, Some(spec))
                    }
                })
            }
        };
        for (from, kind) in &spec.edges {
            let from = &handles[*from];
            node = match kind {
                Kind::Needed => node.after(from),
                Kind::Optional => node.after(entourage_runners::graph::Handle::optional(from)),
                Kind::Conditional => node.when(from, |value: &String| holds(value)),
            };
        }
        handles.push(node.attempts(spec.attempts).delay(Duration::from_secs(spec.delay)));
    }
    graph.build().unwrap()
}

/// Makes the changes that are left, and compares the live report with the stored one after each.
async fn meddle(scene: &Scene, world: &World, control: &GraphControl, next: &AtomicUsize) {
    loop {
        let number = next.fetch_add(1, Ordering::SeqCst);
        let Some((after, node, what)) = scene.meddling.get(number) else { std::future::pending().await };
        tokio::time::sleep(Duration::from_secs(*after)).await;
        let node = format!("n{}", node % scene.nodes.len());
        // Most of these are refused, as they should be: the run continues all the same.
        drop(match what {
            0 => control.skip(&node, SkipAs::Satisfied).await,
            1 => control.skip(&node, SkipAs::Blocked).await,
            2 => control.cancel(&node).await,
            3 | 4 => control.retry(&node).await,
            5 => control.reassign(&node, AGENTS[number % AGENTS.len()]).await,
            _ => {
                let id = format!("x{number}");
                let agent = AGENTS[number % AGENTS.len()];
                control.add(PlanTask::new(&*id, agent, &*id).after([node])).await
            }
        });
        if let Ok(report) = control.report().await {
            let told = GraphReport::from_events(&stored_or_none(&world.store, &root()).await).unwrap();
            let flaw = || format!("live {:?}, stored {:?}", stand(&report), stand(&told));
            world.flaws.lock().unwrap().extend((stand(&report) != stand(&told)).then(flaw));
        }
    }
}

/// Runs one process; `None` when it died.
fn live(scene: &Arc<Scene>, world: &Arc<World>, death: Option<Death>, next: &AtomicUsize) -> Option<Outcome> {
    let inner = &world.store;
    process(async {
        world.wakes().await;
        let graph = build(scene, world);
        let (at, fault) = match death {
            Some(Death::Append(at, fault)) => (at, fault),
            _ => (usize::MAX, Fault::HangBefore),
        };
        let faulty = FaultyStore::new(inner, at, fault);
        let killed = faulty.killed.clone();
        let store: SharedStore = match scene.single {
            true => Arc::new(Through(Single(faulty as SharedStore))),
            false => faulty,
        };
        let runtime = runtime_on(&store);
        let session = runtime.session_with_id(root());
        let run = match session.head().await.unwrap().seq {
            0 => session.start(&graph, "Go"),
            _ => session.resume(&graph),
        };
        let control = graph.control(&run);
        let late = async {
            match death {
                Some(Death::At(seconds)) => tokio::time::sleep(Duration::from_secs(seconds)).await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = killed.arrived(1) => None,
            outcome = run.outcome() => Some(outcome),
            () = late => None,
            () = meddle(scene, world, &control, next) => None,
        }
    })
    .and_then(|outcome| match outcome {
        Ok(outcome) => Some(outcome),
        // The previous process died after the end was stored.
        Err(error) if error.kind() == ErrorKind::NotFound => process(async {
            stored_or_none(inner, &root()).await.iter().rev().find_map(|event| match &event.event {
                Event::RunFinished(end) => Some(end.outcome.clone()),
                _ => None,
            })
        }),
        Err(error) => panic!("{error:?}"),
    })
}

/// Runs the scene to its end, through all its crashes.
fn run(scene: &Arc<Scene>, deaths: &[Death]) -> (Outcome, Vec<Envelope>, Arc<World>) {
    let (store, next) = (memory(), AtomicUsize::new(0));
    let world = Arc::new(World {
        store: Arc::clone(&store),
        flaws: Mutex::default(),
        failed: Mutex::default(),
        busy: Mutex::default(),
    });
    for death in deaths.iter().copied().map(Some).chain([None]) {
        if let Some(outcome) = live(scene, &world, death, &next) {
            let events = process(stored_or_none(&store, &root()));
            return (outcome, events, world);
        }
    }
    panic!("a life without a death has no end");
}

/// Returns the dependencies of each node, including added nodes.
fn edges(scene: &Scene, events: &[Envelope]) -> HashMap<String, Vec<(String, Kind)>> {
    let own = scene.nodes.iter().enumerate().map(|(place, spec)| {
        let edges = spec.edges.iter().map(|(from, kind)| (format!("n{from}"), *kind)).collect();
        (format!("n{place}"), edges)
    });
    let changes = events.iter().filter_map(|event| event.event.record::<GraphChanged>().unwrap());
    let added = changes.filter_map(|changed| match &changed.change {
        Change::Add { node, .. } => {
            let after = node.after.iter().map(|edge| (edge.from.to_string(), Kind::Needed)).collect();
            Some((node.id.to_string(), after))
        }
        _ => None,
    });
    own.chain(added).collect()
}

/// Checks the order in the record, independently of the scheduler.
fn check_order(scene: &Scene, events: &[Envelope]) {
    let edges = edges(scene, events);
    let mut ends: HashMap<String, NodeEnd> = HashMap::new();
    let (mut satisfied, mut by_hand) = (BTreeSet::new(), BTreeSet::new());
    for event in events {
        if let Some(start) = event.event.record::<NodeStarted>().unwrap() {
            let node = start.node.to_string();
            assert!(!ends.get(&node).is_some_and(NodeEnd::is_completed), "{node} is done, and begins");
            for (from, kind) in &edges[&node] {
                let end = ends.get(from).unwrap_or_else(|| panic!("{node} begins before {from} is over"));
                let gave = match end {
                    NodeEnd::Completed(value) => {
                        *kind != Kind::Conditional || by_hand.contains(&node) || holds(&value.to_text())
                    }
                    NodeEnd::Skipped(SkipCause::Asked) => {
                        satisfied.contains(from) && (*kind != Kind::Conditional || by_hand.contains(&node))
                    }
                    NodeEnd::Failed(_) | NodeEnd::Cancelled => {
                        scene.policy == OnFailure::Continue
                            && (*kind != Kind::Conditional || by_hand.contains(&node))
                    }
                    _ => false,
                };
                assert!(gave || *kind == Kind::Optional, "{node} begins, and {from} has no output: {end:?}");
            }
        }
        let end = event.event.record::<NodeFinished>().unwrap();
        if let Some(end) = end.filter(|end| end.retry_at.is_none()) {
            ends.insert(end.node.to_string(), end.end.clone());
        }
        let Some(changed) = event.event.record::<GraphChanged>().unwrap() else { continue };
        match &changed.change {
            Change::Skip { node, dependents } => {
                satisfied.remove(&node.to_string());
                if *dependents == SkipAs::Satisfied {
                    satisfied.insert(node.to_string());
                }
            }
            Change::Retry { node } => {
                by_hand.insert(node.to_string());
                ends.remove(&**node);
                for node in &changed.again {
                    ends.remove(&**node);
                }
            }
            _ => {}
        }
    }
}

fn check(scene: &Scene, outcome: &Outcome, events: &[Envelope], world: &World) {
    assert_eq!(*world.flaws.lock().unwrap(), Vec::<String>::new());
    assert!(matches!(outcome.status, Status::Completed | Status::Stopped(_)), "{outcome:?}");
    let report = GraphReport::from_events(events).unwrap();
    let own: Vec<_> = report.nodes.iter().take(scene.nodes.len()).map(|node| node.id.to_string()).collect();
    assert_eq!(own, (0..scene.nodes.len()).map(|place| format!("n{place}")).collect::<Vec<_>>());
    for node in &report.nodes {
        assert!(node.end.is_some(), "{} is not over: {report}", node.id);
    }
    check_order(scene, events);
    assert_agree(&report, outcome);
    assert_numbers(events);
}

/// Returns the end of each node. Of several reasons for a skip the first one counts, and that depends on the timing of
/// other nodes.
fn ends(events: &[Envelope]) -> Vec<(String, String)> {
    let end = |end: Option<NodeEnd>| match end {
        Some(NodeEnd::Skipped(_)) => "skipped".to_owned(),
        end => format!("{end:?}"),
    };
    let report = GraphReport::from_events(events).unwrap();
    report.nodes.into_iter().map(|node| (node.id.to_string(), end(node.end))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lo07_any_graph_ends_through_any_deaths_and_as_it_would_have_without(scene in scene(false)) {
        let scene = Arc::new(scene);
        let (outcome, events, world) = run(&scene, &[]);
        check(&scene, &outcome, &events, &world);
        let (again, events_again, world) = run(&scene, &scene.deaths);
        check(&scene, &again, &events_again, &world);
        // With fail-fast, the first failure decides.
        if scene.policy != OnFailure::FailFast {
            prop_assert_eq!(ends(&events), ends(&events_again));
            prop_assert_eq!(outcome.is_completed(), again.is_completed());
            prop_assert_eq!(outcome.text, again.text);
        }
    }

    #[test]
    fn lo13_any_changes_at_any_moment_leave_a_graph_that_ends(scene in scene(true)) {
        let scene = Arc::new(scene);
        let (outcome, events, world) = run(&scene, &scene.deaths);
        check(&scene, &outcome, &events, &world);
    }
}
