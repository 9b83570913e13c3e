//! `ToolContext::run_agent`: an agent in a tool call, in a session whose id follows from the call.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, SessionId,
    agent::Agent,
    event::{Envelope, Event},
    permission::{Decision, Scope},
    run::{Outcome, Pause, Status},
    session::{SessionFilter, SessionStatus, SharedStore},
    tool::{Access, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};
use entourage_runners::ReactAgent;
use entourage_runtime::AgentExt;
use entourage_runtime::permission::Policy;
use entourage_testkit::{self as testkit, FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::common::{
    Fault, FaultyStore, agent, count, memory, process, runtime_on, settled, stored, until_killed,
};

/// A tool that passes its call on to another agent, and tells the model its outcome.
struct Ask {
    spec: ToolSpec,
    agent: Arc<dyn Agent>,
    scope: Scope,
    /// True to call a second agent at the same time.
    twice: bool,
    /// True to call a second agent when the first one has ended.
    again: bool,
}

impl Ask {
    fn new(agent: impl Agent + 'static) -> Self {
        let spec = ToolSpec::new("ask", "Asks another agent.", json!({"type": "object"}))
            .with_access(Access::DELEGATE)
            .with_repeat(Repeat::Resume);
        Self { spec, agent: Arc::new(agent), scope: Scope::all(), twice: false, again: false }
    }

    fn spec(mut self, change: impl FnOnce(ToolSpec) -> ToolSpec) -> Self {
        self.spec = change(self.spec);
        self
    }
}

#[async_trait]
impl Tool for Ask {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let prompt = input.arguments["prompt"].as_str().unwrap_or("Help!").to_owned();
        let ask = || cx.run_agent(Arc::clone(&self.agent), prompt.clone(), self.scope.clone());
        let outcome = if self.twice {
            let (first, second) = tokio::join!(ask(), ask());
            match second {
                Err(ToolError::Fatal(error)) => assert_eq!(error.kind(), ErrorKind::InvalidInput),
                other => panic!("{other:?}"),
            }
            first?
        } else {
            ask().await?
        };
        if self.again {
            ask().await?;
        }
        Ok(ToolOutput::text(format!("{}: {}", outcome.status, outcome.text)))
    }
}

/// A parent that calls `ask` once and then ends.
fn parent(tool: Ask) -> ReactAgent {
    let provider = ScriptedProvider::by_history().call("ask", json!({"prompt": "Look!"})).text("Done.");
    agent(provider.model()).tool(tool).build().unwrap()
}

fn child(provider: &ScriptedProvider) -> ReactAgent {
    ReactAgent::builder("child", provider.model()).build().unwrap()
}

fn root() -> SessionId {
    SessionId::new("work").unwrap()
}

async fn run(store: &SharedStore, agent: &ReactAgent) -> Outcome {
    runtime_on(store).session_with_id(root()).start(agent, "Go").outcome().await.unwrap()
}

/// The result that the model got for the call of `ask`.
async fn told(store: &SharedStore) -> String {
    let settled = settled(&stored(store, &root()).await);
    let [(name, text)] = &settled[..] else { panic!("{settled:?}") };
    assert_eq!(name, "ask");
    text.clone()
}

/// The only child of `of`, with its events.
async fn only_child(store: &SharedStore, of: &SessionId) -> (SessionId, Vec<Envelope>) {
    let children = store.query(&SessionFilter::children_of(of.clone())).await.unwrap();
    let [info] = &children[..] else { panic!("{children:?}") };
    let id = info.record.id.clone();
    let events = stored(store, &id).await;
    (id, events)
}

fn ended(events: &[Envelope]) -> &Outcome {
    match &events.last().unwrap().event {
        Event::RunFinished(end) => &end.outcome,
        other => panic!("it has no end: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_model_is_told_what_the_child_came_to_and_the_childs_id_follows_from_the_call() {
    let store = memory();
    let provider = ScriptedProvider::new().text("A tree.");
    let outcome = run(&store, &parent(Ask::new(child(&provider)))).await;
    assert_eq!(outcome.text, "Done.");
    assert_eq!(told(&store).await, "completed: A tree.");
    assert_eq!(provider.requests()[0].messages.last().unwrap().text(), "Look!");

    let log = stored(&store, &root()).await;
    let message = log.iter().find(|it| it.event.kind() == "model_finished").unwrap().seq;
    let (id, events) = only_child(&store, &root()).await;
    assert_eq!(id, root().child(message, 0).unwrap());
    assert_eq!(&*events[0].origin.agent, "tester/child");
    let info = store.query(&SessionFilter::id(id)).await.unwrap().pop().unwrap();
    assert_eq!((info.record.parent, &*info.record.role), (Some(root()), "child"));
    assert_eq!(outcome.usage.input, Some(20), "a child's tokens are its own session's");
}

#[tokio::test(start_paused = true)]
async fn ca04_calls_in_one_step_have_a_child_each_and_run_together() {
    let store = memory();
    let gate = Gate::new();
    let script = Script::new().wait(&gate).text("Seen.").finish(entourage_core::provider::FinishReason::Stop);
    let below = ScriptedProvider::by_history().step(script);
    let provider =
        ScriptedProvider::by_history().calls([("ask", json!({})), ("ask", json!({}))]).text("Done.");
    let both = agent(provider.model()).tool(Ask::new(child(&below))).build().unwrap();
    let run = runtime_on(&store).session_with_id(root()).start(&both, "Go");
    gate.arrived(2).await;
    gate.open();
    assert_eq!(run.outcome().await.unwrap().text, "Done.");
    let children = store.query(&SessionFilter::children_of(root())).await.unwrap();
    let mut places: Vec<_> = children.iter().map(|it| it.record.id.origin().unwrap().2).collect();
    places.sort_unstable();
    assert_eq!(places, [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn attack_20_a_child_has_at_most_its_parents_scope_whatever_it_asks_for() {
    let narrow = || Scope::all().with_access(Access::READ | Access::DELEGATE);
    for (parents, asked) in [(narrow(), Scope::all()), (Scope::all(), narrow())] {
        let store = memory();
        let write = FakeTool::new("write").access(Access::WRITE);
        let provider = ScriptedProvider::new().call("write", json!({})).text("I could not.");
        let wide =
            ReactAgent::builder("child", provider.model()).tool(write.clone()).scope(Scope::all()).build();
        let mut tool = Ask::new(wide.unwrap());
        tool.scope = asked;
        let provider = ScriptedProvider::by_history().call("ask", json!({})).text("Done.");
        let parent = agent(provider.model()).tool(tool).scope(parents).build().unwrap();
        assert_eq!(run(&store, &parent).await.text, "Done.");
        assert_eq!(write.started(), 0);
        assert_eq!(told(&store).await, "completed: I could not.");
        let (_, events) = only_child(&store, &root()).await;
        let refused = settled(&events);
        assert!(refused[0].1.contains("scope"), "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn ca03_a_childs_failure_is_an_outcome_and_the_parent_goes_on() {
    let store = memory();
    let provider = ScriptedProvider::new().fail(ErrorKind::InvalidInput, "the service is gone");
    assert_eq!(run(&store, &parent(Ask::new(child(&provider)))).await.text, "Done.");
    assert_eq!(told(&store).await, "failed: the service is gone: ");
    assert!(matches!(ended(&only_child(&store, &root()).await.1).status, Status::Failed(_)));
}

#[tokio::test(start_paused = true)]
async fn ca06_a_cancel_of_the_parent_unwinds_the_child() {
    let store = memory();
    let gate = Gate::new();
    let tool = FakeTool::new("wait").behind(&gate);
    let provider = ScriptedProvider::new().call("wait", json!({}));
    let below = ReactAgent::builder("child", provider.model()).tool(tool.clone()).build().unwrap();
    let run = runtime_on(&store).session_with_id(root()).start(&parent(Ask::new(below)), "Go");
    gate.arrived(1).await;
    run.cancel();
    assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
    assert_eq!(tool.running(), 0);
    let (_, events) = only_child(&store, &root()).await;
    assert_eq!(ended(&events).status, Status::Cancelled);
    assert_eq!(settled(&events)[0].1, "cancelled while it ran; its outcome is unknown");
}

#[tokio::test(start_paused = true)]
async fn the_tools_timeout_cancels_the_child_and_the_parent_goes_on() {
    let store = memory();
    let hanging = FakeTool::new("hang").hanging();
    let provider = ScriptedProvider::new().call("hang", json!({}));
    let below = ReactAgent::builder("child", provider.model()).tool(hanging.clone()).build().unwrap();
    let tool = Ask::new(below).spec(|spec| spec.with_timeout(Duration::from_secs(3)));
    assert_eq!(run(&store, &parent(tool)).await.text, "Done.");
    assert_eq!(told(&store).await, "the call took longer than 3 s and was stopped");
    assert_eq!(hanging.running(), 0, "nothing of it is alive after the parent's end");
    assert_eq!(ended(&only_child(&store, &root()).await.1).status, Status::Cancelled);
}

/// Runs a parent whose child wants to pay, each time in a process of its own, until it has ended.
fn until_it_is_over(store: &SharedStore, pay: &FakeTool, levels: usize) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for _ in 0..9 {
        let outcome = process(async {
            let below = ScriptedProvider::by_history().call("pay", json!({})).text("Paid.");
            let mut below: ReactAgent =
                ReactAgent::builder("child", below.model()).tool(pay.clone()).build().unwrap();
            for _ in 1..levels {
                below = parent(Ask::new(below));
            }
            let agent = parent(Ask::new(below));
            let runtime = testkit::runtime()
                .policy(Policy::allow_all().ask("pay"))
                .shared_store(Arc::clone(store))
                .build();
            let session = runtime.session_with_id(root());
            let head = session.head().await.unwrap();
            if head.seq == 0 {
                return Some(session.start(&agent, "Go").outcome().await.unwrap());
            }
            let Some(Outcome { status: Status::Paused(Pause::Approval(question)), .. }) = outcomes.last()
            else {
                return None;
            };
            assert_eq!(head.status, SessionStatus::Paused);
            let asking = question.as_str().rsplit_once('.').unwrap().0;
            let asking = runtime.open(&SessionId::new(asking).unwrap()).await.unwrap();
            asking.decide(question, Decision::Allow).await.unwrap();
            Some(session.resume(&agent).outcome().await.unwrap())
        });
        match outcome {
            Some(outcome) => outcomes.push(outcome),
            None => break,
        }
    }
    outcomes
}

#[test]
fn design_3_a_child_that_waits_for_leave_pauses_its_parents_and_goes_on_where_it_was() {
    for levels in [1, 2, 3] {
        let (store, pay) = (memory(), FakeTool::new("pay").access(Access::WRITE).returning("paid"));
        let outcomes = until_it_is_over(&store, &pay, levels);
        let [paused, done] = &outcomes[..] else { panic!("{outcomes:?}") };
        assert!(matches!(paused.status, Status::Paused(Pause::Approval(_))));
        assert_eq!((done.text.as_str(), pay.started()), ("Done.", 1));
        process(async {
            let sessions = store.query(&SessionFilter::all()).await.unwrap();
            assert_eq!(sessions.len(), levels + 1, "each child was re-entered");
            for info in sessions {
                let events = stored(&store, &info.record.id).await;
                let times = |kind| count(&events, kind);
                assert_eq!((times("run_started"), times("run_paused"), times("run_finished")), (1, 1, 1));
                assert_eq!((times("model_finished"), times("tool_finished")), (2, 1));
                assert_eq!(info.head.status, SessionStatus::Idle);
            }
        });
    }
}

#[test]
fn design_3_an_agent_below_a_call_that_may_not_be_repeated_is_not_re_entered() {
    let store = memory();
    process(async {
        let gate = Gate::new();
        let provider = ScriptedProvider::new().call("wait", json!({}));
        let below =
            ReactAgent::builder("child", provider.model()).tool(FakeTool::new("wait").behind(&gate)).build();
        let tool = Ask::new(below.unwrap()).spec(|spec| spec.with_repeat(Repeat::Once));
        runtime_on(&store).session_with_id(root()).start(&parent(tool), "Go").detach();
        gate.arrived(1).await;
    });
    process(async {
        let never = ScriptedProvider::new();
        let tool = Ask::new(child(&never)).spec(|spec| spec.with_repeat(Repeat::Once));
        let session = runtime_on(&store).open(&root()).await.unwrap();
        assert_eq!(session.resume(&parent(tool)).outcome().await.unwrap().text, "Done.");
        assert!(told(&store).await.contains("outcome is unknown"));
        assert_eq!(never.count(), 0);
    });
}

#[tokio::test(start_paused = true)]
async fn a_second_agent_in_one_call_is_refused_while_the_first_runs() {
    let store = memory();
    let provider = ScriptedProvider::new().text("A tree.");
    let mut tool = Ask::new(child(&provider));
    tool.twice = true;
    run(&store, &parent(tool)).await;
    assert_eq!(told(&store).await, "completed: A tree.");
    assert_eq!(only_child(&store, &root()).await.1.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_second_agent_in_one_call_is_refused_after_the_first_too() {
    let store = memory();
    let provider = ScriptedProvider::new().text("A tree.");
    let mut tool = Ask::new(child(&provider));
    tool.again = true;
    let session = runtime_on(&store).session_with_id(root());
    let error = session.start(&parent(tool), "Go").outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.message().contains("runs one agent"), "{error}");
    assert_eq!((provider.count(), only_child(&store, &root()).await.1.len()), (1, 4));
}

#[tokio::test(start_paused = true)]
async fn an_agent_below_a_call_in_memory_alone() {
    let provider = ScriptedProvider::new().text("A tree.");
    let asking = parent(Ask::new(child(&provider)));
    assert_eq!(asking.ask("Go").await.unwrap(), "Done.");
}

#[test]
fn design_3_a_child_below_a_call_survives_death_at_every_append() {
    let mut deaths = 0;
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        for at in 0.. {
            let inner = memory();
            let faulty = FaultyStore::new(&inner, at, fault);
            let killed = faulty.killed.clone();
            let [first, second] = [0; 2].map(|_| Family::new());
            let lived = process(until_killed(run(&(faulty as SharedStore), &first.parent), &killed));
            if let Some(outcome) = lived {
                assert_eq!(outcome.text, "Done.");
                break;
            }
            deaths += 1;
            let label = format!("{fault:?} at append {at}");
            let before = process(replies(&inner));
            let outcome = process(async {
                let session = runtime_on(&inner).session_with_id(root());
                match session.unfinished().await.unwrap() {
                    Some(_) => Some(session.resume(&second.parent).outcome().await.unwrap()),
                    None if before == (0, 0) => {
                        Some(session.start(&second.parent, "Go").outcome().await.unwrap())
                    }
                    None => None,
                }
            });
            assert!(outcome.is_none_or(|outcome| outcome.text == "Done."), "{label}");
            assert_eq!(process(told(&inner)), "completed: A tree.", "{label}");
            assert_eq!(process(replies(&inner)), (2, 2), "{label}");
            assert_eq!(
                second.below.count(),
                2 - before.1,
                "{label}: replies that were stored are not asked for again"
            );
        }
    }
    assert!(deaths > 12, "{deaths}");
}

/// A parent and the child that it asks.
struct Family {
    below: ScriptedProvider,
    parent: ReactAgent,
}

impl Family {
    fn new() -> Self {
        let below = ScriptedProvider::by_history().call("look", json!({})).text("A tree.");
        let look = FakeTool::new("look");
        let child = ReactAgent::builder("child", below.model()).tool(look).build().unwrap();
        Self { below, parent: parent(Ask::new(child)) }
    }
}

/// Number of stored replies of the parent and of the child.
async fn replies(store: &SharedStore) -> (usize, usize) {
    let mut replies = (0, 0);
    for info in store.query(&SessionFilter::all()).await.unwrap() {
        let count = count(&stored(store, &info.record.id).await, "model_finished");
        if info.record.parent.is_some() {
            replies.1 += count;
        } else {
            replies.0 += count;
        }
    }
    replies
}
