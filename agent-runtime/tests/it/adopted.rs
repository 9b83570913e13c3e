//! Sessions that are found at the place of a child and are not that child: an earlier session of the parent's id left
//! them, or a run that the parent knows nothing of any more.

use std::sync::Arc;

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, Result, SessionId, Timestamp,
    agent::Agent,
    run::{Pause, Status},
    session::{Batch, ReadRange, Row, SessionFilter, SessionInfo, SessionStore, SharedStore},
    tool::Access,
};
use entourage_runners::{AgentTool, ReactAgent};
use entourage_runtime::permission::Policy;
use entourage_runtime::{RunHandle, Runtime, Titles};
use entourage_testkit::{self as testkit, FakeTool, ScriptedProvider};
use serde_json::{Value, json};

use crate::common::{Meddles, Through, act, agent, memory, settled, stored};

fn root() -> SessionId {
    SessionId::new("x").unwrap()
}

fn runtime(store: &SharedStore) -> Runtime {
    testkit::runtime().policy(Policy::allow_all()).shared_store(Arc::clone(store)).build()
}

/// A session as a store holds it.
#[derive(Debug, Clone)]
struct Copied {
    info: SessionInfo,
    rows: Vec<Row>,
}

impl Copied {
    async fn of(store: &SharedStore, id: &SessionId) -> Self {
        let info = store.query(&SessionFilter::id(id.clone())).await.unwrap().pop().unwrap();
        Self { info, rows: store.read(id, ReadRange::all()).await.unwrap() }
    }

    /// All sessions below the root, parents first.
    async fn below(store: &SharedStore) -> Vec<Self> {
        let mut found = store.query(&SessionFilter::tree(root())).await.unwrap();
        found.retain(|info| info.record.parent.is_some());
        found.sort_by_key(|info| info.record.id.as_str().len());
        let mut copies = Vec::new();
        for info in found {
            copies.push(Self::of(store, &info.record.id).await);
        }
        copies
    }

    async fn put(&self, store: &SharedStore) {
        let batch = Batch::new(7, self.rows.clone(), self.info.head.clone());
        let id = &self.info.record.id;
        store.append(id, 0, batch.creating(self.info.record.clone())).await.unwrap();
    }

    /// The same as an older version stored it: no run names the one above.
    fn of_older_version(mut self) -> Self {
        for row in &mut self.rows {
            let mut body: Value = serde_json::from_str(&row.body().unwrap()).unwrap();
            body.as_object_mut().unwrap().remove("above");
            *row = Row::stored(row.columns(), body.to_string());
        }
        self
    }
}

/// A store in which sessions were left behind: they are there as soon as the root is.
#[derive(Debug)]
struct Leftovers {
    inner: SharedStore,
    left: Vec<Copied>,
}

#[async_trait]
impl Meddles for Leftovers {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        let creates = batch.create.is_some() && *session == root();
        let appended = self.inner.append(session, expected, batch).await?;
        if creates {
            for left in &self.left {
                left.put(&self.inner).await;
            }
        }
        Ok(appended)
    }
}

fn with_leftovers(left: Vec<Copied>) -> (SharedStore, SharedStore) {
    let inner = memory();
    let store = Arc::new(Through(Leftovers { inner: Arc::clone(&inner), left }));
    (store as Arc<dyn SessionStore>, inner)
}

/// Starts a run of the root.
type Start = Box<dyn FnOnce(&Runtime) -> RunHandle>;

/// Starts an agent that leaves its task to another one, which answers with `answer`: by a tool, or in a role. `before`
/// is the number of replies before.
fn delegating(by_tool: bool, answer: &str, before: usize) -> (Start, ScriptedProvider) {
    let below = ScriptedProvider::by_history().text(answer).text(answer);
    let child = ReactAgent::builder("below", below.model()).build().unwrap();
    if by_tool {
        let asks = (0..before).fold(ScriptedProvider::by_history(), |script, _| script.text("-"));
        let asks = asks.call("agent", json!({"prompt": "look"})).text("D");
        let lead = agent(asks.model()).tool(AgentTool::new(child)).build().unwrap();
        return (Box::new(move |runtime| runtime.session_with_id(root()).start(&lead, "go")), below);
    }
    let child: Arc<dyn Agent> = Arc::new(child);
    let lead = act(move |cx| {
        let child = Arc::clone(&child);
        Box::pin(async move { Ok(cx.ask("worker", child, "look").await?.text) })
    });
    (Box::new(move |runtime| runtime.session_with_id(root()).start(&lead, "go")), below)
}

/// The clock stands still: both sessions of the id are created at the same time.
#[tokio::test(start_paused = true)]
async fn store_f11_a_child_of_an_earlier_session_of_the_id_is_not_taken() {
    for by_tool in [true, false] {
        let old = memory();
        let (start, _) = delegating(by_tool, "OLD", 0);
        start(&runtime(&old)).outcome().await.unwrap();
        let left = Copied::below(&old).await;
        let child = left[0].info.record.id.clone();
        let (store, inner) = with_leftovers(left);
        let (start, below) = delegating(by_tool, "NEW", 0);
        let error = start(&runtime(&store)).outcome().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.message().contains("delete it or move it away"), "{error}");
        assert!(error.to_string().contains(child.as_str()), "{error}");
        assert_eq!(below.count(), 0);
        assert_eq!(stored(&inner, &child).await.len(), stored(&old, &child).await.len(), "nothing is lost");
        // As the error says.
        store.delete(&child).await.unwrap();
        let (start, below) = delegating(by_tool, "NEW", 1);
        start(&runtime(&store)).outcome().await.unwrap();
        assert_eq!(below.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn store_f11_a_child_of_a_run_that_a_restored_parent_does_not_know_is_not_taken() {
    let lead = |answer: &str| {
        let below = ScriptedProvider::by_history().text(answer);
        let child = ReactAgent::builder("below", below.model()).build().unwrap();
        let asks =
            ScriptedProvider::by_history().text("hi").call("agent", json!({"prompt": "look"})).text("D");
        (agent(asks.model()).tool(AgentTool::new(child)).build().unwrap(), below)
    };
    let old = memory();
    let (first, _) = lead("OLD");
    let session = runtime(&old).session_with_id(root());
    session.start(&first, "before").outcome().await.unwrap();
    let backup = Copied::of(&old, &root()).await;
    session.start(&first, "go").outcome().await.unwrap();
    let (left, restored) = (Copied::below(&old).await, memory());
    backup.put(&restored).await;
    left[0].put(&restored).await;
    let (second, below) = lead("NEW");
    let session = runtime(&restored).session_with_id(root());
    let error = session.start(&second, "go").outcome().await.unwrap_err();
    assert_eq!((error.kind(), below.count()), (ErrorKind::Conflict, 0), "{error}");
}

#[tokio::test(start_paused = true)]
async fn store_f11_a_title_of_an_earlier_session_of_the_id_is_not_taken() {
    let titled = |store: &SharedStore, title: &str| {
        let small = ScriptedProvider::by_history().text(title);
        testkit::runtime().shared_store(Arc::clone(store)).titles(Titles::new(small.model())).build()
    };
    let talker = agent(ScriptedProvider::by_history().text("Hi.").model()).build().unwrap();
    let old = memory();
    let runtime = titled(&old, "The old one");
    runtime.session_with_id(root()).start(&talker, "Hello there").outcome().await.unwrap();
    assert!(runtime.cancel_all().await);
    let (store, _) = with_leftovers(Copied::below(&old).await);
    let runtime = titled(&store, "The new one");
    let session = runtime.session_with_id(root());
    session.start(&talker, "Hello there").outcome().await.unwrap();
    assert!(runtime.cancel_all().await);
    assert_eq!(&*session.head().await.unwrap().title, "Hello there");
}

#[tokio::test(start_paused = true)]
async fn a_child_that_an_older_version_stored_is_taken_unless_it_is_older_than_its_parent() {
    let pay = FakeTool::new("pay").access(Access::WRITE);
    let below = ScriptedProvider::by_history().call("pay", json!({})).text("Paid.");
    let child = ReactAgent::builder("below", below.model()).tool(pay.clone()).build().unwrap();
    let asks = ScriptedProvider::by_history().call("agent", json!({"prompt": "look"})).text("Done.");
    let lead = agent(asks.model()).tool(AgentTool::new(child)).build().unwrap();
    let old = memory();
    let asking = |store: &SharedStore| testkit::runtime().shared_store(Arc::clone(store)).build();
    let paused = asking(&old).session_with_id(root()).start(&lead, "go").outcome().await.unwrap();
    let Status::Paused(Pause::Approval(question)) = paused.status else { panic!("{paused:?}") };
    for older in [false, true] {
        let store = memory();
        Copied::of(&old, &root()).await.of_older_version().put(&store).await;
        let mut child = Copied::below(&old).await.remove(0).of_older_version();
        if older {
            let created = child.info.record.created.as_micros() - 1;
            child.info.record.created = Timestamp::from_micros(created);
        }
        child.put(&store).await;
        let runtime = asking(&store);
        runtime.decide(&question, entourage_core::permission::Decision::Allow).await.unwrap();
        let ended = runtime.open(&root()).await.unwrap().resume(&lead).outcome().await;
        if older {
            assert_eq!(ended.unwrap_err().kind(), ErrorKind::Conflict);
        } else {
            assert_eq!(ended.unwrap().status, Status::Completed);
            assert_eq!(settled(&stored(&store, &root()).await)[0].1, "Paid.");
        }
    }
    assert_eq!(pay.started(), 1);
}
