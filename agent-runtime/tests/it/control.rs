//! Live control: cancels that reach waiting work, pauses at the next effect, and that nothing of a run is alive after
//! its outcome, including grandchildren.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, Result, SessionId,
    agent::Agent,
    event::Event,
    permission::Scope,
    provider::{FinishReason, Model},
    run::{Pause, Status},
    session::{
        Batch, Lease, ReadRange, Row, SessionFilter, SessionInfo, SessionStatus, SessionStore, SharedStore,
    },
    tool::{Access, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};
use entourage_runners::ReactAgent;
use entourage_runtime::{RunHandle, Runtime};
use entourage_testkit::{FakeTool, Gate, LiveProvider, Script, ScriptedProvider};
use serde_json::json;

use crate::common::{act, agent, assert_valid, count, memory, open_runtime, runtime_on, stored};

/// A tool that runs an agent and returns its answer.
pub(crate) struct Ask(ToolSpec, Arc<dyn Agent>);

impl Ask {
    pub(crate) fn new(agent: impl Agent + 'static) -> Self {
        let spec = ToolSpec::new("ask", "Asks another agent.", json!({"type": "object"}))
            .with_access(Access::DELEGATE)
            .with_repeat(Repeat::Resume);
        Self(spec, Arc::new(agent))
    }
}

#[async_trait]
impl Tool for Ask {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let outcome = cx.run_agent(Arc::clone(&self.1), "Please", Scope::all()).await?;
        Ok(ToolOutput::text(outcome.text))
    }
}

/// An agent that calls an agent that calls an agent, which uses `tool`.
pub(crate) fn chain(model: &Model, tool: &FakeTool) -> ReactAgent {
    let below = ReactAgent::builder("below", model.clone()).tool(tool.clone()).build().unwrap();
    let middle = ReactAgent::builder("middle", model.clone()).tool(Ask::new(below)).build().unwrap();
    ReactAgent::builder("top", model.clone()).tool(Ask::new(middle)).build().unwrap()
}

/// Replies for [`chain`]: each agent makes its call and passes the answer on.
#[derive(Debug)]
pub(crate) struct Relay;

#[async_trait]
impl entourage_core::provider::Provider for Relay {
    fn name(&self) -> &'static str {
        "relay"
    }

    async fn stream(
        &self,
        request: entourage_core::provider::Request,
        _: &entourage_core::provider::CallContext,
    ) -> Result<entourage_core::provider::DeltaStream> {
        use entourage_core::provider::Delta;
        let last = request.messages.last().unwrap();
        let deltas = match last.tool_results().next() {
            Some(result) => {
                vec![Delta::Text(result.to_text().into()), Delta::Finish(FinishReason::Stop.into())]
            }
            None => vec![
                Delta::tool_call(0, "call_0".to_owned(), request.tools.iter().next().unwrap().name()),
                Delta::arguments(0, "{}"),
                Delta::Finish(FinishReason::ToolCalls.into()),
            ],
        };
        tokio::task::yield_now().await;
        Ok(Box::pin(futures_util::stream::iter(deltas.into_iter().map(Ok))))
    }
}

pub(crate) fn relay() -> Model {
    Model::new(Arc::new(Relay) as _, "relay")
}

/// A store that yields before and after each write, so that a cut can happen there.
#[derive(Debug)]
struct Pausing(SharedStore);

#[async_trait]
impl SessionStore for Pausing {
    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        tokio::task::yield_now().await;
        let stored = self.0.append(session, expected, batch).await;
        tokio::task::yield_now().await;
        stored
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        self.0.read(session, range).await
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        tokio::task::yield_now().await;
        self.0.query(filter).await
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        self.0.lease(session, lease).await
    }

    async fn delete(&self, session: &SessionId) -> Result<u64> {
        self.0.delete(session).await
    }
}

fn alive() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Checks that nothing runs, no lease is held, and each session that was begun has its end and a valid history.
async fn assert_over(store: &SharedStore, runtime: &Runtime, tools: &[&FakeTool], at: &str) {
    assert!(tools.iter().all(|tool| tool.running() == 0), "{at}: a tool runs");
    for info in store.query(&SessionFilter::all()).await.unwrap() {
        let id = &info.record.id;
        let events = stored(store, id).await;
        let last = events.iter().rev().find(|event| event.event.kind() != "titled").unwrap();
        let kind = last.event.kind();
        assert!(["run_finished", "prompt_dropped"].contains(&kind), "{at}: {id} ends with {kind}");
        assert!(!info.lease.unwrap().is_live(info.head.updated), "{at}: {id} is leased");
        assert_eq!(info.head.status, SessionStatus::Idle, "{at}: {id}");
        let session = runtime.open(id).await.unwrap();
        assert!(!session.is_busy(), "{at}: {id}");
        assert_valid(&session.history().await.unwrap());
    }
}

/// Cancels a run after each number of scheduler turns, until it is not cut off any more.
async fn cut_everywhere(start: impl Fn(&Runtime) -> (Vec<RunHandle>, Vec<FakeTool>), runs: usize) -> usize {
    let mut points = 0;
    loop {
        let store = memory();
        let runtime = runtime_on(&(Arc::new(Pausing(Arc::clone(&store))) as SharedStore));
        let before = alive();
        let (handles, tools) = start(&runtime);
        for _ in 0..points {
            tokio::task::yield_now().await;
        }
        let session = handles[0].session().clone();
        runtime.cancel(&session);
        let mut cancelled = 0;
        let mut ids = Vec::new();
        for run in handles {
            ids.push(run.id());
            cancelled += usize::from(run.outcome().await.unwrap().status == Status::Cancelled);
        }
        let at = format!("cut at {points}");
        assert_eq!(alive(), before, "{at}: a task is left");
        let tools: Vec<_> = tools.iter().collect();
        assert_over(&store, &runtime, &tools, &at).await;
        let events = stored(&store, &session).await;
        for id in &ids {
            let ends = events
                .iter()
                .filter(|event| event.origin.run == *id)
                .filter(|event| matches!(event.event, Event::RunFinished(_) | Event::PromptDropped(_)));
            assert_eq!(ends.count(), 1, "{at}");
        }
        if cancelled == 0 {
            return points;
        }
        assert!(cancelled <= runs && points < 2_000, "{at}");
        points += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn cm13_wherever_a_tree_is_cut_nothing_of_it_is_alive_after_its_outcome() {
    let model = relay();
    let points = cut_everywhere(
        |runtime| {
            let tool = FakeTool::new("work");
            let run = runtime.session().start(&chain(&model, &tool), "Go");
            (vec![run], vec![tool])
        },
        1,
    )
    .await;
    assert!(points > 15, "{points}");
}

#[tokio::test(start_paused = true)]
async fn cm13_wherever_children_beside_each_other_are_cut_none_is_alive() {
    let model = relay();
    let points = cut_everywhere(
        |runtime| {
            let tool = FakeTool::new("work");
            let below = chain(&model, &tool);
            let captain = act(move |cx| {
                let below = below.clone();
                Box::pin(async move {
                    let mut children = Vec::new();
                    for n in 0..3 {
                        children.push(cx.spawn(Arc::new(below.clone()), format!("part {n}")).await?);
                    }
                    while !children.is_empty() {
                        match cx.wait_any(&children, None).await? {
                            entourage_core::run::Waited::Ended { index, .. } => drop(children.remove(index)),
                            entourage_core::run::Waited::TimedOut => {}
                        }
                    }
                    Ok("all".to_owned())
                })
            });
            let run = runtime.session().start(&captain, "Go");
            (vec![run], vec![tool])
        },
        1,
    )
    .await;
    assert!(points > 20, "{points}");
}

#[tokio::test(start_paused = true)]
async fn cm13_wherever_a_session_is_cut_each_prompt_that_was_accepted_has_one_end() {
    let model = relay();
    let points = cut_everywhere(
        |runtime| {
            let tool = FakeTool::new("work");
            let (agent, session) = (chain(&model, &tool), runtime.session());
            let runs = (0..4).map(|n| session.start(&agent, format!("{n}"))).collect();
            (runs, vec![tool])
        },
        4,
    )
    .await;
    assert!(points > 40, "{points}");
}

#[tokio::test]
async fn cm13_a_cancel_covers_what_was_accepted_and_nothing_later() {
    let store = memory();
    let provider = LiveProvider::new();
    let one = agent(provider.model()).build().unwrap();
    let session = runtime_on(&store).session();
    let first = session.start(&one, "One");
    let _call = provider.asked().await;
    let waiting: Vec<_> = (0..3).map(|n| session.start(&one, format!("waits {n}"))).collect();
    session.steer("plain").await.unwrap();
    session.cancel();
    // Accepted while the first one unwinds.
    assert!(session.is_busy());
    let later = session.start(&one, "Later");
    assert_eq!(first.outcome().await.unwrap().status, Status::Cancelled);
    for run in waiting {
        assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
    }
    let mut call = provider.asked().await;
    assert_eq!(call.request().messages.last().unwrap().text(), "Later");
    call.text("Here.");
    call.finish(FinishReason::Stop);
    assert_eq!(later.outcome().await.unwrap().text, "Here.");
    provider.assert_silent().await;
    let events = stored(&store, session.id()).await;
    assert_eq!(count(&events, "prompt_dropped"), 4);
    // The later one had its turn before it was put down as waiting, or after.
    assert!((4..=5).contains(&count(&events, "prompt_queued")));
    assert_eq!(session.state().await.unwrap().queue(), []);
    assert_eq!(session.head().await.unwrap().status, SessionStatus::Idle);
}

#[tokio::test(start_paused = true)]
async fn cm13_a_cancel_waits_for_the_unwinding_as_long_as_it_is_told_to() {
    let gate = Gate::new();
    let store = crate::common::FaultyStore::new(&memory(), 1, crate::common::Fault::HangBefore);
    let tool = FakeTool::new("slow").behind(&gate);
    let provider = ScriptedProvider::by_history().call("slow", json!({}));
    let one = agent(provider.model()).tool(tool.clone()).build().unwrap();
    let runtime = runtime_on(&(Arc::clone(&store) as SharedStore));
    let session = runtime.session();
    assert!(session.cancel_within(Duration::ZERO).await, "idle");
    let run = session.start(&one, "Go");
    store.killed.arrived(1).await;
    assert!(!session.cancel_within(Duration::from_secs(3)).await, "the store hangs");
    assert!(session.is_busy());
    assert!(session.cancel_within(Duration::from_secs(8)).await, "5 s to unwind and 5 s for the last writes");
    assert!(!session.is_busy());
    assert_eq!(run.outcome().await.unwrap_err().kind(), ErrorKind::Timeout);
}

#[tokio::test]
async fn cm13_cancel_all_drops_what_waits() {
    let provider = LiveProvider::new();
    let one = agent(provider.model()).build().unwrap();
    let runtime = open_runtime();
    let runs: Vec<_> = (0..2)
        .map(|_| runtime.session())
        .flat_map(|session| [session.start(&one, "One"), session.start(&one, "Two")])
        .collect();
    let _calls = (provider.asked().await, provider.asked().await);
    assert!(runtime.cancel_all().await);
    for run in runs {
        assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
    }
    provider.assert_silent().await;
}

#[tokio::test]
async fn design_7_a_pause_lets_running_tools_finish_and_a_resume_goes_on() {
    let store = memory();
    let gate = Gate::new();
    let (slow, next) = (FakeTool::new("slow").behind(&gate), FakeTool::new("next").access(Access::WRITE));
    let script = || {
        ScriptedProvider::by_history()
            .calls([("slow", json!({})), ("slow", json!({})), ("next", json!({}))])
            .text("Done.")
    };
    let provider = script();
    let one = agent(provider.model()).tool(slow.clone()).tool(next.clone()).build().unwrap();
    let session = runtime_on(&store).session();
    let run = session.start(&one, "Go");
    gate.arrived(2).await;
    run.pause();
    gate.open();
    let outcome = run.outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Paused(Pause::Asked));
    assert_eq!((slow.finished(), next.started(), provider.count()), (2, 0, 1));
    assert_eq!(session.head().await.unwrap().status, SessionStatus::Paused);
    let events = stored(&store, session.id()).await;
    assert_eq!(events.last().unwrap().event.kind(), "run_paused");
    // In another process, days later.
    let provider = script();
    let one = agent(provider.model()).tool(slow.clone()).tool(next.clone()).build().unwrap();
    let again = runtime_on(&store).open(session.id()).await.unwrap();
    let outcome = again.resume(&one).outcome().await.unwrap();
    assert_eq!((outcome.status, outcome.text.as_str(), outcome.steps), (Status::Completed, "Done.", 2));
    assert_eq!((slow.started(), next.finished(), provider.count()), (2, 1, 1));
    assert_valid(&again.history().await.unwrap());
}

#[tokio::test]
async fn design_7_a_pause_in_the_middle_of_a_reply_comes_before_its_tools() {
    let store = memory();
    let provider = LiveProvider::new();
    let tool = FakeTool::new("look");
    let one = agent(provider.model()).tool(tool.clone()).build().unwrap();
    let session = runtime_on(&store).session();
    let run = session.start(&one, "Go");
    let mut call = provider.asked().await;
    session.pause();
    call.call(0, "look", "{}");
    call.finish(FinishReason::ToolCalls);
    assert_eq!(run.outcome().await.unwrap().status, Status::Paused(Pause::Asked));
    assert_eq!(tool.started(), 0);
    // The wish is gone with the run that it was about.
    let run = session.resume(&one);
    let call = provider.asked().await;
    assert_eq!(tool.finished(), 1);
    call.finish(FinishReason::Stop);
    assert_eq!(run.outcome().await.unwrap().status, Status::Completed);
    session.pause();
    let run = session.start(&one, "Again");
    provider.asked().await.finish(FinishReason::Stop);
    assert_eq!(run.outcome().await.unwrap().status, Status::Completed, "an idle pause does nothing");
}

#[tokio::test]
async fn design_7_a_run_that_is_paused_before_its_turn_makes_no_call() {
    let gate = Gate::new();
    let first = Script::new().wait(&gate).text("A").finish(FinishReason::Stop);
    let provider = ScriptedProvider::new().step(first).text("B").text("C");
    let one = agent(provider.model()).build().unwrap();
    let session = open_runtime().session();
    let (a, b, c) = (session.start(&one, "A?"), session.start(&one, "B?"), session.start(&one, "C?"));
    gate.arrived(1).await;
    b.pause();
    gate.open();
    assert_eq!(a.outcome().await.unwrap().text, "A");
    assert_eq!(b.outcome().await.unwrap().status, Status::Paused(Pause::Asked));
    assert_eq!(provider.count(), 1);
    assert_eq!(session.resume(&one).outcome().await.unwrap().text, "B");
    assert_eq!(c.outcome().await.unwrap().text, "C");
}

/// The sessions of a tree with their states, root first.
async fn tree(store: &SharedStore) -> Vec<(SessionId, SessionStatus)> {
    let mut found: Vec<_> = store.query(&SessionFilter::all()).await.unwrap();
    found.sort_by_key(|info| info.record.id.as_str().len());
    found.into_iter().map(|info| (info.record.id, info.head.status)).collect()
}

#[tokio::test]
async fn design_7_a_pause_reaches_children_of_children_and_a_resume_enters_them_again() {
    let store = memory();
    let gate = Gate::new();
    let tool = FakeTool::new("work").behind(&gate).returning("the work");
    let top = chain(&relay(), &tool);
    let session = runtime_on(&store).session();
    let run = session.start(&top, "Go");
    gate.arrived(1).await;
    session.pause();
    gate.open();
    let outcome = run.outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Paused(Pause::Asked));
    let sessions = tree(&store).await;
    assert_eq!(sessions.len(), 3);
    assert!(sessions.iter().all(|(_, status)| *status == SessionStatus::Paused), "{sessions:?}");
    let again = runtime_on(&store).open(session.id()).await.unwrap();
    let outcome = again.resume(&top).outcome().await.unwrap();
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "the work"));
    assert_eq!(tool.started(), 1);
    assert!(tree(&store).await.iter().all(|(_, status)| *status == SessionStatus::Idle));
}

#[tokio::test(start_paused = true)]
async fn a_run_behind_one_that_is_paused_waits_until_that_is_resumed_or_given_up() {
    for resumes in [true, false] {
        let (first, second) = (Gate::new(), Gate::new());
        let waits = |gate: &Gate, text: &str| Script::new().wait(gate).text(text).finish(FinishReason::Stop);
        let provider =
            ScriptedProvider::new().step(waits(&first, "A")).call("look", json!({})).text("B").text("C");
        let tool = FakeTool::new("look").behind(&second);
        let one = agent(provider.model()).tool(tool).build().unwrap();
        let session = open_runtime().session();
        let a = session.start(&one, "A?");
        first.arrived(1).await;
        let b = session.start(&one, "B?");
        first.open();
        assert_eq!(a.outcome().await.unwrap().text, "A");
        second.arrived(1).await;
        let c = session.start(&one, "C?");
        session.pause();
        second.open();
        assert_eq!(b.outcome().await.unwrap().status, Status::Paused(Pause::Asked));
        if resumes {
            assert_eq!(session.resume(&one).outcome().await.unwrap().text, "B");
            assert_eq!(c.outcome().await.unwrap().text, "C");
        } else {
            let d = session.start(&one, "D?");
            assert_eq!(c.outcome().await.unwrap().text, "B");
            assert_eq!(d.outcome().await.unwrap().text, "C");
        }
    }
}
