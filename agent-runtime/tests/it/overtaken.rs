//! Handles of one session in several processes: each works on the current session, the first answer holds, and two
//! runs never run at once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, Result, SessionId,
    event::Event,
    permission::{ApprovalId, Decision},
    provider::FinishReason,
    run::{Pause, Status},
    session::{Batch, Lease, ReadRange, Row, SessionFilter, SessionStatus, SharedStore},
    tool::Access,
};
use entourage_runners::{AgentTool, ReactAgent};
use entourage_runtime::{Agents, Runtime, Session};
use entourage_testkit::{self as testkit, FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::common::{
    Do, Fault, FaultyStore, LaterClock, Meddles, Through, act, agent, assert_valid, count, memory, process,
    stored, until_killed,
};

fn runtime(store: &SharedStore) -> Runtime {
    testkit::runtime().shared_store(Arc::clone(store)).build()
}

fn talker() -> ReactAgent {
    let provider = (0..9).fold(ScriptedProvider::by_history(), |it, n| it.text(format!("r{n}")));
    agent(provider.model()).build().unwrap()
}

fn asker(write: &FakeTool) -> ReactAgent {
    let provider = ScriptedProvider::by_history().call("write", json!({})).text("Done.");
    agent(provider.model()).tool(write.clone()).build().unwrap()
}

fn writer() -> FakeTool {
    FakeTool::new("write").access(Access::WRITE).echoing()
}

async fn asked(runtime: &Runtime, write: &FakeTool) -> (Session, ApprovalId) {
    let session = runtime.session();
    let outcome = session.start(&asker(write), "Go").outcome().await.unwrap();
    let Status::Paused(Pause::Approval(id)) = outcome.status else { panic!("{outcome}") };
    (session, id)
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_another_process_overtook_works_on_the_session_as_it_is() {
    let store = memory();
    let (one, two) = (runtime(&store), runtime(&store));
    let mine = one.session();
    mine.start(&talker(), "0").outcome().await.unwrap();
    let theirs = two.open(mine.id()).await.unwrap();
    for n in 1..4 {
        theirs.start(&talker(), format!("{n}")).outcome().await.unwrap();
        assert_eq!(mine.history().await.unwrap().len(), theirs.history().await.unwrap().len());
        theirs.signal("seen", json!(n)).await.unwrap();
        let outcome = mine.start(&talker(), "mine").outcome().await.unwrap();
        assert_eq!(outcome.text, format!("r{}", 2 * n), "the first try, on all that was said");
        assert_eq!(mine.head().await.unwrap(), theirs.head().await.unwrap());
    }
    assert_valid(&mine.history().await.unwrap());
    // A session that was deleted is gone for every handle, and its name is free.
    two.store().delete(mine.id()).await.unwrap();
    assert!(mine.history().await.unwrap().is_empty());
    assert_eq!(mine.start(&talker(), "anew").outcome().await.unwrap().text, "r0");
}

#[tokio::test(start_paused = true)]
async fn a_question_that_was_answered_in_another_process_is_gone_on_with_at_once() {
    let store = memory();
    let write = writer();
    let (one, two) = (runtime(&store), runtime(&store));
    let (session, id) = asked(&one, &write).await;
    two.decide(&id, Decision::Allow).await.unwrap();
    assert_eq!(session.resume(&asker(&write)).outcome().await.unwrap().status, Status::Completed);
    assert_eq!(write.finished(), 1);
    // Who still has the run open in mind is told that another process was faster, once.
    let late = two.open(session.id()).await.unwrap();
    let error = late.resume(&asker(&write)).outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

#[tokio::test(start_paused = true)]
async fn attack_09_a_handle_that_saw_a_run_does_not_take_it_from_the_faster_process() {
    let store = memory();
    let write = writer();
    let (session, id) = asked(&runtime(&store), &write).await;
    let (one, two) = (runtime(&store), runtime(&store));
    let (fast, late) = (one.open(session.id()).await.unwrap(), two.open(session.id()).await.unwrap());
    runtime(&store).decide(&id, Decision::Allow).await.unwrap();
    let gate = Gate::new();
    let slow = FakeTool::new("write").access(Access::WRITE).behind(&gate);
    let run = fast.resume(&asker(&slow));
    gate.arrived(1).await;
    let error = late.resume(&asker(&write)).outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let error = late.start(&talker(), "Me!").outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    gate.open();
    assert_eq!(run.outcome().await.unwrap().status, Status::Completed);
    assert_eq!((slow.finished(), write.started()), (1, 0));
    assert_eq!(count(&stored(&store, session.id()).await, "run_resumed"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_first_answer_to_a_question_holds() {
    for (first, second) in [(Decision::Deny, Decision::Allow), (Decision::Allow, Decision::Deny)] {
        let store = memory();
        let write = writer();
        let (one, two) = (runtime(&store), runtime(&store));
        let (session, id) = asked(&one, &write).await;
        two.decide(&id, first.clone()).await.unwrap();
        for other in [&one, &two, &runtime(&store)] {
            let error = other.decide(&id, second.clone()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            let how = if first == Decision::Deny { "is denied" } else { "is allowed" };
            assert!(error.message().contains(how), "{error}");
            other.decide(&id, first.clone()).await.unwrap();
        }
        assert_eq!(count(&stored(&store, session.id()).await, "approval_decided"), 1);
        session.resume(&asker(&write)).outcome().await.unwrap();
        assert_eq!(write.finished(), usize::from(first == Decision::Allow));
    }
}

/// A store in which another process is faster: its append comes before some of ours.
#[derive(Debug)]
struct Overtaken {
    inner: SharedStore,
    /// Number of appends that are still overtaken.
    times: AtomicUsize,
    other: Runtime,
    what: What,
}

#[derive(Debug)]
enum What {
    Signal(SessionId),
    Decide(ApprovalId, Decision),
    /// Resumes the run, and stands still in the middle of it.
    Resume(SessionId, Box<ReactAgent>, Gate),
    /// Resumes the run until it asks again.
    ResumeToItsPause(SessionId, Box<ReactAgent>),
    /// Starts a run that asks for approval.
    StartToItsPause(SessionId, Box<ReactAgent>),
}

#[async_trait]
impl Meddles for Overtaken {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        let less = |left: usize| left.checked_sub(1);
        if self.times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            match &self.what {
                What::Signal(session) => {
                    let session = self.other.open(session).await?;
                    session.signal("beside", json!(1)).await?;
                }
                What::Decide(id, decision) => self.other.decide(id, decision.clone()).await?,
                What::Resume(session, agent, gate) => {
                    self.other.open(session).await?.resume(&**agent).detach();
                    gate.arrived(1).await;
                }
                What::ResumeToItsPause(session, agent) => {
                    self.other.open(session).await?.resume(&**agent).outcome().await?;
                }
                What::StartToItsPause(session, agent) => {
                    self.other.open(session).await?.start(&**agent, "Mine").outcome().await?;
                }
            }
        }
        self.inner.append(session, expected, batch).await
    }
}

fn overtaken(store: &SharedStore, what: What) -> Runtime {
    overtaken_often(store, what, 1)
}

fn overtaken_often(store: &SharedStore, what: What, times: usize) -> Runtime {
    let (inner, times, other) = (Arc::clone(store), AtomicUsize::new(times), runtime(store));
    testkit::runtime().store(Through(Overtaken { inner, times, other, what })).build()
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_first_commit_comes_second_begins_again_on_what_is_there_now() {
    let store = memory();
    let session = runtime(&store).session();
    session.start(&talker(), "0").outcome().await.unwrap();
    let second = overtaken(&store, What::Signal(session.id().clone()));
    let mine = second.open(session.id()).await.unwrap();
    assert_eq!(mine.start(&talker(), "1").outcome().await.unwrap().text, "r1");
    let events = stored(&store, session.id()).await;
    assert_eq!((count(&events, "run_started"), count(&events, "signal_received")), (2, 1));

    let write = writer();
    let (session, id) = asked(&runtime(&store), &write).await;
    let second = overtaken(&store, What::Decide(id, Decision::Allow));
    let mine = second.open(session.id()).await.unwrap();
    assert_eq!(mine.resume(&asker(&write)).outcome().await.unwrap().status, Status::Completed);
    assert_eq!(write.finished(), 1);
}

#[tokio::test(start_paused = true)]
async fn attack_09_a_resume_whose_first_commit_comes_second_does_not_take_the_run() {
    let store = memory();
    let (write, gate) = (writer(), Gate::new());
    let (session, id) = asked(&runtime(&store), &write).await;
    runtime(&store).decide(&id, Decision::Allow).await.unwrap();
    let slow = FakeTool::new("write").access(Access::WRITE).behind(&gate);
    let faster = What::Resume(session.id().clone(), Box::new(asker(&slow)), gate.clone());
    let second = overtaken(&store, faster);
    let mine = second.open(session.id()).await.unwrap();
    let error = mine.resume(&asker(&write)).outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(count(&stored(&store, session.id()).await, "run_resumed"), 1, "both were admitted");
    assert_eq!(write.started(), 0);
    gate.open();
}

#[tokio::test(start_paused = true)]
async fn of_two_answers_at_once_the_first_one_stored_holds() {
    for (theirs, kind) in [(Decision::Deny, Some(ErrorKind::Conflict)), (Decision::Allow, None)] {
        let store = memory();
        let write = writer();
        let (session, id) = asked(&runtime(&store), &write).await;
        let mine = overtaken(&store, What::Decide(id.clone(), theirs));
        let answered = mine.decide(&id, Decision::Allow).await;
        assert_eq!(answered.err().map(|error| error.kind()), kind);
        assert_eq!(count(&stored(&store, session.id()).await, "approval_decided"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_processes_that_start_at_once_one_runs_and_the_other_is_told_that_it_is_busy() {
    let store = memory();
    let first = runtime(&store).session();
    first.start(&talker(), "0").outcome().await.unwrap();
    let (one, two) = (runtime(&store), runtime(&store));
    let gate = Gate::new();
    let slow = || {
        let script = Script::new().wait(&gate).text("r1").finish(FinishReason::Stop);
        agent(ScriptedProvider::by_history().text("-").step(script).model()).build().unwrap()
    };
    let [a, b] = [&one, &two].map(|it| it.session_with_id(first.id().clone()));
    let (_, _) = (a.history().await.unwrap(), b.history().await.unwrap());
    let runs = [a.start(&slow(), "a"), b.start(&slow(), "b")].map(|run| Box::pin(run.outcome()));
    let [a, b] = runs;
    // The gate is shut: the first one to end is the one that does not run.
    let (told, runs) = futures_util::future::select(a, b).await.factor_first();
    assert_eq!(told.unwrap_err().kind(), ErrorKind::Busy);
    gate.open();
    assert_eq!(runs.await.unwrap().text, "r1");
    assert_eq!(count(&stored(&store, first.id()).await, "run_started"), 2);
}

/// An agent with a side effect before its first recorded effect.
fn hasty(begun: &Arc<AtomicUsize>) -> Do {
    let begun = Arc::clone(begun);
    act(move |cx| {
        begun.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move { cx.new_id().await.map(|_| "done".to_owned()) })
    })
}

#[tokio::test(start_paused = true)]
async fn an_agent_begins_once_however_often_its_first_commit_comes_second() {
    for (times, begins) in [(0, 1), (1, 1), (4, 1), (9, 0)] {
        let store = memory();
        let session = runtime(&store).session();
        session.start(&talker(), "0").outcome().await.unwrap();
        let second = overtaken_often(&store, What::Signal(session.id().clone()), times);
        let mine = second.open(session.id()).await.unwrap();
        let begun = Arc::default();
        let outcome = mine.start(&hasty(&begun), "1").outcome().await;
        assert_eq!(begun.load(Ordering::SeqCst), begins, "overtaken {times} times");
        match outcome {
            Ok(outcome) => assert_eq!((outcome.text.as_str(), begins), ("done", 1)),
            Err(error) => assert_eq!((error.kind(), begins), (ErrorKind::Conflict, 0), "{error}"),
        }
        let events = stored(&store, session.id()).await;
        assert_eq!(count(&events, "run_started"), 1 + begins);
    }
}

async fn idle(session: &Session) {
    while session.is_busy() {
        tokio::task::yield_now().await;
    }
}

/// Number of times that the conversation holds a prompt.
async fn said(store: &SharedStore, session: &SessionId, text: &str) -> usize {
    let session = runtime(store).open(session).await.unwrap();
    session.history().await.unwrap().iter().filter(|message| message.text() == text).count()
}

#[tokio::test(start_paused = true)]
async fn a_prompt_for_a_run_that_begins_again_is_kept() {
    let store = memory();
    let session = runtime(&store).session();
    session.start(&talker(), "0").outcome().await.unwrap();
    let second = overtaken(&store, What::Signal(session.id().clone()));
    let mine = second.open(session.id()).await.unwrap();
    mine.start(&talker(), "1").detach();
    let steered = mine.steer("2").await;
    idle(&mine).await;
    assert_eq!(said(&store, session.id(), "1").await, 1);
    assert_eq!(said(&store, session.id(), "2").await, usize::from(steered.is_ok()), "{steered:?}");
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_was_accepted_is_stored_wherever_the_store_begins_to_fail() {
    let mut refused = 0;
    for at in 0..12 {
        let store = memory();
        let faulty = FaultyStore::new(&store, at, Fault::Fail);
        let session = runtime(&(faulty as SharedStore)).session();
        let gate = Gate::new();
        let first = Script::new().wait(&gate).call("look", &json!({})).finish(FinishReason::ToolCalls);
        let provider = ScriptedProvider::by_history().step(first).text("Seen.").text("Heard.");
        let agent = agent(provider.model()).tool(FakeTool::new("look").returning("it")).build().unwrap();
        session.start(&agent, "Look").detach();
        tokio::select! {
            () = gate.arrived(1) => {}
            () = idle(&session) => {}
        }
        // The run is woken first, and then the writer of the prompt.
        gate.open();
        let steered = session.steer("And listen").await;
        idle(&session).await;
        refused += usize::from(steered.is_err());
        let kept = match steered {
            Ok(()) => stored(&store, session.id())
                .await
                .iter()
                .any(|event| format!("{:?}", event.event).contains("And listen")),
            Err(_) => true,
        };
        assert!(kept, "told that it is stored, with a store that fails from append {at} on");
    }
    assert!((1..12).contains(&refused), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn attack_09_a_recovery_leaves_alone_what_another_process_went_on_with_and_paused_again() {
    let store = memory();
    let write = writer();
    let twice = || {
        let provider = ScriptedProvider::by_history().call("write", json!({})).call("write", json!({}));
        agent(provider.text("Done.").model()).tool(write.clone()).build().unwrap()
    };
    let session = runtime(&store).session();
    let outcome = session.start(&twice(), "Go").outcome().await.unwrap();
    let Status::Paused(Pause::Approval(id)) = outcome.status else { panic!("{outcome}") };
    runtime(&store).decide(&id, Decision::Allow).await.unwrap();
    let faster = What::ResumeToItsPause(session.id().clone(), Box::new(twice()));
    let second = overtaken(&store, faster);
    let recovery = second.recover(&Agents::new().with(twice())).await.unwrap();
    assert!(recovery.resumed.is_empty() && recovery.skipped.is_empty(), "{recovery:?}");
    let events = stored(&store, session.id()).await;
    assert_eq!((count(&events, "run_resumed"), count(&events, "run_paused")), (1, 2));
    assert_eq!(write.finished(), 1);
}

/// A session without a run, in which a prompt of a dead process waits.
fn left_waiting() -> (SharedStore, SessionId) {
    for at in 0..64 {
        let (store, id) = (memory(), SessionId::new("work").unwrap());
        let faulty = FaultyStore::new(&store, at, Fault::HangBefore);
        process(async {
            let (killed, gate) = (faulty.killed.clone(), Gate::new());
            let session = runtime(&(faulty as SharedStore)).session_with_id(id.clone());
            let first = Script::new().wait(&gate).text("r0").finish(FinishReason::Stop);
            let slow = agent(ScriptedProvider::by_history().step(first).model()).build().unwrap();
            session.start(&slow, "0").detach();
            let second = async {
                gate.arrived(1).await;
                let mut second = session.start(&talker(), "1");
                second.next().await;
                gate.open();
                second.outcome().await
            };
            let ended = until_killed(second, &killed).await;
            assert!(ended.is_none(), "the store never stood still: {ended:?}");
        });
        let left = process(async {
            let Ok(session) = runtime(&store).open(&id).await else { return false };
            let events = stored(&store, &id).await;
            let state = session.state().await.unwrap();
            count(&events, "run_finished") == 1 && state.queue().len() == 1
        });
        if left {
            return (store, id);
        }
    }
    panic!("it never stood still between the two runs")
}

#[test]
fn attack_09_a_recovered_prompt_does_not_give_up_a_run_that_another_process_began() {
    let (store, id) = left_waiting();
    process(async {
        let write = writer();
        let asks = ScriptedProvider::new().call("write", json!({}));
        let asks = agent(asks.model()).tool(write).build().unwrap();
        let what = What::StartToItsPause(id.clone(), Box::new(asks));
        // The dead process' lease is over.
        let builder = || testkit::runtime().clock(LaterClock::new(Duration::from_secs(3_600)));
        let (inner, times) = (Arc::clone(&store), AtomicUsize::new(1));
        let other = builder().shared_store(Arc::clone(&store)).build();
        let second = builder().store(Through(Overtaken { inner, times, other, what })).build();
        let recovery = second.recover(&Agents::new().with(talker())).await.unwrap();
        assert!(recovery.resumed.is_empty() && recovery.skipped.is_empty(), "{recovery:?}");
        let head = runtime(&store).open(&id).await.unwrap().head().await.unwrap();
        assert_eq!(head.status, SessionStatus::Paused, "the other one's question still waits");
    });
}

/// A lead of two agents, which look and then wait, and whose tools pass these gates.
fn of_two(look: &Gate, wait: &Gate) -> ReactAgent {
    let below = |name: &'static str| {
        let provider =
            ScriptedProvider::by_history().call("look", json!({})).call("wait", json!({})).text(name);
        let tool = |name: &'static str, gate: &Gate| FakeTool::new(name).access(Access::READ).behind(gate);
        let agent = agent(provider.model()).tool(tool("look", look)).tool(tool("wait", wait));
        AgentTool::new(agent.build().unwrap()).with_name(name)
    };
    let both = ["one", "two"].map(|name| (name, json!({"prompt": "Go"})));
    let provider = ScriptedProvider::by_history().calls(both).text("Done.");
    agent(provider.model()).tool(below("one")).tool(below("two")).build().unwrap()
}

/// Returns the ends that are stored, of the root and of those below it.
async fn ends(store: &SharedStore) -> [Vec<Status>; 2] {
    let mut ends = [Vec::new(), Vec::new()];
    for info in store.query(&SessionFilter::all()).await.unwrap() {
        let place = usize::from(info.record.parent.is_some());
        for event in stored(store, &info.record.id).await {
            if let Event::RunFinished(end) = event.event {
                ends[place].push(end.outcome.status.clone());
            }
        }
    }
    ends
}

#[tokio::test(start_paused = true)]
async fn attack_10_runs_below_a_run_that_was_overtaken_store_no_end_of_theirs() {
    let (store, look, wait) = (memory(), Gate::new(), Gate::new());
    let session = runtime(&store).session();
    let run = session.start(&of_two(&look, &wait), "Go");
    look.arrived(2).await;
    let held = store.query(&SessionFilter::id(session.id().clone())).await.unwrap().remove(0).lease.unwrap();
    // The heartbeat finds out, and the run is cancelled with all below it.
    let thief = Lease::new(held.owner ^ 1, held.generation + 1, held.until);
    store.lease(session.id(), thief).await.unwrap();
    assert_eq!(run.outcome().await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(ends(&store).await, [vec![], vec![]]);
    // So whoever has it now goes on where they were.
    look.open();
    wait.open();
    let third = runtime(&store).open(session.id()).await.unwrap();
    assert_eq!(third.resume(&of_two(&look, &wait)).outcome().await.unwrap().text, "Done.");
    assert_eq!(ends(&store).await, [vec![Status::Completed], vec![Status::Completed; 2]]);
}

/// A store in which a process that was overtaken goes on below, just after another one has read that.
#[derive(Debug)]
struct GoesOn {
    inner: SharedStore,
    look: Gate,
}

#[async_trait]
impl Meddles for GoesOn {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        let rows = self.inner.read(session, range).await?;
        if session.as_str().contains("$$") {
            self.look.open();
            while count(&stored(&self.inner, session).await, "tool_started") < 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        Ok(rows)
    }
}

#[tokio::test(start_paused = true)]
async fn attack_10_a_process_that_works_on_below_is_fenced_and_what_it_did_until_then_is_kept() {
    let (store, look, wait) = (memory(), Gate::new(), Gate::new());
    let session = runtime(&store).session();
    let run = session.start(&of_two(&look, &wait), "Go");
    look.arrived(2).await;
    let (never, open) = (Gate::new(), Gate::new());
    open.open();
    let inner = GoesOn { inner: Arc::clone(&store), look: look.clone() };
    let second = testkit::runtime().store(Through(inner)).build().open(session.id()).await.unwrap();
    // It need not look again.
    let outcome = second.resume(&of_two(&never, &open)).outcome().await.unwrap();
    assert_eq!(outcome.text, "Done.");
    wait.open();
    assert_eq!(run.outcome().await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(ends(&store).await, [vec![Status::Completed], vec![Status::Completed; 2]]);
}

/// A store in which a process that was overtaken begins runs below, just before another one would.
#[derive(Debug)]
struct Begins {
    inner: SharedStore,
    /// The appends of the first process pass it.
    gate: Gate,
    is_first: bool,
}

#[async_trait]
impl Meddles for Begins {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        if session.as_str().contains("$$") && self.is_first {
            self.gate.pass().await;
        } else if session.as_str().contains("$$") {
            self.gate.open();
            while self.inner.query(&SessionFilter::id(session.clone())).await?.is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        self.inner.append(session, expected, batch).await
    }
}

#[tokio::test(start_paused = true)]
async fn attack_10_a_run_below_that_an_overtaken_process_began_first_is_gone_on_with() {
    let (store, gate, never, open) = (memory(), Gate::new(), Gate::new(), Gate::new());
    open.open();
    let through = |is_first| Through(Begins { inner: Arc::clone(&store), gate: gate.clone(), is_first });
    let runtime = |is_first| testkit::runtime().store(through(is_first)).build();
    let session = runtime(true).session();
    let run = session.start(&of_two(&never, &never), "Go");
    gate.arrived(2).await;
    let second = runtime(false).open(session.id()).await.unwrap();
    let outcome = second.resume(&of_two(&open, &open)).outcome().await.unwrap();
    assert_eq!(outcome.text, "Done.");
    run.cancel();
    assert!(run.outcome().await.is_err());
    assert_eq!(ends(&store).await, [vec![Status::Completed], vec![Status::Completed; 2]]);
}
