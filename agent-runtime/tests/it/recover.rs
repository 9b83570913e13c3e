//! Continuing in another process: with decisions about children, with the runs that a dead process left, and with the
//! prompts that waited there.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use entourage_core::{
    ErrorKind, SessionId, Timestamp,
    event::{Envelope, Event},
    permission::{ApprovalId, Decision},
    provider::Model,
    run::{Pause, Status},
    session::{Batch, Row, SessionFilter, SessionState, SessionStatus, SharedStore},
    tool::Access,
};
use entourage_runners::ReactAgent;
use entourage_runtime::permission::Policy;
use entourage_runtime::{Agents, RunHandle, Runtime, SkipReason};
use entourage_testkit::{self as testkit, FakeTool, Gate, LiveProvider, ScriptedProvider};
use serde_json::json;

use crate::{
    common::{Fault, FaultyStore, LaterClock, agent, count, memory, process, stored, until_killed},
    control::{chain, relay},
};

const LEASE: Duration = Duration::from_secs(30);
const DAYS: Duration = Duration::from_secs(3 * 86_400);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// A runtime of a process that begins some time after the first one.
fn after(store: &SharedStore, time: Duration) -> Runtime {
    let clock = LaterClock::new(time);
    let builder = testkit::runtime().shared_store(Arc::clone(store)).clock(clock).lease(LEASE);
    builder.policy(Policy::new().allow("ask").allow("look").ask("write")).build()
}

fn writer() -> FakeTool {
    FakeTool::new("write").access(Access::WRITE).returning("written")
}

async fn statuses(store: &SharedStore) -> Vec<SessionStatus> {
    store.query(&SessionFilter::all()).await.unwrap().into_iter().map(|info| info.head.status).collect()
}

/// Runs [`chain`] until its lowest agent waits for approval of a write.
async fn paused_below(runtime: &Runtime, top: &ReactAgent) -> (SessionId, ApprovalId) {
    let run = runtime.session().start(top, "Go");
    let session = run.session().clone();
    let outcome = run.outcome().await.unwrap();
    let Status::Paused(Pause::Approval(id)) = outcome.status else { panic!("{outcome}") };
    let asking = id.session().unwrap();
    assert!(asking.as_str().matches("$$").count() == 2 && asking.as_str().starts_with(session.as_str()));
    (session, id)
}

#[tokio::test]
async fn issue_4_a_grandchilds_question_is_decided_and_the_root_goes_on_in_the_same_process() {
    let store = memory();
    let runtime = after(&store, Duration::ZERO);
    let tool = writer();
    let top = chain(&relay(), &tool);
    let (session, id) = paused_below(&runtime, &top).await;
    assert_eq!(statuses(&store).await, [SessionStatus::Paused; 3]);
    // Not decided, it is asked again; the question is the same.
    let session = runtime.open(&session).await.unwrap();
    let again = session.resume(&top).outcome().await.unwrap();
    assert_eq!(again.status, Status::Paused(Pause::Approval(id.clone())));
    runtime.decide(&id, Decision::Allow).await.unwrap();
    let outcome = session.resume(&top).outcome().await.unwrap();
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "written"));
    assert_eq!(tool.finished(), 1);
    assert_eq!(statuses(&store).await, [SessionStatus::Idle; 3]);
}

#[test]
fn issue_4_a_grandchilds_question_is_decided_days_later_in_other_processes() {
    for (decision, finished) in [(Decision::Allow, 1), (Decision::Deny, 0)] {
        let store = memory();
        let tool = writer();
        let (session, id) = process(async {
            let top = chain(&relay(), &tool);
            paused_below(&after(&store, Duration::ZERO), &top).await
        });
        process(async {
            after(&store, DAYS).decide(&id, decision).await.unwrap();
        });
        process(async {
            let top = chain(&relay(), &tool);
            let session = after(&store, DAYS + DAYS).open(&session).await.unwrap();
            let outcome = session.resume(&top).outcome().await.unwrap();
            assert_eq!(outcome.status, Status::Completed, "{outcome}");
            assert_eq!(statuses(&store).await, [SessionStatus::Idle; 3]);
            assert_eq!(session.resume(&top).outcome().await.unwrap_err().kind(), ErrorKind::NotFound);
        });
        assert_eq!(tool.finished(), finished);
    }
}

#[tokio::test]
async fn issue_4_what_is_no_open_question_is_refused() {
    let store = memory();
    let runtime = after(&store, Duration::ZERO);
    let tool = writer();
    let (_, id) = paused_below(&runtime, &chain(&relay(), &tool)).await;
    let kind =
        async |id: &str| runtime.decide(&ApprovalId::from(id), Decision::Allow).await.unwrap_err().kind();
    assert_eq!(kind("made-up").await, ErrorKind::NotFound);
    assert_eq!(kind("nobody.3$$0").await, ErrorKind::NotFound);
    assert_eq!(kind("../../etc/passwd.3$$0").await, ErrorKind::NotFound);
    assert_eq!(kind("").await, ErrorKind::NotFound);
    assert_eq!(runtime.decide(&id, Decision::Later).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(statuses(&store).await, [SessionStatus::Paused; 3]);
}

#[tokio::test]
async fn issue_4_a_child_at_work_takes_no_answer_from_outside() {
    let store = memory();
    let runtime = after(&store, Duration::ZERO);
    let gate = Gate::new();
    let tool = FakeTool::new("look").behind(&gate);
    let run = runtime.session().start(&chain(&relay(), &tool), "Go");
    gate.arrived(1).await;
    for info in store.query(&SessionFilter::all()).await.unwrap() {
        let session = runtime.open(&info.record.id).await.unwrap();
        let error = session.signal("wake", json!(1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy, "{}", info.record.id);
    }
    gate.open();
    assert_eq!(run.outcome().await.unwrap().status, Status::Completed, "it was not disturbed");
}

/// Runs a process that dies while its run calls a tool and two prompts wait.
fn died(store: &SharedStore) -> SessionId {
    died_after(store, Duration::ZERO)
}

/// Like [`died`], in a process whose clock shows `time` later.
fn died_after(store: &SharedStore, time: Duration) -> SessionId {
    process(async {
        let gate = Gate::new();
        let provider = ScriptedProvider::by_history().call("look", json!({}));
        let slow = FakeTool::new("look").behind(&gate);
        let one = agent(provider.model()).tool(slow).build().unwrap();
        let session = after(store, time).session();
        session.start(&one, "First").detach();
        gate.arrived(1).await;
        let (mut second, mut third) = (session.start(&one, "Second"), session.start(&one, "Third"));
        assert_eq!(second.next().await.unwrap().event.kind(), "prompt_queued");
        assert_eq!(third.next().await.unwrap().event.kind(), "prompt_queued");
        second.detach();
        third.detach();
        session.id().clone()
    })
}

fn reader(model: Model) -> ReactAgent {
    agent(model).tool(FakeTool::new("look").returning("seen")).build().unwrap()
}

fn answers() -> ScriptedProvider {
    ScriptedProvider::by_history().text("-").text("First.").text("Second.").text("Third.")
}

async fn outcomes(runs: Vec<RunHandle>) -> Vec<Result<String, ErrorKind>> {
    let mut ended = Vec::new();
    for run in runs {
        ended.push(run.outcome().await.map(|outcome| outcome.text).map_err(|error| error.kind()));
    }
    ended
}

fn assert_each_ended_once(events: &[Envelope]) {
    let mut ends: Vec<_> = events
        .iter()
        .filter(|event| matches!(event.event, Event::RunFinished(_) | Event::PromptDropped(_)))
        .map(|event| event.origin.run)
        .collect();
    ends.sort_unstable();
    ends.dedup();
    assert_eq!(ends.len(), count(events, "run_finished") + count(events, "prompt_dropped"));
}

async fn stored_lease(store: &SharedStore, session: &SessionId) -> Timestamp {
    let infos = store.query(&SessionFilter::all()).await.unwrap();
    let info = infos.into_iter().find(|info| info.record.id == *session).unwrap();
    info.lease.unwrap().until
}

#[test]
fn issue_11_recover_tells_of_a_session_leased_by_a_clock_a_year_ahead() {
    let store = memory();
    let session = died_after(&store, YEAR);
    let provider = answers();
    process(async {
        let runtime = after(&store, DAYS);
        let agent = reader(provider.model());
        let recovery = runtime.recover(&Agents::new().with(&agent)).await.unwrap();
        assert!(recovery.resumed.is_empty() && recovery.skipped.is_empty(), "{recovery:?}");
        let leased = stored_lease(&store, &session).await;
        assert_eq!(recovery.leased, BTreeMap::from([(session.clone(), leased)]));

        let resumed = runtime.open(&session).await.unwrap().resume(&agent).outcome().await.unwrap();
        assert_eq!(resumed.text, "First.");
    });
}

#[test]
fn issue_4_recover_goes_on_with_the_run_and_then_with_what_waited() {
    let store = memory();
    let session = died(&store);
    let provider = answers();
    process(async {
        let agents = Agents::new().with(reader(provider.model()));
        // Nothing tells that the process is dead before its lease is over.
        let soon = after(&store, Duration::from_secs(10)).recover(&agents).await.unwrap();
        assert!(soon.resumed.is_empty() && soon.skipped.is_empty(), "{soon:?}");
        let leased = stored_lease(&store, &session).await;
        assert_eq!(soon.leased, BTreeMap::from([(session.clone(), leased)]));
        let runtime = after(&store, LEASE + LEASE);
        let mut watching = runtime.subscribe();
        let recovery = runtime.recover(&agents).await.unwrap();
        assert_eq!(recovery.resumed.len(), 1);
        assert_eq!(outcomes(recovery.resumed).await, [Ok("First.".to_owned())]);
        let mut seen = Vec::new();
        while count(&seen, "run_finished") < 3 {
            seen.push(watching.next().await.unwrap());
        }
        assert_eq!(count(&seen, "run_resumed"), 1);
        let again = runtime.recover(&agents).await.unwrap();
        assert!(again.resumed.is_empty() && again.skipped.is_empty() && again.leased.is_empty(), "{again:?}");
    });
    process(async {
        let events = stored(&store, &session).await;
        let texts: Vec<_> = events
            .iter()
            .filter_map(|event| match &event.event {
                Event::RunFinished(end) => Some(end.outcome.text.clone()),
                _ => None,
            })
            .collect();
        assert_eq!(texts, ["First.", "Second.", "Third."]);
        assert_each_ended_once(&events);
        // The ids that the dead process gave out are the ones that ended.
        let queued = events.iter().filter(|event| event.event.kind() == "prompt_queued");
        for run in queued.map(|event| event.origin.run) {
            let ends = events.iter().filter(|it| it.event.kind() == "run_finished" && it.origin.run == run);
            assert_eq!(ends.count(), 1);
        }
        assert_eq!(statuses(&store).await, [SessionStatus::Idle]);
    });
}

#[test]
fn attack_09_of_two_processes_that_recover_one_store_each_run_is_admitted_in_one() {
    let store = memory();
    let sessions = [died(&store), died(&store), died(&store)];
    let provider = answers();
    process(async {
        let agents = Agents::new().with(reader(provider.model()));
        let (one, two) = (after(&store, LEASE + LEASE), after(&store, LEASE + LEASE));
        let (first, second) = tokio::join!(one.recover(&agents), two.recover(&agents));
        let (first, second) = (first.unwrap(), second.unwrap());
        assert!(first.skipped.is_empty() && second.skipped.is_empty());
        let mut ended = outcomes(first.resumed).await;
        ended.extend(outcomes(second.resumed).await);
        let all = vec![Ok("First.".to_owned()); 3];
        assert_eq!(ended, all, "who was too late is told of no run");
        let done = async {
            while statuses(&store).await != [SessionStatus::Idle; 3] {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), done).await.unwrap();
        for session in &sessions {
            let events = stored(&store, session).await;
            assert_eq!((count(&events, "run_resumed"), count(&events, "run_finished")), (1, 3));
            assert_each_ended_once(&events);
        }
    });
}

#[test]
fn issue_4_recover_leaves_what_is_paused_and_what_no_agent_is_known_for() {
    let store = memory();
    let left = died(&store);
    process(async {
        let tool = writer();
        paused_below(&after(&store, Duration::ZERO), &chain(&relay(), &tool)).await;
        let runtime = after(&store, LEASE + LEASE);
        let before = stored(&store, &left).await.len();
        let somebody = ReactAgent::builder("somebody-else", LiveProvider::new().model()).build().unwrap();
        let recovery = runtime.recover(&Agents::new().with(somebody)).await.unwrap();
        assert!(recovery.resumed.is_empty());
        let skipped: Vec<_> =
            recovery.skipped.iter().map(|it| (&it.session, &*it.agent, &it.reason)).collect();
        assert_eq!(skipped, [(&left, "tester", &SkipReason::UnknownAgent)]);
        assert_eq!(stored(&store, &left).await.len(), before, "nothing was written");
        let paused = |status: &SessionStatus| *status == SessionStatus::Paused;
        assert_eq!(statuses(&store).await.iter().filter(|it| paused(it)).count(), 3);
    });
}

async fn until_idle(store: &SharedStore) {
    while statuses(store).await != [SessionStatus::Idle] {
        tokio::task::yield_now().await;
    }
}

#[test]
fn issue_4_wherever_a_recovery_dies_the_next_one_ends_each_run_and_prompt_once() {
    let mut between_runs = 0;
    for (at, fault) in (0..).flat_map(|at| [(at, Fault::HangBefore), (at, Fault::HangAfter)]) {
        let store = memory();
        let session = died(&store);
        let provider = answers();
        let finished = process(async {
            let faulty = FaultyStore::new(&store, at, fault);
            let runtime = after(&(Arc::clone(&faulty) as _), LEASE + LEASE);
            let agents = Agents::new().with(reader(provider.model()));
            let recovered = async {
                runtime.recover(&agents).await.unwrap().detach();
                until_idle(&store).await;
            };
            until_killed(recovered, &faulty.killed).await.is_some()
        });
        if finished {
            assert!(at > 5 && between_runs > 0, "{at} writes, {between_runs} cuts between two runs");
            return;
        }
        process(async {
            let runtime = after(&store, 4 * LEASE);
            let open = runtime.open(&session).await.unwrap();
            let idle = open.head().await.unwrap().status == SessionStatus::Idle;
            between_runs += usize::from(!idle && open.unfinished().await.unwrap().is_none());
            let recovery = runtime.recover(&Agents::new().with(reader(provider.model()))).await.unwrap();
            assert_eq!(recovery.resumed.len(), usize::from(!idle), "{at} {fault:?}");
            recovery.detach();
            tokio::time::timeout(Duration::from_secs(5), until_idle(&store)).await.unwrap();
            let events = stored(&store, &session).await;
            assert_eq!(
                (count(&events, "run_started"), count(&events, "run_finished")),
                (3, 3),
                "{at} {fault:?}"
            );
            assert_each_ended_once(&events);
            let last = runtime.open(&session).await.unwrap().history().await.unwrap();
            assert_eq!(last.last().unwrap().text(), "Third.", "{at} {fault:?}");
        });
    }
}

#[test]
fn issue_4_a_session_that_is_resumed_goes_on_with_what_waited() {
    let store = memory();
    let session = died(&store);
    let provider = answers();
    process(async {
        let session = after(&store, LEASE + LEASE).open(&session).await.unwrap();
        assert_eq!(session.state().await.unwrap().queue().len(), 2);
        let run = session.resume(&reader(provider.model()));
        assert_eq!(run.outcome().await.unwrap().text, "First.");
        until_idle(&store).await;
        assert_eq!(session.history().await.unwrap().last().unwrap().text(), "Third.");
    });
}

#[test]
fn issue_4_a_cancel_drops_what_a_dead_process_had_accepted_too() {
    let store = memory();
    let session = died(&store);
    process(async {
        let session = after(&store, LEASE + LEASE).open(&session).await.unwrap();
        let provider = LiveProvider::new();
        let run = session.resume(&reader(provider.model()));
        let _call = provider.asked().await;
        session.cancel();
        assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
        assert!(session.cancel_within(Duration::from_secs(1)).await);
        let events = stored(&store, session.id()).await;
        assert_eq!((count(&events, "prompt_dropped"), count(&events, "run_started")), (2, 1));
        assert_eq!(statuses(&store).await, [SessionStatus::Idle]);
        provider.assert_silent().await;
    });
}

/// Answers the question below `session`, in a process that then dies.
fn decided(store: &SharedStore, tool: &FakeTool) -> (SessionId, ApprovalId) {
    process(async {
        let runtime = after(store, Duration::ZERO);
        let (session, id) = paused_below(&runtime, &chain(&relay(), tool)).await;
        runtime.decide(&id, Decision::Allow).await.unwrap();
        (session, id)
    })
}

#[test]
fn recover_goes_on_with_a_run_that_was_answered_and_not_resumed() {
    let store = memory();
    let tool = writer();
    let (session, _) = decided(&store, &tool);
    let open = writer();
    process(async {
        paused_below(&after(&store, Duration::ZERO), &chain(&relay(), &open)).await;
    });
    process(async {
        // At once: a paused run holds no lease.
        let runtime = after(&store, Duration::ZERO);
        let nobody = runtime.recover(&Agents::new()).await.unwrap();
        let skipped: Vec<_> = nobody.skipped.iter().map(|it| (&it.session, &it.reason)).collect();
        assert_eq!(skipped, [(&session, &SkipReason::UnknownAgent)]);
        let agents = Agents::new().with(chain(&relay(), &tool));
        let recovery = runtime.recover(&agents).await.unwrap();
        assert_eq!(recovery.resumed.iter().map(|run| run.session()).collect::<Vec<_>>(), [&session]);
        assert!(recovery.skipped.is_empty());
        assert_eq!(outcomes(recovery.resumed).await, [Ok("written".to_owned())]);
        let again = runtime.recover(&agents).await.unwrap();
        assert!(again.resumed.is_empty() && again.skipped.is_empty(), "{again:?}");
    });
    assert_eq!((tool.finished(), open.started()), (1, 0), "the other one still waits");
}

#[test]
fn recover_goes_on_with_a_run_whose_signal_came() {
    let store = memory();
    let agent = || crate::common::act(|cx| Box::pin(async move { Ok(cx.signal("go").await?.to_string()) }));
    let id = SessionId::new("work").unwrap();
    process(async {
        let session = after(&store, Duration::ZERO).session_with_id(id.clone());
        let paused = session.start(&agent(), "Go").outcome().await.unwrap();
        assert!(matches!(paused.status, Status::Paused(_)));
    });
    for (signal, goes_on) in [("other", false), ("go", true)] {
        process(async {
            let runtime = after(&store, Duration::ZERO);
            runtime.open(&id).await.unwrap().signal(signal, json!(7)).await.unwrap();
        });
        process(async {
            let runtime = after(&store, Duration::ZERO);
            let recovery = runtime.recover(&Agents::new().with(agent())).await.unwrap();
            assert_eq!(recovery.resumed.len(), usize::from(goes_on), "{signal}");
            let texts = if goes_on { vec![Ok("7".to_owned())] } else { vec![] };
            assert_eq!(outcomes(recovery.resumed).await, texts);
        });
    }
}

#[test]
fn an_answer_for_a_run_that_was_given_up_wakes_no_other() {
    let store = memory();
    let tool = writer();
    let (session, _) = decided(&store, &tool);
    process(async {
        let runtime = after(&store, Duration::ZERO);
        let top = chain(&relay(), &tool);
        let given_up = runtime.open(&session).await.unwrap();
        let outcome = given_up.start(&top, "Something else").outcome().await.unwrap();
        assert!(matches!(outcome.status, Status::Paused(_)), "{outcome}");
        let before = stored(&store, &session).await;
        let recovery = runtime.recover(&Agents::new().with(top)).await.unwrap();
        assert!(recovery.resumed.is_empty() && recovery.skipped.is_empty(), "{recovery:?}");
        assert_eq!(stored(&store, &session).await, before);
    });
    assert_eq!(tool.started(), 0);
}

#[test]
fn attack_09_an_answered_run_is_admitted_in_one_of_two_processes_and_told_of_in_that_one() {
    let store = memory();
    let tool = writer();
    for _ in 0..3 {
        decided(&store, &tool);
    }
    process(async {
        let agents = Agents::new().with(chain(&relay(), &tool));
        let (one, two) = (after(&store, Duration::ZERO), after(&store, Duration::ZERO));
        let (first, second) = tokio::join!(one.recover(&agents), two.recover(&agents));
        let (first, second) = (first.unwrap(), second.unwrap());
        assert!(first.skipped.is_empty() && second.skipped.is_empty());
        let mut ended = outcomes(first.resumed).await;
        ended.extend(outcomes(second.resumed).await);
        assert_eq!(ended, vec![Ok("written".to_owned()); 3]);
    });
    assert_eq!(tool.finished(), 3);
}

/// Appends a checkpoint of version 0.1, which had neither the wait of a run nor its answer.
async fn add_an_old_checkpoint(store: &SharedStore, id: &SessionId) {
    let events = stored(store, id).await;
    let mut state = SessionState::default();
    events.iter().for_each(|event| state.apply(event));
    let mut form = serde_json::to_value(&state).unwrap();
    let run = form["run"].as_object_mut().unwrap();
    assert!(run.remove("pause").is_some());
    run.remove("answered");
    let (seq, newest) = (events.len() as u64 + 1, events.last().unwrap());
    let body = json!({ "state": form }).to_string();
    let mut columns = Row::live(newest.clone()).columns();
    (columns.seq, columns.kind) = (seq, "checkpoint".into());
    let row = Row::stored(columns, body);
    row.clone().into_envelope(id).unwrap();
    let mut head = state.head().clone();
    (head.seq, head.checkpoint) = (seq, seq);
    store.append(id, seq - 1, Batch::new(1, vec![row], head)).await.unwrap();
}

#[test]
fn recover_goes_on_with_an_answered_run_behind_a_checkpoint_of_version_0_1() {
    for answered_first in [true, false] {
        let store = memory();
        let agent =
            || crate::common::act(|cx| Box::pin(async move { Ok(cx.signal("go").await?.to_string()) }));
        let id = SessionId::new("work").unwrap();
        process(async {
            let session = after(&store, Duration::ZERO).session_with_id(id.clone());
            session.start(&agent(), "Go").outcome().await.unwrap();
            if !answered_first {
                add_an_old_checkpoint(&store, &id).await;
            }
        });
        process(async {
            let runtime = after(&store, Duration::ZERO);
            let recovery = runtime.recover(&Agents::new().with(agent())).await.unwrap();
            assert!(recovery.resumed.is_empty(), "nobody answered");
            runtime.open(&id).await.unwrap().signal("go", json!(7)).await.unwrap();
            if answered_first {
                add_an_old_checkpoint(&store, &id).await;
            }
        });
        process(async {
            let recovery = after(&store, Duration::ZERO).recover(&Agents::new().with(agent())).await.unwrap();
            assert_eq!(outcomes(recovery.resumed).await, [Ok("7".to_owned())], "{answered_first}");
        });
    }
}
