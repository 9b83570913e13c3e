//! Engines that break their word: the run ends, nothing hangs or panics, and the session goes on without the engine.

use std::{
    any::{Any, TypeId},
    collections::BTreeSet,
    fmt,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use entourage_core::{
    Error, ErrorKind, Result, SessionId, Timestamp,
    agent::Agent,
    event::{EffectKey, Event, Origin, Recorded},
    message::{History, Message},
    run::{Effect, Effects, Observation, Performing, RunContext},
    session::{SessionFilter, SessionState, SharedStore},
    team::Todo,
};
use entourage_runners::{AgentTool, DualAgent, ReactAgent, graph::TaskGraph};
use entourage_runtime::permission::Policy;
use entourage_runtime::{MemoryStore, engine::Engine};
use entourage_testkit::{self as testkit, FakeTool, ScriptedProvider};
use serde_json::json;

/// What an engine does to one effect.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// Drops it after so many polls, and reports an error.
    Drops(usize),
    /// Drops it after so many polls, and performs it anew.
    Retries(usize),
    /// Reports an error without performing it.
    Fails,
    /// Reports an observation of another effect without performing it.
    Mistakes,
    /// Performs it, and reports an observation of another effect.
    Forgets,
    /// Never reports anything, until the run is cancelled.
    Hangs,
    /// Shows nothing of the session's state.
    Blind,
}

/// Performs everything in this process, and the effect of this number as it should not.
#[derive(Debug)]
struct Faulty {
    fault: Fault,
    at: usize,
    count: Arc<AtomicUsize>,
}

impl Engine for Faulty {
    fn effects(&self, _: &Origin, local: Arc<dyn Effects>) -> Arc<dyn Effects> {
        Arc::new(FaultyEffects { local, fault: self.fault, at: self.at, count: Arc::clone(&self.count) })
    }
}

struct FaultyEffects {
    local: Arc<dyn Effects>,
    fault: Fault,
    at: usize,
    count: Arc<AtomicUsize>,
}

fn lost() -> Error {
    Error::new(ErrorKind::Transport, "the engine lost the effect")
}

/// Awaits the effect for so many polls; `None` if it was not done by then.
async fn some_polls(
    mut performing: Performing<'_, Observation>,
    polls: usize,
) -> Option<Result<Observation>> {
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        performing.as_mut().poll(cx).map(Some)
    })
    .await
}

impl Effects for FaultyEffects {
    fn perform<'a>(
        &'a self,
        cx: &'a RunContext,
        key: Option<EffectKey>,
        effect: Effect,
    ) -> Performing<'a, Observation> {
        if self.count.fetch_add(1, Ordering::SeqCst) != self.at {
            return self.local.perform(cx, key, effect);
        }
        Box::pin(async move {
            match self.fault {
                Fault::Blind => self.local.perform(cx, key, effect).await,
                Fault::Fails => Err(lost()),
                Fault::Mistakes => Ok(Observation::Slept),
                Fault::Forgets => self.local.perform(cx, key, effect).await.map(|_| Observation::Slept),
                Fault::Hangs => {
                    cx.cancellation().cancelled().await;
                    Err(Error::cancelled())
                }
                Fault::Drops(polls) => {
                    let done = some_polls(self.local.perform(cx, key, effect), polls).await;
                    done.unwrap_or_else(|| Err(lost()))
                }
                Fault::Retries(polls) => {
                    let again = effect.clone();
                    match some_polls(self.local.perform(cx, key, effect), polls).await {
                        Some(done) => done,
                        None => self.local.perform(cx, key, again).await,
                    }
                }
            }
        })
    }

    fn append(
        &self,
        cx: &RunContext,
        key: Option<EffectKey>,
        make: &mut dyn FnMut(&SessionState, u64) -> Result<Recorded>,
    ) -> Result<()> {
        self.local.append(cx, key, make)
    }

    fn commit<'a>(&'a self, cx: &'a RunContext) -> Performing<'a, ()> {
        self.local.commit(cx)
    }

    fn steer<'a>(&'a self, cx: &'a RunContext) -> Performing<'a, ()> {
        self.local.steer(cx)
    }

    fn remind(&self, cx: &RunContext, message: Arc<Message>) -> Result<()> {
        self.local.remind(cx, message)
    }

    fn read(&self, read: &mut dyn FnMut(&SessionState)) {
        if self.fault != Fault::Blind {
            self.local.read(read);
        }
    }

    fn recorded(&self) -> Arc<[Event]> {
        self.local.recorded()
    }

    fn replayed<'a>(&'a self, cx: &'a RunContext) -> Performing<'a, Vec<Recorded>> {
        self.local.replayed(cx)
    }

    fn todos(&self) -> Vec<Todo> {
        self.local.todos()
    }

    fn set_todos<'a>(&'a self, cx: &'a RunContext, todos: Vec<Todo>) -> Performing<'a, ()> {
        self.local.set_todos(cx, todos)
    }

    fn dep(&self, of: TypeId) -> Option<Arc<dyn Any + Send + Sync>> {
        self.local.dep(of)
    }

    fn time(&self) -> Timestamp {
        self.local.time()
    }

    fn check(&self) -> Result<()> {
        self.local.check()
    }

    fn is_pausing(&self) -> bool {
        self.local.is_pausing()
    }

    fn has_readers(&self) -> bool {
        self.local.has_readers()
    }

    fn is_stored(&self) -> bool {
        self.local.is_stored()
    }

    fn sub_agents(&self) -> usize {
        self.local.sub_agents()
    }

    fn show(&self, cx: &RunContext, shown: Event) {
        self.local.show(cx, shown);
    }
}

impl fmt::Debug for FaultyEffects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyEffects").finish_non_exhaustive()
    }
}

fn worker(name: &str) -> ReactAgent {
    let provider = ScriptedProvider::by_history()
        .calls([("look", json!({})), ("look", json!({"twice": true}))])
        .call("look", json!({"again": true}))
        .text("It is there.");
    ReactAgent::builder(name, provider.model()).tool(FakeTool::new("look").returning("seen")).build().unwrap()
}

fn agents() -> Vec<(&'static str, Arc<dyn Agent>)> {
    let asks = ScriptedProvider::by_history().call("agent", json!({"prompt": "Look."})).text("Asked.");
    let boss =
        ReactAgent::builder("boss", asks.model()).tool(AgentTool::new(worker("scout"))).build().unwrap();
    let checks = ScriptedProvider::by_history()
        .text("Do it.")
        .call("task_complete", json!({"summary": "I saw it."}))
        .text("It is there.");
    let checker = ReactAgent::builder("checker", checks.model()).build().unwrap();
    let pair = DualAgent::builder("pair", worker("executor"), checker).build().unwrap();
    let graph = TaskGraph::builder("graph");
    let first = graph.agent("first", &worker("left"), "Look left.");
    graph.agent("second", &worker("right"), "Look right.").after(&first);
    graph.step("last", (), |()| async { Ok("last".to_owned()) });
    let graph = graph.build().unwrap();
    vec![
        ("react", Arc::new(worker("worker"))),
        ("sub-agent", Arc::new(boss)),
        ("pair", Arc::new(pair)),
        ("graph", Arc::new(graph)),
    ]
}

/// Runs the agent where one effect goes wrong. Returns true if there was an effect of that number.
async fn goes_wrong(name: &str, agent: &Arc<dyn Agent>, fault: Fault, at: usize) -> bool {
    let label = format!("{name}, {fault:?} at {at}");
    let store: SharedStore = Arc::new(MemoryStore::new());
    let count = Arc::new(AtomicUsize::new(0));
    let engine = Faulty { fault, at, count: Arc::clone(&count) };
    let id = SessionId::new("work").unwrap();
    let on =
        |store: &SharedStore| testkit::runtime().policy(Policy::allow_all()).shared_store(Arc::clone(store));
    let runtime = on(&store).effects(engine).build();
    let session = runtime.session_with_id(id.clone());
    let mut run = Box::pin(session.start(agent, "Go.").outcome());
    let limit = Duration::from_secs(3_600);
    // The clock stands still while anything is left to do, so a run that is late waits for the engine alone.
    if tokio::time::timeout(limit, &mut run).await.is_err() {
        assert_eq!(fault, Fault::Hangs, "{label}: it hangs");
        assert!(session.cancel_within(limit).await, "{label}: it ignores a cancel");
    }
    drop((run, session, runtime));
    let after = on(&store).build();
    let session = after.session_with_id(id);
    let provider = ScriptedProvider::new().text("I am here.");
    let next = ReactAgent::builder("next", provider.model()).build();
    let next = tokio::time::timeout(limit, session.start(&next.unwrap(), "Are you there?").outcome()).await;
    assert!(next.is_ok(), "{label}: the next run hangs");
    let next = next.unwrap();
    assert_eq!(next.as_ref().ok().map(|outcome| &*outcome.text), Some("I am here."), "{label}: {next:?}");
    for info in after.sessions(&SessionFilter::all()).await.unwrap() {
        let id = info.record.id;
        let session = after.open(&id).await.unwrap();
        let label = format!("{label}, {id}");
        assert_answered(&session.history().await.unwrap(), &label);
        let (mut started, mut finished) = (BTreeSet::new(), BTreeSet::new());
        for event in session.events(0, usize::MAX).await.unwrap() {
            match &event.event {
                Event::ModelFinished(_) => {
                    started.clear();
                    finished.clear();
                }
                Event::ToolStarted(call) => assert!(started.insert(call.index), "{label}: it runs twice"),
                Event::ToolFinished(call) => assert!(finished.insert(call.index), "{label}: it ends twice"),
                _ => {}
            }
        }
    }
    count.load(Ordering::SeqCst) > at
}

/// Asserts that each call has one result, in call order, right behind it.
fn assert_answered(history: &History, label: &str) {
    let mut open: Vec<_> = Vec::new();
    for message in history {
        let answers: Vec<_> = message.tool_results().map(|result| result.call.to_string()).collect();
        assert_eq!(answers, open, "{label}: {history:?}");
        open = message.tool_calls().map(|call| call.id.to_string()).collect();
    }
    assert!(open.is_empty(), "{label}: {history:?}");
}

async fn everywhere(fault: Fault) {
    for (name, agent) in agents() {
        let mut at = 0;
        while goes_wrong(name, &agent, fault, at).await {
            at += 1;
        }
        assert!(at > 3, "{name} has effects: {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_effect_that_is_lost_ends_the_run_alone() {
    for fault in [Fault::Fails, Fault::Mistakes, Fault::Forgets, Fault::Hangs] {
        everywhere(fault).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_effect_that_is_dropped_at_any_poll_ends_the_run_alone() {
    for polls in 0..9 {
        everywhere(Fault::Drops(polls)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_effect_that_is_performed_anew_breaks_no_session() {
    for polls in 0..9 {
        everywhere(Fault::Retries(polls)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn attack_12_effects_that_show_nothing_end_the_run() {
    for (name, agent) in agents() {
        goes_wrong(name, &agent, Fault::Blind, usize::MAX).await;
    }
}
