//! The contract of reading: the appended events, in order, byte for byte, and no others.

use entourage_core::{
    ErrorKind, Money, RunId, SessionId, Usage,
    event::Envelope,
    session::{
        Batch, Columns, ReadRange, Row, SessionFilter, SessionHead, SessionInfo, SessionRecord,
        SessionStatus, SharedStore,
    },
};

use super::{
    Checked, Fixture,
    sample::{
        ODD, batch, contents, create, create_below, events, events_of, head, id, ids, info, live,
        live_with_checkpoint, micros, refused, root, row, same, wild, written,
    },
};

pub(super) async fn every_event_and_every_part_comes_back(at: Fixture) -> Checked {
    let session = id("s")?;
    let envelopes = live(&session, events(&session)?);
    let count = envelopes.len() as u64;
    let rows: Vec<Row> = envelopes.iter().cloned().map(Row::live).collect();
    let expected = written(&rows)?;
    at.store.append(&session, 0, Batch::new(1, rows, head(count, 1_000)).creating(root(&session))).await?;

    same("columns and bodies", &contents(&at.store, &session).await?, &expected)?;
    let read = at.store.read(&session, ReadRange::all()).await?;
    let read: Vec<Envelope> =
        read.into_iter().map(|row| row.into_envelope(&session)).collect::<Result<_, _>>()?;
    for (got, expected) in read.iter().zip(&envelopes) {
        same(expected.event.kind(), got, expected)?;
    }
    Ok(())
}

pub(super) async fn every_kind_of_event_comes_back_with_any_value(at: Fixture) -> Checked {
    for (n, (text, value)) in wild().iter().enumerate() {
        let session = id(&format!("s{n}"))?;
        let envelopes = live_with_checkpoint(&session, events_of(&session, text, value)?)?;
        let count = envelopes.len() as u64;
        let rows: Vec<Row> = envelopes.iter().cloned().map(Row::live).collect();
        at.store
            .append(&session, 0, Batch::new(1, rows, head(count, 1_000)).creating(root(&session)))
            .await?;
        let read = at.store.read(&session, ReadRange::all()).await?;
        same("the number of events", &read.len(), &envelopes.len())?;
        for (row, expected) in read.into_iter().zip(&envelopes) {
            // A store that keeps live events must be able to write them down as well.
            let stored = Row::stored(row.columns(), row.body()?.into_owned());
            same(expected.event.kind(), &stored.into_envelope(&session)?.event, &expected.event)?;
        }
    }
    Ok(())
}

/// Appends `bodies` to a new session and reads them again.
async fn check_bodies(store: &SharedStore, name: &str, bodies: &[String]) -> Checked {
    let session = id(name)?;
    let (run, mut rows) = (RunId::generate(), Vec::new());
    for (seq, body) in (1..).zip(bodies) {
        rows.push(Row::stored(Columns::new(seq, micros(1_000), "warning", run, "root"), body.clone()));
    }
    let batch = Batch::new(1, rows, head(bodies.len() as u64, 1_000)).creating(root(&session));
    store.append(&session, 0, batch).await?;
    let read: Vec<String> = contents(store, &session).await?.into_iter().map(|(_, body)| body).collect();
    same("the bodies", &read, &bodies.to_vec())
}

pub(super) async fn bodies_come_back_byte_for_byte(at: Fixture) -> Checked {
    let odd = serde_json::Value::from(ODD).to_string();
    let bodies = [
        "{}",
        "  { \"b\" : 1 ,\n\t\"a\":2 }\r\n ",
        r#"{"same":1,"same":2}"#,
        r#"{"escaped":"\u00e9\ud83d\ude80\/\u0000","plain":"é🚀/"}"#,
        r#"[1.0, 1e400, -0, 12345678901234567890123456789, 0.1000]"#,
        r#""only a string""#,
        "null",
        "0",
        &odd,
        &format!("{{{odd}:{odd}}}"),
    ];
    check_bodies(&at.store, "s", &bodies.map(str::to_owned)).await
}

pub(super) async fn a_body_of_a_mebibyte_comes_back(at: Fixture) -> Checked {
    let large: String = "0123456789 é🚀\\n".chars().cycle().take(1 << 20).collect();
    check_bodies(&at.store, "s", &[format!("\"{large}\""), "{}".to_owned(), format!("[\"{large}\"]")]).await
}

pub(super) async fn a_thousand_events_in_one_batch_come_back(at: Fixture) -> Checked {
    let session = id("s")?;
    let batch = batch(1, 0, 1_000).creating(root(&session));
    let expected = written(&batch.rows)?;
    same("the number", &at.store.append(&session, 0, batch).await?, &1_000)?;
    same("the events", &contents(&at.store, &session).await?, &expected)
}

pub(super) async fn columns_come_back_at_their_limits(at: Fixture) -> Checked {
    let session = id("s")?;
    let long = "agent/".repeat(500);
    let columns = [
        (i64::MIN, "warning", RunId::generate(), ""),
        (-1, "", RunId::parse("00000000-0000-0000-0000-000000000000")?, "root"),
        (0, ODD, RunId::parse("ffffffff-ffff-ffff-ffff-ffffffffffff")?, ODD),
        (i64::MAX, "a_kind_that_nobody_knows", RunId::generate(), long.as_str()),
    ];
    let mut rows = Vec::new();
    for (seq, (at, kind, run, agent)) in (1..).zip(columns) {
        rows.push(Row::stored(Columns::new(seq, micros(at), kind.to_owned(), run, agent), "{}".to_owned()));
    }
    let expected = written(&rows)?;
    let batch = Batch::new(u64::MAX, rows, head(4, 1_000)).creating(root(&session));
    at.store.append(&session, 0, batch.clone()).await?;
    same("the events", &contents(&at.store, &session).await?, &expected)?;
    same("the largest writer's echo", &at.store.append(&session, 0, batch).await?, &4)
}

/// Heads with known, unknown and zero figures.
fn heads() -> [SessionHead; 5] {
    let mut usage = Usage::new(1_000, 0);
    (usage.cache_read, usage.cache_write, usage.reasoning) = (Some(900), Some(100), Some(0));
    let mut known = SessionHead::default();
    (known.status, known.run) = (SessionStatus::Running, Some(RunId::generate()));
    (known.agent, known.title, known.messages) = ("lead/scout".into(), ODD.into(), 12);
    (known.usage, known.cost) = (usage, Some(Money::from_pico(6_000_000_001)));
    (known.updated, known.checkpoint) = (micros(1_763_000_000_000_001), 2);

    let mut unknown = known.clone();
    (unknown.usage, unknown.cost, unknown.status) = (Usage::default(), None, SessionStatus::Paused);

    let mut some = known.clone();
    (some.usage, some.run) = (Usage::default(), None);
    (some.usage.input, some.usage.reasoning) = (Some(0), Some(7));

    let count = i64::MAX.unsigned_abs();
    let mut largest = SessionHead::default();
    (largest.messages, largest.usage) = (count, Usage::new(count, count));
    (largest.cost, largest.updated) = (Some(Money::from_pico(count)), micros(i64::MIN));

    [SessionHead::default(), known, unknown, some, largest]
}

pub(super) async fn heads_come_back(at: Fixture) -> Checked {
    // Once as the first head of a session, once as a later head of another.
    let changing = create(&at.store, "changing").await?;
    for (n, head) in (0_u64..).zip(heads()) {
        let session = id(&format!("s{n}"))?;
        let record = SessionRecord::child(session.clone(), changing.clone(), ODD, micros(-1));
        let mut first = head.clone();
        first.seq = 1;
        let batch = Batch::new(1, vec![row(1, "head")], first.clone()).creating(record.clone());
        at.store.append(&session, 0, batch).await?;
        same("a first head", &info(&at.store, &session).await?, &SessionInfo::new(record, first))?;

        let mut next = head;
        next.seq = n + 2;
        at.store.append(&changing, n + 1, Batch::new(1, vec![row(n + 2, "head")], next.clone())).await?;
        let expected = SessionInfo::new(root(&changing), next);
        same("a changed head", &info(&at.store, &changing).await?, &expected)?;
    }
    Ok(())
}

pub(super) async fn attack_05_text_that_looks_like_a_query_is_text(at: Fixture) -> Checked {
    let (bystander, session) = (create(&at.store, "bystander").await?, id("s")?);
    let before = contents(&at.store, &bystander).await?;
    let injections =
        ["x') OR '1'='1", "'; DROP TABLE sessions; --", "\" OR 1=1 --", "%", "_", "NULL", "?1", "$1"];
    let mut rows = Vec::new();
    for (seq, text) in (1..).zip(injections) {
        let columns = Columns::new(seq, micros(1_000), text, RunId::generate(), text);
        rows.push(Row::stored(columns, serde_json::Value::from(text).to_string()));
    }
    let expected = written(&rows)?;
    let mut head = head(injections.len() as u64, 1_000);
    head.title = injections.concat().into();
    head.agent = injections.concat().into();
    let mut record = root(&session);
    record.role = injections.concat().into();
    let info_expected = SessionInfo::new(record.clone(), head.clone());
    at.store.append(&session, 0, Batch::new(1, rows, head).creating(record)).await?;

    same("the events", &contents(&at.store, &session).await?, &expected)?;
    same("what lists say", &info(&at.store, &session).await?, &info_expected)?;
    same("the bystander", &contents(&at.store, &bystander).await?, &before)?;
    same("the sessions", &at.store.query(&SessionFilter::all()).await?.len(), &2)
}

pub(super) async fn attack_07_ids_that_look_alike_stay_apart(at: Fixture) -> Checked {
    let long = |end: char| format!("{}{end}", "x".repeat(239));
    let names = [
        "a", "A", "aa", "a.", "a..", "...", "a_", "a-", "a$", "$", "$$", "$1", "a.1$$0", "a.1$$00",
        "a.10$$0", "_a", "-a", "--", "0", "00", "null", "NULL", "CON", "1e3", "1000",
    ];
    let names: Vec<String> =
        names.into_iter().map(str::to_owned).chain([long('x'), long('X'), long('y')]).collect();
    for name in &names {
        let session = id(name)?;
        let batch = Batch::new(1, vec![row(1, name)], head(1, 1_000)).creating(root(&session));
        same("the number", &at.store.append(&session, 0, batch).await?, &1)?;
    }
    for name in &names {
        let session = id(name)?;
        same("the id in the list", &info(&at.store, &session).await?.record.id, &session)?;
        let body = serde_json::json!({ "text": name, "n": 1 }).to_string();
        let bodies: Vec<String> =
            contents(&at.store, &session).await?.into_iter().map(|(_, body)| body).collect();
        same(&format!("the events of {name}"), &bodies, &vec![body])?;
    }
    let mut sorted = names;
    sorted.sort();
    same("the list", &ids(&at.store, &SessionFilter::all()).await?, &sorted)
}

pub(super) async fn windows_are_exact(at: Fixture) -> Checked {
    let session = id("s")?;
    at.store.append(&session, 0, batch(1, 0, 10).creating(root(&session))).await?;
    let other = create(&at.store, "t").await?;
    at.store.append(&other, 1, batch(1, 1, 20)).await?;
    let range = ReadRange::after;
    let windows: [(ReadRange, Vec<u64>); 11] = [
        (ReadRange::all(), (1..=10).collect()),
        (range(0).with_limit(3), vec![1, 2, 3]),
        (range(3).with_limit(3), vec![4, 5, 6]),
        (range(7), vec![8, 9, 10]),
        (range(9).with_limit(5), vec![10]),
        (range(0).with_limit(10), (1..=10).collect()),
        (range(0).with_limit(usize::MAX), (1..=10).collect()),
        (range(4).with_limit(0), vec![]),
        (range(10), vec![]),
        (range(11).with_limit(1), vec![]),
        (range(u64::MAX).with_limit(usize::MAX), vec![]),
    ];
    for (range, expected) in windows {
        let read: Vec<u64> = at.store.read(&session, range).await?.iter().map(Row::seq).collect();
        same(&format!("{range:?}"), &read, &expected)?;
    }
    Ok(())
}

pub(super) async fn a_second_handle_sees_everything(at: Fixture) -> Checked {
    let session = id("s")?;
    let envelopes = live(&session, events(&session)?);
    let count = envelopes.len() as u64;
    let rows = envelopes.into_iter().map(Row::live).collect();
    at.store.append(&session, 0, Batch::new(1, rows, head(count, 2_000)).creating(root(&session))).await?;
    let child = create_below(&at.store, &session, "child").await?;

    let second = at.reopened().await?;
    check_equal(&at.store, &second, &[&session, &child]).await?;
    // Both handles are equal writers.
    second.append(&session, count, batch(2, count, 2)).await?;
    let late = at.store.append(&session, count, batch(3, count, 1)).await;
    refused("the first handle after the second one", late, ErrorKind::Conflict)?;
    at.store.append(&session, count + 2, batch(3, count + 2, 1)).await?;
    check_equal(&at.store, &second, &[&session, &child]).await?;
    same("what the second handle deletes", &second.delete(&session).await?, &2)?;
    same("what the first one lists", &ids(&at.store, &SessionFilter::all()).await?, &Vec::new())
}

async fn check_equal(first: &SharedStore, second: &SharedStore, sessions: &[&SessionId]) -> Checked {
    let all = SessionFilter::all();
    same("the lists of both handles", &second.query(&all).await?, &first.query(&all).await?)?;
    for session in sessions {
        same(
            "the events of both handles",
            &contents(second, session).await?,
            &contents(first, session).await?,
        )?;
    }
    Ok(())
}
