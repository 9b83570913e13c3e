//! Real sessions: an agent that reads page after page, and stores that record or batch its writes.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use async_trait::async_trait;
use entourage_core::{
    Result, SessionId, Timestamp, Usage,
    context::estimate_tokens,
    event::{Envelope, Event, Origin},
    provider::{CallContext, Delta, DeltaStream, FinishReason, Model, Profile, Provider, Request},
    run::Limits,
    session::{
        Batch, Lease, ReadRange, Row, SessionFilter, SessionHead, SessionInfo, SessionRecord, SessionStore,
        SharedStore,
    },
    tool::Access,
};
use entourage_runners::{ReactAgent, from_fn::typed};
use entourage_runtime::Runtime;
use futures_util::{StreamExt, stream};
use tokio::sync::{Mutex as AsyncMutex, watch};

/// Context window in tokens: about 40 pages, so that a conversation is compacted every 200 events or so.
const WINDOW: u64 = 8_000;
/// Bytes of a page.
const PAGE: usize = 400;

/// A model that asks for page after page and answers after some. It writes a summary when it is offered no tools.
#[derive(Debug)]
struct Pages {
    asked: AtomicU64,
    /// Model calls of a run.
    steps: u64,
    /// Pages asked for at once.
    fan: u32,
}

#[async_trait]
impl Provider for Pages {
    fn name(&self) -> &str {
        "bench"
    }

    async fn stream(&self, request: Request, _: &CallContext) -> Result<DeltaStream> {
        let input = request.messages.iter().map(|message| estimate_tokens(message)).sum();
        let mut deltas = vec![Delta::Usage(Box::new(Usage::new(input, 20)))];
        let reason = if request.tools.is_empty() {
            deltas.push(Delta::text("The pages up to here were read; nothing of note was on them."));
            FinishReason::Stop
        } else {
            let asked = self.asked.fetch_add(1, Relaxed) + 1;
            if asked.is_multiple_of(self.steps) {
                deltas.push(Delta::text("These pages are read."));
                FinishReason::Stop
            } else {
                for index in 0..self.fan {
                    deltas.push(Delta::tool_call(index, format!("call_{asked}_{index}"), "look"));
                    deltas.push(Delta::arguments(index, format!("{{\"page\":{asked},\"part\":{index}}}")));
                }
                FinishReason::ToolCalls
            }
        };
        deltas.push(Delta::finish(reason));
        Ok(stream::iter(deltas.into_iter().map(Ok)).boxed())
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Look {
    page: u64,
    part: usize,
}

/// An agent whose runs make `steps` model calls, all but the last of which ask for a page, and whose conversation is
/// compacted again and again.
pub(crate) fn reader(steps: u64) -> ReactAgent {
    agent(steps, 1, Some(WINDOW), None)
}

/// An agent like `reader` without compaction, with `fan` pages at once. With a `turn`, the parts finish in order.
pub(crate) fn fan_reader(steps: u64, fan: u32, turn: Option<watch::Receiver<usize>>) -> ReactAgent {
    agent(steps, fan, None, turn)
}

fn agent(steps: u64, fan: u32, window: Option<u64>, turn: Option<watch::Receiver<usize>>) -> ReactAgent {
    let mut profile = Profile::default();
    profile.context_window = window;
    let provider = Arc::new(Pages { asked: AtomicU64::new(0), steps, fan });
    let model = Model::new(provider, "bench").with_profile(profile);
    let look = typed("look", "Shows a page.", Access::READ, move |Look { page, part }| {
        let turn = turn.clone();
        async move {
            if let Some(mut turn) = turn {
                turn.wait_for(|turn| *turn == part).await.unwrap();
            }
            Ok(format!("Page {page}, part {part}. {}", "All work and no play. ".repeat(PAGE / 22)))
        }
    });
    let mut limits = Limits::default();
    limits.steps = 1_000;
    ReactAgent::builder("reader", model)
        .instructions("You read pages.")
        .tool(look)
        .limits(limits)
        .build()
        .unwrap()
}

/// Runs an agent in a session until it has at least `events` events. Its conversation is compacted again and again.
pub(crate) async fn fill(store: &SharedStore, id: &SessionId, events: u64) {
    let runtime = Runtime::builder().shared_store(Arc::clone(store)).build();
    let (session, agent) = (runtime.session_with_id(id.clone()), reader(11));
    while session.head().await.unwrap().seq < events {
        let outcome = session.start(&agent, "Read the next ten pages.").outcome().await.unwrap();
        assert_eq!(outcome.text, "These pages are read.");
    }
    let state = session.state().await.unwrap();
    assert!(events < 1_000 || state.head().checkpoint > 0, "no checkpoint");
    assert!(state.estimated_tokens() <= WINDOW, "not summed up: {} tokens", state.estimated_tokens());
}

/// A store that passes on appends in large batches, with the same final content: so a million events are written in a
/// minute. It cannot list sessions and is for new ones, which are never queried.
pub(crate) struct Gathering {
    inner: SharedStore,
    /// Most rows that are passed on at once.
    most: usize,
    pending: AsyncMutex<Vec<(SessionId, u64, Batch)>>,
}

impl Gathering {
    pub(crate) fn new(inner: SharedStore, most: usize) -> Self {
        Self { inner, most, pending: AsyncMutex::default() }
    }

    pub(crate) async fn flush(&self) -> Result<()> {
        let pending = std::mem::take(&mut *self.pending.lock().await);
        // In the order of their first events: a parent comes before its children.
        for (session, expected, batch) in pending {
            self.inner.append(&session, expected, batch).await?;
        }
        Ok(())
    }
}

impl fmt::Debug for Gathering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gathering")
    }
}

#[async_trait]
impl SessionStore for Gathering {
    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        let mut pending = self.pending.lock().await;
        let seq = batch.head.seq;
        match pending.iter_mut().find(|(id, ..)| id == session) {
            Some((_, _, before)) => {
                before.rows.extend(batch.rows);
                (before.head, before.lease) = (batch.head, batch.lease);
            }
            None => pending.push((session.clone(), expected, batch)),
        }
        let full = pending.iter().map(|(.., batch)| batch.rows.len()).sum::<usize>() >= self.most;
        drop(pending);
        if full {
            self.flush().await?;
        }
        Ok(seq)
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        self.flush().await?;
        self.inner.read(session, range).await
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        self.flush().await?;
        self.inner.query(filter).await
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        self.flush().await?;
        self.inner.lease(session, lease).await
    }

    async fn delete(&self, session: &SessionId) -> Result<u64> {
        self.flush().await?;
        self.inner.delete(session).await
    }
}

/// One write to a store. Each is a transaction.
#[derive(Debug, Clone)]
pub(crate) enum Write {
    Append(Vec<Envelope>, Box<SessionHead>),
    Lease,
}

/// A store that records every write, and reports how many calls of the current step have settled.
#[derive(Debug)]
pub(crate) struct Noting {
    inner: SharedStore,
    pub(crate) writes: Mutex<Vec<Write>>,
    settled: watch::Sender<usize>,
}

impl Noting {
    pub(crate) fn new(inner: SharedStore) -> Self {
        Self { inner, writes: Mutex::default(), settled: watch::Sender::new(0) }
    }

    pub(crate) fn settled(&self) -> watch::Receiver<usize> {
        self.settled.subscribe()
    }
}

#[async_trait]
impl SessionStore for Noting {
    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        let rows = batch.rows.iter().cloned().map(|row| row.into_envelope(session));
        let events = rows.collect::<Result<Vec<_>>>()?;
        let write = Write::Append(events.clone(), Box::new(batch.head.clone()));
        let seq = self.inner.append(session, expected, batch).await?;
        self.writes.lock().unwrap().push(write);
        for event in events {
            self.settled.send_modify(|settled| match event.event.kind() {
                "model_started" => *settled = 0,
                "tool_finished" => *settled += 1,
                _ => {}
            });
        }
        Ok(seq)
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        self.inner.read(session, range).await
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        self.inner.query(filter).await
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        self.writes.lock().unwrap().push(Write::Lease);
        self.inner.lease(session, lease).await
    }

    async fn delete(&self, session: &SessionId) -> Result<u64> {
        self.inner.delete(session).await
    }
}

/// Appends the same few events to a session again and again, with rising numbers.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    pub(crate) session: SessionId,
    pub(crate) head: SessionHead,
    pub(crate) lease: Lease,
    origin: Arc<Origin>,
    events: Arc<[Event]>,
}

impl Writer {
    /// A writer of the events of one step with one tool: the reply, and the call from start to end.
    pub(crate) fn of_a_step(writes: &[Write]) -> Self {
        let mut all = writes.iter().filter_map(|write| match write {
            Write::Append(events, head) => Some((events, head)),
            Write::Lease => None,
        });
        let found: HashMap<_, _> =
            all.clone().flat_map(|(events, _)| events).map(|event| (event.event.kind(), event)).collect();
        let events =
            ["model_finished", "tool_started", "tool_finished"].map(|kind| found[kind].event.clone());
        let origin = Arc::clone(&found["tool_finished"].origin);
        let mut head = (**all.next_back().unwrap().1).clone();
        head.seq = 0;
        head.checkpoint = 0;
        let lease = Lease::new(u64::MAX / 7, 1, Timestamp::from_micros(1_800_000_000_000_000));
        Self { session: origin.session.clone(), head, lease, origin, events: events.into() }
    }

    /// A copy of this writer for another session.
    pub(crate) fn of(&self, session: SessionId) -> Self {
        let mut origin = (*self.origin).clone();
        origin.session = session.clone();
        Self { session, origin: Arc::new(origin), ..self.clone() }
    }

    pub(crate) fn batch_size(&self) -> u64 {
        self.events.len() as u64
    }

    /// The next batch, and the sequence number that it expects.
    pub(crate) fn next(&mut self) -> (u64, Batch) {
        let expected = self.head.seq;
        let rows = (expected + 1..).zip(&*self.events).map(|(seq, event)| {
            let at = Timestamp::from_micros(1_700_000_000_000_000 + seq as i64);
            Row::live(Envelope::new(Arc::clone(&self.origin), seq, at, event.clone()))
        });
        let rows: Vec<_> = rows.collect();
        self.head.seq += self.batch_size();
        let batch = Batch::new(9, rows, self.head.clone()).leased(self.lease);
        let record = || SessionRecord::root(self.session.clone(), Timestamp::from_micros(1));
        (expected, if expected == 0 { batch.creating(record()) } else { batch })
    }
}

/// The writes of a run of two steps, one with a tool, to a store in memory.
pub(crate) async fn step() -> Writer {
    let store = Arc::new(Noting::new(Arc::new(entourage::session::MemoryStore::new())));
    let runtime = Runtime::builder().shared_store(Arc::clone(&store) as _).build();
    runtime.session().start(&reader(2), "Read a page.").outcome().await.unwrap();
    let writes = store.writes.lock().unwrap();
    Writer::of_a_step(&writes)
}
