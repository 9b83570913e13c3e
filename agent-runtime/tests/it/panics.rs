//! Panics whose payload panics when it is dropped, and futures that panic when they are dropped: each ends as the plain
//! panic in its place does, and nothing after it is harmed.

use std::{
    panic::panic_any,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    agent::Agent,
    event::{Envelope, Event},
    permission::{ApprovalRequest, Approver, Decision},
    provider::Provider,
    run::{Limits, Observer, Outcome, RunContext, Status, Task},
    session::{Batch, SharedStore},
    tool::{Footprint, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};
use entourage_runtime::layers::{CredentialRefresh, Refresh};
use entourage_runtime::permission::Policy;
use entourage_testkit::{self as testkit, ScriptedProvider};
use serde_json::{Value, json};

use crate::common::{Do, Through, act, agent, drain, memory};

/// A value whose drop panics with another one.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic_any(Self);
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    Call,
    Drop,
    Footprint,
}

#[derive(Debug)]
struct Bursts(ToolSpec, Place);

impl Bursts {
    fn new(place: Place) -> Self {
        Self(testkit::FakeTool::new("burst").spec().clone(), place)
    }
}

#[async_trait]
impl Tool for Bursts {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn footprint(&self, _: &Value) -> Footprint {
        if self.1 == Place::Footprint {
            panic_any(Bomb);
        }
        Footprint::new(self.0.access())
    }

    async fn call(&self, _: ToolInput, _: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        if self.1 == Place::Call {
            panic_any(Bomb);
        }
        let _bomb = Bomb;
        std::future::pending().await
    }
}

fn told(event: &Envelope) -> Option<String> {
    let Event::ToolFinished(end) = &event.event else { return None };
    Some(end.result.to_text())
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_panics_in_any_place_has_an_error_result_and_the_run_continues() {
    let cases = [
        (Place::Call, "the tool panicked: no message"),
        (Place::Drop, "the call took longer than 2 s and was stopped"),
        (Place::Footprint, "the tool panicked when it was asked what the call touches"),
    ];
    for (place, text) in cases {
        let provider = ScriptedProvider::by_history().call("burst", json!({})).text("Done.").text("More.");
        let mut limits = Limits::default();
        limits.tool_timeout = Duration::from_secs(2);
        let agent = agent(provider.model()).tool(Bursts::new(place)).limits(limits).build().unwrap();
        let runtime = testkit::runtime().policy(Policy::allow_all()).shared_store(memory()).build();
        let session = runtime.session();
        let mut run = session.start(&agent, "Go");
        let results: Vec<_> = drain(&mut run).await.iter().filter_map(told).collect();
        assert!(results.len() == 1 && results[0].contains(text), "{place:?}: {results:?}");
        assert_eq!(run.outcome().await.unwrap().text, "Done.", "{place:?}");
        assert_eq!(session.start(&agent, "Again").outcome().await.unwrap().text, "More.", "{place:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_drops_a_future_that_panics_and_ends_as_cancelled() {
    let provider = ScriptedProvider::by_history().call("burst", json!({})).text("Done.");
    let agent = agent(provider.model()).tool(Bursts::new(Place::Drop)).build().unwrap();
    let runtime = testkit::runtime().policy(Policy::allow_all()).shared_store(memory()).build();
    let session = runtime.session();
    let mut run = session.start(&agent, "Go");
    while let Some(event) = futures_util::StreamExt::next(&mut run).await {
        if matches!(event.event, Event::ToolStarted(_)) {
            run.cancel();
        }
    }
    assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
    assert_eq!(session.start(&agent, "Again").outcome().await.unwrap().text, "Done.");
}

#[derive(Debug, Default)]
struct Watching(Arc<AtomicUsize>);

impl Observer for Watching {
    fn on_event(&self, _: &Envelope) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic_any(Bomb);
    }
}

#[tokio::test]
async fn an_observer_is_called_no_more_after_its_panic_in_this_run_and_in_later_ones() {
    let calls = Arc::new(AtomicUsize::new(0));
    let runtime = testkit::runtime().observer(Watching(Arc::clone(&calls))).shared_store(memory()).build();
    let agent = agent(ScriptedProvider::by_history().text("One.").text("Two.").model()).build().unwrap();
    let session = runtime.session();
    for text in ["One.", "Two."] {
        assert_eq!(session.start(&agent, "Go").outcome().await.unwrap().text, text);
    }
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[derive(Debug)]
struct Deciding;

#[async_trait]
impl Approver for Deciding {
    async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
        panic_any(Bomb)
    }
}

#[tokio::test]
async fn an_approver_that_panics_has_refused() {
    let provider = ScriptedProvider::by_history().call("look", json!({}));
    let look = testkit::FakeTool::new("look");
    let agent = agent(provider.model()).tool(look.clone()).build().unwrap();
    let runtime = testkit::runtime().policy(Policy::new().ask("look")).approver(Deciding).build();
    let outcome = runtime.session().start(&agent, "Go").outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Stopped(_)), "{outcome:?}");
    assert_eq!(look.started(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_panics_fails_its_run_alone() {
    let panics = act(|_| Box::pin(async { panic_any(Bomb) }));
    // Its drop panics, once the run has waited in vain for its end.
    let deaf = act(|_| {
        Box::pin(async {
            let _bomb = Bomb;
            std::future::pending::<Result<String>>().await
        })
    });
    let calm = agent(ScriptedProvider::by_history().text("One.").model()).build().unwrap();
    let runtime = testkit::runtime().shared_store(memory()).build();
    let session = runtime.session();
    let error = session.start(&panics, "Go").outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert!(error.to_string().contains("the agent panicked: no message"), "{error}");
    let run = session.start(&deaf, "Go");
    tokio::time::sleep(Duration::from_millis(1)).await;
    run.cancel();
    assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
    assert_eq!(session.start(&calm, "Go").outcome().await.unwrap().text, "One.");
}

struct Nameless(Do);

#[async_trait]
impl Agent for Nameless {
    fn name(&self) -> &str {
        panic_any(Bomb)
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        self.0.run(task, cx).await
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_panics_when_asked_for_its_name_fails_its_run_alone() {
    let session = testkit::runtime().shared_store(memory()).build().session();
    let nameless = Nameless(act(|_| Box::pin(async { Ok("Never.".to_owned()) })));
    let error = session.start(nameless, "Go").outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
    let calm = agent(ScriptedProvider::by_history().text("One.").model()).build().unwrap();
    assert_eq!(session.start(&calm, "Go").outcome().await.unwrap().text, "One.");
}

#[derive(Debug)]
struct Storing {
    inner: SharedStore,
    left: AtomicUsize,
}

#[async_trait]
impl crate::common::Meddles for Storing {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            panic_any(Bomb);
        }
        self.inner.append(session, expected, batch).await
    }
}

#[tokio::test]
async fn a_store_that_panics_fails_the_commit_alone() {
    for at in 1..=2 {
        let store = Arc::new(Through(Storing { inner: memory(), left: AtomicUsize::new(at) }));
        let runtime = testkit::runtime().shared_store(store as _).build();
        let agent = agent(ScriptedProvider::by_history().text("One.").text("Two.").model()).build().unwrap();
        let session = runtime.session();
        let error = session.start(&agent, "Go").outcome().await.unwrap_err();
        assert!(error.to_string().contains("the store panicked: no message"), "{at}: {error}");
        session.start(&agent, "Again").outcome().await.unwrap();
    }
}

#[derive(Debug)]
struct Renewing;

#[async_trait]
impl Refresh for Renewing {
    async fn refresh(&self, _: &Error, _: &Arc<dyn Provider>) -> Result<Arc<dyn Provider>> {
        panic_any(Bomb)
    }
}

#[tokio::test]
async fn a_refresh_that_panics_counts_as_one_that_failed() {
    let provider =
        ScriptedProvider::new().fail(ErrorKind::Authentication, "the key has run out").text("One.");
    let agent = agent(provider.model().layer(CredentialRefresh::new(Renewing))).build().unwrap();
    let session = testkit::runtime().build().session();
    let error = session.start(&agent, "Go").outcome().await.unwrap_err();
    assert!(error.to_string().contains("the key has run out"), "{error}");
    assert_eq!(session.start(&agent, "Again").outcome().await.unwrap().text, "One.");
}
