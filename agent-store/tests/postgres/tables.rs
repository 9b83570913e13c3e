//! The tables: any text, hostile filters, damage, and plain SQL.

use entourage_core::{
    ErrorKind, Money, RunId, Timestamp,
    session::{
        Batch, Columns, ReadRange, Row, SessionFilter, SessionHead, SessionRecord, SessionStatus,
        SessionStore,
    },
};

use crate::{batch, below, count, create, create_below, id, ids, number, place, root, run};

const TEXTS: [&str; 6] =
    ["\0", "a\0b", "\u{2400}0", "\u{2400}\u{2400}\0", "'; DROP TABLE sessions; --", "é🚀\\0"];

#[tokio::test]
async fn attack_07_text_with_nul_comes_back_and_no_two_texts_meet() {
    let place = place!("attack_07_text_with_nul_comes_back_and_no_two_texts_meet");
    let store = place.open().await;
    for (n, text) in TEXTS.into_iter().enumerate() {
        let session = id(&format!("s{n}"));
        let columns = Columns::new(1, Timestamp::from_micros(1), text, RunId::generate(), text);
        let mut head = SessionHead::default();
        (head.seq, head.agent, head.title) = (1, text.into(), text.into());
        let mut record = root(&session);
        record.role = text.into();
        let row = Row::stored(columns.clone(), r#"{"text":"\u0000"}"#.to_owned());
        store
            .append(&session, 0, Batch::new(1, vec![row], head.clone()).creating(record.clone()))
            .await
            .unwrap();
        let info = store.query(&SessionFilter::id(session.clone())).await.unwrap().remove(0);
        assert_eq!((info.record, info.head), (record, head));
        let read = store.read(&session, ReadRange::all()).await.unwrap().remove(0);
        assert_eq!((read.columns(), &*read.body().unwrap()), (columns, r#"{"text":"\u0000"}"#));
    }
    let mut plain = place.plain().await;
    assert_eq!(number(&mut plain, "SELECT count(DISTINCT title) FROM sessions").await, 6);
    // Text without NUL is stored unescaped.
    assert_eq!(number(&mut plain, "SELECT count(*) FROM sessions WHERE title LIKE '%DROP TABLE%'").await, 1);
}

#[tokio::test]
async fn a_body_with_nul_is_refused_before_anything_is_stored() {
    let place = place!("a_body_with_nul_is_refused_before_anything_is_stored");
    let store = place.open().await;
    let session = id("s");
    let columns = Columns::new(2, Timestamp::from_micros(1), "warning", RunId::generate(), "root");
    let mut torn = batch(1, 0, 1);
    torn.rows.push(Row::stored(columns, "\"a\0b\"".to_owned()));
    torn.head.seq = 2;
    let error = store.append(&session, 0, torn.creating(root(&session))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
    assert!(error.to_string().contains("event: 2") && error.to_string().contains("session: s"), "{error}");
    assert!(store.query(&SessionFilter::all()).await.unwrap().is_empty());
}

#[tokio::test]
async fn attack_05_hostile_filters_select_what_they_say() {
    let place = place!("attack_05_hostile_filters_select_what_they_say");
    let store = place.open().await;
    for name in ["a", "a_b", "aXb", "a%", "b", "A", "a.1$$0", "a.1$$01", "a$"] {
        if name != "a%" {
            create(&store, name, 1).await;
        }
    }
    let with = |prefix: &str| SessionFilter::all().with_prefix(prefix);
    assert_eq!(ids(&store, &with("a_")).await, ["a_b"], "an underscore is no pattern");
    assert_eq!(ids(&store, &with("a.1$$0")).await, ["a.1$$0", "a.1$$01"]);
    assert_eq!(ids(&store, &with("A")).await, ["A"]);
    assert_eq!(ids(&store, &with("")).await.len(), 8);
    for hostile in ["%", "a%", "\\", "a\\", "' OR '1'='1", "\0", "a\0", "é", "a\u{10ffff}", "$1", "a b"] {
        assert!(ids(&store, &with(hostile)).await.is_empty(), "{hostile:?}");
    }
    assert_eq!(ids(&store, &SessionFilter::all()).await.len(), 8);
}

#[tokio::test]
async fn attack_13_trees_and_prefixes_are_told_apart() {
    let place = place!("attack_13_trees_and_prefixes_are_told_apart");
    let store = place.open().await;
    let top = create(&store, "s1", 1).await;
    let child = create_below(&store, "s1.1$$0", &top).await;
    let deep = create_below(&store, "elsewhere", &child).await;
    for neighbour in ["s10", "s1.1", "s"] {
        create(&store, neighbour, 1).await;
    }
    let tree = |root| SessionFilter::tree(root);
    assert_eq!(ids(&store, &tree(top.clone())).await, ["elsewhere", "s1", "s1.1$$0"]);
    assert_eq!(ids(&store, &tree(child.clone())).await, ["elsewhere", "s1.1$$0"]);
    assert_eq!(ids(&store, &tree(deep.clone())).await, ["elsewhere"]);
    assert_eq!(ids(&store, &tree(id("nobody"))).await, Vec::<String>::new());
    assert_eq!(ids(&store, &tree(top.clone()).page(1, 1)).await, ["s1"]);
    assert_eq!(ids(&store, &tree(top.clone()).with_prefix("s1")).await, ["s1", "s1.1$$0"]);
    let mut children = tree(top.clone());
    children.parent = Some(Some(child));
    assert_eq!(ids(&store, &children).await, ["elsewhere"]);
    assert!(ids(&store, &tree(top.clone()).with_status(SessionStatus::Paused)).await.is_empty());
    assert_eq!(store.delete(&top).await.unwrap(), 3);
    assert_eq!(ids(&store, &SessionFilter::all()).await, ["s", "s1.1", "s10"]);
}

#[tokio::test]
async fn attack_08_damage_in_one_session_is_found_and_the_others_load() {
    let place = place!("attack_08_damage_in_one_session_is_found_and_the_others_load");
    let store = place.open().await;
    for name in ["gap", "run", "text", "fine"] {
        create(&store, name, 3).await;
    }
    let mut plain = place.plain().await;
    run(
        &mut plain,
        "ALTER TABLE sessions DROP CONSTRAINT sessions_seq_check, DROP CONSTRAINT sessions_status_check; \
         DELETE FROM events WHERE session = 'gap' AND seq = 2; \
         UPDATE events SET run = 'x' WHERE session = 'run' AND seq = 2; \
         UPDATE events SET agent = U&'\\2400' WHERE session = 'text' AND seq = 2; \
         UPDATE sessions SET seq = -1 WHERE id = 'gap'",
    )
    .await;
    for session in ["gap", "run", "text"] {
        let error = store.read(&id(session), ReadRange::all()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        assert!(error.to_string().contains(&format!("session: {session}")), "{error}");
    }
    let error = store.append(&id("gap"), 3, batch(1, 3, 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    let error = store.query(&SessionFilter::all()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    assert!(error.to_string().contains("seq = -1 in session gap"), "{error}");
    assert_eq!(count(&store, &id("fine")).await, 3);
    assert_eq!(ids(&store, &SessionFilter::id(id("fine"))).await, ["fine"]);
    // A damaged session can still be deleted, and then the list is whole again.
    assert_eq!(store.delete(&id("gap")).await.unwrap(), 1);
    run(&mut plain, "UPDATE sessions SET status = 'asleep' WHERE id = 'run'").await;
    let error = store.query(&SessionFilter::id(id("run"))).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains("asleep"), "{error}");
    assert_eq!(store.delete(&id("run")).await.unwrap(), 1);
    assert_eq!(ids(&store, &SessionFilter::all()).await, ["fine", "text"]);
}

#[tokio::test]
async fn numbers_that_do_not_fit_are_refused_before_anything_is_stored() {
    let place = place!("numbers_that_do_not_fit_are_refused_before_anything_is_stored");
    let store = place.open().await;
    let session = id("s");
    let too_large = u64::MAX / 2 + 1;
    let error = store.append(&session, too_large, batch(1, too_large, 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error:?}");
    assert!(store.query(&SessionFilter::all()).await.unwrap().is_empty());
}

#[tokio::test]
async fn figures_beyond_a_column_are_stored_as_the_largest_that_it_takes() {
    let place = place!("figures_beyond_a_column_are_stored_as_the_largest_that_it_takes");
    let store = place.open().await;
    let (session, largest) = (id("s"), i64::MAX.unsigned_abs());
    let mut first = batch(1, 0, 1);
    (first.head.messages, first.head.checkpoint) = (u64::MAX, u64::MAX);
    first.head.cost = Some(Money::from_pico(largest + 1));
    let usage = &mut first.head.usage;
    for count in [
        &mut usage.input,
        &mut usage.output,
        &mut usage.cache_read,
        &mut usage.cache_write,
        &mut usage.reasoning,
    ] {
        *count = Some(u64::MAX);
    }
    assert_eq!(store.append(&session, 0, first.creating(root(&session))).await.unwrap(), 1);
    let listed = store.query(&SessionFilter::all()).await.unwrap();
    let [stored] = listed.as_slice() else { panic!("one session: {listed:?}") };
    assert_eq!((stored.head.messages, stored.head.checkpoint), (largest, largest));
    assert_eq!(stored.head.cost, Some(Money::from_pico(largest)));
    assert_eq!((stored.head.usage.input, stored.head.usage.reasoning), (Some(largest), Some(largest)));
    assert_eq!(store.append(&session, 1, batch(1, 1, 1)).await.unwrap(), 2, "the session goes on");
}

/// The tree is deeper than a server's stack lets one delete cascade.
#[tokio::test]
async fn ca07_a_tree_of_a_thousand_levels_is_listed_and_deleted_whole() {
    let place = place!("ca07_a_tree_of_a_thousand_levels_is_listed_and_deleted_whole");
    let store = place.open().await;
    let mut parent = create(&store, "level0", 1).await;
    for level in 1..1_100 {
        let child = id(&format!("level{level}"));
        let record = SessionRecord::child(child.clone(), parent, "child", Timestamp::from_micros(1));
        store.append(&child, 0, batch(1, 0, 1).creating(record)).await.unwrap();
        parent = child;
    }
    let kept = create(&store, "level", 1).await;
    assert_eq!(store.query(&SessionFilter::tree(id("level0"))).await.unwrap().len(), 1_100);
    assert_eq!(store.delete(&id("level0")).await.unwrap(), 1_100);
    assert_eq!(count(&store, &kept).await, 1);
    assert_eq!(number(&mut place.plain().await, "SELECT count(*) FROM events").await, 1);
}

#[tokio::test]
async fn a_child_of_a_deleted_parent_is_not_found() {
    let place = place!("a_child_of_a_deleted_parent_is_not_found");
    let store = place.open().await;
    let parent = create(&store, "parent", 1).await;
    let child = id("child");
    let orphan = || batch(1, 0, 1).creating(below(&child, &parent));
    // The parent is deleted while its child is created: present for the first check, gone for the last one.
    let mut other = place.plain().await;
    run(&mut other, "BEGIN; DELETE FROM sessions WHERE id = 'parent'").await;
    let pid = number(&mut other, "SELECT pg_backend_pid()::bigint").await;
    let (appended, ()) = tokio::join!(store.append(&child, 0, orphan()), async {
        let waits =
            format!("SELECT count(*) FROM pg_stat_activity WHERE {pid} = ANY (pg_blocking_pids(pid))");
        let mut watcher = place.plain().await;
        while number(&mut watcher, &waits).await == 0 {
            tokio::task::yield_now().await;
        }
        run(&mut other, "COMMIT").await;
    });
    assert_eq!(appended.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(store.query(&SessionFilter::all()).await.unwrap().is_empty());
}
