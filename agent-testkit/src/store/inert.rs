//! Stored content is inert: nothing in it is revived, looked up, executed or normalised, and damaged content affects
//! its own session alone.

use entourage_core::{
    ErrorKind, RunId, SessionId,
    event::{Envelope, Event},
    session::{Batch, Columns, ReadRange, Row, SessionFilter, SessionInfo, SharedStore},
};
use serde_json::Value;

use super::{
    Checked, Fixture,
    sample::{batch, contents, create, head, holds, id, info, live, micros, refused, root, same, written},
};

/// Stores one event for each of `rows` and checks that text and columns come back unchanged.
async fn keep(store: &SharedStore, name: &str, rows: &[(&str, &str)]) -> Checked<SessionId> {
    let session = id(name)?;
    let run = RunId::generate();
    let rows: Vec<Row> = (1..)
        .zip(rows)
        .map(|(seq, (kind, body))| {
            let columns = Columns::new(seq, micros(1_000), (*kind).to_owned(), run, "root");
            Row::stored(columns, (*body).to_owned())
        })
        .collect();
    let expected = written(&rows)?;
    let head = head(rows.len() as u64, 1_000);
    store.append(&session, 0, Batch::new(1, rows, head).creating(root(&session))).await?;
    same("what was stored", &contents(store, &session).await?, &expected)?;
    Ok(session)
}

/// Values that loaders of other formats act upon.
const TAGS: [&str; 8] = [
    r#"{"lc":2,"type":"constructor","id":["os","system"],"args":["touch /tmp/owned"]}"#,
    r#"{"lc":1,"type":"constructor","id":["builtins","eval"],"kwargs":{"x":"1"}}"#,
    r#"{"__class__":"subprocess.Popen","__module__":"subprocess","args":["id"]}"#,
    r#"{"py/object":"os.system","py/reduce":[{"py/function":"os.system"},["id"]]}"#,
    r#"{"$type":"System.Diagnostics.Process, System","StartInfo":{"FileName":"sh"}}"#,
    r#"{"@type":"java.lang.ProcessBuilder","command":["id"]}"#,
    r#"{"!!python/object/apply:os.system":["id"]}"#,
    r#"{"_msgpack_ext":[5,"b3Muc3lzdGVt"]}"#,
];

pub(super) async fn attack_01_constructor_tags_are_data(at: Fixture) -> Checked {
    let rows: Vec<(&str, String)> =
        TAGS.iter().map(|tag| ("signal_received", format!(r#"{{"name":"n","value":{tag}}}"#))).collect();
    let rows: Vec<(&str, &str)> = rows.iter().map(|(kind, body)| (*kind, body.as_str())).collect();
    let session = keep(&at.store, "s", &rows).await?;
    for (row, tag) in at.store.read(&session, ReadRange::all()).await?.into_iter().zip(TAGS) {
        let Event::SignalReceived(signal) = row.into_envelope(&session)?.event else {
            return Err(super::Failure("a signal came back as something else".to_owned()));
        };
        let plain: Value = serde_json::from_str(tag).unwrap_or_default();
        same("the value", &signal.value, &plain)?;
    }
    // They are plain text in lists as well.
    let marked = id("marked")?;
    let mut head = head(1, 1_000);
    head.title = TAGS.concat().into();
    head.agent = TAGS.concat().into();
    let mut record = root(&marked);
    record.role = TAGS.concat().into();
    let expected = SessionInfo::new(record.clone(), head.clone());
    let row = Row::stored(
        Columns::new(1, micros(1), TAGS.concat(), RunId::generate(), TAGS.concat()),
        "{}".to_owned(),
    );
    at.store.append(&marked, 0, Batch::new(1, vec![row], head).creating(record)).await?;
    same("what lists say", &info(&at.store, &marked).await?, &expected)
}

pub(super) async fn attack_02_half_a_character_is_kept_and_refused(at: Fixture) -> Checked {
    let halves = [
        ("signal_received", r#"{"name":"\ud800","value":1}"#),
        ("signal_received", r#"{"name":"n","value":"\udc00\ud800"}"#),
        ("titled", r#"{"title":"a\uDBFFb"}"#),
        ("warning", r#"{"text":"\ud83d"}"#),
        ("warning", r#"{"text":"whole: \ud83d\ude80, nought: \u0000"}"#),
    ];
    let session = keep(&at.store, "s", &halves).await?;
    for (row, (kind, body)) in at.store.read(&session, ReadRange::all()).await?.into_iter().zip(halves) {
        let read = row.into_envelope(&session);
        if body.contains("whole") {
            same("a whole character", &read?.event.kind(), &kind)?;
        } else {
            refused(body, read, ErrorKind::Corrupt)?;
        }
    }
    Ok(())
}

pub(super) async fn attack_03_a_kind_that_names_a_type_is_only_a_name(at: Fixture) -> Checked {
    let kinds = ["os.system", "!!python/object:os.system", "ext:5", "delta", "Checkpoint", "__proto__", ""];
    let rows: Vec<(&str, &str)> = kinds.iter().map(|kind| (*kind, r#"{"state":{}}"#)).collect();
    let session = keep(&at.store, "s", &rows).await?;
    for row in at.store.read(&session, ReadRange::all()).await? {
        let kind = row.columns().kind;
        refused(&kind, row.into_envelope(&session), ErrorKind::NewerVersion)?;
    }
    Ok(())
}

pub(super) async fn attack_04_reserved_keys_are_keys(at: Fixture) -> Checked {
    let reserved = [
        r#"{"id":["PATH"],"lc":1,"type":"secret"}"#,
        r#"{"env":"HOME","type":"secret","value":"${HOME}"}"#,
        r#"{"__proto__":{"admin":true},"constructor":{"prototype":{}}}"#,
        r#"{"$ref":"file:///etc/passwd","@import":"x"}"#,
        r#"{"$serde_json::private::Number":"1"}"#,
        r#"{"$serde_json::private::RawValue":"[1,2]"}"#,
        r#"[{"$serde_json::private::RawValue":"no JSON at all"}]"#,
        r#"{"at":0,"data":{},"kind":"run_finished","seq":1,"session":"other","writer":1}"#,
        r#"{"seq":1}"#,
        r#"{"format":99,"lease":{"owner":1},"state":{"head":{"seq":9}}}"#,
    ];
    let rows: Vec<(&str, String)> = reserved
        .iter()
        .map(|value| ("signal_received", format!(r#"{{"name":"lc","value":{value}}}"#)))
        .collect();
    let rows: Vec<(&str, &str)> = rows.iter().map(|(kind, body)| (*kind, body.as_str())).collect();
    let session = keep(&at.store, "s", &rows).await?;
    let read = at.store.read(&session, ReadRange::all()).await?;
    let read: Vec<Envelope> =
        read.into_iter().map(|row| row.into_envelope(&session)).collect::<Result<_, _>>()?;
    for (envelope, value) in read.iter().zip(reserved) {
        let text = envelope.event.to_json()?;
        same("the event's text", &text, &format!(r#"{{"name":"lc","value":{value}}}"#))?;
    }
    // A live event is written and read in the same way as its text.
    let envelopes = live(&id("live")?, read.into_iter().map(|envelope| envelope.event).collect());
    let (count, session) = (envelopes.len() as u64, id("live")?);
    let batch = Batch::new(1, envelopes.iter().cloned().map(Row::live).collect(), head(count, 1));
    at.store.append(&session, 0, batch.creating(root(&session))).await?;
    for (row, envelope) in at.store.read(&session, ReadRange::all()).await?.into_iter().zip(envelopes) {
        same("a live event", &row.into_envelope(&session)?, &envelope)?;
    }
    Ok(())
}

pub(super) async fn attack_08_a_damaged_session_harms_no_other(at: Fixture) -> Checked {
    let good = ("titled", r#"{"title":"good"}"#);
    let damaged = [
        (
            "run_started",
            r#"{"format":99,"agent":"a","prompt":{"role":"user","parts":[]}}"#,
            ErrorKind::NewerVersion,
        ),
        ("hologram", "{}", ErrorKind::NewerVersion),
        ("checkpoint", r#"{"state":{"head":7}}"#, ErrorKind::Corrupt),
        ("checkpoint", "null", ErrorKind::Corrupt),
        ("run_started", "{}", ErrorKind::Corrupt),
        ("run_started", r#"{"agent":"no version","prompt":{"role":"user","parts":[]}}"#, ErrorKind::Corrupt),
        ("titled", r#"{"title":"twice","title":"twice"}"#, ErrorKind::Corrupt),
        ("tool_finished", r#"{"index":-1}"#, ErrorKind::Corrupt),
        ("compacted", r#"[1,2,3]"#, ErrorKind::Corrupt),
        ("run_finished", r#""a text""#, ErrorKind::Corrupt),
    ];
    let bystander = create(&at.store, "bystander").await?;
    for (n, (kind, body, expected)) in damaged.into_iter().enumerate() {
        let session = keep(&at.store, &format!("s{n}"), &[good, (kind, body), good]).await?;
        let rows = at.store.read(&session, ReadRange::all()).await?;
        let mut read = rows.into_iter().map(|row| row.into_envelope(&session));
        let (first, second, third) = (read.next(), read.next(), read.next());
        holds("the event before it is there", first.is_some_and(|it| it.is_ok()))?;
        holds("the event after it is there", third.is_some_and(|it| it.is_ok()))?;
        match second {
            Some(Err(error)) if error.kind() == expected => {
                let text = format!("{error:?}");
                holds(&format!("it names its session and number: {text}"), text.contains(session.as_str()))?;
            }
            other => {
                return Err(super::Failure(format!("{kind} {body}: expected {expected:?}, got {other:?}")));
            }
        }
        // A store does not look inside, so the session can be continued, listed and deleted.
        at.store.append(&session, 3, batch(2, 3, 1)).await?;
    }
    same("the sessions", &at.store.query(&SessionFilter::all()).await?.len(), &(damaged.len() + 1))?;
    same("the bystander", &contents(&at.store, &bystander).await?.len(), &1)?;
    same("deleted", &at.store.delete(&id("s0")?).await?, &1)
}
