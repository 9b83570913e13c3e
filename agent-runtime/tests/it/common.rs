//! Shared helpers: the rules of a model conversation, a store that dies, a process that dies.

use std::{
    fmt,
    future::Future,
    ops::Deref,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Clock, Error, ErrorKind, Result, SessionId, Timestamp,
    agent::Agent,
    event::{Envelope, Event},
    message::{History, Message, Role},
    provider::Model,
    run::{Outcome, RunContext, Task},
    session::{Batch, Lease, ReadRange, Row, SessionFilter, SessionInfo, SessionStore, SharedStore},
    tool::{Access, Footprint, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};
use entourage_runners::{ReactAgent, ReactBuilder};
use entourage_runtime::permission::Policy;
use entourage_runtime::{MemoryStore, RunHandle, Runtime};
use entourage_testkit::{self as testkit, Gate};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::time::Instant;

/// A builder of a plain agent.
pub(crate) fn agent(model: Model) -> ReactBuilder {
    ReactAgent::builder("tester", model)
}

/// A runtime in which every tool that the scope admits may run.
pub(crate) fn open_runtime() -> Runtime {
    testkit::runtime().policy(Policy::allow_all()).build()
}

pub(crate) fn memory() -> SharedStore {
    Arc::new(MemoryStore::new())
}

pub(crate) fn runtime_on(store: &SharedStore) -> Runtime {
    testkit::runtime().policy(Policy::allow_all()).shared_store(Arc::clone(store)).build()
}

/// Reads all events of a run, up to its end.
pub(crate) async fn drain(run: &mut RunHandle) -> Vec<Envelope> {
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        events.push(event);
    }
    events
}

pub(crate) fn kinds(events: &[Envelope]) -> Vec<&str> {
    events.iter().map(|event| event.event.kind()).collect()
}

/// The stored events of a session. Checks that they are numbered without gaps, each once.
pub(crate) async fn stored(store: &SharedStore, session: &SessionId) -> Vec<Envelope> {
    let rows = store.read(session, ReadRange::all()).await.unwrap();
    let events: Vec<_> = rows.into_iter().map(|row| row.into_envelope(session).unwrap()).collect();
    let numbers: Vec<_> = events.iter().map(|event| event.seq).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>(), "numbers without gaps");
    events
}

/// Checks the rule of every service: after a message with calls there is one tool message that answers each of them
/// once, in call order, and there is no other tool message.
pub(crate) fn assert_valid(history: &History) {
    let messages: Vec<_> = history.iter().collect();
    for (place, message) in messages.iter().enumerate() {
        assert!(!message.parts().is_empty(), "an empty message: {history:?}");
        let calls: Vec<_> = message.tool_calls().map(|call| call.id.to_string()).collect();
        if message.role() == Role::Tool {
            let asked = place.checked_sub(1).is_some_and(|before| messages[before].tool_calls().count() > 0);
            assert!(asked, "results that nobody asked for: {history:?}");
            continue;
        }
        assert_eq!(message.tool_results().count(), 0, "results belong to tool messages");
        let next = messages.get(place + 1).filter(|next| next.role() == Role::Tool);
        let answers: Vec<_> =
            next.into_iter().flat_map(|next| next.tool_results()).map(|it| it.call.to_string()).collect();
        assert_eq!(answers, calls, "each call is answered once, in order: {history:?}");
    }
}

/// Texts of the results in a message, in order.
pub(crate) fn results(message: &Message) -> Vec<String> {
    message.tool_results().map(entourage_core::message::ToolResult::to_text).collect()
}

/// Runs `future` as a process of its own. When it ends, everything it left running is dropped unpolled.
pub(crate) fn process<T>(future: impl Future<Output = T>) -> T {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    // By its trait, so that tokio's part is compiled once and not for each caller.
    let future: Pin<&mut dyn Future<Output = T>> = pin!(future);
    tokio.unwrap().block_on(future)
}

/// Waits for the end of the run, or for the moment at which its store stands still.
pub(crate) async fn until_killed<T>(run: impl Future<Output = T>, killed: &Gate) -> Option<T> {
    tokio::select! {
        biased;
        () = killed.arrived(1) => None,
        ended = run => Some(ended),
    }
}

/// A clock that starts some time after the others, as in a later process.
#[derive(Debug)]
pub(crate) struct LaterClock(Instant, Duration);

impl LaterClock {
    pub(crate) fn new(later: Duration) -> Self {
        Self(Instant::now(), later)
    }
}

impl Clock for LaterClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_767_225_600_000_000).after(self.1 + self.0.elapsed())
    }
}

/// The overrides of a store double; everything else goes to the store behind it.
#[async_trait]
pub(crate) trait Meddles: Send + Sync + fmt::Debug {
    fn inner(&self) -> &SharedStore;

    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        self.inner().append(session, expected, batch).await
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        self.inner().read(session, range).await
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        self.inner().query(filter).await
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        self.inner().lease(session, lease).await
    }

    fn largest_batch(&self) -> usize {
        self.inner().largest_batch()
    }
}

/// A store behind a double.
#[derive(Debug)]
pub(crate) struct Through<M>(pub(crate) M);

impl<M> Deref for Through<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.0
    }
}

#[async_trait]
impl<M: Meddles> SessionStore for Through<M> {
    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        self.0.append(session, expected, batch).await
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        self.0.read(session, range).await
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        self.0.query(filter).await
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        self.0.lease(session, lease).await
    }

    fn largest_batch(&self) -> usize {
        self.0.largest_batch()
    }

    async fn delete(&self, session: &SessionId) -> Result<u64> {
        self.0.inner().delete(session).await
    }
}

/// The fault at the chosen append, and at every later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing is stored and no answer comes.
    HangBefore,
    /// The batch is stored, and no answer comes.
    HangAfter,
    /// Nothing is stored, and the answer is an error.
    Fail,
    /// As `Fail`, and later appends work.
    FailOnce,
}

/// A store that works until a given append.
#[derive(Debug)]
pub(crate) struct FaultyStore {
    inner: SharedStore,
    at: usize,
    fault: Fault,
    appends: AtomicUsize,
    /// A gate that is reached when a process is to die.
    pub(crate) killed: Gate,
}

impl FaultyStore {
    /// A store over `inner` that fails at append number `at`, counted from 0.
    pub(crate) fn new(inner: &SharedStore, at: usize, fault: Fault) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::clone(inner),
            at,
            fault,
            appends: AtomicUsize::new(0),
            killed: Gate::new(),
        })
    }

    /// A store that never fails and counts its appends.
    pub(crate) fn counting() -> Arc<Self> {
        Self::new(&memory(), usize::MAX, Fault::Fail)
    }

    pub(crate) fn appends(&self) -> usize {
        self.appends.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl SessionStore for FaultyStore {
    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        let number = self.appends.fetch_add(1, Ordering::SeqCst);
        if number < self.at || (number > self.at && self.fault == Fault::FailOnce) {
            return self.inner.append(session, expected, batch).await;
        }
        match self.fault {
            Fault::Fail | Fault::FailOnce => {
                return Err(Error::new(ErrorKind::Store, "the disk is full; free some space"));
            }
            Fault::HangAfter if number == self.at => {
                self.inner.append(session, expected, batch).await?;
            }
            Fault::HangAfter | Fault::HangBefore => {}
        }
        self.killed.pass().await;
        Err(Error::new(ErrorKind::Store, "a dead process goes on"))
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        self.inner.read(session, range).await
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        self.inner.query(filter).await
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        self.inner.lease(session, lease).await
    }

    async fn delete(&self, session: &SessionId) -> Result<u64> {
        self.inner.delete(session).await
    }
}

/// Number of events of this kind.
pub(crate) fn count(events: &[Envelope], kind: &str) -> usize {
    events.iter().filter(|event| event.event.kind() == kind).count()
}

/// Tool names and results of all settled calls, in the order in which they were stored.
pub(crate) fn settled(events: &[Envelope]) -> Vec<(String, String)> {
    let settled = events.iter().filter_map(|event| match &event.event {
        Event::ToolFinished(call) => Some((call.result.name.to_string(), call.result.to_text())),
        _ => None,
    });
    settled.collect()
}

pub(crate) type Body = dyn for<'a> Fn(&'a RunContext) -> BoxFuture<'a, Result<String>> + Send + Sync;

/// An agent made from a closure.
#[derive(Clone)]
pub(crate) struct Do(Arc<Body>);

pub(crate) fn act(
    body: impl for<'a> Fn(&'a RunContext) -> BoxFuture<'a, Result<String>> + Send + Sync + 'static,
) -> Do {
    Do(Arc::new(body))
}

#[async_trait]
impl Agent for Do {
    fn name(&self) -> &'static str {
        "doer"
    }

    async fn run(&self, _: Task, cx: &RunContext) -> Result<Outcome> {
        (self.0)(cx).await.map(Outcome::completed)
    }
}

/// A tool that writes to a path, and says where. Clones share the paths that were written.
#[derive(Clone)]
pub(crate) struct Write {
    spec: ToolSpec,
    gate: Option<Gate>,
    paths: Arc<Mutex<Vec<String>>>,
}

impl Write {
    pub(crate) fn new() -> Self {
        let schema =
            json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
        let spec = ToolSpec::new("write", "Writes.", schema).with_access(Access::WRITE).naming_subjects();
        Self { spec, gate: None, paths: Arc::default() }
    }

    /// The same tool, whose calls may be repeated.
    pub(crate) fn idempotent(mut self) -> Self {
        self.spec = self.spec.with_repeat(Repeat::Idempotent);
        self
    }

    /// The same tool, whose calls wait at a gate.
    pub(crate) fn behind(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.paths.lock().unwrap().clone()
    }
}

#[async_trait]
impl Tool for Write {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn footprint(&self, arguments: &Value) -> Footprint {
        Footprint::new(Access::WRITE).writing(arguments["path"].as_str().unwrap_or("?"))
    }

    async fn call(&self, input: ToolInput, _: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        if let Some(gate) = &self.gate {
            gate.pass().await;
        }
        let path = input.arguments["path"].as_str().unwrap().to_owned();
        self.paths.lock().unwrap().push(path.clone());
        Ok(ToolOutput::text(format!("wrote {path}")))
    }
}
