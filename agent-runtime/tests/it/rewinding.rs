//! Rewind: the conversation and what prompts changed outside of it go back together.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, RunId, SessionId,
    run::Status,
    session::{Restored, SharedStore, Snapshots},
    tool::{Access, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};
use entourage_runners::{AgentTool, ReactAgent};
use entourage_runtime::{Moment, Runtime, Session, permission::Policy};
use entourage_testkit::{self as testkit, FakeTool, Gate, ScriptedProvider};
use serde_json::json;

use crate::common::{Fault, FaultyStore, agent, assert_valid, memory, settled, stored};

/// A world that tools change: one text. Clones share it and its snapshots.
#[derive(Debug, Clone, Default)]
struct World(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    text: Mutex<String>,
    kept: Mutex<HashMap<(SessionId, RunId), String>>,
    taken: Mutex<Vec<(SessionId, RunId)>>,
    full: AtomicBool,
}

impl World {
    fn text(&self) -> String {
        self.0.text.lock().unwrap().clone()
    }

    fn taken(&self) -> usize {
        self.0.taken.lock().unwrap().len()
    }
}

#[async_trait]
impl Snapshots for World {
    async fn take(&self, session: &SessionId, run: RunId) -> Result<()> {
        if self.0.full.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Io, "the disk is full"));
        }
        let key = (session.clone(), run);
        self.0.taken.lock().unwrap().push(key.clone());
        let text = self.text();
        self.0.kept.lock().unwrap().entry(key).or_insert(text);
        Ok(())
    }

    async fn restore(&self, session: &SessionId, runs: &[RunId]) -> Result<Restored> {
        let kept = self.0.kept.lock().unwrap();
        let mut restored = Restored::default();
        let found = runs.iter().find_map(|run| Some((*run, kept.get(&(session.clone(), *run))?)));
        if let Some((run, text)) = found {
            *self.0.text.lock().unwrap() = text.clone();
            restored.run = Some(run);
        }
        Ok(restored)
    }
}

/// Adds its argument to the world.
struct Add(ToolSpec, World);

impl Add {
    fn to(world: &World) -> Self {
        let spec = ToolSpec::new("add", "Adds.", json!({"type": "object"})).with_access(Access::WRITE);
        Self(spec, world.clone())
    }
}

#[async_trait]
impl Tool for Add {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(
        &self,
        input: ToolInput,
        _: &ToolContext<'_>,
    ) -> std::result::Result<ToolOutput, ToolError> {
        self.1.0.text.lock().unwrap().push_str(input.arguments["it"].as_str().unwrap());
        Ok(ToolOutput::text("added"))
    }
}

fn on(store: &SharedStore, world: &World) -> Runtime {
    let builder = testkit::runtime().shared_store(Arc::clone(store)).snapshots(world.clone());
    builder.policy(Policy::allow_all()).build()
}

fn adder(provider: &ScriptedProvider, world: &World) -> ReactAgent {
    agent(provider.model()).tool(Add::to(world)).tool(FakeTool::new("look")).build().unwrap()
}

/// A session with three runs, of which the first only looks and the others add `a` and `b`.
async fn three_runs(runtime: &Runtime, world: &World) -> (Session, Vec<RunId>) {
    let provider = ScriptedProvider::new()
        .call("look", json!({}))
        .text("One.")
        .call("add", json!({"it": "a"}))
        .call("add", json!({"it": "a"}))
        .text("Two.")
        .call("add", json!({"it": "b"}))
        .text("Three.");
    let agent = adder(&provider, world);
    let session = runtime.session();
    let mut runs = Vec::new();
    for prompt in ["First", "Second", "Third"] {
        let run = session.start(&agent, prompt);
        runs.push(run.id());
        run.outcome().await.unwrap();
    }
    (session, runs)
}

async fn said(session: &Session) -> Vec<String> {
    session
        .history()
        .await
        .unwrap()
        .iter()
        .map(|message| message.text())
        .filter(|it| !it.is_empty())
        .collect()
}

#[tokio::test]
async fn cw18_a_rewind_takes_conversation_and_world_back_and_deletes_nothing() {
    let (store, world) = (memory(), World::default());
    let runtime = on(&store, &world);
    let (session, runs) = three_runs(&runtime, &world).await;
    assert_eq!((world.text().as_str(), world.taken()), ("aab", 2), "one for each run that changes something");

    // In another process.
    let other = on(&store, &world);
    let later = other.open(session.id()).await.unwrap();
    let rewound = later.rewind(runs[1]).await.unwrap();
    assert_eq!((world.text().as_str(), rewound.restored.run), ("", Some(runs[1])));
    assert_eq!(said(&rewound.session).await, ["First", "One."]);
    assert_eq!(said(&session).await.len(), 6, "the old session stays");
    let provider = ScriptedProvider::new().call("add", json!({"it": "c"})).text("Other.");
    rewound.session.start(adder(&provider, &world), "Second, otherwise").outcome().await.unwrap();
    assert_eq!((world.text().as_str(), said(&rewound.session).await.len()), ("c", 4));
    provider.requests().iter().for_each(|request| assert_valid(&request.messages));

    let undone = later.restore(rewound.before).await.unwrap();
    assert_eq!((world.text().as_str(), undone.session.id()), ("aab", session.id()));
    let back = later.restore(undone.before).await.unwrap();
    assert_eq!((world.text().as_str(), back.restored.run), ("c", Some(undone.before)));
}

#[tokio::test]
async fn cw18_a_run_that_changed_nothing_goes_back_to_the_first_change_after_it() {
    let (store, world) = (memory(), World::default());
    let runtime = on(&store, &world);
    let (session, runs) = three_runs(&runtime, &world).await;
    let rewound = session.rewind(runs[0]).await.unwrap();
    assert_eq!((world.text().as_str(), rewound.restored.run), ("", Some(runs[1])));
    assert_eq!(said(&rewound.session).await, [""; 0], "an empty conversation");
    assert_ne!(rewound.session.id(), session.id());
    *world.0.text.lock().unwrap() = "aab".to_owned();
    let restored = session.restore(runs[2]).await.unwrap();
    assert_eq!((world.text().as_str(), restored.session.id()), ("aa", session.id()));
    assert_eq!(said(&session).await.len(), 6, "the conversation is as it was");
}

#[tokio::test]
async fn cw18_agents_below_a_run_have_its_snapshot() {
    let (store, world) = (memory(), World::default());
    let below = ScriptedProvider::by_history().call("add", json!({"it": "a"})).text("Added.");
    let helper = adder(&below, &world);
    let provider = ScriptedProvider::new()
        .calls([("agent", json!({"prompt": "Add"})), ("agent", json!({"prompt": "Add"}))])
        .text("Done.");
    let above = ReactAgent::builder("above", provider.model()).tool(AgentTool::new(&helper)).build().unwrap();
    let runtime = on(&store, &world);
    let session = runtime.session();
    let run = session.start(&above, "Go");
    let id = run.id();
    run.outcome().await.unwrap();
    assert_eq!((world.text().as_str(), world.taken()), ("aa", 1));
    session.rewind(id).await.unwrap();
    assert_eq!(world.text(), "");
    let child =
        store.query(&entourage_core::session::SessionFilter::tree(session.id().clone())).await.unwrap();
    let child = child.into_iter().find(|info| info.record.parent.is_some()).unwrap().record.id;
    let error = on(&store, &world).open(&child).await.unwrap().rewind(id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
}

#[tokio::test]
async fn cw18_what_cannot_be_kept_is_not_changed() {
    let (store, world) = (memory(), World::default());
    world.0.full.store(true, Ordering::Relaxed);
    let provider = ScriptedProvider::new().call("add", json!({"it": "a"})).text("I could not.");
    let runtime = on(&store, &world);
    let session = runtime.session();
    let run = session.start(adder(&provider, &world), "Go");
    let id = run.id();
    assert_eq!(run.outcome().await.unwrap().status, Status::Completed);
    assert_eq!(world.text(), "");
    let told = settled(&stored(&store, session.id()).await);
    assert!(told[0].1.contains("the disk is full"), "{told:?}");
    let error = session.rewind(id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert_eq!(store.query(&entourage_core::session::SessionFilter::all()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn cw18_a_rewind_whose_session_is_not_stored_puts_the_world_back() {
    let (store, world) = (memory(), World::default());
    let (session, runs) = three_runs(&on(&store, &world), &world).await;
    let faulty: SharedStore = FaultyStore::new(&store, 0, Fault::FailOnce);
    let runtime = on(&faulty, &world);
    let session = runtime.open(session.id()).await.unwrap();
    session.rewind(runs[2]).await.unwrap_err();
    assert_eq!(world.text(), "aab");
    session.rewind(runs[2]).await.unwrap();
    assert_eq!(world.text(), "aa");
}

#[tokio::test]
async fn cw18_a_rewind_that_cannot_be_is_a_typed_error() {
    let (store, world) = (memory(), World::default());
    let runtime = on(&store, &world);
    let (session, runs) = three_runs(&runtime, &world).await;
    let kind = |result: Result<entourage_runtime::Rewound>| result.unwrap_err().kind();
    let none = testkit::runtime().shared_store(Arc::clone(&store)).build().open(session.id()).await.unwrap();
    assert_eq!(kind(none.rewind(runs[0]).await), ErrorKind::Unsupported);
    let unknown = RunId::generate();
    assert_eq!(kind(session.rewind(unknown).await), ErrorKind::NotFound);
    assert_eq!(kind(session.restore(unknown).await), ErrorKind::NotFound);
    assert_eq!(kind(on(&store, &world).session().rewind(runs[0]).await), ErrorKind::NotFound);

    let gate = Gate::new();
    let provider = ScriptedProvider::new().call("wait", json!({})).text("Done.");
    let waiting = agent(provider.model()).tool(FakeTool::new("wait").behind(&gate)).build().unwrap();
    let run = session.start(&waiting, "Wait");
    gate.arrived(1).await;
    assert_eq!(kind(session.rewind(runs[0]).await), ErrorKind::Busy);
    gate.open();
    run.outcome().await.unwrap();
    assert_eq!(world.text(), "aab");
    // A plain fork leaves the world as it is.
    session.fork(Moment::Event(3)).await.unwrap();
    assert_eq!(world.text(), "aab");
}
