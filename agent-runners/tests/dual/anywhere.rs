//! A pair that is cancelled, paused or stopped at every point at which it waits: for its store, a model, a tool.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Duration;

use async_trait::async_trait;
use entourage_core::{
    Result, SessionId,
    budget::BudgetLimits,
    event::Event,
    provider::{CallContext, DeltaStream, Model, Provider, Request},
    run::{Pause, Status, Task},
    session::{
        Batch, Lease, ReadRange, Row, SessionFilter, SessionInfo, SessionStatus, SessionStore, SharedStore,
    },
    tool::Access,
};
use entourage_runners::{DualAgent, ReactAgent};
use entourage_runtime::permission::Policy;
use entourage_runtime::{MemoryStore, RunHandle, Runtime, Session};
use entourage_testkit::{self as testkit, FakeTool, ScriptedProvider};
use futures_util::StreamExt;
use serde_json::json;

use crate::{
    common::{count, stored},
    pair::{child, conversation, done, phases, root, session, told},
};

/// Maximum number of model calls of the whole task.
const CALLS: u64 = 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Cancel,
    Pause,
    Stop,
}

/// Counts the wait points, and acts at one of them.
#[derive(Clone)]
struct Points(Arc<Inner>);

struct Inner {
    at: usize,
    seen: AtomicUsize,
    act: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for Points {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Points")
    }
}

impl Points {
    fn new(at: usize) -> Self {
        Self(Arc::new(Inner { at, seen: AtomicUsize::new(0), act: Mutex::default() }))
    }

    fn arm(&self, act: impl FnOnce() + Send + 'static) {
        *self.0.act.lock().unwrap() = Some(Box::new(act));
    }

    fn acted(&self) -> bool {
        self.0.seen.load(Ordering::SeqCst) > self.0.at
    }

    /// Passes a wait point.
    async fn pass(&self) {
        if self.0.seen.fetch_add(1, Ordering::SeqCst) == self.0.at {
            if let Some(act) = self.0.act.lock().unwrap().take() {
                act();
            }
            // The action takes effect before this continues.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[derive(Debug)]
struct Slow(MemoryStore, Points);

#[async_trait]
impl SessionStore for Slow {
    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        self.1.pass().await;
        let stored = self.0.append(session, expected, batch).await;
        self.1.pass().await;
        stored
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        self.1.pass().await;
        self.0.read(session, range).await
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        self.1.pass().await;
        self.0.query(filter).await
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        self.0.lease(session, lease).await
    }

    async fn delete(&self, session: &SessionId) -> Result<u64> {
        self.0.delete(session).await
    }
}

#[derive(Debug)]
struct Waits(Arc<dyn Provider>, Points);

#[async_trait]
impl Provider for Waits {
    fn name(&self) -> &str {
        self.0.name()
    }

    async fn stream(&self, request: Request, cx: &CallContext) -> Result<DeltaStream> {
        self.1.pass().await;
        let stream = self.0.stream(request, cx).await?;
        let points = self.1.clone();
        Ok(Box::pin(stream.then(move |delta| {
            let points = points.clone();
            async move {
                points.pass().await;
                delta
            }
        })))
    }
}

struct Scene {
    runtime: Runtime,
    store: SharedStore,
    points: Points,
    agent: DualAgent,
    pay: FakeTool,
    scripts: [ScriptedProvider; 2],
}

/// Builds the scene: the work is rejected once, and the first phase makes a payment that must not be repeated.
fn scene(at: usize) -> Scene {
    let points = Points::new(at);
    let store: SharedStore = Arc::new(Slow(MemoryStore::new(), points.clone()));
    let runtime = testkit::runtime().policy(Policy::allow_all()).shared_store(Arc::clone(&store)).build();
    let mut works = ScriptedProvider::by_history().call("pay", json!({}));
    for turn in 0..20 {
        works = works.text(format!("Said {turn}."));
    }
    let mut checks = ScriptedProvider::by_history().text("Test it.");
    for _ in 0..8 {
        checks = checks.call("task_complete", done("Seen."));
    }
    let model = |provider: &ScriptedProvider| {
        let points = points.clone();
        let model: Model = provider.model();
        model.layer(move |inner: Arc<dyn Provider>| -> Arc<dyn Provider> { Arc::new(Waits(inner, points)) })
    };
    let pay = FakeTool::new("pay").access(Access::WRITE).returning("paid");
    let executor = ReactAgent::builder("coder", model(&works)).tool(pay.clone()).build().unwrap();
    let checker = ReactAgent::builder("reviewer", model(&checks)).build().unwrap();
    let agent = DualAgent::builder("pair", executor, checker).build().unwrap();
    Scene { runtime, store, points, agent, pay, scripts: [works, checks] }
}

fn task(text: &str) -> Task {
    Task::new(text).with_budget(BudgetLimits::none().with_model_calls(CALLS))
}

fn armed(scene: &Scene, work: &Session, run: &RunHandle, action: Action) {
    let (work, token) = (work.clone(), run.cancellation());
    scene.points.arm(move || match action {
        Action::Cancel => token.cancel(),
        Action::Pause => work.pause(),
        Action::Stop => drop(tokio::spawn(async move { work.stop().await })),
    });
}

/// Returns true when the action came before the end of the first run.
async fn lives(at: usize, action: Action, says: bool) -> bool {
    let label = format!("{action:?} at point {at}, says: {says}");
    let scene = scene(at);
    let work = session(&scene.runtime);
    let run = work.start(&scene.agent, task("Write it."));
    armed(&scene, &work, &run, action);
    let outcome = run.outcome().await.unwrap_or_else(|error| panic!("{label}: {error}"));
    let came = scene.points.acted();
    scene.points.arm(|| {});
    let whole = outcome.status == Status::Completed;
    assert!(whole || outcome.status == Status::Paused(Pause::Asked), "{label}: {outcome}");
    if action == Action::Stop {
        work.stop().await.unwrap();
    }
    let open = work.unfinished().await.unwrap().is_some();
    assert!(!(whole || action == Action::Stop) || !open, "{label}: {outcome}");
    let run = match (open, says) {
        (true, false) => work.resume(&scene.agent),
        _ => work.start(&scene.agent, task("In Rust, please.")),
    };
    let outcome = run.outcome().await.unwrap_or_else(|error| panic!("{label}: {error}"));
    assert_eq!(outcome.status, Status::Completed, "{label}");
    assert_whole(&scene, action, &label).await;
    came
}

async fn assert_whole(scene: &Scene, action: Action, label: &str) {
    for info in scene.store.query(&SessionFilter::all()).await.unwrap() {
        assert_eq!(info.head.status, SessionStatus::Idle, "{label}: {:?}", info.record.id);
    }
    // A payment that began and never settled is not repeated; a settled one happened once.
    assert!(scene.pay.started() <= 1, "{label}: paid {} times", scene.pay.started());
    let below = stored(&scene.store, &child("executor")).await;
    let paid = below.iter().filter(|event| match &event.event {
        Event::ToolFinished(call) => !call.result.is_error,
        _ => false,
    });
    assert!(paid.count() <= scene.pay.finished(), "{label}");
    let calls: usize = scene.scripts.iter().map(ScriptedProvider::count).sum();
    assert!(calls as u64 <= 2 * CALLS, "{label}: {calls} calls");
    // The executor heard each verdict, unless the task was over by then.
    let told_phases = phases(&scene.store).await;
    let rejected = told_phases.iter().filter(|phase| phase.ends_with("check rejected")).count();
    let heard = told(&conversation(&scene.runtime, "executor").await);
    let fed = heard.iter().filter(|line| line.starts_with("U: Test it.")).count();
    let heard_all = fed >= rejected || action == Action::Stop;
    assert!(rejected <= 1 && heard_all && fed <= rejected + 1, "{label}: {told_phases:?} {heard:?}");
    // Each phase that began has ended; a paused or stopped one is abandoned by the next task.
    let events = stored(&scene.store, &root()).await;
    let [began, ended] =
        ["keep:checked.phase_started", "keep:checked.phase_finished"].map(|kind| count(&events, kind));
    let given_up = usize::from(action != Action::Cancel);
    assert!(ended <= began && began <= ended + given_up, "{label}: {told_phases:?}");
}

async fn at_every_point(action: Action) {
    for says in [false, true] {
        let mut points = 0;
        for at in 0.. {
            if !lives(at, action, says).await {
                break;
            }
            points += 1;
            assert!(points < 1_000);
        }
        assert!(points >= 60, "{points}");
    }
}

#[tokio::test(start_paused = true)]
async fn attack_a_pair_cancelled_at_any_point_goes_on_and_repeats_nothing() {
    at_every_point(Action::Cancel).await;
}

#[tokio::test(start_paused = true)]
async fn attack_a_pair_paused_at_any_point_goes_on_and_repeats_nothing() {
    at_every_point(Action::Pause).await;
}

#[tokio::test(start_paused = true)]
async fn attack_a_pair_stopped_at_any_point_leaves_room_for_the_next_task() {
    at_every_point(Action::Stop).await;
}
