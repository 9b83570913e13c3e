//! Permissions of agents at nodes that were added or reassigned while a graph runs.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    agent::Agent,
    permission::Scope,
    provider::Size,
    run::{Outcome, RunContext, Task},
    session::SharedStore,
    tool::Access,
};
use entourage_runners::graph::{GraphControl, PlanTask, TaskGraph};
use entourage_runtime::RunHandle;
use entourage_testkit::Gate;

use crate::{
    common::{memory, process, runtime_on, until_killed},
    crew::root,
};

/// Records the scope of each task by name.
#[derive(Debug, Clone)]
struct Noting {
    name: &'static str,
    seen: Arc<Mutex<BTreeMap<String, Scope>>>,
    /// Tasks that fail, once each.
    fails: Arc<Mutex<Vec<&'static str>>>,
}

impl Noting {
    fn new(name: &'static str) -> Self {
        Self { name, seen: Arc::default(), fails: Arc::default() }
    }

    fn saw(&self, task: &str) -> Scope {
        self.seen.lock().unwrap().get(task).cloned().unwrap_or_else(|| panic!("{} saw no {task}", self.name))
    }
}

#[async_trait]
impl Agent for Noting {
    fn name(&self) -> &str {
        self.name
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        let text = task.prompt.text();
        let name = text.split_whitespace().next().unwrap_or_default().to_owned();
        self.seen.lock().unwrap().insert(name.clone(), cx.scope().clone());
        let mut fails = self.fails.lock().unwrap();
        if let Some(place) = fails.iter().position(|it| **it == name) {
            fails.remove(place);
            return Err(Error::new(ErrorKind::Tool, "as planned"));
        }
        Ok(Outcome::completed(format!("{name} done")))
    }
}

struct Scene {
    gate: Gate,
    scout: Noting,
    large: Noting,
    other: Noting,
    graph: TaskGraph,
    store: SharedStore,
}

fn no_write() -> Scope {
    Scope::all().without_tools(["write"])
}

impl Scene {
    /// Creates the crew: `scout` has two nodes and a map, `large` is the target of one escalation, `other` has none.
    fn new() -> Self {
        let gate = Gate::new();
        let (scout, large, other) = (Noting::new("scout"), Noting::new("large"), Noting::new("other"));
        let graph = TaskGraph::builder("scene").with_agent(other.clone());
        let hold = gate.clone();
        let held = graph.step("hold", (), move |()| {
            let hold = hold.clone();
            async move {
                hold.pass().await;
                Ok("held".to_owned())
            }
        });
        graph.agent("look", &scout, "look").scope(Scope::read_only());
        let sizes = [(Size::S, scout.clone()), (Size::L, large.clone())];
        graph.agent("dig", &scout, "dig").scope(no_write()).escalate(sizes);
        graph.agent("late", &other, "late").after(&held);
        let graph = graph.build().unwrap();
        Self { gate, scout, large, other, graph, store: memory() }
    }

    fn start(&self) -> (RunHandle, GraphControl) {
        let run = runtime_on(&self.store).session_with_id(root()).start(&self.graph, "Go");
        let control = self.graph.control(&run);
        (run, control)
    }
}

#[tokio::test(start_paused = true)]
async fn an_added_task_is_no_wider_than_all_nodes_of_its_agent() {
    let scene = Scene::new();
    let (run, control) = scene.start();
    scene.gate.arrived(1).await;
    control.add(PlanTask::new("more", "scout", "more")).await.unwrap();
    let read = Scope::all().with_access(Access::READ | Access::WRITE);
    control.add(PlanTask::new("wider", "scout", "wider").with_scope(read)).await.unwrap();
    let fewer = Scope::all().with_tools(["view"]);
    control.add(PlanTask::new("fewer", "scout", "fewer").with_scope(fewer.clone())).await.unwrap();
    control.add(PlanTask::new("big", "large", "big")).await.unwrap();
    control.add(PlanTask::new("free", "other", "free").with_scope(Scope::none())).await.unwrap();
    control.reassign("late", "scout").await.unwrap();
    scene.gate.open();
    run.outcome().await.unwrap();
    let both = Scope::read_only().narrow(&no_write());
    assert_eq!((scene.scout.saw("look"), scene.scout.saw("dig")), (Scope::read_only(), no_write()));
    assert_eq!((scene.scout.saw("more"), scene.scout.saw("wider")), (both.clone(), both.clone()));
    assert_eq!(scene.scout.saw("fewer"), both.narrow(&fewer));
    assert_eq!(scene.large.saw("big"), no_write());
    assert_eq!(scene.other.saw("free"), Scope::none());
    assert_eq!(scene.scout.saw("late"), both, "a node that is given to it is no way around its own");
}

#[tokio::test(start_paused = true)]
async fn what_is_tried_again_escalated_or_handed_back_keeps_its_scope() {
    let scene = Scene::new();
    scene.scout.fails.lock().unwrap().extend(["dig", "more"]);
    let (run, control) = scene.start();
    scene.gate.arrived(1).await;
    control.add(PlanTask::new("more", "scout", "more")).await.unwrap();
    while scene.scout.seen.lock().unwrap().get("more").is_none() {
        tokio::task::yield_now().await;
    }
    while control.retry("more").await.is_err() {
        tokio::task::yield_now().await;
    }
    control.reassign("late", "scout").await.unwrap();
    control.reassign("late", "other").await.unwrap();
    scene.gate.open();
    run.outcome().await.unwrap();
    assert_eq!(scene.large.saw("dig"), no_write());
    assert_eq!(scene.scout.saw("more"), Scope::read_only().narrow(&no_write()));
    assert_eq!(scene.other.saw("late"), Scope::all(), "the node was built for it");
}

#[test]
fn an_added_task_is_as_narrow_in_a_later_life_of_its_run() {
    let scene = Scene::new();
    let killed = Gate::new();
    process(async {
        let (run, control) = scene.start();
        let adds = async {
            scene.gate.arrived(1).await;
            let task = PlanTask::new("more", "scout", "more").after(["late"]);
            control.add(task.with_scope(Scope::none())).await.unwrap();
            killed.pass().await;
        };
        until_killed(async { tokio::join!(run.outcome(), adds) }, &killed).await;
    });
    scene.gate.open();
    process(async {
        let session: SessionId = root();
        let session = runtime_on(&scene.store).open(&session).await.unwrap();
        session.resume(&scene.graph).outcome().await.unwrap();
    });
    assert_eq!(scene.scout.saw("more"), no_write().narrow(&Scope::none()));
}

#[tokio::test(start_paused = true)]
async fn items_of_a_map_are_as_narrow_as_the_map() {
    let gate = Gate::new();
    let (scout, other) = (Noting::new("scout"), Noting::new("other"));
    scout.fails.lock().unwrap().push("two");
    let graph = TaskGraph::builder("scene");
    let list = graph.step("list", (), |()| async { Ok(vec!["one".to_owned(), "two".to_owned()]) });
    let hold = gate.clone();
    graph.step("hold", (), move |()| {
        let hold = hold.clone();
        async move {
            hold.pass().await;
            Ok("held".to_owned())
        }
    });
    graph.map_agent("each", &list, &scout, |item: String| item).scope(no_write());
    graph.agent("own", &other, "own").scope(Scope::read_only());
    let graph = graph.build().unwrap();
    let run = runtime_on(&memory()).session_with_id(root()).start(&graph, "Go");
    let control = graph.control(&run);
    gate.arrived(1).await;
    // It can be retried once it has failed.
    while control.retry("each").await.is_err() {
        tokio::task::yield_now().await;
    }
    control.add(PlanTask::new("more", "scout", "more")).await.unwrap();
    gate.open();
    run.outcome().await.unwrap();
    for task in ["one", "two", "more"] {
        assert_eq!(scout.saw(task), no_write(), "{task}");
    }
    assert_eq!(other.saw("own"), Scope::read_only());
}
