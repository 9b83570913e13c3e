//! Runs that are awaited within the run that they wait for: an error at once, but not for a caller that only queues.

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind,
    run::Status,
    tool::{Access, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};
use entourage_runners::{AgentTool, ReactAgent};
use entourage_runtime::{RunHandle, Runtime, Session};
use entourage_testkit::{Gate, ScriptedProvider};
use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::time::Instant;

use crate::common::{agent, open_runtime};

type Act = Arc<dyn Fn(Session) -> BoxFuture<'static, String> + Send + Sync>;

/// A tool that uses the session that it runs in, and reports the result.
#[derive(Clone)]
struct Inside {
    spec: ToolSpec,
    session: Arc<OnceLock<Session>>,
    said: Arc<Mutex<Vec<String>>>,
    act: Act,
}

impl fmt::Debug for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inside")
    }
}

impl Inside {
    fn new(act: impl Fn(Session) -> BoxFuture<'static, String> + Send + Sync + 'static) -> Self {
        let spec = ToolSpec::new("inside", "Acts.", json!({"type": "object"})).with_access(Access::READ);
        Self { spec, session: Arc::default(), said: Arc::default(), act: Arc::new(act) }
    }

    fn said(&self) -> String {
        self.said.lock().unwrap().join("; ")
    }
}

#[async_trait]
impl Tool for Inside {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, _: ToolInput, _: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let said = (self.act)(self.session.get().unwrap().clone()).await;
        self.said.lock().unwrap().push(said);
        Ok(ToolOutput::text("done"))
    }
}

fn hi() -> ReactAgent {
    let provider = (0..6).fold(ScriptedProvider::by_history(), |provider, _| provider.text("Hi."));
    agent(provider.model()).build().unwrap()
}

fn calls(tool: Inside) -> ReactAgent {
    let provider = ScriptedProvider::by_history().call("inside", json!({})).text("Done.");
    ReactAgent::builder("outer", provider.model()).tool(tool).build().unwrap()
}

/// Runs the tool in a run of its session, `levels` agents down.
async fn within(tool: &Inside, levels: usize) -> (Runtime, Session) {
    let mut agent = calls(tool.clone());
    for _ in 0..levels {
        let provider = ScriptedProvider::by_history().call("agent", json!({"prompt": "Go"})).text("Done.");
        agent = ReactAgent::builder("outer", provider.model()).tool(AgentTool::new(agent)).build().unwrap();
    }
    let runtime = open_runtime();
    let session = runtime.session();
    tool.session.set(session.clone()).unwrap();
    let outcome = session.start(&agent, "Go").outcome().await.unwrap();
    assert_eq!((outcome.status, &*outcome.text), (Status::Completed, "Done."));
    (runtime, session)
}

fn told(error: &Error) -> String {
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    error.to_string()
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_awaited_from_within_the_one_before_it_is_an_error_at_once() {
    for levels in 0..3 {
        let tool = Inside::new(|session| {
            Box::pin(async move { told(&session.start(&hi(), "Nested").outcome().await.unwrap_err()) })
        });
        let began = Instant::now();
        let (_runtime, session) = within(&tool, levels).await;
        assert!(tool.said().contains("`ToolContext::run_agent`"), "{levels}: {}", tool.said());
        assert_eq!(began.elapsed(), Duration::ZERO);
        // It does not run later either: nobody waits for it.
        assert!(!session.history().await.unwrap().iter().any(|message| message.text() == "Nested"));
        assert_eq!(session.start(&hi(), "Next").outcome().await.unwrap().text, "Hi.");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_read_from_within_the_run_before_it_ends_after_its_place_in_the_queue() {
    let tool = Inside::new(|session| {
        Box::pin(async move {
            let mut run = session.start(&hi(), "Nested");
            let mut kinds = Vec::new();
            while let Some(event) = run.next().await {
                kinds.push(event.event.kind().to_owned());
            }
            told(&run.outcome().await.unwrap_err());
            kinds.join(" ")
        })
    });
    within(&tool, 0).await;
    assert_eq!(tool.said(), "prompt_queued");
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_a_tool_only_queues_runs_afterwards() {
    let kept: Arc<Mutex<Vec<RunHandle>>> = Arc::default();
    let keep = Arc::clone(&kept);
    let tool = Inside::new(move |session| {
        let keep = Arc::clone(&keep);
        Box::pin(async move {
            session.start(&hi(), "First").detach();
            keep.lock().unwrap().push(session.start(&hi(), "Second"));
            "queued".to_owned()
        })
    });
    let (_runtime, session) = within(&tool, 0).await;
    let second = kept.lock().unwrap().pop().unwrap();
    // Outside of the run it may be awaited.
    assert_eq!(second.outcome().await.unwrap().text, "Hi.");
    let said: Vec<_> = session.history().await.unwrap().iter().map(|message| message.text()).collect();
    assert_eq!(said.iter().filter(|text| ["First", "Second"].contains(&&***text)).count(), 2, "{said:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_awaits_itself_is_an_error_and_other_sessions_may_be_awaited() {
    let own: Arc<Mutex<Option<RunHandle>>> = Arc::default();
    let (tell, told_outside) = tokio::sync::oneshot::channel();
    let (gate, tell) = (Gate::new(), Arc::new(Mutex::new(Some(tell))));
    let (taken, given) = (Arc::clone(&own), gate.clone());
    let tool = Inside::new(move |_| {
        let (taken, given, tell) = (Arc::clone(&taken), given.clone(), Arc::clone(&tell));
        Box::pin(async move {
            given.pass().await;
            let run = taken.lock().unwrap().take().unwrap();
            let other = open_runtime().session().start(&hi(), "Elsewhere").outcome().await.unwrap().text;
            let said = format!("{other} {}", told(&run.outcome().await.unwrap_err()));
            tell.lock().unwrap().take().unwrap().send(said).unwrap();
            String::new()
        })
    });
    let session = open_runtime().session();
    tool.session.set(session.clone()).unwrap();
    *own.lock().unwrap() = Some(session.start(&calls(tool), "Go"));
    gate.open();
    let said = told_outside.await.unwrap();
    assert!(said.starts_with("Hi. a run cannot wait for its own outcome"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_queued_run_that_was_cancelled_may_be_awaited_from_within_the_one_before_it() {
    let tool = Inside::new(|session| {
        Box::pin(async move {
            let run = session.start(&hi(), "Nested");
            run.cancel();
            run.outcome().await.unwrap().status.to_string()
        })
    });
    let (_runtime, _session) = within(&tool, 1).await;
    assert_eq!(tool.said(), Status::Cancelled.to_string());
}
