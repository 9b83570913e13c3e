//! Offline replays of a recorded run: the same outcome from the same code, a named event where other code differs.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, Result, RunId, SessionId,
    agent::Agent,
    budget::BudgetLimits,
    context::Compaction,
    event::{Envelope, Event},
    message::Message,
    provider::{CallContext, DeltaStream, FinishReason, Model, Provider, Request},
    run::{Limits, Outcome, RunContext, Status, StopReason, Task},
    session::SharedStore,
    tool::{Access, Tool, Tools},
};
use entourage_runners::{Prepared, ReactAgent, ReactBuilder, Step, StopWhen};
use entourage_runtime::{MemoryStore, Session};
use entourage_testkit::{FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::{
    common::{Do, Fault, FaultyStore, act, agent, count, memory, process, runtime_on, stored, until_killed},
    compaction::{looker, looks, says, windowed},
};

/// A service that must not be asked.
#[derive(Debug)]
struct Never;

#[async_trait]
impl Provider for Never {
    fn name(&self) -> &'static str {
        "scripted"
    }

    async fn stream(&self, _: Request, _: &CallContext) -> Result<DeltaStream> {
        panic!("a replay asked a model");
    }
}

fn never() -> Model {
    ScriptedProvider::new().model().layer(|_| Arc::new(Never) as _)
}

/// A tool that must not be called.
fn unused(name: &str) -> FakeTool {
    FakeTool::new(name).access(Access::WRITE).panicking("a replay called a tool")
}

fn runs(events: &[Envelope]) -> Vec<RunId> {
    let started = events.iter().filter(|event| event.event.kind() == "run_started");
    started.map(|event| event.origin.run).collect()
}

/// The recorded outcome of the newest run.
fn ended(events: &[Envelope]) -> &Outcome {
    match &events.last().unwrap().event {
        Event::RunFinished(end) => &end.outcome,
        other => panic!("it has no end: {other:?}"),
    }
}

/// Replays the newest run of a session.
async fn replayed(
    store: &SharedStore,
    id: &SessionId,
    agent: &(impl Agent + Clone + 'static),
) -> Result<Outcome> {
    let before = stored(store, id).await;
    let session = runtime_on(store).open(id).await.unwrap();
    let outcome = session.replay(agent, *runs(&before).last().unwrap()).await;
    assert_eq!(stored(store, id).await, before, "nothing is stored");
    outcome
}

/// The event at which a replay differs from the record.
fn differs(outcome: Result<Outcome>) -> (u64, String) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Diverged, "{error:?}");
    let of = |name| error.context().find(|(it, _)| *it == name).map(|(_, value)| value.to_owned()).unwrap();
    (of("event").parse().unwrap(), of("recorded"))
}

fn session_on(store: &SharedStore) -> Session {
    runtime_on(store).session()
}

/// A run of a call, with a prompt that joins it during the call.
async fn recorded() -> (SharedStore, Session) {
    let (store, gate) = (memory(), Gate::new());
    let session = session_on(&store);
    let first = agent(ScriptedProvider::by_history().text("Before.").model()).build().unwrap();
    session.start(&first, "Nothing").outcome().await.unwrap();
    let provider = ScriptedProvider::new()
        .step(Script::new().call("put", &json!({"what": 1})).usage(20, 4).finish(FinishReason::ToolCalls))
        .step(Script::new().text("Done.").usage(30, 5).finish(FinishReason::Stop));
    let tool = FakeTool::new("put").access(Access::WRITE).behind(&gate).returning("it is put");
    let agent = agent(windowed(provider.model(), None)).tool(tool).build().unwrap();
    let run = session.start(&agent, "Put it there");
    gate.arrived(1).await;
    session.steer("And quickly").await.unwrap();
    gate.open();
    run.outcome().await.unwrap();
    (store, session)
}

fn same() -> ReactBuilder {
    agent(never()).tool(unused("put"))
}

#[tokio::test(start_paused = true)]
async fn design_3_a_run_replays_to_its_outcome_without_the_world() {
    let (store, session) = recorded().await;
    let events = stored(&store, session.id()).await;
    assert_eq!((count(&events, "prompt_queued"), count(&events, "message_added")), (1, 1));
    let outcome = replayed(&store, session.id(), &same().build().unwrap()).await.unwrap();
    assert_eq!(outcome, *ended(&events));
    assert_eq!((outcome.text.as_str(), outcome.steps, outcome.usage.input), ("Done.", 2, Some(50)));
    assert!(outcome.cost.is_some_and(|cost| cost > entourage_core::Money::default()), "{outcome:?}");
    let first = session.replay(&agent(never()).build().unwrap(), runs(&events)[0]).await.unwrap();
    assert_eq!(first.text, "Before.");
    let unknown = session.replay(&same().build().unwrap(), RunId::generate()).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
    let missing = session_on(&store).replay(&same().build().unwrap(), runs(&events)[0]).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn design_3_a_replay_of_other_code_names_the_event_where_it_differs() {
    let (store, session) = recorded().await;
    let events = stored(&store, session.id()).await;
    let place =
        |kind: &str, nth: usize| events.iter().filter(|it| it.event.kind() == kind).nth(nth).unwrap().seq;
    let few = {
        let mut limits = Limits::default();
        limits.steps = 1;
        limits
    };
    let other_model = |step: &Step, plan: &mut Prepared| {
        if step.number == 2 {
            plan.model = Model::new(Arc::new(Never), "another");
        }
    };
    let says_more = |_: &Step, plan: &mut Prepared| plan.push(Message::user("Be brief."));
    let id = session.id();
    let second_call = (place("message_added", 0), "message_added".to_owned());
    let found = differs(replayed(&store, id, &same().limits(few).build().unwrap()).await);
    assert_eq!(found, second_call);
    let stops = same().stop_when([StopWhen::tool_called("put")]).build().unwrap();
    assert_eq!(differs(replayed(&store, id, &stops).await), second_call);
    let found = differs(replayed(&store, id, &same().prepare(other_model).build().unwrap()).await);
    assert_eq!(found, (place("model_started", 2), "model_started".to_owned()));
    let found = differs(replayed(&store, id, &agent(never()).build().unwrap()).await);
    assert_eq!(found, (place("tool_started", 0), "tool_started".to_owned()));
    let named = ReactAgent::builder("somebody", never()).tool(unused("put")).build().unwrap();
    assert_eq!(
        differs(replayed(&store, id, &named).await),
        (place("run_started", 1), "run_started".to_owned())
    );
    let outcome = replayed(&store, id, &same().prepare(says_more).build().unwrap()).await.unwrap();
    assert_eq!(outcome, *ended(&events), "what is sent is not recorded");
}

#[tokio::test(start_paused = true)]
async fn design_3_an_effect_beyond_the_record_differs() {
    let (store, provider) = (memory(), ScriptedProvider::by_history().call("put", json!({})));
    let mut few = Limits::default();
    few.steps = 1;
    let put = FakeTool::new("put").access(Access::WRITE);
    let stops = agent(provider.model()).tool(put).limits(few).build().unwrap();
    let session = session_on(&store);
    let outcome = session.start(&stops, "Go").outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Stopped(StopReason::Steps(1)));
    let events = stored(&store, session.id()).await;
    assert_eq!(replayed(&store, session.id(), &same().limits(few).build().unwrap()).await.unwrap(), outcome);
    let found = differs(replayed(&store, session.id(), &same().build().unwrap()).await);
    assert_eq!(found, (events.last().unwrap().seq, "run_finished".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn design_3_a_hand_written_agent_replays_effect_by_effect() {
    let store = memory();
    let told = |model: Model, ask: &'static str, more: bool| {
        act(move |cx: &RunContext| {
            let model = model.clone();
            Box::pin(async move {
                let request = model.request(ask);
                let said = cx.call_model(&model, request).await?.message.text();
                let (now, id) = (cx.now().await?, cx.new_id().await?);
                cx.sleep(Duration::from_secs(5)).await?;
                if more {
                    cx.now().await?;
                }
                Ok(format!("{said} {} {id}", now.as_micros()))
            })
        })
    };
    let session = session_on(&store);
    let provider = ScriptedProvider::new().text("A tree.");
    let outcome = session.start(&told(provider.model(), "What?", false), "Go").outcome().await.unwrap();
    tokio::time::advance(Duration::from_secs(1_000)).await;
    let again = replayed(&store, session.id(), &told(never(), "What?", false)).await.unwrap();
    assert_eq!((again, outcome.text.starts_with("A tree. ")), (outcome, true));
    let found = differs(replayed(&store, session.id(), &told(never(), "Who?", false)).await);
    assert_eq!(found, (2, "model_started".to_owned()));
    let found = differs(replayed(&store, session.id(), &told(never(), "What?", true)).await);
    assert_eq!(found.1, "run_finished");
    let found =
        differs(replayed(&store, session.id(), &act(|_| Box::pin(async { Ok(String::new()) }))).await);
    assert_eq!(found, (2, "model_started".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn design_3_a_compaction_is_made_again_and_compared() {
    let store = memory();
    let session = session_on(&store);
    let provider = ScriptedProvider::new()
        .step(looks(100, 20))
        .step(looks(8_000, 500))
        .step(says("A summary of it."))
        .step(says("Done."));
    let outcome = session.start(&looker(&provider, 10_000).build().unwrap(), "Go").outcome().await.unwrap();
    let events = stored(&store, session.id()).await;
    assert_eq!((count(&events, "compaction_started"), count(&events, "compacted")), (1, 1));
    let like = |window| agent(windowed(never(), window)).tool(FakeTool::new("look").panicking("no"));
    let again = replayed(&store, session.id(), &like(Some(10_000)).build().unwrap()).await.unwrap();
    assert_eq!(again, outcome);
    let without = differs(
        replayed(&store, session.id(), &like(Some(10_000)).without_compaction().build().unwrap()).await,
    );
    assert_eq!(without.1, "compaction_started");
    let never_due = differs(replayed(&store, session.id(), &like(None).build().unwrap()).await);
    assert_eq!(never_due, without);
    let keeps = like(Some(10_000)).compaction(Compaction::new().keep_messages(1)).build().unwrap();
    let found = differs(replayed(&store, session.id(), &keeps).await);
    assert_eq!(found.1, "compacted");
}

/// Replays a run that fails.
async fn goes_wrong(
    provider: &ScriptedProvider,
    tool: FakeTool,
    task: Task,
    cancel: Option<&Gate>,
) -> Outcome {
    let store = memory();
    let session = session_on(&store);
    let agent = agent(provider.model()).tool(tool).build().unwrap();
    let run = session.start(&agent, task);
    if let Some(gate) = cancel {
        gate.arrived(1).await;
        session.cancel();
    }
    drop(run.outcome().await);
    let events = stored(&store, session.id()).await;
    let outcome = replayed(&store, session.id(), &same().build().unwrap()).await.unwrap();
    assert_eq!(outcome, *ended(&events));
    outcome
}

fn calls() -> ScriptedProvider {
    ScriptedProvider::by_history().calls([("put", json!({})), ("put", json!({"what": 2}))]).text("Done.")
}

fn put() -> FakeTool {
    FakeTool::new("put").access(Access::WRITE)
}

#[tokio::test(start_paused = true)]
async fn design_3_runs_that_failed_were_cancelled_or_late_replay_too() {
    let refused = ScriptedProvider::new().fail(ErrorKind::Authentication, "the key was refused");
    let outcome = goes_wrong(&refused, put(), "Go".into(), None).await;
    assert!(matches!(outcome.status, Status::Failed(error) if error.kind == ErrorKind::Authentication));
    let outcome = goes_wrong(&calls(), put().failing(ErrorKind::Tool, "it broke"), "Go".into(), None).await;
    assert!(matches!(outcome.status, Status::Failed(error) if error.message == "it broke"));

    let gate = Gate::new();
    let outcome = goes_wrong(&calls(), put().behind(&gate), "Go".into(), Some(&gate)).await;
    assert_eq!((outcome.status, outcome.steps), (Status::Cancelled, 1));
    let gate = Gate::new();
    let waits = ScriptedProvider::new().step(Script::new().text("So").wait(&gate));
    let outcome = goes_wrong(&waits, put(), "Go".into(), Some(&gate)).await;
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Cancelled, "So"));

    let now = entourage_testkit::PausedClock::default();
    let soon = entourage_core::Clock::now(&now).after(Duration::from_secs(9));
    let outcome = goes_wrong(&calls(), put().hanging(), Task::new("Go").with_deadline(soon), None).await;
    assert_eq!(outcome.status, Status::Stopped(StopReason::Deadline));
    let mut limits = BudgetLimits::none();
    limits.tool_calls = Some(1);
    let outcome = goes_wrong(&calls(), put(), Task::new("Go").with_budget(limits), None).await;
    assert!(matches!(outcome.status, Status::Stopped(StopReason::Budget(_))), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn design_3_an_agent_that_panics_does_so_again() {
    let store = memory();
    let session = session_on(&store);
    let panics = act(|_| Box::pin(async { panic!("oh") }));
    session.start(&panics, "Go").outcome().await.unwrap_err();
    let events = stored(&store, session.id()).await;
    assert_eq!(replayed(&store, session.id(), &panics).await.unwrap(), *ended(&events));
    let calm = act(|_| Box::pin(async { Ok("fine".to_owned()) }));
    assert_eq!(differs(replayed(&store, session.id(), &calm).await).1, "run_finished");
}

#[tokio::test(start_paused = true)]
async fn design_3_a_paused_run_replays_as_paused() {
    let store = memory();
    let session = session_on(&store);
    let waits = act(|cx| Box::pin(async { Ok(cx.signal("go").await?.to_string()) }));
    let outcome = session.start(&waits, "Go").outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Paused(_)));
    assert_eq!(replayed(&store, session.id(), &waits).await.unwrap(), outcome);
    session.signal("go", json!(7)).await.unwrap();
    let outcome = session.resume(&waits).outcome().await.unwrap();
    assert_eq!(outcome.text, "7");
    assert_eq!(replayed(&store, session.id(), &waits).await.unwrap(), outcome);
    let other = act(|_| Box::pin(async { Ok("7".to_owned()) }));
    assert_eq!(differs(replayed(&store, session.id(), &other).await).1, "wait_started");
}

#[test]
fn design_3_a_killed_run_agrees_up_to_the_end_of_its_record() {
    let mut unfinished = 0;
    for at in 0.. {
        let inner: SharedStore = Arc::new(MemoryStore::new());
        let faulty = FaultyStore::new(&inner, at, Fault::HangAfter);
        let killed = faulty.killed.clone();
        let id = SessionId::new("work").unwrap();
        let lived = process(until_killed(
            async {
                let agent = agent(calls().model()).tool(put()).build().unwrap();
                let session = runtime_on(&(faulty as SharedStore)).session_with_id(id.clone());
                session.start(&agent, "Go").outcome().await.unwrap()
            },
            &killed,
        ));
        process(async {
            let events = stored(&inner, &id).await;
            let outcome = replayed(&inner, &id, &same().build().unwrap()).await;
            if matches!(events.last().unwrap().event, Event::RunFinished(_)) {
                assert_eq!(outcome.unwrap(), *ended(&events));
                return;
            }
            unfinished += 1;
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unfinished, "{error:?}");
            let newest = events.len().to_string();
            assert!(error.context().any(|(name, value)| name == "event" && value == newest), "{error:?}");
            let other =
                ReactAgent::builder("tester", Model::new(Arc::new(Never), "another")).build().unwrap();
            assert_eq!(differs(replayed(&inner, &id, &other).await).1, "model_started");
        });
        if lived.is_some() {
            break;
        }
    }
    assert!(unfinished > 2, "{unfinished}");
}

/// An agent with two parallel effects, each a wait of some seconds or a call.
fn both(first: u64, second: u64) -> Do {
    act(move |cx| {
        Box::pin(async move {
            let wait = |seconds| cx.sleep(Duration::from_secs(seconds));
            let (one, two) = tokio::join!(wait(first), wait(second));
            one.and(two)?;
            cx.now().await?;
            Ok("up".into())
        })
    })
}

#[tokio::test(start_paused = true)]
async fn effects_that_were_under_way_at_once_are_replayed() {
    for (first, second) in [(1, 2), (2, 1), (1, 1)] {
        let store = memory();
        let session = session_on(&store);
        session.start(&both(first, second), "Go").outcome().await.unwrap();
        let outcome = replayed(&store, session.id(), &both(first, second)).await;
        assert_eq!(outcome.unwrap().text, "up", "{first} and {second}");
        let (_, recorded) = differs(replayed(&store, session.id(), &both(first, second + 1)).await);
        assert_eq!(recorded, "wait_started");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replay_that_leaves_out_one_of_two_effects_at_once_differs() {
    let store = memory();
    let session = session_on(&store);
    let look = Tools::new([Arc::new(FakeTool::new("look").returning("seen")) as Arc<dyn Tool>]).unwrap();
    let agent = |both: bool| {
        let look = look.clone();
        act(move |cx| {
            let look = look.clone();
            Box::pin(async move {
                let nap = cx.sleep(Duration::from_secs(2));
                if both {
                    let arguments = json!({});
                    let (slept, seen) = tokio::join!(nap, cx.call_tool(&look, "look", &arguments));
                    slept.and(seen.map(drop))?;
                } else {
                    nap.await?;
                }
                Ok("done".into())
            })
        })
    };
    session.start(&agent(true), "Go").outcome().await.unwrap();
    assert_eq!(replayed(&store, session.id(), &agent(true)).await.unwrap().text, "done");
    let (_, recorded) = differs(replayed(&store, session.id(), &agent(false)).await);
    assert!(recorded.starts_with("tool_"), "{recorded}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_paused_while_another_effect_was_under_way_is_replayed() {
    let store = memory();
    let session = session_on(&store);
    let waits = act(|cx| {
        Box::pin(async move {
            let (came, slept) = tokio::join!(cx.signal("go"), cx.sleep(Duration::from_secs(1)));
            slept?;
            Ok(came?.to_string())
        })
    });
    let paused = session.start(&waits, "Go").outcome().await.unwrap();
    assert!(matches!(paused.status, Status::Paused(_)), "{paused}");
    assert_eq!(replayed(&store, session.id(), &waits).await.unwrap().status, paused.status);
    session.signal("go", json!(7)).await.unwrap();
    assert_eq!(session.resume(&waits).outcome().await.unwrap().text, "7");
    assert_eq!(replayed(&store, session.id(), &waits).await.unwrap().text, "7");
}
