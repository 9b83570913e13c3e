//! The fold over any list of events, hostile ones included: the conversation stays valid for every service, a state
//! survives its stored form, and a checkpoint anywhere changes nothing that follows.

use std::sync::Arc;

use entourage_core::{
    ErrorKind, RunId, SessionId, Timestamp,
    event::{Envelope, Event, Origin},
    message::{Arguments, Message, Part, Reasoning, Role, ToolCall, ToolResult},
    session::SessionState,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::common::assert_valid;

const IDS: [&str; 4] = ["a", "b", "c", ""];

fn any_part() -> impl Strategy<Value = Part> {
    let call = |id: &str| ToolCall::new(id, "look", Arguments::empty());
    prop_oneof![
        prop::sample::select(vec!["", "x", "long text \u{1F600}"]).prop_map(|text| Part::Text(text.into())),
        prop::sample::select(IDS.to_vec()).prop_map(move |id| Part::ToolCall(call(id))),
        prop::sample::select(IDS.to_vec())
            .prop_map(move |id| Part::ToolResult(Arc::new(ToolResult::text(&call(id), "seen")))),
        Just(Part::Reasoning(Reasoning::new("hm", None))),
        Just(Part::Refusal(String::new())),
    ]
}

/// Any message of any role: calls of a user, results of a system message, no content at all.
fn any_message() -> impl Strategy<Value = Value> {
    let role = prop::sample::select(vec![Role::System, Role::User, Role::Assistant, Role::Tool]);
    (role, prop::collection::vec(any_part(), 0..4))
        .prop_map(|(role, parts)| serde_json::to_value(Message::new(role, parts)).unwrap())
}

fn run() -> String {
    "01890a5d-ac96-774b-bcce-b302099a8057".into()
}

type Stored = (&'static str, Value);

fn started(prompt: &Value) -> Stored {
    ("run_started", json!({"format": 1, "agent": "tester", "prompt": prompt}))
}

fn last() -> Stored {
    started(&json!({"role": "user", "parts": [{"text": "Last"}]}))
}

fn replied(message: Value, error: bool) -> Stored {
    let mut body = json!({
        "step": 1, "message": message, "finish": {"reason": "tool_calls"}, "usage": {"input": 3}, "micros": 0,
    });
    if error {
        body["error"] = json!({"kind": "overloaded", "retry": "temporary", "message": "busy"});
    }
    ("model_finished", body)
}

fn answered(index: usize, call: &str) -> Stored {
    let result = json!({"call": call, "name": "look", "content": [{"text": "seen"}]});
    ("tool_finished", json!({"index": index, "result": result, "micros": 0}))
}

fn finished(status: &str, text: &str) -> Stored {
    let outcome = json!({"status": status, "text": text, "usage": {}, "cost": 0, "steps": 1});
    ("run_finished", json!({"outcome": outcome}))
}

fn talk() -> impl Strategy<Value = Stored> {
    prop_oneof![
        3 => any_message().prop_map(|prompt| started(&prompt)),
        6 => (any_message(), any::<bool>()).prop_map(|(message, error)| replied(message, error)),
        6 => (0usize..4, prop::sample::select(IDS.to_vec())).prop_map(|(index, call)| answered(index, call)),
        3 => (prop::sample::select(vec!["completed", "cancelled"]), prop::sample::select(vec!["", "Done."]))
            .prop_map(|(status, text)| finished(status, text)),
        2 => (0usize..4).prop_map(|index| {
            ("tool_started", json!({"index": index, "call": "a", "tool": "look", "repeat": "once", "allowed_by": "x"}))
        }),
        1 => prop::sample::select(vec![0, 1, u32::MAX]).prop_map(|count| ("run_resumed", json!({"count": count}))),
        1 => Just(("run_paused", json!({"pause": {"approval": "x"}}))),
    ]
}

fn upkeep() -> impl Strategy<Value = Stored> {
    let number = || prop::sample::select(vec![0u64, 1, 2, 3, 5, u64::MAX]);
    prop_oneof![
        3 => (any_message(), number()).prop_map(|(message, kept)| {
            ("compacted", json!({"summary": message, "kept": kept, "before": 9, "after": u64::MAX, "output": 2}))
        }),
        2 => (number(), number())
            .prop_map(|(before, least)| ("outputs_cleared", json!({"before": before, "least": least, "after": 0}))),
        3 => any_message().prop_map(|message| ("message_added", json!({"message": message, "queued": 2}))),
        1 => any_message().prop_map(|prompt| {
            ("prompt_queued", json!({"run": run(), "agent": "tester", "prompt": prompt, "steer": true}))
        }),
        1 => number().prop_map(|queued| {
            let error = json!({"kind": "cancelled", "retry": "permanent", "message": "no"});
            ("prompt_dropped", json!({"queued": queued, "error": error}))
        }),
        1 => Just(("titled", json!({"title": "T"}))),
        1 => Just(("todos_changed", json!({"todos": [{"content": "x", "status": "pending"}]}))),
        1 => Just(("signal_received", json!({"name": "go", "value": {"x": [1, null]}}))),
        1 => Just(("compaction_started", json!({"cause": "asked", "child": "s.1$$0", "tokens": u64::MAX}))),
        1 => Just(("wait_started", json!({"signal": "go", "key": {"ordinal": 0, "digest": "0".repeat(32)}}))),
        1 => Just(("observed", json!({"value": 1, "key": {"ordinal": 1, "digest": "0".repeat(32)}}))),
    ]
}

/// A checkpoint by an unknown writer: most of these hold states that no fold gives.
fn checkpoint() -> impl Strategy<Value = Stored> {
    let step = prop::option::of((any_message(), 0usize..4));
    let history = prop::collection::vec(any_message(), 0..4);
    (history, step, any::<bool>()).prop_map(|(history, step, running)| {
        let mut state = json!({"history": history, "tokens": u64::MAX});
        if let Some((message, results)) = step {
            let open = vec![Value::Null; results];
            let started = vec![false; results];
            state["step"] = json!({"message": message, "seq": u64::MAX, "results": open, "started": started});
        }
        if running {
            state["head"] = json!({
                "seq": u64::MAX, "status": "running", "run": run(), "agent": "", "title": "", "messages": u64::MAX,
                "usage": {"input": u64::MAX}, "cost": u64::MAX >> 1, "checkpoint": u64::MAX, "updated": i64::MIN,
            });
        }
        ("checkpoint", json!({"state": state}))
    })
}

fn any_event() -> impl Strategy<Value = Stored> {
    prop_oneof![6 => talk(), 3 => upkeep(), 1 => checkpoint()]
}

fn envelope(place: usize, event: Event) -> Envelope {
    let run = RunId::parse(&run()).unwrap();
    let origin = Arc::new(Origin::new(SessionId::new("s").unwrap(), run, "tester"));
    Envelope::new(origin, place as u64 + 1, Timestamp::from_micros(place as i64), event)
}

/// The events that can be read. A checkpoint that no fold gives cannot.
fn readable(events: Vec<Stored>) -> Vec<Envelope> {
    let mut read = Vec::new();
    for (kind, body) in events {
        match Event::from_json(kind, &body.to_string()) {
            Ok(event) => read.push(envelope(read.len(), event)),
            Err(error) => assert_eq!((error.kind(), kind), (ErrorKind::Corrupt, "checkpoint"), "{body}"),
        }
    }
    read
}

fn stored_form(state: &SessionState) -> Value {
    serde_json::to_value(state).unwrap()
}

fn restored(state: &SessionState) -> SessionState {
    serde_json::from_str(&serde_json::to_string(state).unwrap()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every call has one result once the next run starts, whatever the log holds.
    #[test]
    fn cm15_any_event_list_folds_to_a_valid_history(mut events in prop::collection::vec(any_event(), 0..18)) {
        events.push(last());
        let mut state = SessionState::default();
        for event in readable(events) {
            state.apply(&event);
        }
        assert_valid(state.history());
    }

    /// A state survives its stored form, at any moment, and continues as if it had never left memory.
    #[test]
    fn design_3_a_checkpoint_anywhere_changes_nothing_that_follows(
        events in prop::collection::vec(any_event(), 1..14),
        cut in any::<prop::sample::Index>(),
    ) {
        let events = readable(events);
        prop_assume!(!events.is_empty());
        let cut = cut.index(events.len());
        let (mut straight, mut resumed) = (SessionState::default(), SessionState::default());
        for (place, event) in events.iter().enumerate() {
            if place == cut {
                resumed = restored(&straight);
                prop_assert_eq!(&resumed, &straight);
            }
            straight.apply(event);
            resumed.apply(event);
        }
        prop_assert_eq!(stored_form(&straight), stored_form(&restored(&straight)));
        // As an event, it leaves nothing of what was there before it.
        let body = json!({"state": stored_form(&straight)}).to_string();
        let checkpoint = envelope(events.len(), Event::from_json("checkpoint", &body).unwrap());
        let mut fresh = SessionState::default();
        for state in [&mut straight, &mut fresh] {
            state.apply(&checkpoint);
        }
        prop_assert_eq!(straight, fresh);
    }
}

#[test]
fn cm15_a_message_that_joins_while_calls_are_open_does_not_part_them_from_their_results() {
    let call = json!({"tool_call": {"id": "a", "name": "look", "arguments": {}}});
    let reply = replied(json!({"role": "assistant", "parts": [call]}), false);
    let user = json!({"role": "user", "parts": [{"text": "Wait!"}]});
    let added = ("message_added", json!({"message": user}));
    let summary = ("compacted", json!({"summary": user, "kept": 1, "before": 1, "after": 1, "output": 1}));
    for between in [added, summary, finished("completed", "Done."), last()] {
        let events = vec![last(), reply.clone(), between.clone(), answered(0, "a"), last()];
        let mut state = SessionState::default();
        for event in readable(events) {
            state.apply(&event);
        }
        assert_valid(state.history());
        assert!(state.history().iter().any(|message| message.tool_calls().count() == 1), "{between:?}");
    }
}

#[test]
fn attack_08_a_state_that_no_fold_gives_is_corrupt() {
    let call = json!({"tool_call": {"id": "a", "name": "look", "arguments": {}}});
    let result = json!({"tool_result": {"call": "a", "name": "look", "content": []}});
    let (asks, answers) =
        (json!({"role": "assistant", "parts": [call]}), json!({"role": "tool", "parts": [result]}));
    let open = |results: Value, started: Value| json!({"message": asks, "seq": 1, "results": results, "started": started});
    let good = [
        json!({}),
        json!({"history": [asks, answers]}),
        json!({"history": [asks], "step": open(json!([null]), json!([true]))}),
    ];
    let bad = [
        json!({"history": [asks]}),
        json!({"history": [answers]}),
        json!({"history": [asks, asks, answers]}),
        json!({"history": [asks, answers, answers]}),
        json!({"history": [{"role": "user", "parts": []}]}),
        json!({"history": [{"role": "user", "parts": [result]}]}),
        json!({"history": [asks, answers], "step": open(json!([null]), json!([true]))}),
        json!({"history": [asks], "step": open(json!([]), json!([]))}),
        json!({"history": [asks], "step": open(json!([null, null]), json!([true]))}),
        json!({"history": [asks], "step": open(json!([result["tool_result"]]), json!([true]))}),
        json!({"step": open(json!([null]), json!([true]))}),
        json!({"history": 7}),
        json!(null),
    ];
    for state in good {
        let body = json!({"state": state}).to_string();
        assert!(Event::from_json("checkpoint", &body).is_ok(), "{body}");
    }
    for state in bad {
        let body = json!({"state": state}).to_string();
        assert_eq!(Event::from_json("checkpoint", &body).unwrap_err().kind(), ErrorKind::Corrupt, "{body}");
    }
}
