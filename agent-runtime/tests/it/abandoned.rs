//! Runs that a new prompt takes the place of: they end in the record, once, and so does all that waits below them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use entourage_core::{
    ErrorKind, RunId, SessionId,
    event::{Envelope, Event, Origin},
    permission::{ApprovalId, Decision},
    provider::FinishReason,
    run::{Pause, Status},
    session::{Batch, Row, SessionFilter, SessionState, SessionStatus, SharedStore},
    tool::Access,
};
use entourage_runners::ReactAgent;
use entourage_runtime::permission::Policy;
use entourage_runtime::{Agents, Runtime, Titles};
use entourage_testkit::{self as testkit, FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::{
    common::{
        Fault, FaultyStore, LaterClock, act, agent, assert_valid, count, memory, process, stored,
        until_killed,
    },
    control::{chain, relay},
};

const LEASE: Duration = Duration::from_secs(30);

fn root() -> SessionId {
    SessionId::new("root").unwrap()
}

/// A runtime of a process that begins some time after the first one.
fn after(store: &SharedStore, time: Duration) -> Runtime {
    let builder =
        testkit::runtime().shared_store(Arc::clone(store)).clock(LaterClock::new(time)).lease(LEASE);
    builder.policy(Policy::allow_all().ask("write")).build()
}

fn writer() -> FakeTool {
    FakeTool::new("write").access(Access::WRITE).returning("written")
}

fn quick() -> ReactAgent {
    let provider = (0..9).fold(ScriptedProvider::by_history(), |provider, _| provider.text("Hello."));
    agent(provider.model()).build().unwrap()
}

/// Pauses three agents, one below the other, for the lowest one's question.
async fn paused(runtime: &Runtime) -> (RunId, ApprovalId) {
    let run = runtime.session_with_id(root()).start(&chain(&relay(), &writer()), "Go");
    let id = run.id();
    let outcome = run.outcome().await.unwrap();
    let Status::Paused(Pause::Approval(question)) = outcome.status else { panic!("{outcome}") };
    (id, question)
}

fn paused_store() -> (SharedStore, RunId, ApprovalId) {
    let store = memory();
    let (run, question) = process(async { paused(&after(&store, Duration::ZERO)).await });
    (store, run, question)
}

/// Checks that nothing is open, and that each run has one end. Returns the number of abandoned runs.
async fn assert_ended(store: &SharedStore, label: &str) -> usize {
    let mut abandoned = 0;
    for info in store.query(&SessionFilter::all()).await.unwrap() {
        let id = info.record.id;
        assert_eq!((info.head.status, info.head.run), (SessionStatus::Idle, None), "{label}: {id}");
        let events = stored(store, &id).await;
        let mut ends: HashMap<RunId, usize> = HashMap::new();
        for event in &events {
            match &event.event {
                Event::RunStarted(_) => assert!(ends.insert(event.origin.run, 0).is_none(), "{label}"),
                Event::RunFinished(end) => {
                    *ends.get_mut(&event.origin.run).unwrap() += 1;
                    abandoned += usize::from(end.abandoned);
                    assert!(!end.abandoned || end.outcome.status == Status::Cancelled, "{label}");
                    let first = events.iter().find(|it| it.origin.run == event.origin.run).unwrap();
                    assert_eq!(first.origin.agent, event.origin.agent, "{label}: the path of agents");
                }
                _ => {}
            }
        }
        assert!(ends.values().all(|ends| *ends == 1), "{label}: {id}: {ends:?}");
        let mut state = SessionState::default();
        events.iter().for_each(|event| state.apply(event));
        assert_valid(state.history());
    }
    abandoned
}

#[test]
fn newcomer_b4_a_new_prompt_ends_the_paused_run_and_all_that_waits_below_it() {
    let (store, run, question) = paused_store();
    process(async {
        let runtime = after(&store, LEASE);
        let session = runtime.session_with_id(root());
        let mut events = runtime.subscribe();
        let outcome = session.start(&quick(), "Forget it").outcome().await.unwrap();
        assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "Hello."));
        assert_eq!(assert_ended(&store, "").await, 3);

        let told = stored(&store, &root()).await;
        let end = told.iter().position(|event| matches!(event.event, Event::RunFinished(_))).unwrap();
        assert_eq!((told[end].origin.run, told[end + 1].event.kind()), (run, "run_started"));
        assert_eq!(told[end - 1].event.kind(), "tool_finished", "its open call is answered");
        // Who watches hears of each end, the lowest one's too.
        let mut heard = 0;
        while heard < 4 {
            heard += usize::from(events.next().await.unwrap().event.kind() == "run_finished");
        }

        let error = runtime.decide(&question, Decision::Allow).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("was abandoned for a newer prompt, so nothing waits"), "{error}");
        assert!(!session.stop().await.unwrap(), "nothing is left to end");
        let replayed = session.replay(&chain(&relay(), &writer()), run).await.unwrap();
        assert_eq!(replayed.status, Status::Cancelled);
        assert_eq!(session.resume(&quick()).outcome().await.unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn what_a_dead_process_left_at_any_point_ends_before_a_new_prompt() {
    let mut abandoned = 0;
    for (at, fault) in (0..).flat_map(|at| [(at, Fault::HangBefore), (at, Fault::HangAfter)]) {
        let store = memory();
        let finished = process(async {
            let faulty = FaultyStore::new(&store, at, fault);
            let runtime = after(&(Arc::clone(&faulty) as _), Duration::ZERO);
            until_killed(paused(&runtime), &faulty.killed).await.is_some()
        });
        let label = format!("{at} {fault:?}");
        process(async {
            let session = after(&store, LEASE + LEASE).session_with_id(root());
            let left = session.unfinished().await.unwrap();
            session.start(&quick(), "Forget it").outcome().await.unwrap();
            abandoned += assert_ended(&store, &label).await;
            if let Some(run) = left {
                let replayed = session.replay(&chain(&relay(), &writer()), run).await.unwrap();
                assert_eq!(replayed.status, Status::Cancelled, "{label}");
            }
        });
        if finished {
            assert!(at > 5 && abandoned > 20, "{at} {abandoned}");
            return;
        }
    }
}

#[test]
fn wherever_a_new_prompt_dies_the_next_one_ends_each_run_once() {
    for stops in [false, true] {
        for (at, fault) in
            (0..).flat_map(|at| [(at, Fault::HangBefore), (at, Fault::HangAfter), (at, Fault::Fail)])
        {
            let (store, ..) = paused_store();
            let label = format!("{at} {fault:?} stops: {stops}");
            let finished = process(async {
                let faulty = FaultyStore::new(&store, at, fault);
                let session = after(&(Arc::clone(&faulty) as _), LEASE).session_with_id(root());
                let work = async {
                    match stops {
                        true => session.stop().await.map(drop),
                        false => session.start(&quick(), "Forget it").outcome().await.map(drop),
                    }
                };
                matches!(until_killed(work, &faulty.killed).await, Some(Ok(())))
            });
            process(async {
                let runtime = after(&store, 4 * LEASE);
                // Recovery may come first. It does not undo what ended.
                let recovery = runtime.recover(&Agents::new().with(quick())).await.unwrap();
                for run in recovery.resumed {
                    run.outcome().await.unwrap();
                }
                runtime.session_with_id(root()).start(&quick(), "And now?").outcome().await.unwrap();
                assert_ended(&store, &label).await;
            });
            if finished {
                assert!(at >= 3, "{label}");
                break;
            }
        }
    }
}

#[test]
fn a_paused_run_whose_new_prompt_died_goes_on_when_it_is_resumed() {
    for (at, fault) in [(1, Fault::HangBefore), (2, Fault::HangBefore), (1, Fault::Fail)] {
        let (store, ..) = paused_store();
        process(async {
            let faulty = FaultyStore::new(&store, at, fault);
            let session = after(&(Arc::clone(&faulty) as _), LEASE).session_with_id(root());
            let begun = session.start(&quick(), "Forget it").outcome();
            assert!(!matches!(until_killed(begun, &faulty.killed).await, Some(Ok(_))));
        });
        process(async {
            let session = after(&store, 4 * LEASE).session_with_id(root());
            let outcome = session.resume(&chain(&relay(), &writer())).outcome().await.unwrap();
            assert_eq!(
                outcome.status,
                Status::Completed,
                "{at}: the agent above is told that those below ended"
            );
            assert_ended(&store, &format!("{at} {fault:?}")).await;
        });
    }
}

#[test]
fn of_two_processes_with_a_new_prompt_each_run_below_is_ended_by_one() {
    for others in [false, true] {
        let (store, run, _) = paused_store();
        process(async {
            let (one, two) = (after(&store, LEASE), after(&store, LEASE));
            let (one, two) = (one.session_with_id(root()), two.session_with_id(root()));
            let (one, two) = match others {
                false => {
                    let (agent, other) = (quick(), quick());
                    tokio::join!(one.start(&agent, "Mine").outcome(), two.start(&other, "No, mine").outcome())
                }
                true => {
                    let (agent, other) = (quick(), chain(&relay(), &writer()));
                    tokio::join!(one.start(&agent, "Mine").outcome(), two.resume(&other).outcome())
                }
            };
            let late = [&one, &two].into_iter().filter_map(|it| it.as_ref().err()).map(|it| it.kind());
            let late: Vec<_> = late.collect();
            assert!(late.len() <= 1, "one of them is first: {one:?} {two:?}");
            assert!(
                late.iter()
                    .all(|kind| matches!(kind, ErrorKind::Busy | ErrorKind::Conflict | ErrorKind::NotFound))
            );
            let third = after(&store, 4 * LEASE).session_with_id(root());
            third.start(&quick(), "And now?").outcome().await.unwrap();
            assert_ended(&store, "").await;
            let told = stored(&store, &root()).await;
            let ends = told.iter().filter(|it| it.event.kind() == "run_finished" && it.origin.run == run);
            assert_eq!(ends.count(), 1);
        });
    }
}

/// A run that an older version began in the place of the paused one, which it did not end.
async fn begun_by_an_older_version(store: &SharedStore) {
    let info = store.query(&SessionFilter::id(root())).await.unwrap().remove(0);
    let mut state = SessionState::default();
    stored(store, &root()).await.iter().for_each(|event| state.apply(event));
    let origin = Arc::new(Origin::new(root(), RunId::generate(), "tester"));
    let prompt = json!({"role": "user", "parts": [{"text": "Forget it"}]});
    let started = json!({"format": 1, "agent": "tester", "prompt": prompt});
    let started = Event::RunStarted(serde_json::from_value(started).unwrap());
    let event = Envelope::new(origin, info.head.seq + 1, info.head.updated, started);
    state.apply(&event);
    let batch = Batch::new(7, vec![Row::live(event)], state.head().clone()).of(&info.record);
    store.append(&root(), info.head.seq, batch).await.unwrap();
}

#[test]
fn what_an_older_version_left_without_an_end_takes_no_answer_and_ends_with_the_next_prompt() {
    let (store, run, question) = paused_store();
    process(async {
        begun_by_an_older_version(&store).await;
        let runtime = after(&store, LEASE);
        let error = runtime.decide(&question, Decision::Allow).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("a run above the one that asked this is over"), "{error}");
        let session = runtime.session_with_id(root());
        assert_eq!(session.replay(&chain(&relay(), &writer()), run).await.unwrap().status, {
            Status::Paused(Pause::Approval(question.clone()))
        });
        session.start(&quick(), "And now?").outcome().await.unwrap();
        let below = store.query(&SessionFilter::all().with_status(SessionStatus::Paused)).await.unwrap();
        assert!(below.is_empty(), "{below:?}");
        let error = runtime.decide(&question, Decision::Allow).await.unwrap_err();
        assert!(error.to_string().contains("abandoned for a newer prompt"), "{error}");
    });
}

#[test]
fn recovery_ends_what_an_older_version_left_below_a_run_that_is_over() {
    let (store, ..) = paused_store();
    process(async {
        begun_by_an_older_version(&store).await;
        let runtime = after(&store, LEASE);
        // The run that is under way is continued, and what is below the one before it is not.
        let recovery = runtime.recover(&Agents::new().with(quick())).await.unwrap();
        assert!(recovery.skipped.is_empty() && recovery.resumed.len() == 1, "{recovery:?}");
        let below = SessionFilter::all().with_status(SessionStatus::Paused);
        assert!(store.query(&below).await.unwrap().is_empty());
        for run in recovery.resumed {
            run.outcome().await.unwrap();
        }
        let again = runtime.recover(&Agents::new().with(quick())).await.unwrap();
        assert!(again.skipped.is_empty() && again.resumed.is_empty(), "{again:?}");
    });
    // What waits below a run that is open is left alone.
    let (store, _, question) = paused_store();
    process(async {
        let runtime = after(&store, LEASE);
        let recovery = runtime.recover(&Agents::new().with(quick())).await.unwrap();
        assert!(recovery.skipped.is_empty() && recovery.resumed.is_empty(), "{recovery:?}");
        runtime.decide(&question, Decision::Allow).await.unwrap();
        let session = runtime.session_with_id(root());
        assert_eq!(
            session.resume(&chain(&relay(), &writer())).outcome().await.unwrap().status,
            Status::Completed
        );
        assert_ended(&store, "").await;
    });
}

#[test]
fn a_resumed_run_that_ends_without_coming_to_its_children_ends_them() {
    let (store, _, question) = paused_store();
    process(async {
        let runtime = after(&store, LEASE);
        let session = runtime.session_with_id(root());
        let run = session.resume(&chain(&relay(), &writer()));
        run.cancel();
        assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
        assert_eq!(assert_ended(&store, "").await, 0);
        let error = runtime.decide(&question, Decision::Allow).await.unwrap_err();
        assert!(error.to_string().contains("is over (cancelled), so nothing waits"), "{error}");
    });
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_while_a_child_is_paused_ends_that_child() {
    let store = memory();
    let runtime = after(&store, Duration::ZERO);
    let asks = ScriptedProvider::by_history().call("write", json!({}));
    let child = Arc::new(ReactAgent::builder("child", asks.model()).tool(writer()).build().unwrap());
    let parent = act(move |cx| {
        let child = Arc::clone(&child);
        Box::pin(async move {
            let child = cx.spawn(child, "Ask").await?;
            let paused = cx.wait_any(&[child], None).await.unwrap_err();
            assert!(paused.pause().is_some());
            Ok("Done without it.".to_owned())
        })
    });
    let outcome = runtime.session_with_id(root()).start(&parent, "Go").outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Completed);
    assert_eq!(assert_ended(&store, "").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_title_that_is_being_made_is_nobodys_left_over() {
    let (store, gate) = (memory(), Gate::new());
    let small =
        ScriptedProvider::new().step(Script::new().wait(&gate).text("A title").finish(FinishReason::Stop));
    let runtime = testkit::runtime()
        .shared_store(Arc::clone(&store))
        .policy(Policy::allow_all().ask("write"))
        .titles(Titles::new(small.model()))
        .build();
    let (_, question) = paused(&runtime).await;
    gate.arrived(1).await;
    let session = runtime.session_with_id(root());
    assert!(session.stop().await.unwrap());
    assert_eq!(runtime.decide(&question, Decision::Allow).await.unwrap_err().kind(), ErrorKind::NotFound);
    gate.open();
    assert!(runtime.cancel_all().await);
    assert_eq!(&*session.head().await.unwrap().title, "A title");
    assert_ended(&store, "").await;
    assert_eq!(count(&stored(&store, &root()).await, "titled"), 1);
}

#[test]
fn a_question_that_was_never_asked_is_unknown() {
    let (store, ..) = paused_store();
    process(async {
        let runtime = after(&store, LEASE);
        for id in ["root.3$$0", "root.9999$$0-x", "root.x$$"] {
            let error = runtime.decide(&ApprovalId::from(id), Decision::Deny).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(error.to_string().contains("no such question is open"), "{error}");
        }
    });
}
