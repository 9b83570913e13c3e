//! Agents that count how many of them work in parallel.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use entourage_core::{
    Error, Result,
    agent::Agent,
    run::{Child, Outcome, RunContext, Task, Waited},
    session::SharedStore,
};
use entourage_runtime::Runtime;
use entourage_runtime::permission::Policy;
use entourage_testkit::{self as testkit, Gate};
use futures_util::future::BoxFuture;

/// Record of the workers' activity.
#[derive(Debug, Default)]
pub(crate) struct Shift {
    working: AtomicUsize,
    most: AtomicUsize,
    began: Mutex<Vec<String>>,
}

impl Shift {
    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    pub(crate) fn working(&self) -> usize {
        self.working.load(Ordering::SeqCst)
    }

    /// Returns the prompts of the workers that began, in that order.
    pub(crate) fn began(&self) -> Vec<String> {
        self.began.lock().unwrap().clone()
    }

    /// Counts a worker until the guard is dropped, even by a panic or a cancel.
    pub(crate) fn clock_in(self: &Arc<Self>, prompt: &str) -> Working {
        self.began.lock().unwrap().push(prompt.to_owned());
        let now = self.working.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        Working(Arc::clone(self))
    }
}

pub(crate) struct Working(Arc<Shift>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.working.fetch_sub(1, Ordering::SeqCst);
    }
}

type Job = dyn for<'a> Fn(&'a str, &'a RunContext) -> BoxFuture<'a, Result<String>> + Send + Sync;

/// An agent that is counted while it works.
#[derive(Clone)]
pub(crate) struct Worker {
    pub(crate) shift: Arc<Shift>,
    job: Arc<Job>,
}

impl Worker {
    pub(crate) fn new(
        job: impl for<'a> Fn(&'a str, &'a RunContext) -> BoxFuture<'a, Result<String>> + Send + Sync + 'static,
    ) -> Self {
        Self { shift: Arc::default(), job: Arc::new(job) }
    }

    /// Creates a worker that takes a second of tokio's clock and repeats its prompt.
    pub(crate) fn second() -> Self {
        Self::new(|prompt, cx| {
            Box::pin(async move {
                cx.sleep(std::time::Duration::from_secs(1)).await?;
                Ok(format!("did {prompt}"))
            })
        })
    }

    /// Creates a worker that works until the gate is open or it is cancelled.
    pub(crate) fn behind(gate: &Gate) -> Self {
        let gate = gate.clone();
        Self::new(move |prompt, cx| {
            let gate = gate.clone();
            Box::pin(async move {
                tokio::select! {
                    () = gate.pass() => Ok(format!("did {prompt}")),
                    () = cx.cancellation().cancelled() => Err(Error::cancelled()),
                }
            })
        })
    }

    pub(crate) fn shared(&self) -> Arc<dyn Agent> {
        Arc::new(self.clone())
    }
}

#[async_trait]
impl Agent for Worker {
    fn name(&self) -> &'static str {
        "worker"
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        let prompt = task.prompt.text();
        let _working = self.shift.clock_in(&prompt);
        (self.job)(&prompt, cx).await.map(Outcome::completed)
    }
}

/// Creates a runtime in which `at_once` agents below a root work in parallel.
pub(crate) fn few(store: &SharedStore, at_once: usize) -> Runtime {
    testkit::runtime().policy(Policy::allow_all()).shared_store(Arc::clone(store)).sub_agents(at_once).build()
}

/// Spawns one child per prompt.
pub(crate) async fn spawn_all(
    cx: &RunContext,
    agent: &Arc<dyn Agent>,
    prompts: impl IntoIterator<Item = String>,
) -> Result<Vec<Child>> {
    let mut children = Vec::new();
    for prompt in prompts {
        children.push(cx.spawn(Arc::clone(agent), prompt).await?);
    }
    Ok(children)
}

/// Waits for all of them, and returns their outcomes in the order in which they ended.
pub(crate) async fn await_all(cx: &RunContext, mut children: Vec<Child>) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    while !children.is_empty() {
        let Waited::Ended { index, outcome } = cx.wait_any(&children, None).await? else {
            panic!("no timeout was given")
        };
        children.remove(index);
        outcomes.push(outcome);
    }
    Ok(outcomes)
}
