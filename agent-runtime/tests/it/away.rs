//! A store that is away for a moment: what is told of prompts that waited, and of a call whose result it did not take.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    event::{Envelope, Event},
    message::History,
    provider::FinishReason,
    run::Status,
    session::{Batch, ReadRange, Row, SessionFilter, SessionInfo, SessionStore, SharedStore},
    tool::{Access, Repeat},
};
use entourage_runners::{AgentTool, ReactAgent};
use entourage_runtime::permission::Policy;
use entourage_runtime::{Agents, Runtime};
use entourage_testkit::{self as testkit, FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::common::{LaterClock, Meddles, Through, agent, assert_valid, count, memory, settled, stored};

/// Fails whatever is asked while it is away.
#[derive(Debug)]
struct Away(SharedStore, AtomicBool, AtomicBool, AtomicUsize);

impl Away {
    fn over(inner: &SharedStore) -> Arc<Through<Self>> {
        let (away, loses) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Through(Self(Arc::clone(inner), away, loses, AtomicUsize::new(0))))
    }

    fn set(&self, away: bool) {
        self.1.store(away, Ordering::SeqCst);
    }

    /// Loses the answer of the next append, and is away after it.
    fn lose_an_answer(&self) {
        self.2.store(true, Ordering::SeqCst);
    }

    /// Lets another process send a signal before each of the next `count` appends of a call's result.
    fn signal_before(&self, count: usize) {
        self.3.store(count, Ordering::SeqCst);
    }

    async fn signal(&self, session: &SessionId, batch: &Batch) {
        let settles = batch.rows.iter().any(|row| row.columns().kind == "tool_finished");
        let less = |count: usize| count.checked_sub(1);
        if settles && self.3.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            // Before the lease is over it takes the run to be alive.
            let later = LaterClock::new(Duration::from_secs(60));
            let other = testkit::runtime().clock(later).shared_store(Arc::clone(&self.0)).build();
            other.session_with_id(session.clone()).signal("hello", json!(1)).await.unwrap();
        }
    }

    fn check(&self) -> Result<()> {
        match self.1.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorKind::Store, "the disk is gone; put it back")),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Meddles for Away {
    fn inner(&self) -> &SharedStore {
        &self.0
    }

    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        self.check()?;
        self.signal(session, &batch).await;
        let appended = self.0.append(session, expected, batch).await?;
        self.set(self.2.swap(false, Ordering::SeqCst));
        self.check().map(|()| appended)
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        self.check()?;
        self.0.read(session, range).await
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        self.check()?;
        self.0.query(filter).await
    }
}

fn payer(gate: &Gate) -> ReactAgent {
    let provider = ScriptedProvider::by_history().call("pay", json!({})).text("Paid.").text("Again.");
    let pay = FakeTool::new("pay").access(Access::WRITE).repeat(Repeat::Once).behind(gate);
    agent(provider.model()).tool(pay).build().unwrap()
}

fn prompts(events: &[Envelope], text: &str) -> usize {
    let of = |event: &&Envelope| matches!(&event.event, Event::RunStarted(run) if run.prompt.text() == text);
    events.iter().filter(of).count()
}

#[tokio::test(start_paused = true)]
async fn a_queued_prompt_whose_handle_failed_says_that_it_will_run_and_runs_once() {
    for cancels in [false, true] {
        let inner = memory();
        let store = Away::over(&inner);
        let gate = Gate::new();
        let open = || testkit::runtime().policy(Policy::allow_all());
        let runtime = open().shared_store(Arc::clone(&store) as Arc<dyn SessionStore>).build();
        let session = runtime.session();
        let first = session.start(&payer(&gate), "Pay");
        gate.arrived(1).await;
        let second = session.start(&payer(&gate), "transfer 100");
        while count(&stored(&inner, session.id()).await, "prompt_queued") == 0 {
            tokio::task::yield_now().await;
        }
        store.set(true);
        if cancels {
            session.cancel();
        } else {
            gate.open();
        }
        let (first, second) = (first.outcome().await.unwrap_err(), second.outcome().await.unwrap_err());
        assert_eq!(first.kind(), ErrorKind::Store, "{first}");
        assert_eq!(second.kind(), ErrorKind::Queued, "{second}");
        assert!(second.message().contains("the disk is gone"), "{second}");
        store.set(false);
        gate.open();
        // As the error says: it is not given again, and the next recovery runs it.
        let later = LaterClock::new(Duration::from_secs(60));
        let runtime = open().clock(later).shared_store(Arc::clone(&inner)).build();
        for run in runtime.recover(&Agents::new().with(payer(&gate))).await.unwrap().resumed {
            run.outcome().await.unwrap();
        }
        let session = runtime.open(session.id()).await.unwrap();
        while session.is_busy() || !session.state().await.unwrap().queue().is_empty() {
            tokio::task::yield_now().await;
        }
        let events = stored(&inner, session.id()).await;
        assert_eq!((prompts(&events, "Pay"), prompts(&events, "transfer 100")), (1, 1));
        // Of the call nobody knows more than that its result is not there.
        let (_, result) = settled(&events).remove(0);
        assert!(result.contains("no result of this call was stored"), "{result}");
    }
}

/// A call that must not run twice, and the agent whose model asks for it: the root's, or one below it.
struct Payment {
    gate: Gate,
    pay: FakeTool,
    agent: ReactAgent,
    asked: ScriptedProvider,
}

impl Payment {
    fn new(below: bool) -> Self {
        let gate = Gate::new();
        let pay = FakeTool::new("pay").access(Access::WRITE).repeat(Repeat::Once).behind(&gate);
        let pay = pay.returning("paid 42");
        let asked = ScriptedProvider::by_history().call("pay", json!({})).text("Paid.").text("Again.");
        let payer = agent(asked.model()).tool(pay.clone()).build().unwrap();
        let agent = match below {
            false => payer,
            true => {
                let lead =
                    ScriptedProvider::by_history().call("agent", json!({"prompt": "Pay"})).text("Done.");
                ReactAgent::builder("lead", lead.model()).tool(AgentTool::new(payer)).build().unwrap()
            }
        };
        Self { gate, pay, agent, asked }
    }

    /// The results of the call, in whichever session it was.
    async fn results(&self, store: &SharedStore) -> Vec<String> {
        let mut results = Vec::new();
        for info in store.query(&SessionFilter::all()).await.unwrap() {
            let settled = settled(&stored(store, &info.record.id).await);
            results.extend(settled.into_iter().filter(|(tool, _)| tool == "pay").map(|(_, text)| text));
        }
        results
    }
}

fn runtime(store: &Arc<Through<Away>>) -> Runtime {
    let store = Arc::clone(store) as Arc<dyn SessionStore>;
    testkit::runtime().policy(Policy::allow_all()).shared_store(store).build()
}

#[tokio::test(start_paused = true)]
async fn store_f13_a_result_that_the_store_did_not_take_is_stored_when_it_is_back() {
    for (below, how) in [
        (false, "resume"),
        (false, "dropped"),
        (false, "looked at"),
        (false, "recover"),
        (false, "start"),
        (false, "failed note"),
        (false, "lost answer"),
        (true, "resume"),
        (true, "dropped"),
        (true, "recover"),
        (true, "failed note"),
        (true, "lost answer"),
    ] {
        let (inner, payment) = (memory(), Payment::new(below));
        let store = Away::over(&inner);
        let runtime = runtime(&store);
        let mut session = runtime.session();
        let run = session.start(&payment.agent, "Pay");
        payment.gate.arrived(1).await;
        match how {
            "lost answer" => store.lose_an_answer(),
            _ => store.set(true),
        }
        if how == "failed note" {
            let error = session.start(&payment.agent, "More").outcome().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Store, "{error}");
        }
        payment.gate.open();
        let error = run.outcome().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Store, "{below} {how}: {error}");
        assert!(session.history().await.is_err(), "it is still away");
        store.set(false);
        let (mut outcomes, expected) = (Vec::new(), if below { "Done." } else { "Paid." });
        match how {
            "recover" => {
                tokio::time::sleep(Duration::from_secs(60)).await;
                let agents = Agents::new().with(payment.agent.clone());
                outcomes.extend(runtime.recover(&agents).await.unwrap().resumed);
            }
            "start" => {
                outcomes.push(session.start(&payment.agent, "Next"));
            }
            "looked at" => {
                assert_valid(&session.history().await.unwrap());
                session.head().await.unwrap();
                outcomes.push(session.resume(&payment.agent));
            }
            "dropped" => {
                let id = session.id().clone();
                drop(session);
                session = runtime.open(&id).await.unwrap();
                outcomes.push(session.resume(&payment.agent));
            }
            _ => outcomes.push(session.resume(&payment.agent)),
        }
        assert_eq!(outcomes.len(), 1, "{below} {how}");
        assert_eq!(outcomes.remove(0).outcome().await.unwrap().text, expected, "{below} {how}");
        assert_eq!(payment.results(&inner).await, ["paid 42"], "{below} {how}");
        assert_eq!((payment.pay.started(), payment.asked.count()), (1, 2), "{below} {how}");
        assert_valid(&session.history().await.unwrap());
        let events = stored(&inner, session.id()).await;
        assert_eq!(count(&events, "prompt_queued"), 0, "its caller was told that it failed");
        assert_eq!(session.history().await.unwrap(), reread(&inner, session.id()).await);
    }
}

#[tokio::test(start_paused = true)]
async fn signals_of_another_process_do_not_cost_the_result_that_the_store_did_not_take() {
    for signals in [1, 5] {
        let (inner, payment) = (memory(), Payment::new(false));
        let store = Away::over(&inner);
        let session = runtime(&store).session();
        let run = session.start(&payment.agent, "Pay");
        payment.gate.arrived(1).await;
        store.set(true);
        payment.gate.open();
        run.outcome().await.unwrap_err();
        store.set(false);
        store.signal_before(signals);
        assert_eq!(session.resume(&payment.agent).outcome().await.unwrap().text, "Paid.", "{signals}");
        assert_eq!(payment.results(&inner).await, ["paid 42"], "{signals}");
        assert_eq!(count(&stored(&inner, session.id()).await, "signal_received"), signals);
        assert_eq!(payment.pay.started(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_ends_a_run_stores_what_its_children_came_to_while_the_store_was_away() {
    for (below, stops) in [(false, false), (false, true), (true, false), (true, true)] {
        let (inner, payment) = (memory(), Payment::new(below));
        let store = Away::over(&inner);
        let session = runtime(&store).session();
        let run = session.start(&payment.agent, "Pay");
        payment.gate.arrived(1).await;
        store.set(true);
        payment.gate.open();
        run.outcome().await.unwrap_err();
        store.set(false);
        tokio::time::sleep(Duration::from_secs(60)).await;
        if stops {
            session.stop().await.unwrap();
        } else {
            let other = ScriptedProvider::by_history().text("x").text("y").text("z");
            let name = if below { "lead" } else { "tester" };
            let other = ReactAgent::builder(name, other.model()).build().unwrap();
            session.start(&other, "Leave it").outcome().await.unwrap();
        }
        assert_eq!(payment.results(&inner).await, ["paid 42"], "below {below}, stops {stops}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_ended_from_outside_after_its_last_reply_is_replayed() {
    for stops in [false, true] {
        let (inner, gate) = (memory(), Gate::new());
        let store = Away::over(&inner);
        let script = Script::new().wait(&gate).text("Hi.").finish(FinishReason::Stop);
        let talker = agent(ScriptedProvider::by_history().step(script).model()).build().unwrap();
        let session = runtime(&store).session();
        let run = session.start(&talker, "Hello");
        let id = run.id();
        gate.arrived(1).await;
        store.set(true);
        gate.open();
        run.outcome().await.unwrap_err();
        store.set(false);
        tokio::time::sleep(Duration::from_secs(60)).await;
        if stops {
            session.stop().await.unwrap();
        } else {
            let other = agent(ScriptedProvider::by_history().text("x").text("y").model()).build().unwrap();
            session.start(&other, "Leave it").outcome().await.unwrap();
        }
        assert_eq!(session.replay(&talker, id).await.unwrap().status, Status::Cancelled, "{stops}");
    }
}

/// The conversation as another process reads it.
async fn reread(store: &SharedStore, id: &SessionId) -> History {
    testkit::runtime()
        .shared_store(Arc::clone(store))
        .build()
        .session_with_id(id.clone())
        .history()
        .await
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_result_that_the_store_did_not_take_is_given_up_once_another_process_went_on() {
    for ended in [true, false] {
        let (inner, payment) = (memory(), Payment::new(false));
        let store = Away::over(&inner);
        let mine = runtime(&store).session();
        let run = mine.start(&payment.agent, "Pay");
        payment.gate.arrived(1).await;
        store.set(true);
        payment.gate.open();
        run.outcome().await.unwrap_err();
        let other = testkit::runtime().policy(Policy::allow_all()).shared_store(Arc::clone(&inner)).build();
        let theirs = other.open(mine.id()).await.unwrap();
        let gate = Gate::new();
        let last = ScriptedProvider::by_history()
            .text("-")
            .step(Script::new().wait(&gate).text("Theirs.").finish(FinishReason::Stop));
        let last = agent(last.model()).tool(payment.pay.clone()).build().unwrap();
        let run = theirs.resume(&last);
        gate.arrived(1).await;
        if ended {
            gate.open();
            run.outcome().await.unwrap();
            store.set(false);
            let error = mine.resume(&payment.agent).outcome().await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Conflict), "{error}");
        } else {
            store.set(false);
            assert_eq!(mine.history().await.unwrap().len(), 3, "as the store has it");
            gate.open();
            assert_eq!(run.outcome().await.unwrap().text, "Theirs.");
        }
        let [told] = &payment.results(&inner).await[..] else { panic!("more than one result") };
        assert!(told.contains("no result of this call was stored"), "{told}");
        assert_valid(&mine.history().await.unwrap());
        assert_eq!(payment.pay.started(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_the_store_did_not_take_is_not_asked_for_again() {
    let (inner, gate) = (memory(), Gate::new());
    let store = Away::over(&inner);
    let provider =
        ScriptedProvider::by_history().step(Script::new().wait(&gate).text("Hi.").finish(FinishReason::Stop));
    let talker = agent(provider.model()).build().unwrap();
    let session = runtime(&store).session();
    let run = session.start(&talker, "Hello");
    gate.arrived(1).await;
    store.set(true);
    gate.open();
    run.outcome().await.unwrap_err();
    store.set(false);
    assert_eq!(session.resume(&talker).outcome().await.unwrap().text, "Hi.");
    assert_eq!(provider.count(), 1);
    assert_eq!(session.history().await.unwrap(), reread(&inner, session.id()).await);
}

#[tokio::test(start_paused = true)]
async fn of_two_calls_that_the_store_failed_the_one_with_a_result_keeps_it() {
    let (inner, first, second) = (memory(), Gate::new(), Gate::new());
    let store = Away::over(&inner);
    let tool = |name, gate| FakeTool::new(name).repeat(Repeat::Once).behind(gate).returning(name);
    let (a, b) = (tool("a", &first), tool("b", &second));
    let provider = ScriptedProvider::by_history().calls([("a", json!({})), ("b", json!({}))]).text("Done.");
    let asker = agent(provider.model()).tool(a.clone()).tool(b.clone()).build().unwrap();
    let session = runtime(&store).session();
    let run = session.start(&asker, "Go");
    first.arrived(1).await;
    second.arrived(1).await;
    store.set(true);
    first.open();
    run.outcome().await.unwrap_err();
    store.set(false);
    second.open();
    assert_eq!(session.resume(&asker).outcome().await.unwrap().text, "Done.");
    let results = settled(&stored(&inner, session.id()).await);
    assert_eq!((&*results[0].0, &*results[0].1, &*results[1].0), ("a", "a", "b"));
    assert!(results[1].1.contains("no result of this call was stored"), "{results:?}");
    assert_eq!((a.started(), b.started()), (1, 1));
}
