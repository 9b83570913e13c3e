//! A context that outlives its run: nothing is done, asked or recorded through it, however the run ended.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use entourage_core::{
    Error, ErrorKind, Result,
    agent::Agent,
    message::Message,
    permission::{ApprovalRequest, Approver, Decision, Scope},
    run::{Child, Effect, Pause, RunContext, Status, Task, Waited},
    session::{SessionFilter, SharedStore},
    tool::{Access, Repeat, Tools},
};
use entourage_runners::{DualAgent, ReactAgent, graph::TaskGraph, typed::RunExt};
use entourage_runtime::{Runtime, Session};
use entourage_testkit::{self as testkit, FakeTool, Gate, ScriptedProvider};
use serde_json::json;

use crate::common::{Do, act, agent, memory, runtime_on, stored};

type Kept = Arc<Mutex<Option<(RunContext, Child)>>>;

/// Ways for a run to end in this process.
#[derive(Debug, Clone, Copy)]
enum End {
    Completes,
    Fails,
    Panics,
    Pauses,
    IsCancelled,
    IsDropped,
}

const ENDS: [End; 6] =
    [End::Completes, End::Fails, End::Panics, End::Pauses, End::IsCancelled, End::IsDropped];

/// Keeps its context, and a child that has ended, and comes to `end`.
fn keeper(kept: &Kept, end: End, gate: &Gate) -> Do {
    let (kept, gate) = (Arc::clone(kept), gate.clone());
    act(move |cx| {
        let (kept, gate) = (Arc::clone(&kept), gate.clone());
        Box::pin(async move {
            let child = cx.spawn(Arc::new(says("ready")), "Go").await?;
            *kept.lock().unwrap() = Some((cx.clone(), child));
            match end {
                End::Completes => Ok("done".to_owned()),
                End::Fails => Err(Error::new(ErrorKind::Tool, "it broke")),
                End::Panics => panic!("it panics"),
                End::Pauses => cx.signal("go on").await.map(|value| value.to_string()),
                End::IsCancelled | End::IsDropped => {
                    gate.pass().await;
                    cx.sleep(Duration::from_secs(1_000)).await.map(|()| "slept".to_owned())
                }
            }
        })
    })
}

fn says(text: &str) -> ReactAgent {
    agent(ScriptedProvider::by_history().text(text).model()).build().unwrap()
}

/// The context that a run left, which has come to its end.
async fn left(session: &Session, end: End) -> (RunContext, Child) {
    let (kept, gate) = (Kept::default(), Gate::new());
    gate.open();
    let run = session.start(&keeper(&kept, end, &gate), "Go");
    match end {
        End::IsCancelled => {
            gate.arrived(1).await;
            run.cancel();
            assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
        }
        End::IsDropped => {
            gate.arrived(1).await;
            drop(run);
            assert!(session.cancel_within(Duration::from_secs(30)).await);
        }
        _ => drop(run.outcome().await),
    }
    let kept = kept.lock().unwrap().take();
    kept.unwrap()
}

#[derive(Debug)]
struct Nobody;

#[async_trait::async_trait]
impl Approver for Nobody {
    async fn decide(&self, request: &ApprovalRequest) -> Result<Decision> {
        panic!("somebody was asked: {request:?}")
    }
}

/// What comes of everything that a context can be asked for.
async fn all_of(
    cx: &RunContext,
    child: &Child,
    provider: &ScriptedProvider,
    tool: &FakeTool,
) -> Vec<(&'static str, Option<Error>)> {
    let model = provider.model();
    let tools = Tools::new([Arc::new(tool.clone()) as _]).unwrap();
    let worker = || agent(model.clone()).tool(tool.clone()).todos().build().unwrap();
    let pair = DualAgent::builder("pair", worker(), worker()).build().unwrap();
    let graph = TaskGraph::builder("graph");
    let node = graph.agent("node", &worker(), "Go");
    let graph = graph.returning(&node).build().unwrap();
    let ask = || model.request("Are you there?");
    let plain = Effect::Now;
    vec![
        ("now", cx.now().await.err()),
        ("new_id", cx.new_id().await.err()),
        ("sleep", cx.sleep(Duration::from_secs(1)).await.err()),
        ("signal", cx.signal("go on").await.err()),
        ("call_model", cx.call_model(&model, ask()).await.err()),
        ("call_model_with", cx.call_model_with(&model, ask(), tools.clone()).await.err()),
        ("generate", cx.generate::<bool>(&model, "Are you there?").await.err()),
        ("call_tool", cx.call_tool(&tools, tool_name(), &json!({})).await.err()),
        ("spawn", cx.spawn(Arc::new(worker()), "Go").await.err()),
        ("spawn_in", cx.spawn_in(Arc::new(worker()), "Go", Scope::all()).await.err()),
        ("try_spawn", cx.try_spawn(Arc::new(worker()), "Go").await.err()),
        ("wait_any", cx.wait_any(std::slice::from_ref(child), None).await.err()),
        ("ask", cx.ask("helper", Arc::new(worker()), "Go").await.err()),
        ("set_todos", cx.set_todos(Vec::new()).await.err()),
        ("perform", cx.perform(plain.clone()).await.err()),
        ("effects", cx.effects().perform(cx, None, plain).await.err()),
        ("narrowed", cx.narrowed(&Scope::read_only()).now().await.err()),
        ("an agent", worker().run(Task::new("Go"), cx).await.err()),
        ("a pair", pair.run(Task::new("Go"), cx).await.err()),
        ("a graph", Agent::run(&graph, Task::new("Go"), cx).await.err()),
    ]
}

fn tool_name() -> &'static str {
    "write"
}

/// All events of all sessions.
async fn everything(store: &SharedStore) -> Vec<String> {
    let mut all = Vec::new();
    for info in store.query(&SessionFilter::all()).await.unwrap() {
        let events = stored(store, &info.record.id).await;
        all.extend(events.iter().map(|it| format!("{} {} {:?}", info.record.id, it.seq, it.event)));
    }
    all.sort();
    all
}

fn assert_over(asked: &str, end: End, error: Option<Error>) {
    let error = error.unwrap_or_else(|| panic!("{asked} works after a run that {end:?}"));
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{asked} after {end:?}: {error:?}");
    assert!(error.message().contains("is over"), "{asked} after {end:?}: {error:?}");
}

async fn refuses_all(store: &SharedStore, end: End, cx: &RunContext, child: &Child) {
    let provider = ScriptedProvider::by_history().text("Here.");
    let tool = FakeTool::new(tool_name()).access(Access::WRITE);
    let before = everything(store).await;
    for (asked, error) in all_of(cx, child, &provider, &tool).await {
        assert_over(asked, end, error);
    }
    assert_eq!(everything(store).await, before, "recorded after a run that {end:?}");
    assert_eq!((provider.count(), tool.started()), (0, 0), "asked after a run that {end:?}");
    assert!(cx.cancellation().is_cancelled());
}

fn watched(store: &SharedStore) -> Runtime {
    testkit::runtime().approver(Nobody).shared_store(Arc::clone(store)).build()
}

#[tokio::test(start_paused = true)]
async fn a_context_does_nothing_once_its_run_is_over() {
    for end in ENDS {
        let store = memory();
        let session = watched(&store).session();
        let (cx, child) = left(&session, end).await;
        refuses_all(&store, end, &cx, &child).await;
        // Nor once the session went on.
        let other = agent(ScriptedProvider::by_history().text("next").text("next").model()).build().unwrap();
        assert_eq!(session.start(&other, "And?").outcome().await.unwrap().text, "next");
        refuses_all(&store, end, &cx, &child).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_context_does_nothing_while_the_next_run_is_under_way() {
    for end in ENDS {
        let store = memory();
        let session = watched(&store).session();
        let (cx, child) = left(&session, end).await;
        let gate = Gate::new();
        let waits = gate.clone();
        let next = act(move |cx| {
            let gate = waits.clone();
            Box::pin(async move {
                cx.now().await?;
                gate.pass().await;
                let child = cx.spawn(Arc::new(says("I am the next one's")), "Go").await?;
                match cx.wait_any(&[child], None).await? {
                    Waited::Ended { outcome, .. } => Ok(outcome.text),
                    Waited::TimedOut => Ok("nobody".to_owned()),
                }
            })
        });
        let run = session.start(&next, "And?");
        gate.arrived(1).await;
        refuses_all(&store, end, &cx, &child).await;
        gate.open();
        assert_eq!(run.outcome().await.unwrap().text, "I am the next one's");
    }
}

#[tokio::test(start_paused = true)]
async fn a_context_of_a_paused_run_does_nothing_while_that_is_resumed() {
    let store = memory();
    let session = watched(&store).session();
    let (cx, child) = left(&session, End::Pauses).await;
    session.signal("go on", json!(1)).await.unwrap();
    let (kept, gate) = (Kept::default(), Gate::new());
    let run = session.resume(&keeper(&kept, End::Pauses, &gate));
    assert_eq!(run.outcome().await.unwrap().text, "1");
    refuses_all(&store, End::Pauses, &cx, &child).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_kept_context_has_under_way_ends_with_the_run() {
    for pauses in [false, true] {
        let store = memory();
        let session = runtime_on(&store).session();
        let (gate, begun) = (Gate::new(), Gate::new());
        begun.open();
        let tool = FakeTool::new(tool_name()).access(Access::WRITE).repeat(Repeat::Once).behind(&gate);
        let (held, task) = (tool.clone(), Arc::new(Mutex::new(None)));
        let keeps = Arc::clone(&task);
        let waits = gate.clone();
        let leaves = act(move |cx| {
            let (cx2, tool, task, gate) = (cx.clone(), held.clone(), Arc::clone(&keeps), waits.clone());
            Box::pin(async move {
                let tools = Tools::new([Arc::new(tool) as _])?;
                let left = tokio::spawn(async move { cx2.call_tool(&tools, tool_name(), &json!({})).await });
                *task.lock().unwrap() = Some(left);
                gate.arrived(1).await;
                if pauses {
                    return Err(Error::paused(Pause::Asked));
                }
                Ok("done".to_owned())
            })
        });
        let run = session.start(&leaves, "Go");
        run.outcome().await.unwrap();
        let before = everything(&store).await;
        let left = task.lock().unwrap().take().unwrap();
        let error = tokio::time::timeout(Duration::from_secs(30), left).await.unwrap().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error:?}");
        assert_eq!((tool.started(), tool.finished()), (1, 0));
        assert_eq!(everything(&store).await, before);
    }
}

#[tokio::test]
async fn a_session_at_a_childs_place_is_not_taken_for_the_child() {
    let store = memory();
    let runtime = runtime_on(&store);
    let session = runtime.session();
    session.start(&says("first"), "Go").outcome().await.unwrap();
    // A child's place is named after its run's first event.
    let next = session.head().await.unwrap().seq + 1;
    let place = session.id().child(next, 0).unwrap();
    let foreign = entourage_core::session::SessionRecord::child(
        place.clone(),
        session.id().clone(),
        "child",
        entourage_core::Timestamp::now(),
    );
    let other = runtime.session();
    other.start(&says("I am another one"), "Go").outcome().await.unwrap();
    let rows = store.read(other.id(), entourage_core::session::ReadRange::all()).await.unwrap();
    let head = store.query(&SessionFilter::id(other.id().clone())).await.unwrap().remove(0).head;
    let batch = entourage_core::session::Batch::new(1, rows, head).creating(foreign);
    store.append(&place, 0, batch).await.unwrap();
    let spawns = act(|cx| {
        Box::pin(async move {
            let child = cx.spawn(Arc::new(says("mine")), "Go").await?;
            match cx.wait_any(&[child], None).await? {
                Waited::Ended { outcome, .. } => Ok(format!("{} {}", outcome.status, outcome.text)),
                Waited::TimedOut => Ok("nobody".to_owned()),
            }
        })
    });
    let error = session.start(&spawns, Message::user("Go")).outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().contains("at the place of a child"), "{error:?}");
}

#[tokio::test]
async fn a_signal_that_nobody_could_send_is_not_waited_for() {
    let session = runtime_on(&memory()).session();
    let waits = act(|cx| Box::pin(async move { cx.signal("x".repeat(513)).await.map(|it| it.to_string()) }));
    let error = session.start(&waits, "Go").outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error:?}");
    assert_eq!(session.unfinished().await.unwrap(), None);
    let refused = session.signal("x".repeat(513), json!(1)).await.unwrap_err();
    assert_eq!((refused.kind(), refused.message()), (error.kind(), error.message()));
}

/// Goes on below itself for as long as it may.
#[derive(Clone)]
struct Endless {
    asks: bool,
}

#[async_trait::async_trait]
impl Agent for Endless {
    fn name(&self) -> &'static str {
        "endless"
    }

    async fn run(&self, _: Task, cx: &RunContext) -> Result<entourage_core::run::Outcome> {
        if self.asks {
            return cx.ask("q", Arc::new(self.clone()), "deeper").await;
        }
        let child = cx.spawn(Arc::new(self.clone()), "deeper").await?;
        match cx.wait_any(&[child], None).await? {
            Waited::Ended { outcome, .. } => Ok(outcome),
            Waited::TimedOut => Err(Error::cancelled()),
        }
    }
}

#[tokio::test]
async fn agents_that_ask_and_agents_that_spawn_nest_equally_deep() {
    let mut depths = Vec::new();
    for asks in [false, true] {
        let store = memory();
        let session = runtime_on(&store).session_with_id(entourage_core::SessionId::new("r").unwrap());
        let error = session.start(&Endless { asks }, "Go").outcome().await.unwrap_err();
        assert!(error.message().contains("agents nest at most 40 levels"), "{error:?}");
        depths.push(store.query(&SessionFilter::all()).await.unwrap().len());
    }
    assert_eq!(depths, [41, 41]);
}

#[tokio::test]
async fn a_title_shows_all_that_it_holds() {
    let session = runtime_on(&memory()).session();
    let prompt = "\u{1b}]0;pwn\u{7}Fix\u{202e} the\u{200b} parser\u{2066}";
    session.start(&says("ok"), prompt).outcome().await.unwrap();
    assert_eq!(&*session.head().await.unwrap().title, "]0;pwn Fix the parser");
}
