//! Histories after a crash or by a tamperer: they are repaired so that every service accepts them.

use std::sync::Arc;

use entourage_core::{
    RunId, SessionId, Timestamp,
    event::{Envelope, Event, Origin},
    message::{Media, MediaSource, Message, Part, Role},
    provider::{Model, Profile},
    run::Task,
    session::{Batch, Columns, Row, SessionHead, SessionRecord, SessionState, SharedStore},
};
use entourage_runtime::context::repair;
use entourage_testkit::{FakeTool, ScriptedProvider};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::common::{agent, assert_valid, memory, runtime_on};

fn started(text: &str) -> (&'static str, Value) {
    let prompt = json!({"role": "user", "parts": [{"text": text}]});
    ("run_started", json!({"format": 1, "agent": "tester", "prompt": prompt}))
}

fn replied(calls: &[&str]) -> (&'static str, Value) {
    let call = |id: &&str| json!({"tool_call": {"id": id, "name": "look", "arguments": {}}});
    let message = json!({"role": "assistant", "parts": calls.iter().map(call).collect::<Vec<_>>()});
    let finish = json!({"reason": "tool_calls"});
    ("model_finished", json!({"step": 1, "message": message, "finish": finish, "usage": {}, "micros": 0}))
}

fn answered(index: usize, call: &str) -> (&'static str, Value) {
    let result = json!({"call": call, "name": "look", "content": [{"text": "seen"}]});
    ("tool_finished", json!({"index": index, "result": result, "micros": 0}))
}

fn finished() -> (&'static str, Value) {
    let outcome = json!({"status": "completed", "text": "", "usage": {}, "cost": 0, "steps": 1});
    ("run_finished", json!({"outcome": outcome}))
}

async fn write(store: &SharedStore, id: &SessionId, events: Vec<(&'static str, Value)>) {
    let run = RunId::generate();
    let at = Timestamp::from_micros(0);
    let row = |(place, (kind, body)): (usize, (&'static str, Value))| {
        Row::stored(Columns::new(place as u64 + 1, at, kind, run, "tester"), body.to_string())
    };
    let rows: Vec<_> = events.into_iter().enumerate().map(row).collect();
    let mut head = SessionHead::default();
    head.seq = rows.len() as u64;
    let batch = Batch::new(1, rows, head).creating(SessionRecord::root(id.clone(), at));
    store.append(id, 0, batch).await.unwrap();
}

#[tokio::test]
async fn cm15_tampered_and_partial_sessions_load_and_go_on() {
    let cases: Vec<(&str, Vec<(&'static str, Value)>)> = vec![
        ("a run without an end", vec![started("Go")]),
        ("calls without results", vec![started("Go"), replied(&["a", "b"])]),
        ("some results", vec![started("Go"), replied(&["a", "b"]), answered(1, "b")]),
        ("an end in spite of open calls", vec![started("Go"), replied(&["a"]), finished()]),
        ("a result without a call", vec![started("Go"), answered(0, "a"), finished()]),
        (
            "a result too many",
            vec![started("Go"), replied(&["a"]), answered(0, "a"), answered(0, "a"), answered(7, "z")],
        ),
        ("two replies in a row", vec![started("Go"), replied(&["a"]), replied(&["b"]), answered(0, "b")]),
        ("a reply that says nothing", vec![started("Go"), replied(&[]), finished()]),
        ("a run within a run", vec![started("Go"), replied(&["a"]), started("Go again")]),
        ("no run at all", vec![replied(&["a"]), finished()]),
    ];
    for (name, events) in cases {
        let store = memory();
        let id = SessionId::new("tampered").unwrap();
        write(&store, &id, events).await;
        let provider = ScriptedProvider::new().text("Here.");
        let agent = agent(provider.model()).tool(FakeTool::new("look")).build().unwrap();
        let session = runtime_on(&store).open(&id).await.unwrap();
        let outcome = session.start(&agent, "And now?").outcome().await.unwrap();
        assert_eq!(outcome.text, "Here.", "{name}");
        let sent = provider.requests()[0].messages.clone();
        assert_valid(&sent);
        assert_eq!(repair(&sent), sent, "{name}");
    }
}

#[tokio::test]
async fn cm15_damage_is_an_error_of_its_session_and_others_still_load() {
    let store = memory();
    let (bad, newer, good) =
        (SessionId::new("bad").unwrap(), SessionId::new("newer").unwrap(), SessionId::new("good").unwrap());
    write(&store, &bad, vec![("run_started", json!({"format": 1}))]).await;
    write(&store, &newer, vec![started("Go"), ("hologram", json!({}))]).await;
    write(&store, &good, vec![started("Go"), finished()]).await;
    let runtime = runtime_on(&store);
    let kind =
        |result: entourage_core::Result<_>| result.err().map(|error: entourage_core::Error| error.kind());
    assert_eq!(kind(runtime.open(&bad).await), Some(entourage_core::ErrorKind::Corrupt));
    assert_eq!(kind(runtime.open(&newer).await), Some(entourage_core::ErrorKind::NewerVersion));
    assert_eq!(runtime.open(&good).await.unwrap().history().await.unwrap().len(), 1);
}

#[tokio::test]
async fn cm15_a_model_that_sees_nothing_is_sent_no_image() {
    let image = Part::Media(Media::new("image/png", MediaSource::Base64("aGk=".into())));
    let prompt = Task::new(Message::new(Role::User, vec![Part::Text("What is this?".into()), image]));
    let mut profile = Profile::default();
    profile.vision = Some(false);
    let (seeing, blind) = (ScriptedProvider::new().text("A cat."), ScriptedProvider::new().text("Unknown."));
    let session = runtime_on(&memory()).session();
    let first = agent(seeing.model()).build().unwrap();
    let second = agent(Model::new(blind.provider(), "blind").with_profile(profile)).build().unwrap();
    session.start(&first, prompt).outcome().await.unwrap();
    session.start(&second, "Again?").outcome().await.unwrap();
    let images = |message: &Message| message.parts().iter().any(|part| matches!(part, Part::Media(_)));
    assert!(images(seeing.requests()[0].messages.get(0).unwrap()));
    let sent = &blind.requests()[0].messages;
    assert!(!sent.iter().any(|message| images(message)));
    assert!(sent.get(0).unwrap().text().contains("image/png"));
    assert!(images(session.history().await.unwrap().get(0).unwrap()), "the session keeps it");
}

#[tokio::test]
async fn cm15_a_session_of_many_windows_reads_as_one() {
    let store = memory();
    let id = SessionId::new("long").unwrap();
    let turns = 500;
    let events = (0..turns)
        .flat_map(|n| [started(&format!("prompt {n}")), replied(&["a"]), answered(0, "a"), finished()]);
    write(&store, &id, events.collect()).await;
    let session = runtime_on(&store).open(&id).await.unwrap();
    let history = session.history().await.unwrap();
    assert_eq!(history.len(), turns * 3);
    assert_valid(&history);
    assert_eq!(session.head().await.unwrap().seq, turns as u64 * 4);
}

fn any_event() -> impl Strategy<Value = (&'static str, Value)> {
    prop_oneof![
        Just(started("Go")),
        prop::sample::subsequence(vec!["a", "b", "c"], 0..=3).prop_map(|calls| replied(&calls)),
        (0usize..4, prop::sample::select(vec!["a", "b", "c"]))
            .prop_map(|(index, call)| answered(index, call)),
        Just(finished()),
        Just(("run_resumed", json!({"count": 1}))),
        Just(("run_paused", json!({"pause": {"approval": "x"}}))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Every call has one result once the next run starts, whatever the log holds.
    #[test]
    fn cm15_any_log_folds_to_a_valid_history(events in prop::collection::vec(any_event(), 0..14)) {
        let origin = Arc::new(Origin::new(SessionId::new("s").unwrap(), RunId::generate(), "tester"));
        let mut state = SessionState::default();
        for (place, (kind, body)) in events.into_iter().chain([started("Last")]).enumerate() {
            let event = Event::from_json(kind, &body.to_string()).unwrap();
            let envelope = Envelope::new(Arc::clone(&origin), place as u64 + 1, Timestamp::from_micros(0), event);
            state.apply(&envelope);
        }
        // A result carries the id that its call has, whatever was recorded.
        assert_valid(state.history());
        prop_assert_eq!(state.head().messages, state.history().len() as u64);
    }
}
