//! Modes as values, and the mode of a session.

use std::sync::{Arc, Mutex};

use entourage_core::{
    ErrorKind, SessionId,
    event::{Envelope, Event},
    provider::FinishReason,
    run::{Observer, Pause, Status},
    session::SharedStore,
    team::{Todo, TodoStatus},
};
use entourage_runners::{Autonomy, AutonomyLevel, ModeState, ReactAgent};
use entourage_runtime::{CurrentModeUpdate, Mode};
use entourage_testkit::{self as testkit, Gate, Script, ScriptedProvider};
use serde_json::{Value, json};

use crate::common::{
    Do, Fault, FaultyStore, act, count, drain, kinds, memory, open_runtime, process, runtime_on, stored,
};

fn offered() -> Vec<Mode> {
    vec![Mode::new("ask", "Ask"), Mode::new("code", "Code").with_description("Changes files")]
}

/// Creates an agent that reports its mode once the gate is open.
fn teller(gate: &Gate) -> Do {
    let gate = gate.clone();
    act(move |cx| {
        let gate = gate.clone();
        Box::pin(async move {
            gate.pass().await;
            Ok(cx.mode().map_or_else(|| "none".to_owned(), |mode| mode.to_string()))
        })
    })
}

fn open() -> Gate {
    let gate = Gate::new();
    gate.open();
    gate
}

#[test]
fn cw12_modes_have_the_json_that_editors_exchange() {
    let state = ModeState::new("code", offered());
    let golden = json!({
        "currentModeId": "code",
        "availableModes": [
            { "id": "ask", "name": "Ask" },
            { "id": "code", "name": "Code", "description": "Changes files" },
        ],
    });
    assert_eq!(serde_json::to_value(&state).unwrap(), golden);
    assert_eq!(serde_json::from_value::<ModeState>(golden).unwrap(), state);

    let update = CurrentModeUpdate::new("ask");
    assert_eq!(serde_json::to_value(&update).unwrap(), json!({ "currentModeId": "ask" }));

    let option = json!({
        "id": "mode",
        "name": "Mode",
        "category": "mode",
        "type": "select",
        "currentValue": "code",
        "options": [
            { "value": "ask", "name": "Ask" },
            { "value": "code", "name": "Code", "description": "Changes files" },
        ],
    });
    assert_eq!(serde_json::to_value(state.to_option()).unwrap(), option);
    assert_eq!(serde_json::from_value::<entourage_runners::ConfigOption>(option).unwrap(), state.to_option());
}

#[test]
fn cw12_the_levels_are_modes_with_stable_ids_in_order() {
    let modes: Vec<_> = AutonomyLevel::ALL.iter().map(|level| level.mode()).collect();
    let ids: Vec<_> = modes.iter().map(|mode| &*mode.id).collect();
    assert_eq!(ids, ["react", "prompted", "judge", "verified", "dual"]);
    assert!(modes.iter().all(|mode| mode.description.as_ref().is_some_and(|text| !text.is_empty())));
    for (number, level) in (1..).zip(AutonomyLevel::ALL) {
        assert_eq!((level.number(), level.to_string().parse().unwrap()), (number, level));
        assert_eq!(serde_json::to_value(level).unwrap(), json!(level.as_str()));
    }
    assert!(AutonomyLevel::ALL.is_sorted());
    for bad in ["Judge", "l3", "", "verified ", "dual\u{0}"] {
        assert_eq!(bad.parse::<AutonomyLevel>().unwrap_err().kind(), ErrorKind::InvalidInput, "{bad:?}");
        assert!(serde_json::from_value::<AutonomyLevel>(Value::from(bad)).is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn cw12_a_mode_that_is_not_offered_is_refused_and_nothing_is_stored() {
    let store = memory();
    let session = runtime_on(&store).session();
    for (id, offered) in [("plan", offered()), ("Ask", offered()), ("", offered()), ("ask", Vec::new())] {
        let error = session.set_mode(id, &offered).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(offered.iter().all(|mode| error.message().contains(&format!("`{}`", mode.id))), "{error}");
    }
    assert_eq!(session.mode().await.unwrap(), None);
    assert_eq!(store.query(&entourage_core::session::SessionFilter::default()).await.unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn cw12_a_session_without_runs_takes_a_mode_and_its_first_run_works_in_it() {
    let store = memory();
    let session = runtime_on(&store).session();
    let update = session.set_mode("code", &offered()).await.unwrap();
    assert_eq!(&*update.current_mode_id, "code");
    let again = runtime_on(&store).open(session.id()).await.unwrap();
    assert_eq!(again.mode().await.unwrap().as_deref(), Some("code"), "it is kept with the session");
    assert_eq!(session.start(&teller(&open()), "Go").outcome().await.unwrap().text, "code");
}

#[derive(Debug, Default, Clone)]
struct Seen(Arc<Mutex<Vec<CurrentModeUpdate>>>);

impl Observer for Seen {
    fn on_event(&self, event: &Envelope) {
        self.0.lock().unwrap().extend(CurrentModeUpdate::of(&event.event));
    }
}

#[tokio::test(start_paused = true)]
async fn cw12_a_mode_picked_during_a_run_counts_from_the_next_run_on_and_everybody_is_told() {
    let seen = Seen::default();
    let runtime = testkit::runtime().observer(seen.clone()).build();
    let mut subscription = runtime.subscribe();
    let session = runtime.session();
    session.set_mode("ask", &offered()).await.unwrap();
    let gate = Gate::new();
    let mut first = session.start(&teller(&gate), "Go");
    let second = session.start(&teller(&gate), "Go on");
    gate.arrived(1).await;
    session.set_mode("code", &offered()).await.unwrap();
    session.set_mode("code", &offered()).await.unwrap();
    gate.open();
    let streamed = drain(&mut first).await;
    assert_eq!(first.outcome().await.unwrap().text, "ask", "the run keeps the mode that it began with");
    assert_eq!(second.outcome().await.unwrap().text, "code", "the prompt that waited had not begun");

    let changes = streamed.iter().filter_map(|it| CurrentModeUpdate::of(&it.event)).collect::<Vec<_>>();
    assert_eq!(changes, [CurrentModeUpdate::new("code")], "the run under way shows it, once");
    let all = [CurrentModeUpdate::new("ask"), CurrentModeUpdate::new("code")];
    assert_eq!(*seen.0.lock().unwrap(), all);
    drop(runtime);
    let mut told = Vec::new();
    while told.len() < 2 {
        told.extend(CurrentModeUpdate::of(&subscription.next().await.unwrap().event));
    }
    assert_eq!(told, all);
}

#[tokio::test(start_paused = true)]
async fn cw12_history_and_todos_survive_a_change_of_mode() {
    let runtime = open_runtime();
    let session = runtime.session();
    let writer = act(|cx| {
        Box::pin(async move {
            let content = "Mend the parser".to_owned();
            let todo = Todo { content, status: TodoStatus::Cancelled, active_form: String::new() };
            cx.set_todos(vec![todo]).await?;
            Ok("Noted.".to_owned())
        })
    });
    session.start(&writer, "Take a note").outcome().await.unwrap();
    let before = session.state().await.unwrap();
    session.set_mode("code", &offered()).await.unwrap();
    let after = session.state().await.unwrap();
    assert_eq!((after.history(), after.todos()), (before.history(), before.todos()));
    assert_eq!((after.history().len(), after.todos()[0].status), (2, TodoStatus::Cancelled));
}

/// Interrupts a run in mode `ask`, then picks another mode. Returns what the run reports when it is resumed, and what
/// the next run reports.
fn resumed(paused: bool) -> (String, String) {
    let store = memory();
    let id = SessionId::new("work").unwrap();
    process(async {
        let runtime = runtime_on(&store);
        let session = runtime.session_with_id(id.clone());
        session.set_mode("ask", &offered()).await.unwrap();
        if paused {
            let agent = waiter();
            let outcome = session.start(&agent, "Go").outcome().await.unwrap();
            let signal = Status::Paused(Pause::Signal { name: "go".to_owned(), until: None });
            assert_eq!(outcome.status, signal);
        } else {
            let gate = Gate::new();
            let run = session.start(&teller(&gate), "Go");
            gate.arrived(1).await;
            run.detach();
        }
        session.set_mode("code", &offered()).await.unwrap();
    });
    process(async {
        let session = runtime_on(&store).session_with_id(id.clone());
        let first = if paused {
            session.signal("go", Value::Null).await.unwrap();
            session.resume(&waiter()).outcome().await.unwrap()
        } else {
            session.resume(&teller(&open())).outcome().await.unwrap()
        };
        let second = session.start(&teller(&open()), "Go on").outcome().await.unwrap();
        (first.text, second.text)
    })
}

fn waiter() -> Do {
    act(|cx| {
        Box::pin(async move {
            cx.signal("go").await?;
            Ok(cx.mode().map_or_else(|| "none".to_owned(), |mode| mode.to_string()))
        })
    })
}

#[test]
fn cw12_a_resumed_run_keeps_the_mode_that_it_began_with() {
    for paused in [false, true] {
        assert_eq!(resumed(paused), ("ask".to_owned(), "code".to_owned()), "paused: {paused}");
    }
}

#[tokio::test(start_paused = true)]
async fn cw12_a_session_that_another_process_or_another_run_writes_is_busy() {
    let store = memory();
    let gate = Gate::new();
    let here = runtime_on(&store);
    let session = here.session();
    let works =
        ScriptedProvider::new().step(Script::new().wait(&gate).text("Done.").finish(FinishReason::Stop));
    let executor = ReactAgent::builder("worker", works.model()).build().unwrap();
    let agent = Autonomy::builder("pair", executor).build().unwrap();
    let run = session.start(&agent, "Go");
    gate.arrived(1).await;
    let there = runtime_on(&store);
    let below = session.id().in_role("executor").unwrap();
    for (runtime, id) in [(&there, session.id()), (&there, &below), (&here, &below)] {
        let error = runtime.session_with_id(id.clone()).set_mode("ask", &offered()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy, "{id}");
    }
    gate.open();
    assert_eq!(run.outcome().await.unwrap().text, "Done.");
    for id in [session.id(), &below] {
        assert_eq!(count(&stored(&store, id).await, "mode_changed"), 0);
    }
    there.session_with_id(session.id().clone()).set_mode("ask", &offered()).await.unwrap();
    assert_eq!(count(&stored(&store, session.id()).await, "mode_changed"), 1);
}

#[tokio::test(start_paused = true)]
async fn cw12_a_mode_that_the_store_does_not_take_is_not_picked() {
    let store = memory();
    let failing: SharedStore = FaultyStore::new(&store, 1, Fault::Fail);
    let session = runtime_on(&failing).session();
    session.set_mode("ask", &offered()).await.unwrap();
    let error = session.set_mode("code", &offered()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    assert_eq!(session.mode().await.unwrap().as_deref(), Some("ask"));
}

#[tokio::test(start_paused = true)]
async fn cw12_a_mode_and_that_of_the_run_under_way_are_part_of_a_checkpoint() {
    let store = memory();
    let runtime = testkit::runtime().shared_store(Arc::clone(&store)).checkpoint_every(1).build();
    let session = runtime.session();
    session.set_mode("ask", &offered()).await.unwrap();
    session.start(&teller(&open()), "Go").outcome().await.unwrap();
    session.set_mode("code", &offered()).await.unwrap();
    session.start(&teller(&open()), "Go").outcome().await.unwrap();
    assert!(count(&stored(&store, session.id()).await, "checkpoint") > 0);
    let again = runtime_on(&store).open(session.id()).await.unwrap();
    assert_eq!(again.state().await.unwrap(), session.state().await.unwrap());
    assert_eq!(again.mode().await.unwrap().as_deref(), Some("code"));
}

#[tokio::test(start_paused = true)]
async fn cw12_two_pick_at_once_and_the_journal_has_both_in_one_order() {
    let store: SharedStore = memory();
    let session = runtime_on(&store).session();
    let offered = offered();
    let (first, second) = tokio::join!(session.set_mode("ask", &offered), session.set_mode("code", &offered));
    assert_eq!((&*first.unwrap().current_mode_id, &*second.unwrap().current_mode_id), ("ask", "code"));
    let events = stored(&store, session.id()).await;
    assert_eq!(kinds(&events), ["mode_changed", "mode_changed"]);
    let Event::ModeChanged(last) = &events[1].event else { panic!("{events:?}") };
    assert_eq!(session.mode().await.unwrap().as_ref(), Some(&last.mode));
}
