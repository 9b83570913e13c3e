//! A queued prompt is stored once and runs once, whatever else looks at its session meanwhile.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use entourage_core::{
    Result, SessionId,
    event::Event,
    session::{Batch, ReadRange, Row, SessionFilter, SessionInfo, SharedStore},
};
use entourage_runtime::{Agents, RunHandle, Session};
use entourage_testkit as testkit;
use serde_json::json;

use crate::common::{Do, Meddles, Through, act, memory, stored};

/// Answers after a number of turns of the executor that follows from a seed, before and after each operation.
#[derive(Debug)]
struct Slow {
    inner: SharedStore,
    state: AtomicU64,
}

impl Slow {
    fn over(inner: &SharedStore, seed: u64) -> Arc<Through<Self>> {
        let state = AtomicU64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Arc::new(Through(Self { inner: Arc::clone(inner), state }))
    }

    async fn pause(&self) {
        let mut turns = self.state.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
        turns = (turns ^ (turns >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        for _ in 0..(turns >> 32) % 6 {
            tokio::task::yield_now().await;
        }
    }
}

#[async_trait]
impl Meddles for Slow {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        self.pause().await;
        let stored = self.inner.append(session, expected, batch).await;
        self.pause().await;
        stored
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        self.pause().await;
        let rows = self.inner.read(session, range).await;
        self.pause().await;
        rows
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        self.pause().await;
        let found = self.inner.query(filter).await;
        self.pause().await;
        found
    }
}

fn answers() -> Do {
    act(|_| Box::pin(async { Ok("done".to_owned()) }))
}

/// Starts three prompts while something else is under way in the session.
async fn busy(session: &Session, beside: u64) -> Vec<RunHandle> {
    let (agent, other) = (answers(), session.clone());
    let beside = tokio::spawn(async move {
        match beside {
            0 => drop(other.stop().await),
            1 => drop(other.signal("hello", json!(1)).await),
            2 => drop(other.resume(answers()).outcome().await),
            _ => drop(other.unfinished().await),
        }
    });
    let mut runs = Vec::new();
    for number in 0..3 {
        for _ in 0..number * 3 {
            tokio::task::yield_now().await;
        }
        runs.push(session.start(agent.clone(), format!("prompt {number}")));
    }
    beside.await.unwrap();
    runs
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_is_queued_while_its_session_is_opened_is_stored_and_runs_once() {
    for seed in 0..1_200 {
        let store = memory();
        let runtime = testkit::runtime().shared_store(Slow::over(&store, seed)).build();
        let session = runtime.session();
        session.start(answers(), "before").outcome().await.unwrap();
        let runs = busy(&session, seed % 4).await;
        let ids: Vec<_> = runs.iter().map(RunHandle::id).collect();
        let mut ended = Vec::new();
        for run in runs {
            ended.push(run.outcome().await.map(|outcome| outcome.is_completed()));
        }
        drop(session);
        // A second copy in the stored queue would run now.
        runtime.recover(&Agents::new().with(answers())).await.unwrap().detach();
        tokio::time::sleep(std::time::Duration::from_secs(60)).await;

        let mut copies: HashMap<_, (usize, usize)> = HashMap::new();
        for event in stored(&store, &store.query(&SessionFilter::all()).await.unwrap()[0].record.id).await {
            let copies = copies.entry(event.origin.run).or_default();
            match event.event {
                Event::PromptQueued(_) => copies.0 += 1,
                Event::RunStarted(_) => copies.1 += 1,
                _ => {}
            }
        }
        for (id, ended) in ids.iter().zip(&ended) {
            let (queued, begun) = copies.get(id).copied().unwrap_or_default();
            assert!(queued <= 1 && begun <= 1, "seed {seed}: queued {queued}, begun {begun}, {ended:?}");
            assert!(begun == 1 || !matches!(ended, Ok(true)), "seed {seed}: {ended:?}");
        }
    }
}
