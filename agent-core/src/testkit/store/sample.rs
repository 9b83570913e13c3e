//! What the cases store, and how they compare.

use std::{fmt::Debug, sync::Arc};

use super::{Checked, Failure};
use crate::{
    Error, ErrorKind, Result, RunId, SessionId, Timestamp,
    event::{Envelope, Event, Origin},
    message::{
        Arguments, Content, Media, MediaSource, Message, Opaque, Part, Reasoning, Role, Signature, ToolCall,
        ToolResult,
    },
    session::{
        Batch, Columns, ReadRange, Row, SessionFilter, SessionHead, SessionInfo, SessionRecord, SharedStore,
    },
};

/// Text that trips those who count bytes, escape by hand or guess encodings.
pub(super) const ODD: &str = "a\u{0}b \u{1f469}\u{200d}\u{1f680} e\u{301} \u{202e}rtl \u{feff}\u{ffff}\u{10ffff} '\"`\\ \
     %_?1 $1 :x @y; DROP TABLE events; --\r\n\t\u{7f}\u{85}\u{2028}";

pub(super) fn id(text: &str) -> Checked<SessionId> {
    Ok(SessionId::new(text)?)
}

pub(super) fn micros(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

/// The event number `seq`; its body names `mark` and the number.
pub(super) fn row(seq: u64, mark: &str) -> Row {
    let columns = Columns::new(seq, micros(1_000), "warning", RunId::generate(), "root");
    Row::stored(columns, serde_json::json!({ "text": mark, "n": seq }).to_string())
}

pub(super) fn head(seq: u64, updated: i64) -> SessionHead {
    SessionHead { seq, updated: micros(updated), ..SessionHead::default() }
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

/// All events as a store must keep them.
pub(super) async fn contents(store: &SharedStore, id: &SessionId) -> Checked<Vec<(Columns, String)>> {
    written(&store.read(id, ReadRange::all()).await?)
}

pub(super) fn written(rows: &[Row]) -> Checked<Vec<(Columns, String)>> {
    rows.iter().map(|row| Ok((row.columns(), row.body()?.into_owned()))).collect()
}

/// What lists say about one session.
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

/// A message with a part of every kind.
pub(super) fn message(role: Role) -> Checked<Message> {
    // The spacing, the order and the escapes of arguments are the model's and stay.
    let arguments = Arguments::parse("{ \"b\" : 1.0e2, \"a\":\"\\u00e9\\ud83d\\ude80\",\t\"a \":[ null ] }")?;
    let call = ToolCall::new("call_1", ODD, arguments);
    let signature = Signature::new("wire", "c2ln").with_item(serde_json::json!({ "id": ODD }));
    let mut malformed = ToolCall::new("", "", Arguments::empty());
    malformed.malformed = Some(ODD.to_owned());
    let mut picture = Media::new("image/png", MediaSource::Base64("iVBORw0KGgo=".to_owned()));
    picture.name = Some(ODD.to_owned());
    let mut result = ToolResult::error(&call, ODD);
    result.content.push(Content::Media(picture.clone()));
    Ok(Message::new(
        role,
        vec![
            Part::Text(ODD.to_owned()),
            Part::Text(String::new()),
            Part::Reasoning(Reasoning::new(ODD, Some(signature))),
            Part::Reasoning(Reasoning::new("", None)),
            Part::Refusal(ODD.to_owned()),
            Part::Media(picture),
            Part::Media(Media::new(
                "audio/wav",
                MediaSource::Url("https://example.invalid/a?b=c&d=%20".to_owned()),
            )),
            Part::ToolCall(call),
            Part::ToolCall(malformed),
            Part::ToolResult(Arc::new(result)),
            Part::Opaque(Opaque::new(
                "wire",
                serde_json::json!({ "lc": 2, "type": "constructor", "id": [ODD, 1.5, null] }),
            )),
        ],
    ))
}

/// Every kind of event that is stored, with every field set.
pub(super) fn events(session: &SessionId) -> Checked<Vec<Event>> {
    let json = |value: &Message| serde_json::to_string(value).map_err(|error| Failure(error.to_string()));
    let (user, assistant) = (json(&message(Role::User)?)?, json(&message(Role::Assistant)?)?);
    let summary = json(&Message::user(ODD))?;
    let odd = serde_json::Value::from(ODD);
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
            format!(r#"{{"step":1,"provider":{odd},"model":{odd},"request":"{run}","key":{key}}}"#),
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
                r#"{{"index":0,"result":{result},"stop_turn":true,"denied":true,"metadata":{{"x":[{odd}]}},
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
        ("observed", format!(r#"{{"value":{{"deep":[[[{odd}]]]}},"key":{key}}}"#)),
        ("signal_received", format!(r#"{{"name":{odd},"value":null}}"#)),
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
        (
            "phase_started",
            format!(
                r#"{{"iteration":2,"phase":"check","child":"{session}$$checker","run":"{run}","prompt":{user}}}"#
            ),
        ),
        (
            "phase_finished",
            format!(
                r#"{{"iteration":2,"phase":"check","outcome":{outcome},"text":{odd},"verdict":{{"accepted":false,
                "reason":{odd},"evidence":[{{"tool":{odd},"arguments":"{{}}","result":{odd},"is_error":true}}]}}}}"#
            ),
        ),
        (
            "graph_started",
            format!(
                r#"{{"signature":{{"nodes":[{{"id":{odd},"after":[{{"from":{odd},"conditional":true,
                "optional":true}}],"agent":{odd},"version":{odd},"output":"{digest}"}}]}}}}"#
            ),
        ),
        ("node_started", format!(r#"{{"node":{odd},"attempt":2,"agent":{odd},"child":"{session}.1$$0"}}"#)),
        (
            "node_finished",
            format!(
                r#"{{"node":{odd},"attempt":2,"end":{{"completed":{{"lc":1,"deep":[[{odd}]]}}}},"usage":{usage},
                "cost":9223372036854775807,"micros":5,"retry_at":6}}"#
            ),
        ),
        (
            "graph_changed",
            format!(r#"{{"change":{{"skip":{{"node":{odd},"dependents":"blocked"}}}},"again":[{odd}]}}"#),
        ),
        ("titled", format!(r#"{{"title":{odd}}}"#)),
        (
            "todos_changed",
            format!(r#"{{"todos":[{{"content":{odd},"status":"in_progress","active_form":{odd}}}]}}"#),
        ),
        ("mode_changed", format!(r#"{{"mode":{odd}}}"#)),
        (
            "checkpoint",
            format!(
                r#"{{"state":{{"history":[{summary}],"tokens":7,"titled":true,"signals":[[{odd},{{"x":1}}]]}},
                "forked":{{"session":"{session}","seq":8}}}}"#
            ),
        ),
        ("run_paused", format!(r#"{{"pause":{{"signal":{{"name":{odd},"until":5}}}}}}"#)),
        ("run_finished", format!(r#"{{"outcome":{outcome}}}"#)),
    ];
    samples
        .into_iter()
        .map(|(kind, json)| Event::from_json(kind, &json).map_err(|error| spoilt(kind, &error)))
        .collect()
}

fn spoilt(kind: &str, error: &Error) -> Failure {
    Failure(format!("the suite's sample of {kind} is out of date: {error:?}"))
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

    use super::*;

    #[test]
    fn every_stored_kind_has_a_sample() {
        let events = events(&id("s").unwrap()).unwrap();
        for event in &events {
            // A new kind stops this from compiling: give it a sample above and a line here.
            match event {
                Event::RunStarted(_)
                | Event::RunResumed(_)
                | Event::ModelStarted(_)
                | Event::ModelRestarted(_)
                | Event::ModelFinished(_)
                | Event::ToolStarted(_)
                | Event::ToolFinished(_)
                | Event::ApprovalRequested(_)
                | Event::ApprovalDecided(_)
                | Event::ChildStarted(_)
                | Event::ChildFinished(_)
                | Event::WaitStarted(_)
                | Event::Observed(_)
                | Event::SignalReceived(_)
                | Event::Warning(_)
                | Event::RunPaused(_)
                | Event::PromptQueued(_)
                | Event::PromptDropped(_)
                | Event::MessageAdded(_)
                | Event::CompactionStarted(_)
                | Event::Compacted(_)
                | Event::CompactionFailed(_)
                | Event::OutputsCleared(_)
                | Event::PhaseStarted(_)
                | Event::PhaseFinished(_)
                | Event::GraphStarted(_)
                | Event::NodeStarted(_)
                | Event::NodeFinished(_)
                | Event::GraphChanged(_)
                | Event::Titled(_)
                | Event::TodosChanged(_)
                | Event::ModeChanged(_)
                | Event::Checkpoint(_)
                | Event::RunFinished(_) => assert!(event.is_stored()),
                Event::Delta(_) | Event::Progress(_) => panic!("{} is not stored", event.kind()),
            }
        }
        assert_eq!(events.iter().map(Event::kind).collect::<BTreeSet<_>>().len(), 34);
    }
}
