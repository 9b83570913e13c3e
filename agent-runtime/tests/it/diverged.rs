//! Failures of a child that are not its end and are not recorded as one: its code differs, or its session cannot be
//! read or written. With the right code, or a working store, the run continues.

use std::sync::Arc;

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    agent::Agent,
    event::Event,
    permission::Scope,
    run::{Pause, Status, Waited},
    session::{ReadRange, Row, SessionFilter, SharedStore},
    tool::{Access, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};
use entourage_runners::{AgentTool, DualAgent, ReactAgent};
use entourage_runtime::Session;
use entourage_testkit::{FakeTool, ScriptedProvider};
use serde_json::json;

use crate::common::{Do, Meddles, Through, act, agent, count, memory, runtime_on, stored};

/// An agent that looks at the clock, or asks for an id, and then waits for `go`.
fn below(changed: bool) -> Do {
    act(move |cx| {
        Box::pin(async move {
            if changed {
                cx.new_id().await?;
            } else {
                cx.now().await?;
            }
            Ok(format!("went {}", cx.signal("go").await?))
        })
    })
}

/// Makes an agent whose lowest one is [`below`].
type Make = fn(bool) -> Arc<dyn Agent>;

fn lead(below: impl Agent + 'static) -> ReactAgent {
    let provider = ScriptedProvider::by_history().call("agent", json!({"prompt": "Go"})).text("Done.");
    agent(provider.model()).tool(AgentTool::new(below)).build().unwrap()
}

fn as_tool(changed: bool) -> Arc<dyn Agent> {
    Arc::new(lead(below(changed)))
}

fn as_tool_of_a_tool(changed: bool) -> Arc<dyn Agent> {
    Arc::new(lead(lead(below(changed))))
}

fn in_a_phase(changed: bool) -> Arc<dyn Agent> {
    let checks = ScriptedProvider::by_history().call("task_complete", json!({"summary": "Done."}));
    let checker = ReactAgent::builder("checker", checks.model()).build().unwrap();
    Arc::new(DualAgent::builder("pair", lead(below(changed)), checker).build().unwrap())
}

fn spawned(changed: bool) -> Arc<dyn Agent> {
    Arc::new(act(move |cx| {
        Box::pin(async move {
            let child = cx.spawn(Arc::new(below(changed)), "Go").await?;
            match cx.wait_any(&[child], None).await? {
                Waited::Ended { outcome, .. } => Ok(outcome.text),
                Waited::TimedOut => Ok("late".into()),
            }
        })
    }))
}

/// The same by an agent that handles every failure.
fn spawned_and_forgiven(changed: bool) -> Arc<dyn Agent> {
    Arc::new(act(move |cx| {
        Box::pin(async move {
            let child = cx.spawn(Arc::new(below(changed)), "Go").await?;
            match cx.wait_any(&[child], None).await {
                Ok(Waited::Ended { outcome, .. }) => Ok(outcome.text),
                Err(error) if error.pause().is_some() => Err(error),
                _ => Ok("never mind".into()),
            }
        })
    }))
}

fn asked(changed: bool) -> Arc<dyn Agent> {
    Arc::new(act(move |cx| {
        Box::pin(async move { Ok(cx.ask("other", Arc::new(below(changed)), "Go").await?.text) })
    }))
}

/// A tool that runs an agent, and tells its model of every failure except a pause.
#[derive(Debug)]
struct Forgiving(ToolSpec, bool);

#[async_trait]
impl Tool for Forgiving {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        match cx.run_agent(Arc::new(below(self.1)), "Go", Scope::all()).await {
            Err(ToolError::Fatal(error)) if error.pause().is_none() => Ok(ToolOutput::text("never mind")),
            outcome => Ok(ToolOutput::text(outcome?.text)),
        }
    }
}

fn forgiven_by_a_tool(changed: bool) -> Arc<dyn Agent> {
    let spec = ToolSpec::new("agent", "Runs an agent.", json!({"type": "object"}))
        .with_access(Access::DELEGATE)
        .with_repeat(Repeat::Resume);
    let provider = ScriptedProvider::by_history().call("agent", json!({})).text("Done.");
    Arc::new(agent(provider.model()).tool(Forgiving(spec, changed)).build().unwrap())
}

const ALL: [(&str, Make, &str); 7] = [
    ("a tool", as_tool, "Done."),
    ("a tool of a tool", as_tool_of_a_tool, "Done."),
    ("a phase", in_a_phase, "Done."),
    ("a child", spawned, "went 7"),
    ("a forgiven child", spawned_and_forgiven, "went 7"),
    ("an agent that is asked", asked, "went 7"),
    ("a tool that forgives", forgiven_by_a_tool, "Done."),
];

/// Runs the agent until its lowest agent waits. Returns its session, and that of the lowest agent.
async fn waiting(store: &SharedStore, agent: &Arc<dyn Agent>) -> (Session, SessionId) {
    let session = runtime_on(store).session();
    let paused = session.start(agent, "Go").outcome().await.unwrap();
    assert!(matches!(paused.status, Status::Paused(Pause::Signal { .. })), "{paused}");
    let tree = store.query(&SessionFilter::tree(session.id().clone())).await.unwrap();
    let ids = tree.into_iter().map(|info| info.record.id);
    let lowest = ids.max_by_key(|id| id.as_str().matches("$$").count()).unwrap();
    (session, lowest)
}

/// Number of recorded ends in all sessions, without pauses.
async fn ends(store: &SharedStore) -> usize {
    let mut ends = 0;
    for info in store.query(&SessionFilter::all()).await.unwrap() {
        let events = stored(store, &info.record.id).await;
        ends += ["run_finished", "child_finished", "tool_finished", "keep:checked.phase_finished"]
            .map(|kind| count(&events, kind))
            .iter()
            .sum::<usize>();
    }
    ends
}

#[tokio::test(start_paused = true)]
async fn an_agent_below_that_diverged_is_recorded_nowhere_and_goes_on_with_its_own_code() {
    for (what, make, text) in ALL {
        let store = memory();
        let (session, lowest) = waiting(&store, &make(false)).await;
        for again in 0..2 {
            let opened = runtime_on(&store).open(session.id()).await.unwrap();
            let error = opened.resume(&make(true)).outcome().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Diverged, "{what}, {again}: {error}");
            assert!(error.message().contains("asks for a new id"), "{what}, {again}: {error}");
            assert_eq!(ends(&store).await, 0, "{what}, {again}");
        }
        runtime_on(&store).open(&lowest).await.unwrap().signal("go", json!(7)).await.unwrap();
        let opened = runtime_on(&store).open(session.id()).await.unwrap();
        assert_eq!(opened.resume(&make(false)).outcome().await.unwrap().text, text, "{what}");
    }
}

/// A lead that calls an agent and a tool at once.
fn beside(changed: bool, tool: &FakeTool) -> ReactAgent {
    let provider = ScriptedProvider::by_history()
        .calls([("agent", json!({"prompt": "Go"})), ("put", json!({}))])
        .text("Done.");
    agent(provider.model()).tool(AgentTool::new(below(changed))).tool(tool.clone()).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_ran_beside_an_agent_that_diverged_is_kept() {
    let store = memory();
    let put = FakeTool::new("put").access(Access::READ).returning("it is put");
    // The first life ends before the tool began.
    let session = runtime_on(&store).session();
    let paused = session.start(&beside(false, &put), "Go").outcome().await.unwrap();
    assert!(matches!(paused.status, Status::Paused(_)), "{paused}");
    let opened = runtime_on(&store).open(session.id()).await.unwrap();
    let error = opened.resume(&beside(true, &put)).outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Diverged, "{error}");
    let events = stored(&store, session.id()).await;
    let settled: Vec<_> = crate::common::settled(&events).into_iter().map(|(name, _)| name).collect();
    assert_eq!(settled, ["put"]);
    assert_eq!(put.finished(), 1);
}

/// A child with another name is another child.
#[tokio::test(start_paused = true)]
async fn an_agent_below_of_another_name_diverges() {
    #[derive(Clone)]
    struct Named(Do);
    #[async_trait]
    impl Agent for Named {
        fn name(&self) -> &'static str {
            "another"
        }
        async fn run(
            &self,
            task: entourage_core::run::Task,
            cx: &entourage_core::run::RunContext,
        ) -> Result<entourage_core::run::Outcome> {
            self.0.run(task, cx).await
        }
    }
    let store = memory();
    let (session, lowest) = waiting(&store, &as_tool(false)).await;
    let opened = runtime_on(&store).open(session.id()).await.unwrap();
    let error = opened.resume(&lead(Named(below(false)))).outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Diverged, "{error}");
    assert!(error.message().contains("doer") && error.message().contains("another"), "{error}");
    assert_eq!(ends(&store).await, 0);
    runtime_on(&store).open(&lowest).await.unwrap().signal("go", json!(7)).await.unwrap();
    let opened = runtime_on(&store).open(session.id()).await.unwrap();
    assert_eq!(opened.resume(&as_tool(false)).outcome().await.unwrap().text, "Done.");
}

/// A store in which sessions below a root cannot be read.
#[derive(Debug)]
struct Unreadable(SharedStore, ErrorKind);

#[async_trait]
impl Meddles for Unreadable {
    fn inner(&self) -> &SharedStore {
        &self.0
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        if session.as_str().contains("$$") {
            return Err(Error::new(self.1, "these rows cannot be read"));
        }
        self.0.read(session, range).await
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_child_session_is_not_recorded_as_an_end() {
    for kind in [ErrorKind::Corrupt, ErrorKind::NewerVersion, ErrorKind::Store, ErrorKind::Busy] {
        for (what, make, _) in ALL {
            if what.contains("forgive") {
                continue;
            }
            let store = memory();
            let (session, _) = waiting(&store, &make(false)).await;
            let blind = Arc::new(Through(Unreadable(Arc::clone(&store), kind))) as SharedStore;
            let opened = runtime_on(&blind).open(session.id()).await.unwrap();
            let error = opened.resume(&make(false)).outcome().await.unwrap_err();
            assert_eq!(error.kind(), kind, "{what}: {error}");
            let events = stored(&store, session.id()).await;
            let told = events.iter().any(|event| match &event.event {
                Event::ChildFinished(_) => true,
                Event::Recorded(value) => value.name() == "checked.phase_finished",
                Event::ToolFinished(call) => call.fatal.is_none(),
                _ => false,
            });
            assert!(!told, "{what}, {kind:?}");
        }
    }
}
