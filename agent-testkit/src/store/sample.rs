//! Sample data of the cases, and its comparison.

use std::{fmt::Debug, sync::Arc};

use entourage_core::{
    Error, ErrorKind, Result, RunId, SessionId, Timestamp,
    event::{Envelope, Event, Origin, Record, Recorded},
    message::{
        Arguments, Content, Media, MediaSource, Message, Opaque, Part, Reasoning, Role, Signature, ToolCall,
        ToolResult,
    },
    session::{
        Batch, Columns, ReadRange, Row, SessionFilter, SessionHead, SessionInfo, SessionRecord, SessionState,
        SharedStore,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Checked, Failure};

/// Text that breaks byte counts, hand-written escapes and guessed encodings.
pub(super) const ODD: &str = "a\u{0}b \u{1f469}\u{200d}\u{1f680} e\u{301} \u{202e}rtl \u{feff}\u{ffff}\u{10ffff} '\"`\\ \
     %_?1 $1 :x @y; DROP TABLE events; --\r\n\t\u{7f}\u{85}\u{2028}";

pub(super) fn id(text: &str) -> Checked<SessionId> {
    Ok(SessionId::new(text)?)
}

pub(super) fn micros(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

/// Event number `seq`; its body names `mark` and the number.
pub(super) fn row(seq: u64, mark: &str) -> Row {
    let columns = Columns::new(seq, micros(1_000), "warning", RunId::generate(), "root");
    Row::stored(columns, serde_json::json!({ "text": mark, "n": seq }).to_string())
}

pub(super) fn head(seq: u64, updated: i64) -> SessionHead {
    let mut head = SessionHead::default();
    (head.seq, head.updated) = (seq, micros(updated));
    head
}

/// `count` events after `expected`, by `writer`; their bodies name the writer.
pub(super) fn batch(writer: u64, expected: u64, count: u64) -> Batch {
    let mark = format!("by {writer}");
    let rows = (expected + 1..=expected + count).map(|seq| row(seq, &mark)).collect();
    Batch::new(writer, rows, head(expected + count, 1_000))
}

pub(super) fn root(id: &SessionId) -> SessionRecord {
    SessionRecord::root(id.clone(), micros(1))
}

/// Creates a session with one event.
pub(super) async fn create(store: &SharedStore, name: &str) -> Checked<SessionId> {
    let id = id(name)?;
    store.append(&id, 0, batch(1, 0, 1).creating(root(&id))).await?;
    Ok(id)
}

/// Creates a session with one event below `parent`.
pub(super) async fn create_below(store: &SharedStore, parent: &SessionId, name: &str) -> Checked<SessionId> {
    let id = id(name)?;
    let record = SessionRecord::child(id.clone(), parent.clone(), "child", micros(1));
    store.append(&id, 0, batch(1, 0, 1).creating(record)).await?;
    Ok(id)
}

/// All events in the form in which a store must keep them.
pub(super) async fn contents(store: &SharedStore, id: &SessionId) -> Checked<Vec<(Columns, String)>> {
    written(&store.read(id, ReadRange::all()).await?)
}

pub(super) fn written(rows: &[Row]) -> Checked<Vec<(Columns, String)>> {
    rows.iter().map(|row| Ok((row.columns(), row.body()?.into_owned()))).collect()
}

/// The list entry of one session.
pub(super) async fn info(store: &SharedStore, id: &SessionId) -> Checked<SessionInfo> {
    let mut found = store.query(&SessionFilter::id(id.clone())).await?;
    match (found.pop(), found.is_empty()) {
        (Some(info), true) => Ok(info),
        (None, _) => Err(Failure(format!("the session {id} is not listed"))),
        (Some(_), false) => Err(Failure(format!("the session {id} is listed more than once"))),
    }
}

pub(super) async fn ids(store: &SharedStore, filter: &SessionFilter) -> Checked<Vec<String>> {
    Ok(store.query(filter).await?.iter().map(|info| info.record.id.to_string()).collect())
}

pub(super) fn same<T: PartialEq + Debug>(what: &str, got: &T, expected: &T) -> Checked {
    if got == expected {
        return Ok(());
    }
    Err(Failure(format!("{what}: got {}, expected {}", short(got), short(expected))))
}

pub(super) fn holds(what: &str, condition: bool) -> Checked {
    if condition { Ok(()) } else { Err(Failure(what.to_owned())) }
}

pub(super) fn refused<T: Debug>(what: &str, result: Result<T>, kind: ErrorKind) -> Checked {
    match result {
        Err(error) if error.kind() == kind => Ok(()),
        Err(error) => {
            Err(Failure(format!("{what}: expected an error of kind {:?}, got {error}", kind.as_str())))
        }
        Ok(value) => Err(Failure(format!(
            "{what}: expected an error of kind {:?}, got {}",
            kind.as_str(),
            short(&value)
        ))),
    }
}

fn short(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    match text.char_indices().nth(600) {
        Some((end, _)) => text.get(..end).map_or_else(String::new, |cut| format!("{cut}…")),
        None => text,
    }
}

/// Levels to which a value may nest: see [`parse_value`](entourage_core::message::parse_value).
const DEPTH: usize = 96;

/// Texts and values at the limits of validity: every store must return all of it unchanged.
pub(super) fn wild() -> Vec<(String, Value)> {
    let arrays = (0..DEPTH).fold(Value::Null, |inner, _| json!([inner]));
    let objects = (0..DEPTH).fold(json!(-0.5), |inner, _| json!({ "a": inner }));
    let numbers = json!([u64::MAX, i64::MIN, -0.0, f64::MAX, f64::MIN, 5e-324, 1e23, 0.1 + 0.2]);
    let reserved = json!({
        "$serde_json::private::RawValue": "[1,", "$serde_json::private::Number": "1e400", "\u{0}": "\u{0}"
    });
    let wide: Map<String, Value> = (0..500).map(|n| (format!("{n}\n"), json!([[], {}]))).collect();
    vec![
        (String::new(), Value::Null),
        ("\u{0}".to_owned(), arrays),
        ("\r\n\t\u{1}\u{1f}\u{7f}\u{2028}".to_owned(), objects),
        ("1e-200000 9e999 \\ud800 \\u0000 \"\\\"".to_owned(), numbers),
        (ODD.repeat(20), reserved),
        ("x\u{0}".repeat(8_000), json!("\u{0}\\".repeat(8_000))),
        ("]}]}".to_owned(), Value::Object(wide)),
    ]
}

/// A message with a part of every kind.
fn message(role: Role, text: &str, value: &Value) -> Checked<Message> {
    // The spacing, the order and the escapes of arguments are the model's and stay.
    let arguments = Arguments::parse("{ \"b\" : 1.0e2, \"a\":\"\\u00e9\\ud83d\\ude80\",\t\"a \":[ null ] }")?;
    let call = ToolCall::new("call_1", text, arguments);
    let signature = Signature::new("wire", "c2ln").with_item(value.clone());
    let mut malformed = ToolCall::new("", "", Arguments::empty());
    malformed.malformed = Some(text.to_owned());
    let mut picture = Media::new("image/png", MediaSource::Base64("iVBORw0KGgo=".to_owned()));
    picture.name = Some(text.to_owned());
    let mut result = ToolResult::error(&call, text);
    result.content.push(Content::Media(picture.clone()));
    Ok(Message::new(
        role,
        vec![
            Part::Text(text.to_owned()),
            Part::Text(String::new()),
            Part::Reasoning(Reasoning::new(text, Some(signature))),
            Part::Reasoning(Reasoning::new("", None)),
            Part::Refusal(text.to_owned()),
            Part::Media(picture),
            Part::Media(Media::new(
                "audio/wav",
                MediaSource::Url("https://example.invalid/a?b=c&d=%20".to_owned()),
            )),
            Part::ToolCall(call),
            Part::ToolCall(malformed),
            Part::ToolResult(Arc::new(result)),
            Part::Opaque(Opaque::new("wire", value.clone())),
        ],
    ))
}

/// Every kind of event that is stored, with every field set.
pub(super) fn events(session: &SessionId) -> Checked<Vec<Event>> {
    events_of(
        session,
        ODD,
        &json!({ "lc": 2, "type": "constructor", "id": [ODD, 1.5, null], "deep": [[[ODD]]] }),
    )
}

/// The same with `text` in each text and `value` in each value.
pub(super) fn events_of(session: &SessionId, text: &str, value: &Value) -> Checked<Vec<Event>> {
    let written = |value: &Message| serde_json::to_string(value).map_err(|error| Failure(error.to_string()));
    let user = written(&message(Role::User, text, value)?)?;
    let assistant = written(&message(Role::Assistant, text, value)?)?;
    let summary = written(&Message::user(format!("{text}.")))?;
    let odd = Value::from(text);
    let digest = "0123456789abcdef0123456789abcdef";
    let key = format!(r#"{{"ordinal":7,"digest":"{digest}"}}"#);
    let error = format!(r#"{{"kind":"rate_limited","retry":"temporary","message":{odd}}}"#);
    let usage = r#"{"input":10,"output":0,"cache_read":9,"cache_write":1,"reasoning":0}"#;
    let outcome = format!(
        r#"{{"status":{{"stopped":{{"denied":{odd}}}}},"text":{odd},"usage":{usage},"cost":null,"steps":50}}"#
    );
    let result = format!(r#"{{"call":"c","name":{odd},"content":[{{"text":{odd}}}],"is_error":true}}"#);
    let run = RunId::generate();
    let samples = [
        (
            "run_started",
            format!(
                r#"{{"format":1,"agent":{odd},"prompt":{user},"queued":3,"budget":{{"tokens":9,"money":1}},"deadline":-1}}"#
            ),
        ),
        ("run_resumed", r#"{"count":4294967295}"#.to_owned()),
        (
            "model_started",
            format!(
                r#"{{"step":1,"provider":{odd},"model":{odd},"request":"{run}","key":{key},
                "instructions":"{digest}","contents":{{"{digest}":{odd}}}}}"#
            ),
        ),
        (
            "model_restarted",
            format!(
                r#"{{"step":1,"request":"{run}","restart":{{"attempt":2,"error":{error},
                "delay":{{"secs":5,"nanos":1}},"provider":{odd},"model":{odd}}},"key":{key}}}"#
            ),
        ),
        (
            "model_finished",
            format!(
                r#"{{"step":1,"message":{assistant},"finish":{{"reason":"tool_calls","raw":{odd}}},"usage":{usage},
                "cost":9223372036854775807,"model":{odd},"response":{odd},"service_request":{odd},
                "request":"{run}","attempt":3,"wasted":{usage},"micros":1,"error":{error},"key":{key}}}"#
            ),
        ),
        (
            "tool_started",
            format!(
                r#"{{"index":0,"call":"c","tool":{odd},"repeat":"once","allowed_by":{odd},"key":{key}}}"#
            ),
        ),
        (
            "tool_finished",
            format!(
                r#"{{"index":0,"result":{result},"stop_turn":true,"denied":true,"metadata":{value},
                "micros":0,"fatal":{error},"key":{key}}}"#
            ),
        ),
        (
            "approval_requested",
            format!(
                r#"{{"id":"{session}.1$$0","session":"{session}","run":"{run}","agent":{odd},"tool":{odd},
                "arguments":{{ "a" : 1 }},"footprint":{{"access":"write","writes":[{odd}]}},"rule":{odd},
                "digest":"{digest}"}}"#
            ),
        ),
        ("approval_decided", format!(r#"{{"id":"{session}.1$$0","decision":"deny","digest":"{digest}"}}"#)),
        ("child_started", format!(r#"{{"child":"{session}.1$$0","agent":{odd},"run":"{run}","key":{key}}}"#)),
        ("child_finished", format!(r#"{{"child":"{session}.1$$0","outcome":{outcome},"key":{key}}}"#)),
        ("wait_started", format!(r#"{{"until":-1,"signal":{odd},"key":{key}}}"#)),
        ("observed", format!(r#"{{"value":{value},"key":{key}}}"#)),
        ("signal_received", format!(r#"{{"name":{odd},"value":{value}}}"#)),
        ("warning", format!(r#"{{"about":"media","subject":{odd},"text":{odd},"request":"{run}"}}"#)),
        (
            "prompt_queued",
            format!(
                r#"{{"run":"{run}","agent":{odd},"prompt":{user},"steer":true,"budget":{{"tokens":9}},"deadline":7}}"#
            ),
        ),
        ("prompt_dropped", format!(r#"{{"queued":3,"error":{error}}}"#)),
        ("message_added", format!(r#"{{"message":{user},"queued":3}}"#)),
        (
            "compaction_started",
            format!(r#"{{"cause":"overflow","child":"{session}.1$$0","tokens":9223372036854775807}}"#),
        ),
        ("compacted", format!(r#"{{"summary":{user},"kept":2,"before":9,"after":3,"output":2}}"#)),
        ("compaction_failed", format!(r#"{{"error":{error}}}"#)),
        ("outputs_cleared", r#"{"before":4,"least":1000,"after":2}"#.to_owned()),
        ("record:debate.vote", format!(r#"{{"v":3,"value":{value},"key":{key}}}"#)),
        (
            "keep:debate.motion",
            format!(r#"{{"v":1,"value":{value},"child":{{"session":"{session}$$judge","run":"{run}"}}}}"#),
        ),
        (
            "keep:checked.phase_started",
            format!(
                r#"{{"v":1,"value":{{"iteration":2,"phase":"check","child":"{session}$$checker","run":"{run}",
                "prompt":{user}}},"child":{{"session":"{session}$$checker","run":"{run}"}}}}"#
            ),
        ),
        (
            "keep:checked.phase_finished",
            format!(
                r#"{{"v":1,"value":{{"iteration":2,"phase":"check","outcome":{outcome},"text":{odd},"verdict":{{"accepted":false,
                "reason":{odd},"evidence":[{{"tool":{odd},"arguments":"{{}}","result":{odd},"is_error":true}}]}}}}}}"#
            ),
        ),
        (
            "record:graph.started",
            format!(
                r#"{{"v":1,"value":{{"signature":{{"nodes":[{{"id":{odd},"after":[{{"from":{odd},"conditional":true,
                "optional":true}}],"agent":{odd},"version":{odd},"output":"{digest}"}}]}}}}}}"#
            ),
        ),
        (
            "record:graph.node_started",
            format!(
                r#"{{"v":1,"value":{{"node":{odd},"attempt":2,"agent":{odd},"child":"{session}.1$$0"}},
                "child":{{"session":"{session}.1$$0"}}}}"#
            ),
        ),
        (
            "record:graph.node_finished",
            format!(
                r#"{{"v":1,"value":{{"node":{odd},"attempt":2,"end":{{"completed":{value}}},"usage":{usage},
                "cost":9223372036854775807,"micros":5,"retry_at":6}}}}"#
            ),
        ),
        (
            "record:graph.changed",
            format!(
                r#"{{"v":1,"value":{{"change":{{"skip":{{"node":{odd},"dependents":"blocked"}}}},"again":[{odd}]}}}}"#
            ),
        ),
        ("labels_added", r#"{"labels":"UNTRUSTED | PRIVATE"}"#.to_owned()),
        ("titled", format!(r#"{{"title":{odd}}}"#)),
        (
            "todos_changed",
            format!(r#"{{"todos":[{{"content":{odd},"status":"in_progress","active_form":{odd}}}]}}"#),
        ),
        ("mode_changed", format!(r#"{{"mode":{odd}}}"#)),
        (
            "checkpoint",
            format!(
                r#"{{"state":{{"history":[{summary}],"tokens":7,"titled":true,"signals":[[{odd},{value}]]}},
                "forked":{{"session":"{session}","seq":8}}}}"#
            ),
        ),
        ("run_paused", format!(r#"{{"pause":{{"signal":{{"name":{odd},"until":5}}}}}}"#)),
        ("run_finished", format!(r#"{{"outcome":{outcome}}}"#)),
    ];
    let live = Event::Recorded(Recorded::new(Vote { by: text.to_owned(), value: value.clone() }));
    let read = |(kind, json): (&'static str, String)| {
        Event::from_json(kind, &json).map_err(|error| spoilt(kind, &error))
    };
    samples.into_iter().map(read).chain([Ok(live)]).collect()
}

/// A record of a type that no store knows.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Vote {
    by: String,
    #[serde(deserialize_with = "entourage_core::message::deserialize_value")]
    value: Value,
}

impl Record for Vote {
    const KIND: &'static str = "testkit.vote";
}

fn spoilt(kind: &str, error: &Error) -> Failure {
    Failure(format!("the suite's sample of {kind} is out of date: {error:?}"))
}

/// The events as a live session would append them, and a checkpoint of their fold.
pub(super) fn live_with_checkpoint(session: &SessionId, events: Vec<Event>) -> Checked<Vec<Envelope>> {
    let mut all = live(session, events);
    let mut state = SessionState::default();
    all.iter().for_each(|envelope| state.apply(envelope));
    if let Some(last) = all.last().cloned() {
        let kind = "checkpoint";
        let event = Event::from_json(kind, &json!({ "state": state }).to_string());
        let event = event.map_err(|error| spoilt(kind, &error))?;
        all.push(Envelope::new(last.origin, last.seq + 1, last.at, event));
    }
    Ok(all)
}

/// The events as a live session would append them.
pub(super) fn live(session: &SessionId, events: Vec<Event>) -> Vec<Envelope> {
    let origin = Arc::new(Origin::new(session.clone(), RunId::generate(), ODD));
    (1..)
        .zip(events)
        .map(|(seq, event)| Envelope::new(Arc::clone(&origin), seq, micros(1_000), event))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use entourage_core::message::parse_value;

    /// True for a character that moves or hides text on a terminal.
    fn is_harmful(c: char) -> bool {
        c.is_control()
            || matches!(c, '\u{ad}' | '\u{200b}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        let value = leaf.prop_recursive(6, 60, 6, |inner| {
            let keys = prop_oneof![any::<String>(), "\\$serde_json::private::(RawValue|Number)"];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((keys, inner), 0..6).prop_map(|map| map.into_iter().collect()),
            ]
        });
        (value, 0..150_usize, any::<bool>()).prop_map(|(value, levels, named)| {
            (0..levels).fold(value, |inner, _| if named { json!({ "a": inner }) } else { json!([inner]) })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        /// The purpose of the bound on values: an accepted value can be read again, in any event and any checkpoint.
        #[test]
        fn an_accepted_value_comes_back_in_every_kind_of_event(text in any::<String>(), value in any_value()) {
            prop_assume!(parse_value(&value.to_string()).is_ok());
            let session = id("s").unwrap();
            for envelope in live_with_checkpoint(&session, events_of(&session, &text, &value).unwrap()).unwrap() {
                let json = envelope.event.to_json().unwrap();
                let back = Event::from_json(envelope.event.kind(), &json);
                prop_assert!(back.is_ok(), "{}: {back:?}", envelope.event.kind());
                prop_assert_eq!(&back.unwrap(), &envelope.event, "{}", envelope.event.kind());
            }
        }

        /// Accepted text is read as the value it spells.
        #[test]
        fn accepted_text_is_a_value(text in "[\\[\\]{}\":,0-9eE.+\\- \\\\a-du]{0,40}") {
            if let Ok(value) = parse_value(&text) {
                prop_assert_eq!(parse_value(&value.to_string()).unwrap(), value);
            }
        }

        /// An event is one line that begins with its agent's name, whatever a model or a tool says.
        #[test]
        fn any_event_is_one_line_of_its_agent(text in "(\\PC|[\n\r\t\u{1b}\u{9b}\u{202e}\u{200b}\u{2028}a: ]){0,40}") {
            let session = id("s").unwrap();
            let value = Value::from(text.as_str());
            for mut envelope in live_with_checkpoint(&session, events_of(&session, &text, &value).unwrap()).unwrap() {
                envelope.origin = Arc::new(Origin::new(session.clone(), envelope.origin.run, "root"));
                let line = envelope.to_string();
                prop_assert!(line.starts_with("root: ") && !line.contains(is_harmful), "{line:?}");
            }
            let delta = Event::Delta(entourage_core::provider::Delta::Text(text.into()));
            let shown = live(&session, vec![delta]).first().unwrap().to_string();
            let mut rest = shown.split('\n').skip(1);
            prop_assert!(rest.all(|line| line.starts_with("  ") && !line.contains(|c| is_harmful(c) && c != '\t')));
        }
    }

    #[test]
    fn every_stored_kind_has_a_sample() {
        let events = events(&id("s").unwrap()).unwrap();
        assert!(events.iter().all(Event::is_stored));
        for kind in Event::STORED_KINDS {
            assert!(
                events.iter().any(|event| event.kind() == *kind),
                "give the kind `{kind}` a sample above"
            );
        }
        assert_eq!(events.iter().map(Event::kind).collect::<BTreeSet<_>>().len(), 38);
    }
}
