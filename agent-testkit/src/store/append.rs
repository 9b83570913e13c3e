//! The contract of appending: all or nothing, one winner, the same batch once.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use entourage_core::{
    Error, ErrorKind,
    session::{Batch, ReadRange, SessionFilter, SessionInfo, SessionRecord, SharedStore},
};
use tokio::{sync::Barrier, task::JoinSet};

use super::{
    Checked, Failure, Fixture,
    sample::{
        batch, contents, create, head, holds, id, ids, info, micros, refused, root, row, same, written,
    },
};

const WRITERS: u64 = 50;

pub(super) async fn the_first_batch_creates_the_session(at: Fixture) -> Checked {
    let session = id("s")?;
    let first = batch(1, 0, 3).creating(root(&session));
    let expected = (written(&first.rows)?, SessionInfo::new(root(&session), first.head.clone()));
    same("the number after the first batch", &at.store.append(&session, 0, first).await?, &3)?;
    same("the events", &contents(&at.store, &session).await?, &expected.0)?;
    same("what lists say", &info(&at.store, &session).await?, &expected.1)
}

pub(super) async fn batches_follow_each_other(at: Fixture) -> Checked {
    let session = create(&at.store, "s").await?;
    let mut expected = contents(&at.store, &session).await?;
    // Several writers may take turns.
    for (writer, count) in [(1, 1), (2, 4), (u64::MAX, 1), (0, 2)] {
        let before = expected.len() as u64;
        let mut batch = batch(writer, before, count);
        batch.head.title = format!("after {writer}").into();
        batch.head.updated = micros(1_000 + i64::try_from(before).unwrap_or_default());
        let head = batch.head.clone();
        expected.extend(written(&batch.rows)?);
        same(
            "the number after a batch",
            &at.store.append(&session, before, batch).await?,
            &(before + count),
        )?;
        same("the head", &info(&at.store, &session).await?.head, &head)?;
    }
    same("the events", &contents(&at.store, &session).await?, &expected)
}

pub(super) async fn a_wrong_expected_number_is_a_conflict(at: Fixture) -> Checked {
    let session = create(&at.store, "s").await?;
    at.store.append(&session, 1, batch(1, 1, 2)).await?;
    let before = (contents(&at.store, &session).await?, info(&at.store, &session).await?);
    for expected in [0, 1, 2, 4, 1_000_000] {
        let result = at.store.append(&session, expected, batch(2, expected, 1)).await;
        refused(&format!("expecting {expected} of a session at 3"), result, ErrorKind::Conflict)?;
    }
    let after = (contents(&at.store, &session).await?, info(&at.store, &session).await?);
    same("the session after conflicts", &after, &before)?;
    same("the number after the right one", &at.store.append(&session, 3, batch(2, 3, 1)).await?, &4)
}

pub(super) async fn of_fifty_racing_writers_one_wins(at: Fixture) -> Checked {
    let session = create(&at.store, "s").await?;
    let batches = (100..100 + WRITERS).map(|writer| batch(writer, 1, 3)).collect();
    let winner = race(&at.store, "s", 1, batches).await?;
    same("the number of events", &contents(&at.store, &session).await?.len(), &4)?;
    check_winner(&at.store, "s", 1, winner).await
}

pub(super) async fn of_fifty_racing_creators_one_wins(at: Fixture) -> Checked {
    let session = id("s")?;
    let batches = (100..100 + WRITERS).map(|writer| batch(writer, 0, 2).creating(root(&session))).collect();
    let winner = race(&at.store, "s", 0, batches).await?;
    same("the number of events", &contents(&at.store, &session).await?.len(), &2)?;
    check_winner(&at.store, "s", 0, winner).await
}

/// Appends all batches concurrently, each from its own task, and returns the writer that won.
async fn race(store: &SharedStore, session: &str, expected: u64, batches: Vec<Batch>) -> Checked<u64> {
    let start = Arc::new(Barrier::new(batches.len()));
    let mut tasks = JoinSet::new();
    for batch in batches {
        let (store, start, session) = (Arc::clone(store), Arc::clone(&start), id(session)?);
        tasks.spawn(async move {
            let writer = batch.writer;
            start.wait().await;
            (writer, store.append(&session, expected, batch).await)
        });
    }
    let mut winners = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        let (writer, result) = ended.map_err(|error| Failure(error.to_string()))?;
        match result {
            Ok(_) => winners.push(writer),
            lost => refused(
                &format!("the append of writer {writer}, who was too late"),
                lost,
                ErrorKind::Conflict,
            )?,
        }
    }
    match winners.as_slice() {
        [winner] => Ok(*winner),
        _ => Err(Failure(format!("one writer must win, but {} did: {winners:?}", winners.len()))),
    }
}

async fn check_winner(store: &SharedStore, session: &str, after: u64, winner: u64) -> Checked {
    let mark = format!("\"by {winner}\"");
    for row in store.read(&id(session)?, ReadRange::after(after)).await? {
        let body = row.body()?;
        holds(&format!("event {} is the winner's: {body}", row.seq()), body.contains(&mark))?;
    }
    Ok(())
}

pub(super) async fn attack_12_the_same_batch_twice_is_stored_once(at: Fixture) -> Checked {
    let session = id("s")?;
    let first = batch(7, 0, 2).creating(root(&session));
    let second = batch(7, 2, 2);
    let mut expected = written(&first.rows)?;
    for _ in 0..2 {
        same("the creating batch", &at.store.append(&session, 0, first.clone()).await?, &2)?;
        same("the events after it", &contents(&at.store, &session).await?, &expected)?;
    }
    expected.extend(written(&second.rows)?);
    for _ in 0..3 {
        same("the second batch", &at.store.append(&session, 2, second.clone()).await?, &4)?;
        same("the events after it", &contents(&at.store, &session).await?, &expected)?;
    }
    // Another writer continues; the late echo of an old batch is still the same batch.
    at.store.append(&session, 4, batch(8, 4, 1)).await?;
    let before = (contents(&at.store, &session).await?, info(&at.store, &session).await?);
    same("an echo", &at.store.append(&session, 2, second).await?, &5)?;
    same("an echo of the creation", &at.store.append(&session, 0, first).await?, &5)?;
    same("the session", &(contents(&at.store, &session).await?, info(&at.store, &session).await?), &before)
}

pub(super) async fn another_batch_at_the_same_numbers_conflicts(at: Fixture) -> Checked {
    let session = id("s")?;
    at.store.append(&session, 0, batch(7, 0, 2).creating(root(&session))).await?;
    at.store.append(&session, 2, batch(7, 2, 2)).await?;
    at.store.append(&session, 4, batch(8, 4, 1)).await?;
    let before = (contents(&at.store, &session).await?, info(&at.store, &session).await?);
    let late: [(&str, u64, Batch); 5] = [
        ("another writer's creation", 0, batch(8, 0, 2).creating(root(&session))),
        ("another writer's batch", 2, batch(8, 2, 2)),
        ("a batch that another writer continued", 3, batch(7, 3, 2)),
        ("a batch that goes on where nothing is", 4, batch(8, 4, 2)),
        ("a creation that is longer than the first", 0, batch(7, 0, 6).creating(root(&session))),
    ];
    for (what, expected, batch) in late {
        refused(what, at.store.append(&session, expected, batch).await, ErrorKind::Conflict)?;
    }
    same("the session", &(contents(&at.store, &session).await?, info(&at.store, &session).await?), &before)
}

pub(super) async fn a_malformed_batch_is_refused(at: Fixture) -> Checked {
    let session = create(&at.store, "s").await?;
    let before = (contents(&at.store, &session).await?, info(&at.store, &session).await?);
    let of = |numbers: &[u64], seq: u64| {
        Batch::new(1, numbers.iter().map(|number| row(*number, "malformed")).collect(), head(seq, 1_000))
    };
    let other = id("other")?;
    let malformed: [(&str, u64, Batch); 9] = [
        ("an empty batch", 1, of(&[], 1)),
        ("a gap before the batch", 1, of(&[3, 4], 4)),
        ("a gap in the batch", 1, of(&[2, 4], 4)),
        ("a number twice", 1, of(&[2, 2], 3)),
        ("numbers that go down", 1, of(&[3, 2], 3)),
        ("a head ahead of the events", 1, of(&[2], 3)),
        ("a head behind the events", 1, of(&[2, 3], 2)),
        ("a creation of another session", 0, of(&[1], 1).creating(root(&other))),
        ("a creation after events", 1, of(&[2], 2).creating(root(&session))),
    ];
    for (what, expected, batch) in malformed {
        refused(what, at.store.append(&session, expected, batch).await, ErrorKind::InvalidInput)?;
    }
    same("the session", &(contents(&at.store, &session).await?, info(&at.store, &session).await?), &before)?;
    same("the sessions", &ids(&at.store, &SessionFilter::all()).await?, &vec!["s".to_owned()])
}

pub(super) async fn an_unknown_session_is_not_found(at: Fixture) -> Checked {
    create(&at.store, "s").await?;
    let unknown = id("t")?;
    refused("appending", at.store.append(&unknown, 0, batch(1, 0, 1)).await, ErrorKind::NotFound)?;
    refused("appending later", at.store.append(&unknown, 5, batch(1, 5, 1)).await, ErrorKind::NotFound)?;
    refused("reading", at.store.read(&unknown, ReadRange::all()).await, ErrorKind::NotFound)?;
    refused(
        "reading a window",
        at.store.read(&unknown, ReadRange::after(3).with_limit(0)).await,
        ErrorKind::NotFound,
    )?;
    same("the list of it", &ids(&at.store, &SessionFilter::id(unknown)).await?, &Vec::new())?;
    same("the sessions", &ids(&at.store, &SessionFilter::all()).await?, &vec!["s".to_owned()])
}

pub(super) async fn a_child_needs_its_parent(at: Fixture) -> Checked {
    let child = id("child")?;
    let below = |parent| SessionRecord::child(child.clone(), parent, "child", micros(1));
    let orphan = batch(1, 0, 1).creating(below(id("nobody")?));
    refused("a child of nobody", at.store.append(&child, 0, orphan).await, ErrorKind::NotFound)?;
    let own = batch(1, 0, 1).creating(below(child.clone()));
    refused("a child of itself", at.store.append(&child, 0, own).await, ErrorKind::NotFound)?;
    same("the sessions", &ids(&at.store, &SessionFilter::all()).await?, &Vec::new())?;

    let parent = create(&at.store, "parent").await?;
    at.store.append(&child, 0, batch(1, 0, 1).creating(below(parent.clone()))).await?;
    same("the record", &info(&at.store, &child).await?.record, &below(parent))
}

pub(super) async fn a_hundred_sessions_at_once_lose_nothing(at: Fixture) -> Checked {
    let mut tasks = JoinSet::new();
    for n in 0..100 {
        let (store, session) = (Arc::clone(&at.store), id(&format!("s{n}"))?);
        tasks.spawn(async move {
            store.append(&session, 0, batch(n, 0, 1).creating(root(&session))).await?;
            for expected in 1..5 {
                store.append(&session, expected, batch(n, expected, 1)).await?;
            }
            Ok::<_, Error>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|error| Failure(error.to_string()))??;
    }
    same("the number of sessions", &at.store.query(&SessionFilter::all()).await?.len(), &100)?;
    for n in 0..100 {
        let events = contents(&at.store, &id(&format!("s{n}"))?).await?;
        let numbers: Vec<u64> = events.iter().map(|(columns, _)| columns.seq).collect();
        same("the numbers in a session", &numbers, &vec![1, 2, 3, 4, 5])?;
        let mark = format!("\"by {n}\"");
        holds("each event is in its own session", events.iter().all(|(_, body)| body.contains(&mark)))?;
    }
    Ok(())
}

pub(super) async fn a_dropped_append_is_all_or_nothing(at: Fixture) -> Checked {
    for polls in 0..24 {
        let session = create(&at.store, &format!("s{polls}")).await?;
        let batch = batch(9, 1, 5);
        cut_short(at.store.append(&session, 1, batch.clone()), polls).await;
        let stored = contents(&at.store, &session).await?.len();
        holds(&format!("{stored} of 6 events are there after {polls} polls"), stored == 1 || stored == 6)?;
        same("the same batch afterwards", &at.store.append(&session, 1, batch).await?, &6)?;
        same("the number of events", &contents(&at.store, &session).await?.len(), &6)?;
        same("the head's number", &info(&at.store, &session).await?.head.seq, &6)?;
    }
    Ok(())
}

/// Polls `future` at most `polls` times, then drops it.
async fn cut_short<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}
