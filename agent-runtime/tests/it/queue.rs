//! Prompts for a busy session: their order, their single end, and prompts that join the current run.

use std::{sync::Arc, time::Duration};

use entourage_core::{
    ErrorKind, RunId,
    event::{Envelope, Event},
    provider::FinishReason,
    run::Status,
    session::SessionStatus,
};
use entourage_runtime::{RunHandle, Runtime, Session};
use entourage_testkit::{self as testkit, FakeTool, Gate, LiveProvider, Script, ScriptedProvider};
use serde_json::json;

use crate::common::{
    Do, Fault, FaultyStore, LaterClock, act, agent, assert_valid, count, drain, kinds, memory, open_runtime,
    runtime_on, stored,
};

/// The terminal events of each run, in the order in which they were stored.
fn ends(events: &[Envelope]) -> Vec<(RunId, &str)> {
    let terminal = |event: &&Envelope| {
        matches!(&event.event, Event::RunFinished(_) | Event::PromptDropped(_) | Event::RunPaused(_))
    };
    events.iter().filter(terminal).map(|event| (event.origin.run, event.event.kind())).collect()
}

fn prompts(events: &[Envelope]) -> Vec<String> {
    let started = events.iter().filter_map(|event| match &event.event {
        Event::RunStarted(run) => Some(run.prompt.text()),
        _ => None,
    });
    started.collect()
}

async fn idle(session: &Session) {
    while session.is_busy() {
        tokio::task::yield_now().await;
    }
}

async fn texts(runs: Vec<RunHandle>) -> Vec<String> {
    let mut texts = Vec::new();
    for run in runs {
        texts.push(run.outcome().await.unwrap().text);
    }
    texts
}

#[tokio::test]
async fn cm11_runs_wait_for_their_turn_in_the_order_of_their_start() {
    let store = memory();
    let gate = Gate::new();
    let first = Script::new().wait(&gate).text("0").finish(FinishReason::Stop);
    let provider = (1..5).fold(ScriptedProvider::new().step(first), |script, n| script.text(n.to_string()));
    let agent = agent(provider.model()).build().unwrap();
    let session = runtime_on(&store).session();
    let runs: Vec<_> = (0..5).map(|n| session.start(&agent, format!("prompt {n}"))).collect();
    let ids: Vec<_> = runs.iter().map(RunHandle::id).collect();
    gate.arrived(1).await;
    assert_eq!(provider.count(), 1, "the others wait");
    gate.open();
    assert_eq!(texts(runs).await, ["0", "1", "2", "3", "4"]);
    let events = stored(&store, session.id()).await;
    assert_eq!(prompts(&events), ["prompt 0", "prompt 1", "prompt 2", "prompt 3", "prompt 4"]);
    assert_eq!(ends(&events), ids.iter().map(|id| (*id, "run_finished")).collect::<Vec<_>>());
    assert_eq!(count(&events, "prompt_queued"), 4);
    let queued: Vec<_> = events.iter().filter(|it| it.event.kind() == "prompt_queued").collect();
    let named = events.iter().filter_map(|event| match &event.event {
        Event::RunStarted(run) => run.queued,
        _ => None,
    });
    assert_eq!(named.collect::<Vec<_>>(), queued.iter().map(|event| event.seq).collect::<Vec<_>>());
    assert_eq!(queued.iter().map(|it| it.origin.run).collect::<Vec<_>>(), ids[1..]);
    let head = session.head().await.unwrap();
    assert_eq!((head.status, head.run), (SessionStatus::Idle, None));
    assert_eq!(session.state().await.unwrap().queue(), []);
    assert_valid(&session.history().await.unwrap());
    assert_eq!(provider.requests()[4].messages.len(), 9, "each run sees what was said before");
}

#[tokio::test]
async fn cm12_a_handle_streams_its_own_run_and_nothing_else() {
    let store = memory();
    let gate = Gate::new();
    let first = Script::new().wait(&gate).text("A").finish(FinishReason::Stop);
    let provider = ScriptedProvider::new().step(first).text("B");
    let agent = agent(provider.model()).build().unwrap();
    let session = runtime_on(&store).session();
    let mut first = session.start(&agent, "One");
    let mut second = session.start(&agent, "Two");
    let (a, b) = (first.id(), second.id());
    assert_ne!(a, b);
    gate.arrived(1).await;
    let queued = second.next().await.unwrap();
    assert_eq!(
        (queued.event.kind(), queued.origin.run),
        ("prompt_queued", b),
        "stored while the first one runs"
    );
    assert!(stored(&store, session.id()).await.contains(&queued));
    gate.open();
    let (one, two) = (drain(&mut first).await, drain(&mut second).await);
    assert!(one.iter().all(|event| event.origin.run == a) && two.iter().all(|event| event.origin.run == b));
    assert_eq!(one.first().unwrap().event.kind(), "run_started", "{:?}", kinds(&one));
    assert_eq!(two.first().unwrap().event.kind(), "run_started", "{:?}", kinds(&two));
    for events in [&one, &two] {
        assert_eq!(events.last().unwrap().event.kind(), "run_finished");
        let numbers: Vec<_> = events.iter().filter(|it| it.event.is_stored()).map(|it| it.seq).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "in order, each once: {numbers:?}");
    }
    let shown = one.len() + two.len() + 1 - one.iter().chain(&two).filter(|it| !it.event.is_stored()).count();
    assert_eq!(shown, stored(&store, session.id()).await.len(), "nothing is lost");
}

#[tokio::test]
async fn cm12_a_run_that_is_cancelled_before_its_turn_ends_once_and_the_next_has_its_turn() {
    let store = memory();
    let gate = Gate::new();
    let first = Script::new().wait(&gate).text("A").finish(FinishReason::Stop);
    let provider = ScriptedProvider::new().step(first).text("D");
    let agent = agent(provider.model()).build().unwrap();
    let session = runtime_on(&store).session();
    let runs: Vec<_> = ["A?", "B?", "C?", "D?"].map(|prompt| session.start(&agent, prompt)).into();
    let ids: Vec<_> = runs.iter().map(RunHandle::id).collect();
    let [a, mut b, c, d] = <[RunHandle; 4]>::try_from(runs).unwrap();
    // One at once, one after it was stored, one by dropping its handle.
    gate.arrived(1).await;
    b.cancel();
    let seen = drain(&mut b).await;
    assert_eq!(kinds(&seen), ["prompt_queued", "prompt_dropped"]);
    assert_eq!(b.outcome().await.unwrap().status, Status::Cancelled);
    drop(c);
    gate.open();
    assert_eq!(texts(vec![a, d]).await, ["A", "D"]);
    let events = stored(&store, session.id()).await;
    let mut ended = ends(&events);
    ended.sort_by_key(|(id, _)| ids.iter().position(|it| it == id));
    let expected = ["run_finished", "prompt_dropped", "prompt_dropped", "run_finished"];
    assert_eq!(ended, ids.into_iter().zip(expected).collect::<Vec<_>>());
    assert_eq!(session.state().await.unwrap().queue(), []);
}

#[tokio::test]
async fn cm12_a_run_cancelled_at_once_still_has_its_one_end() {
    let store = memory();
    let provider = LiveProvider::new();
    let agent = agent(provider.model()).build().unwrap();
    let session = runtime_on(&store).session();
    let first = session.start(&agent, "One");
    let second = session.start(&agent, "Two");
    let ids = [first.id(), second.id()];
    // Neither task has been polled.
    second.cancel();
    first.cancel();
    assert_eq!(second.outcome().await.unwrap().status, Status::Cancelled);
    assert_eq!(first.outcome().await.unwrap().status, Status::Cancelled);
    let events = stored(&store, session.id()).await;
    let mut ended = ends(&events);
    ended.sort_by_key(|(_, kind)| *kind == "prompt_dropped");
    assert_eq!(ended, [(ids[0], "run_finished"), (ids[1], "prompt_dropped")]);
    provider.assert_silent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cm11_of_fifty_that_start_at_once_never_two_are_active_and_all_have_their_outcome() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let store = memory();
    let runtime = runtime_on(&store);
    let session = runtime.session();
    let (active, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, peak) = (Arc::clone(&active), Arc::clone(&most));
    let worker = act(move |cx| {
        let (now, peak) = (Arc::clone(&now), Arc::clone(&peak));
        Box::pin(async move {
            peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            let prompt = cx.history().last().unwrap().text();
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(prompt)
        })
    });
    let barrier = Arc::new(tokio::sync::Barrier::new(50));
    let tasks: Vec<_> = (0..50)
        .map(|n| {
            let (session, worker, barrier) = (session.clone(), worker.clone(), Arc::clone(&barrier));
            tokio::spawn(async move {
                barrier.wait().await;
                let run = session.start(&worker, format!("{n}"));
                let id = run.id();
                (id, format!("{n}"), run.outcome().await.unwrap().text)
            })
        })
        .collect();
    let mut ids = Vec::new();
    for task in tasks {
        let (id, asked, answered) = task.await.unwrap();
        assert_eq!(asked, answered);
        ids.push(id);
    }
    assert_eq!((active.load(Ordering::SeqCst), most.load(Ordering::SeqCst)), (0, 1));
    let events = stored(&store, session.id()).await;
    let ended = ends(&events);
    assert_eq!(ended.len(), 50);
    assert!(ids.iter().all(|id| ended.iter().filter(|(it, _)| it == id).count() == 1));
    // In the order of acceptance, which the store keeps.
    let runs = |kind: &'static str| -> Vec<RunId> {
        events.iter().filter(|it| it.event.kind() == kind).map(|it| it.origin.run).collect()
    };
    let (accepted, started) = (runs("prompt_queued"), runs("run_started"));
    let waited: Vec<_> = started.iter().filter(|id| accepted.contains(id)).copied().collect();
    assert_eq!(waited, accepted);
    assert_eq!(started.len(), 50);
}

#[tokio::test]
async fn cm11_what_cannot_run_is_refused_before_it_waits() {
    let store = memory();
    let provider = LiveProvider::new();
    let one = agent(provider.model()).build().unwrap();
    let runtime = testkit::runtime().shared_store(Arc::clone(&store)).queue(2).build();
    let session = runtime.session();
    let mut running = session.start(&one, "Go");
    let call = provider.asked().await;
    assert_eq!(session.start(&one, "  ").outcome().await.unwrap_err().kind(), ErrorKind::EmptyPrompt);
    assert_eq!(session.steer("").await.unwrap_err().kind(), ErrorKind::EmptyPrompt);
    let (second, third) = (session.start(&one, "2"), session.start(&one, "3"));
    let error = session.start(&one, "4").outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.message().contains("2 prompts wait"), "{error}");
    assert_eq!(session.steer("5").await.unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(session.resume(&one).outcome().await.unwrap_err().kind(), ErrorKind::Busy);
    call.finish(FinishReason::Stop);
    provider.asked().await.finish(FinishReason::Stop);
    provider.asked().await.finish(FinishReason::Stop);
    drain(&mut running).await;
    second.outcome().await.unwrap();
    third.outcome().await.unwrap();
    assert_eq!(count(&stored(&store, session.id()).await, "run_started"), 3);
}

/// An agent that calls a tool behind a gate, with the handles that the test needs.
struct Stage {
    gate: Gate,
    tool: FakeTool,
    runtime: Runtime,
    session: Session,
}

impl Stage {
    fn new() -> Self {
        let gate = Gate::new();
        let (tool, runtime) = (FakeTool::new("look").behind(&gate), open_runtime());
        let session = runtime.session();
        Self { gate, tool, runtime, session }
    }

    fn agent(&self, provider: &ScriptedProvider) -> entourage_runners::ReactAgent {
        agent(provider.model()).tool(self.tool.clone()).build().unwrap()
    }
}

#[tokio::test]
async fn cm11_plain_prompts_join_the_run_at_its_next_step_in_order() {
    let stage = Stage::new();
    let provider = ScriptedProvider::new().call("look", json!({})).text("Done.");
    let agent = stage.agent(&provider);
    let mut run = stage.session.start(&agent, "Go");
    stage.gate.arrived(1).await;
    stage.session.steer("Also this").await.unwrap();
    stage.session.steer("And that").await.unwrap();
    stage.gate.open();
    let events = drain(&mut run).await;
    assert_eq!(run.outcome().await.unwrap().text, "Done.");
    let sent = &provider.requests()[1].messages;
    let said: Vec<_> = sent.iter().map(|message| message.text()).collect();
    assert_eq!(said[3..], ["Also this", "And that"], "after the results, {said:?}");
    assert_valid(sent);
    let queued: Vec<_> = events.iter().filter(|it| it.event.kind() == "prompt_queued").collect();
    let added = events.iter().filter_map(|event| match &event.event {
        Event::MessageAdded(added) => added.queued,
        _ => None,
    });
    assert_eq!(added.collect::<Vec<_>>(), queued.iter().map(|it| it.seq).collect::<Vec<_>>());
    assert_eq!(queued.len(), 2, "the run's handle shows what joins it");
    assert_eq!(stage.session.state().await.unwrap().queue(), []);
    assert_valid(&stage.session.history().await.unwrap());
}

#[tokio::test]
async fn cm11_what_is_left_begins_a_run_of_the_same_agent_with_the_oldest_and_the_rest_joins_its_first_step()
{
    let gate = Gate::new();
    let last = Script::new().wait(&gate).text("Bye.").finish(FinishReason::Stop);
    let provider = ScriptedProvider::new().step(last).text("And more.");
    let agent = agent(provider.model()).build().unwrap();
    let runtime = open_runtime();
    let session = runtime.session();
    let mut watching = runtime.subscribe();
    let run = session.start(&agent, "Go");
    gate.arrived(1).await;
    for prompt in ["one", "two", "three"] {
        session.steer(prompt).await.unwrap();
    }
    gate.open();
    assert_eq!(run.outcome().await.unwrap().text, "Bye.");
    idle(&session).await;
    let said: Vec<_> = provider.requests()[1].messages.iter().map(|it| it.text()).collect();
    assert_eq!(said, ["Go", "Bye.", "one", "two", "three"]);
    let mut seen = Vec::new();
    while count(&seen, "run_finished") < 2 {
        seen.push(watching.next().await.unwrap());
    }
    assert_eq!(prompts(&seen), ["Go", "one"]);
    assert_eq!(count(&seen, "message_added"), 2);
    let second = seen.iter().rev().find(|it| it.event.kind() == "run_finished").unwrap();
    assert_eq!(&*second.origin.agent, "tester");
}

#[tokio::test]
async fn cm11_nobody_to_say_it_to() {
    let provider = ScriptedProvider::new().text("Done.");
    let agent = agent(provider.model()).build().unwrap();
    let session = open_runtime().session();
    let error = session.steer("Hello?").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("`start`"), "{error}");
    session.start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(session.steer("Hello?").await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(session.history().await.unwrap().len(), 2);
}

#[tokio::test]
async fn cm11_a_run_with_an_id_is_never_folded_and_plain_prompts_pass_it() {
    let stage = Stage::new();
    let provider = ScriptedProvider::new().call("look", json!({})).text("First.").text("Second.");
    let agent = stage.agent(&provider);
    let first = stage.session.start(&agent, "One");
    stage.gate.arrived(1).await;
    let second = stage.session.start(&agent, "Two");
    stage.session.steer("Three").await.unwrap();
    stage.gate.open();
    assert_eq!(first.outcome().await.unwrap().text, "First.");
    assert_eq!(second.outcome().await.unwrap().text, "Second.");
    let said = |at: usize| provider.requests()[at].messages.last().unwrap().text();
    assert_eq!((said(1).as_str(), said(2).as_str()), ("Three", "Two"));
    drop(stage.runtime);
}

#[tokio::test]
async fn cm11_a_hand_written_agent_takes_plain_prompts_one_a_run() {
    let gate = Gate::new();
    let wall = gate.clone();
    let worker: Do = act(move |cx| {
        let wall = wall.clone();
        Box::pin(async move {
            wall.pass().await;
            Ok(format!("did {}", cx.history().last().unwrap().text()))
        })
    });
    let store = memory();
    let session = runtime_on(&store).session();
    let run = session.start(&worker, "a");
    gate.arrived(1).await;
    session.steer("b").await.unwrap();
    session.steer("c").await.unwrap();
    gate.open();
    assert_eq!(run.outcome().await.unwrap().text, "did a");
    idle(&session).await;
    let said: Vec<_> = session.history().await.unwrap().iter().map(|it| it.text()).collect();
    assert_eq!(said, ["a", "did a", "b", "did b", "c", "did c"]);
}

#[tokio::test]
async fn cm11_a_session_without_a_store_queues_as_well() {
    let gate = Gate::new();
    let first = Script::new().wait(&gate).text("A").finish(FinishReason::Stop);
    let provider = ScriptedProvider::new().step(first).text("B");
    let agent = agent(provider.model()).build().unwrap();
    let runtime = Runtime::in_memory();
    let session = runtime.session();
    let (first, mut second) = (session.start(&agent, "One"), session.start(&agent, "Two"));
    gate.arrived(1).await;
    gate.open();
    assert_eq!(first.outcome().await.unwrap().text, "A");
    let events = drain(&mut second).await;
    assert_eq!(kinds(&events)[..2], ["prompt_queued", "run_started"]);
    assert_eq!(second.outcome().await.unwrap().text, "B");
}

#[tokio::test]
async fn cm11_a_paused_run_is_not_given_up_by_what_waits() {
    let store = memory();
    let tool = FakeTool::new("write").access(entourage_core::tool::Access::WRITE);
    let gate = Gate::new();
    let ask = Script::new().wait(&gate).call("write", &json!({})).finish(FinishReason::ToolCalls);
    let provider = ScriptedProvider::new().step(ask).text("Written.").text("Next.");
    let agent = agent(provider.model()).tool(tool.clone()).build().unwrap();
    let runtime = testkit::runtime().shared_store(Arc::clone(&store)).build();
    let session = runtime.session();
    let first = session.start(&agent, "Write");
    let second = session.start(&agent, "Then this");
    gate.arrived(1).await;
    gate.open();
    let outcome = first.outcome().await.unwrap();
    let Status::Paused(entourage_core::run::Pause::Approval(id)) = outcome.status else {
        panic!("{outcome}")
    };
    assert_eq!(session.head().await.unwrap().status, SessionStatus::Paused);
    assert!(!session.is_busy());
    runtime.decide(&id, entourage_core::permission::Decision::Allow).await.unwrap();
    assert!(!session.is_busy(), "an answer lets nothing go on");
    assert_eq!(session.resume(&agent).outcome().await.unwrap().text, "Written.");
    assert_eq!(second.outcome().await.unwrap().text, "Next.");
    assert_eq!(tool.finished(), 1);
}

#[tokio::test]
async fn cm11_a_new_prompt_gives_a_paused_run_up_and_those_before_it_go_first() {
    let store = memory();
    let tool = FakeTool::new("write").access(entourage_core::tool::Access::WRITE);
    let gate = Gate::new();
    let ask = Script::new().wait(&gate).call("write", &json!({})).finish(FinishReason::ToolCalls);
    let provider = ScriptedProvider::new().step(ask).text("B").text("C");
    let agent = agent(provider.model()).tool(tool.clone()).build().unwrap();
    let session = testkit::runtime().shared_store(Arc::clone(&store)).build().session();
    let first = session.start(&agent, "A?");
    let second = session.start(&agent, "B?");
    gate.arrived(1).await;
    gate.open();
    assert!(matches!(first.outcome().await.unwrap().status, Status::Paused(_)));
    let third = session.start(&agent, "C?");
    assert_eq!(texts(vec![second, third]).await, ["B", "C"]);
    assert_eq!(prompts(&stored(&store, session.id()).await), ["A?", "B?", "C?"]);
    assert_valid(&session.history().await.unwrap());
    assert_eq!(tool.started(), 0);
}

#[tokio::test(start_paused = true)]
async fn cm14_a_store_that_hangs_holds_no_waiting_prompt_for_longer_than_5_seconds() {
    let store = FaultyStore::new(&memory(), 1, Fault::HangBefore);
    let provider = LiveProvider::new();
    let agent = agent(provider.model()).build().unwrap();
    let runtime = testkit::runtime().shared_store(Arc::clone(&store) as _).build();
    let session = runtime.session();
    let first = session.start(&agent, "One");
    let _call = provider.asked().await;
    let second = session.start(&agent, "Two");
    store.killed.arrived(1).await;
    let began = tokio::time::Instant::now();
    assert!(!session.cancel_within(Duration::from_secs(1)).await);
    assert!(session.cancel_within(Duration::from_secs(60)).await);
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    assert_eq!(second.outcome().await.unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(first.outcome().await.unwrap_err().kind(), ErrorKind::Timeout);
    assert!(!session.is_busy());
}

#[tokio::test]
async fn cm11_when_the_store_fails_a_waiting_prompt_is_refused_and_the_session_goes_on_later() {
    let inner = memory();
    let store = FaultyStore::new(&inner, 1, Fault::Fail);
    let provider = LiveProvider::new();
    let one = agent(provider.model()).build().unwrap();
    let session = testkit::runtime().shared_store(Arc::clone(&store) as _).build().session();
    let first = session.start(&one, "One");
    let call = provider.asked().await;
    let error = session.start(&one, "Two").outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    assert_eq!(session.steer("Three").await.unwrap_err().kind(), ErrorKind::Store);
    call.finish(FinishReason::Stop);
    assert_eq!(first.outcome().await.unwrap_err().kind(), ErrorKind::Store);
    // The lease could not be given back: others wait for its end.
    let later = LaterClock::new(Duration::from_secs(60));
    let runtime = testkit::runtime().shared_store(Arc::clone(&inner)).clock(later).build();
    let session = runtime.open(session.id()).await.unwrap();
    assert_eq!(session.state().await.unwrap().queue(), []);
    let provider = ScriptedProvider::new().text("Here.");
    let next = agent(provider.model()).build().unwrap();
    assert_eq!(session.start(&next, "Again").outcome().await.unwrap().text, "Here.");
}
