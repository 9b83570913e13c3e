//! A slow store: any waiter drives a commit, even when the future that began it is not polled.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Result, SessionId,
    event::Event,
    session::{Batch, Lease, ReadRange, Row, SessionFilter, SessionInfo, SessionStore, SharedStore},
    tool::Access,
};
use entourage_runners::{AgentTool, ReactAgent, TodoTool, graph::TaskGraph};
use entourage_runtime::MemoryStore;
use entourage_testkit::{FakeTool, ScriptedProvider};
use serde_json::{Value, json};

use crate::common::{agent, runtime_on, stored};

/// A store that waits before each append, like one that calls a thread or a server.
#[derive(Debug, Default)]
struct Slow(MemoryStore);

#[async_trait]
impl SessionStore for Slow {
    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
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

    async fn delete(&self, session: &SessionId) -> Result<u64> {
        self.0.delete(session).await
    }
}

async fn ends(calls: Vec<(&str, Value)>) -> Vec<String> {
    let store: SharedStore = Arc::new(Slow::default());
    let below = ScriptedProvider::by_history().text("Looked.");
    let sub = ReactAgent::builder("sub", below.model()).build().unwrap();
    let provider = ScriptedProvider::by_history().calls(calls).text("Done.");
    let lead = agent(provider.model())
        .tool(AgentTool::new(sub))
        .tool(FakeTool::new("look").access(Access::READ))
        .tool(TodoTool::new())
        .build()
        .unwrap();
    let id = SessionId::new("work").unwrap();
    let run = runtime_on(&store).session_with_id(id.clone()).start(&lead, "Go");
    let outcome = tokio::time::timeout(Duration::from_secs(60), run.outcome()).await;
    assert!(outcome.is_ok_and(|outcome| outcome.unwrap().is_completed()), "the run hangs");
    let events = stored(&store, &id).await;
    let numbers: Vec<_> = events.iter().map(|it| it.seq).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>(), "each once, in order");
    let results = events.iter().filter(|it| matches!(it.event, Event::ToolFinished(_)));
    results.map(|it| it.event.kind().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn design_3_an_unpolled_commit_blocks_no_waiter() {
    let (look, ask) = (("look", json!({})), ("agent", json!({"prompt": "Look."})));
    let todos = ("todos", json!({"todos": [{"content": "Look", "status": "pending"}]}));
    for calls in [
        vec![look.clone(), ask.clone()],
        vec![ask.clone(), look.clone()],
        vec![look.clone(), ask.clone(), ask.clone(), look.clone(), ask.clone()],
        vec![todos.clone(), look.clone(), ask.clone()],
        vec![look, todos, ask.clone(), ask],
    ] {
        let made = calls.len();
        assert_eq!(ends(calls).await.len(), made);
    }
}

#[tokio::test(start_paused = true)]
async fn design_3_parallel_graph_agents_do_not_block_each_other() {
    let store: SharedStore = Arc::new(Slow::default());
    let graph = TaskGraph::builder("wide").limit_each_agent(3);
    let below = ScriptedProvider::by_history().text("Looked.");
    let sub = ReactAgent::builder("sub", below.model()).build().unwrap();
    let first = graph.step("first", (), |()| async { Ok(1_u32) });
    for id in ["a", "b", "c"] {
        graph.agent(id, &sub, "Look.").after(&first);
        graph.step(format!("{id}2"), (), |()| async { Ok(2_u32) });
        graph.agent(format!("{id}3"), &sub, "Look.");
    }
    let graph = graph.build().unwrap();
    let run = runtime_on(&store).session().start(&graph, "Go");
    let outcome = tokio::time::timeout(Duration::from_secs(60), run.outcome()).await;
    assert!(outcome.is_ok_and(|outcome| outcome.unwrap().is_completed()), "the run hangs");
}
