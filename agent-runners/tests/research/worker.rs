//! Agents that are counted while they work, and what a research recorded.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Result,
    agent::Agent,
    provider::Model,
    run::{Outcome, RunContext, Task},
};
use entourage_runners::research::{ResearchProgress, Researcher};
use entourage_runtime::Session;
use entourage_testkit::ScriptedProvider;
use serde_json::{Value, json};

/// The way in which an agent spends its run.
#[derive(Clone)]
pub(crate) enum Act {
    /// Works for a time, and says what it did.
    Works(Duration),
    Panics,
    Hangs,
    /// Asks a model again and again.
    Asks(Model),
}

#[derive(Clone)]
pub(crate) struct Worker {
    act: Act,
    working: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

/// Counts a worker until it is dropped, by a panic or a cancel too.
struct Working(Arc<AtomicUsize>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Worker {
    pub(crate) fn new(act: Act) -> Self {
        Self { act, working: Arc::default(), most: Arc::default() }
    }

    pub(crate) fn working(&self) -> usize {
        self.working.load(Ordering::SeqCst)
    }

    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Agent for Worker {
    fn name(&self) -> &str {
        match self.act {
            Act::Works(_) => "worker",
            Act::Panics => "panicking",
            Act::Hangs => "hanging",
            Act::Asks(_) => "asking",
        }
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        self.most.fetch_max(self.working.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let _working = Working(Arc::clone(&self.working));
        match &self.act {
            Act::Works(time) => cx.sleep(*time).await?,
            Act::Panics => panic!("the lamp fell over"),
            Act::Hangs => std::future::pending().await,
            Act::Asks(model) => loop {
                cx.call_model(model, model.request("And now?")).await?;
            },
        }
        Ok(Outcome::completed(format!("did {}", task.prompt.text())))
    }
}

/// Creates a planner that gives these tasks.
pub(crate) fn planner(tasks: impl IntoIterator<Item = (Researcher, String)>) -> ScriptedProvider {
    let task = |(kind, prompt)| json!({"kind": kind, "prompt": prompt});
    let tasks: Vec<Value> = tasks.into_iter().map(task).collect();
    ScriptedProvider::by_history().text(json!({ "tasks": tasks }).to_string())
}

/// Returns the progress that the session's runs recorded.
pub(crate) async fn recorded(session: &Session) -> Vec<Arc<ResearchProgress>> {
    let events = session.events(0, usize::MAX).await.unwrap();
    events.iter().filter_map(|event| event.event.record().unwrap()).collect()
}
