//! Checkpoints: each is the fold of the events before it, reading begins at the newest one, a damaged one costs time
//! alone, and a run that spans some continues after any death as if there were none.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Result, SessionId,
    budget::BudgetLimits,
    event::{Envelope, Event},
    message::{History, Message},
    permission::{Approver, Decision},
    provider::FinishReason,
    run::{Outcome, Status, Task},
    session::{
        Batch, Lease, ReadRange, Row, SessionFilter, SessionHead, SessionInfo, SessionState, SessionStore,
        SharedStore,
    },
    tool::Access,
};
use entourage_runtime::permission::Policy;
use entourage_runtime::{Runtime, RuntimeBuilder};
use entourage_testkit::{self as testkit, FakeTool, Script, ScriptedProvider};
use serde_json::{Value, json};

use crate::{
    captain::{self, World},
    common::{
        Do, Fault, FaultyStore, LaterClock, act, agent, assert_valid, count, memory, process, stored,
        until_killed,
    },
};

fn work() -> SessionId {
    SessionId::new("work").unwrap()
}

fn builder(store: &SharedStore, every: u64) -> RuntimeBuilder {
    let builder = testkit::runtime().policy(Policy::allow_all()).checkpoint_every(every);
    builder.shared_store(Arc::clone(store))
}

fn runtime(store: &SharedStore, every: u64) -> Runtime {
    builder(store, every).build()
}

/// The stored form without the position of the newest checkpoint.
fn figures(state: &SessionState) -> Value {
    let mut form = serde_json::to_value(state).unwrap();
    form["head"]["checkpoint"] = Value::Null;
    form
}

/// Derives each checkpoint again, from the other events alone, and returns their number.
fn check_checkpoints(events: &[Envelope]) -> usize {
    let (mut with, mut without, mut found) = (SessionState::default(), SessionState::default(), 0);
    for event in events {
        if let Event::Checkpoint(checkpoint) = &event.event {
            found += 1;
            assert_eq!(checkpoint.state, with, "at {}", event.seq);
            assert_eq!(figures(&checkpoint.state).to_string(), figures(&with).to_string());
            assert_eq!(checkpoint.state.history(), without.history(), "at {}", event.seq);
            assert_eq!(checkpoint.state.head().usage, without.head().usage);
            assert_eq!(checkpoint.state.head().messages, without.head().messages);
            let text = serde_json::to_string(&checkpoint.state).unwrap();
            assert_eq!(serde_json::from_str::<SessionState>(&text).unwrap(), checkpoint.state);
        } else {
            without.apply(event);
        }
        with.apply(event);
        if let Event::Checkpoint(_) = event.event {
            assert_eq!(with.head().checkpoint, event.seq);
        }
    }
    assert_eq!(with.history(), without.history());
    found
}

#[derive(Debug)]
struct Later;

#[async_trait]
impl Approver for Later {
    async fn decide(&self, _: &entourage_core::permission::ApprovalRequest) -> Result<Decision> {
        Ok(Decision::Later)
    }
}

/// A store with chats, parallel tools, waiting questions, failures and an agent with children, in one session after
/// another.
async fn busy_store(every: u64) -> SharedStore {
    let store = memory();
    let runtime = builder(&store, every).policy(Policy::new()).approver(Later).build();
    let provider = ScriptedProvider::new()
        .text("Hello.")
        .calls([("look", json!({"n": 1})), ("look", json!({"n": 2})), ("bad", json!({}))])
        .call("wipe", json!({}))
        .text("Done.")
        .fail(entourage_core::ErrorKind::Overloaded, "busy")
        .call("look", json!({}))
        .text("Again.");
    let agent = agent(provider.model())
        .tool(FakeTool::new("look").returning("seen"))
        .tool(FakeTool::new("bad").telling("no"))
        .tool(FakeTool::new("wipe").access(Access::WRITE))
        .build()
        .unwrap();
    let session = runtime.session_with_id(work());
    session.start(&agent, "Hi").outcome().await.unwrap();
    let paused = session.start(&agent, "Work").outcome().await.unwrap();
    assert!(matches!(paused.status, Status::Paused(_)));
    session.signal("note", json!({"x": 1})).await.unwrap();
    let asked = stored(&store, &work()).await;
    let question = asked.iter().rev().find_map(|event| match &event.event {
        Event::ApprovalRequested(request) => Some(request.id.clone()),
        _ => None,
    });
    session.decide(&question.unwrap(), Decision::Allow).await.unwrap();
    assert_eq!(session.resume(&agent).outcome().await.unwrap().text, "Done.");
    session.start(&agent, "Fail").outcome().await.unwrap_err();
    assert_eq!(session.start(&agent, "Once more").outcome().await.unwrap().text, "Again.");
    for _ in 0..4 {
        let world = World::new();
        let voyage = builder(&store, every).clock(LaterClock::new(Duration::ZERO)).build();
        match captain::advance(&voyage, &world.captain).await {
            Some(step) => step.unwrap(),
            None => break,
        }
    }
    assert_eq!(captain::outcome(&store).await.text, captain::OUTCOME);
    store
}

#[tokio::test(start_paused = true)]
async fn design_3_every_checkpoint_equals_the_fold_before_it() {
    let mut found = Vec::new();
    for every in [1, 3, 7, 10_000] {
        let store = busy_store(every).await;
        let mut checkpoints = 0;
        for info in store.query(&SessionFilter::all()).await.unwrap() {
            let events = stored(&store, &info.record.id).await;
            checkpoints += check_checkpoints(&events);
            let newest = events.iter().rev().find(|event| event.event.kind() == "checkpoint");
            assert_eq!(info.head.checkpoint, newest.map_or(0, |event| event.seq));
            // What is read from there on is what all events add up to.
            let session = runtime(&store, every).open(&info.record.id).await.unwrap();
            let mut whole = SessionState::default();
            events.iter().for_each(|event| whole.apply(event));
            assert_eq!(session.state().await.unwrap(), whole);
            assert_eq!(session.head().await.unwrap(), info.head);
            assert_valid(whole.history());
        }
        found.push(checkpoints);
    }
    assert!(found[0] >= found[1] && found[1] > found[2] && found[2] > 0 && found[3] == 0, "{found:?}");
}

/// Damages a row, given the session's head; `None` leaves it as it is.
type Damage = fn(&Row, &SessionHead) -> Option<Row>;

/// A store that counts the rows that are read, and may damage checkpoints on the way.
#[derive(Debug)]
struct Glass {
    inner: SharedStore,
    rows: AtomicUsize,
    damage: Damage,
    head: fn(&mut SessionHead),
}

impl Glass {
    fn over(inner: &SharedStore, damage: Damage) -> Arc<Self> {
        Arc::new(Self { inner: Arc::clone(inner), rows: AtomicUsize::new(0), damage, head: |_| {} })
    }
}

#[async_trait]
impl SessionStore for Glass {
    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        self.inner.append(session, expected, batch).await
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        let rows = self.inner.read(session, range).await?;
        self.rows.fetch_add(rows.len(), Ordering::SeqCst);
        let head = self.inner.query(&SessionFilter::id(session.clone())).await?.remove(0).head;
        Ok(rows.into_iter().map(|row| (self.damage)(&row, &head).unwrap_or(row)).collect())
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        let mut found = self.inner.query(filter).await?;
        found.iter_mut().for_each(|info| (self.head)(&mut info.head));
        Ok(found)
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        self.inner.lease(session, lease).await
    }

    async fn delete(&self, session: &SessionId) -> Result<u64> {
        self.inner.delete(session).await
    }
}

/// An agent whose run takes a hundred notes.
fn clerk() -> Do {
    act(|cx| {
        Box::pin(async move {
            for _ in 0..100 {
                cx.now().await?;
            }
            Ok("noted".into())
        })
    })
}

#[tokio::test(start_paused = true)]
async fn design_3_a_session_of_five_thousand_events_is_read_from_its_newest_checkpoint() {
    let inner = memory();
    let session = runtime(&inner, 512).session_with_id(work());
    for _ in 0..50 {
        session.start(&clerk(), "Note").outcome().await.unwrap();
    }
    let head = session.head().await.unwrap();
    assert!(head.seq > 5_000, "{}", head.seq);
    assert!(head.seq - head.checkpoint <= 512 + 103, "{head:?}");
    let glass = Glass::over(&inner, |_, _| None);
    let store = Arc::clone(&glass) as SharedStore;
    let opened = runtime(&store, 512).open(&work()).await.unwrap();
    let state = opened.state().await.unwrap();
    assert_eq!(state, session.state().await.unwrap());
    let read = glass.rows.load(Ordering::SeqCst) as u64;
    assert_eq!(read, head.seq - head.checkpoint + 1, "the checkpoint and what follows, once");
    // And it goes on like one that was read as a whole.
    opened.start(&clerk(), "Note").outcome().await.unwrap();
    assert_eq!(opened.head().await.unwrap().messages, 102);
}

#[tokio::test(start_paused = true)]
async fn attack_08_a_damaged_checkpoint_falls_back_to_the_other_events() {
    let inner = busy_store(3).await;
    let sound = runtime(&inner, 3).open(&work()).await.unwrap().state().await.unwrap();
    assert!(sound.head().checkpoint > 0);
    fn replace(row: &Row, body: String) -> Option<Row> {
        (row.columns().kind == "checkpoint").then(|| Row::stored(row.columns(), body))
    }
    let damages: [(&str, Damage); 8] = [
        ("cut short", |row, _| {
            let body = row.body().unwrap();
            replace(row, body.chars().take(body.chars().count() / 2).collect())
        }),
        ("empty", |row, _| replace(row, String::new())),
        ("nothing in it", |row, _| replace(row, "{}".into())),
        ("a state of nothing", |row, _| replace(row, r#"{"state":{}}"#.into())),
        ("a bit that fell over", |row, _| {
            replace(row, row.body().unwrap().replacen("\"parts\"", "\"pasts\"", 1))
        }),
        ("a key twice", |row, _| replace(row, row.body().unwrap().replacen("{", "{\"state\":{},", 1))),
        ("a history that no fold gives", |row, _| {
            let history =
                r#"[{"role":"tool","parts":[{"tool_result":{"call":"a","name":"b","content":[]}}]}]"#;
            let mut value: Value = serde_json::from_str(&row.body().unwrap()).unwrap();
            if value.get("state").is_some() {
                value["state"]["history"] = serde_json::from_str(history).unwrap();
            }
            replace(row, value.to_string())
        }),
        ("only the newest one", |row, head| {
            if row.seq() == head.checkpoint { replace(row, "gone".into()) } else { None }
        }),
    ];
    for (what, damage) in damages {
        let store = Glass::over(&inner, damage) as SharedStore;
        let session = runtime(&store, 3).open(&work()).await.unwrap();
        assert_eq!(figures(&session.state().await.unwrap()), figures(&sound), "{what}");
        assert_eq!(session.head().await.unwrap(), *sound.head(), "{what}");
    }
    // A head that points at something else, or at nothing.
    let heads: [fn(&mut SessionHead); 4] = [
        |head| head.checkpoint = 1,
        |head| head.checkpoint -= 1,
        |head| head.checkpoint = head.seq + 1,
        |head| head.checkpoint = u64::MAX,
    ];
    for head in heads {
        let mut glass = Arc::into_inner(Glass::over(&inner, |_, _| None)).unwrap();
        glass.head = head;
        let store = Arc::new(glass) as SharedStore;
        let session = runtime(&store, 3).open(&work()).await.unwrap();
        assert_eq!(session.state().await.unwrap(), sound);
    }
}

#[tokio::test(start_paused = true)]
async fn attack_08_a_session_whose_checkpoints_are_damaged_goes_on() {
    let inner = busy_store(3).await;
    let store = Glass::over(&inner, |row, _| {
        (row.columns().kind == "checkpoint").then(|| Row::stored(row.columns(), "{".into()))
    }) as SharedStore;
    let provider = ScriptedProvider::new().text("Still here.");
    let agent = agent(provider.model()).build().unwrap();
    let session = runtime(&store, 3).open(&work()).await.unwrap();
    assert_eq!(session.start(&agent, "There?").outcome().await.unwrap().text, "Still here.");
    assert_valid(&provider.requests()[0].messages);
    let events = stored(&inner, &work()).await;
    check_checkpoints(&events);
}

/// An agent that calls a model six times and takes notes in between: each model call may be preceded by a checkpoint.
fn author(provider: &ScriptedProvider) -> Do {
    let model = provider.model();
    act(move |cx| {
        let model = model.clone();
        Box::pin(async move {
            let mut talk: History = [Message::user("Chapter")].into_iter().collect();
            let mut ids = Vec::new();
            for _ in 0..6 {
                let reply = cx.call_model(&model, model.request(talk.clone())).await?;
                talk.push(Arc::clone(&reply.message));
                talk.push(Message::user("Next"));
                ids.push(cx.new_id().await?);
                cx.now().await?;
            }
            ids.dedup();
            let texts: Vec<_> = talk.iter().filter(|it| it.text() != "Next").map(|it| it.text()).collect();
            Ok(format!("{} {}", texts.join(" "), ids.len()))
        })
    })
}

fn chapters() -> ScriptedProvider {
    (1..=6).fold(ScriptedProvider::by_history(), |provider, n| provider.text(format!("{n}.")))
}

#[test]
fn design_3_a_hand_written_run_that_spans_checkpoints_survives_death_at_every_append() {
    let mut deaths = 0;
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        for at in 0.. {
            let inner = memory();
            let faulty = FaultyStore::new(&inner, at, fault);
            let killed = faulty.killed.clone();
            let (first, store) = (chapters(), faulty as SharedStore);
            let lived = process(until_killed(
                async {
                    runtime(&store, 3).session_with_id(work()).start(&author(&first), "Go").outcome().await
                },
                &killed,
            ));
            if let Some(outcome) = lived {
                assert_eq!(outcome.unwrap().text, "Chapter 1. 2. 3. 4. 5. 6. 6");
                break;
            }
            deaths += 1;
            let label = format!("{fault:?} at append {at}");
            let old = process(log(&inner));
            let second = chapters();
            let outcome = process(finish(&runtime_at_start(&inner), &author(&second), &old)).unwrap();
            assert_eq!(outcome.text, "Chapter 1. 2. 3. 4. 5. 6. 6", "{label}");
            let new = process(log(&inner));
            assert_eq!(&new[..old.len()], &old[..], "{label}: what is written stays");
            assert_eq!(count(&new, "model_finished"), 6, "{label}");
            assert_eq!(count(&new, "observed"), 12, "{label}");
            assert_eq!(second.count(), 6 - count(&old, "model_finished"), "{label}: nothing is asked twice");
            assert!(check_checkpoints(&new) >= 2, "{label}");
        }
    }
    assert!(deaths > 12, "{deaths}");
}

/// A factory of runtimes, to be called within a process, since the clock is that process's.
fn runtime_at_start(store: &SharedStore) -> impl Fn() -> Runtime {
    let store = Arc::clone(store);
    move || runtime(&store, 3)
}

async fn log(store: &SharedStore) -> Vec<Envelope> {
    let known = store.query(&SessionFilter::id(work())).await.unwrap();
    if known.is_empty() { Vec::new() } else { stored(store, &work()).await }
}

/// Starts the run, resumes it, or records that it is over.
async fn finish(
    runtime: &impl Fn() -> Runtime,
    agent: &(impl entourage_core::agent::Agent + Clone + 'static),
    old: &[Envelope],
) -> Result<Outcome> {
    let session = runtime().session_with_id(work());
    if session.unfinished().await?.is_some() {
        return session.resume(agent).outcome().await;
    }
    match old.last().map(|event| &event.event) {
        Some(Event::RunFinished(end)) => Ok(end.outcome.clone()),
        _ => session.start(agent, task()).outcome().await,
    }
}

fn limits() -> BudgetLimits {
    BudgetLimits::none().with_tokens(10_000_000)
}

fn task() -> Task {
    Task::from("Go").with_budget(limits())
}

/// A provider of seven steps with token counts; six of them call tools.
fn marcher() -> ScriptedProvider {
    // Several calls a step: a run of many events and few messages is what checkpoints are for.
    let step = |n: u64| {
        let script = Script::new().text(format!("{n}")).call("look", &json!({ "n": n }));
        script.call("look", &json!({})).call("look", &json!({ "more": n })).usage(10 * n, n)
    };
    let provider = (1..=6).fold(ScriptedProvider::by_history(), |provider, n| {
        provider.step(step(n).finish(FinishReason::ToolCalls))
    });
    provider.step(Script::new().text("Home.").usage(70, 7).finish(FinishReason::Stop))
}

fn march(provider: &ScriptedProvider) -> entourage_runners::ReactAgent {
    agent(provider.model()).tool(FakeTool::new("look").returning("seen")).build().unwrap()
}

#[test]
fn design_3_a_run_longer_than_a_checkpoint_resumes_with_its_figures() {
    let uninterrupted = process(async {
        let provider = marcher();
        runtime(&memory(), 3).session().start(&march(&provider), task()).outcome().await.unwrap()
    });
    assert_eq!((uninterrupted.steps, uninterrupted.usage.total()), (7, Some(308)));
    let mut deaths = 0;
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        for at in 0.. {
            let inner = memory();
            let faulty = FaultyStore::new(&inner, at, fault);
            let killed = faulty.killed.clone();
            let (first, store) = (marcher(), faulty as SharedStore);
            let lived = process(until_killed(
                async {
                    runtime(&store, 3).session_with_id(work()).start(&march(&first), task()).outcome().await
                },
                &killed,
            ));
            if lived.is_some() {
                break;
            }
            deaths += 1;
            let label = format!("{fault:?} at append {at}");
            let old = process(log(&inner));
            if !old.is_empty() && !matches!(old.last().unwrap().event, Event::RunFinished(_)) {
                process(check_figures(&inner, &old, &label));
            }
            let second = marcher();
            let outcome = process(finish(&runtime_at_start(&inner), &march(&second), &old)).unwrap();
            assert_eq!(outcome, uninterrupted, "{label}");
            let new = process(log(&inner));
            assert_eq!((count(&new, "model_finished"), count(&new, "tool_finished")), (7, 18), "{label}");
            assert_eq!(second.count(), 7 - count(&old, "model_finished"), "{label}");
            assert!(check_checkpoints(&new) >= 2, "{label}");
        }
    }
    assert!(deaths > 25, "{deaths}");
}

/// Checks that the state of the open run after a death equals its events.
async fn check_figures(store: &SharedStore, old: &[Envelope], label: &str) {
    let state = runtime(store, 3).open(&work()).await.unwrap().state().await.unwrap();
    let run = &serde_json::to_value(&state).unwrap()["run"];
    assert_eq!(run["steps"], json!(count(old, "model_finished")), "{label}");
    assert_eq!(run["tool_calls"], json!(count(old, "tool_started")), "{label}");
    assert_eq!(run["budget"], serde_json::to_value(limits()).unwrap(), "{label}");
    let spent: u64 = old
        .iter()
        .filter_map(|event| match &event.event {
            Event::ModelFinished(reply) => reply.usage.total(),
            _ => None,
        })
        .sum();
    assert_eq!(state.head().usage.total().unwrap_or(0), spent, "{label}");
}
