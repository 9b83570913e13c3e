//! Damaged files: a typed error for their session, a line in the report, and all others load.

use std::{fs, path::Path};

use entourage_core::{
    ErrorKind,
    session::{Lease, ReadRange, SessionFilter, SessionStore},
};
use entourage_store::{FileProblemKind, JsonStore};

use crate::{batch, child, count, create, id, quick, root};

/// Returns the lines of a session of ten events, one event a line.
async fn recorded() -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let store = quick(directory.path()).await;
    let session = create(&store, "s", 1).await;
    for expected in 1..10 {
        store.append(&session, expected, batch(1, expected, 1)).await.unwrap();
    }
    let text = fs::read_to_string(store.path_of(&session)).unwrap();
    text.split_inclusive('\n').map(str::to_owned).collect()
}

/// Opens a directory where the file of session `s` is `bytes` and two others are intact.
async fn damaged(path: &Path, bytes: impl AsRef<[u8]>) -> JsonStore {
    let store = quick(path).await;
    create(&store, "before", 3).await;
    create(&store, "t", 3).await;
    fs::write(store.path_of(&id("s")), bytes).unwrap();
    quick(path).await
}

async fn others_load(store: &JsonStore) {
    assert_eq!(count(store, &id("before")).await, 3);
    assert_eq!(count(store, &id("t")).await, 3);
    store.append(&id("t"), 3, batch(1, 3, 1)).await.unwrap();
}

#[tokio::test]
async fn attack_08_a_file_that_is_no_session_is_a_typed_error_and_the_others_load() {
    let lines = recorded().await;
    let whole = lines.concat();
    let newer = whole.replacen("{\"format\":1,", "{\"format\":2,\"more\":[1],", 1);
    let cases: Vec<(&str, Vec<u8>, ErrorKind)> = vec![
        ("empty", vec![], ErrorKind::Corrupt),
        ("zeros", vec![0; 5_000], ErrorKind::Corrupt),
        ("zeros and a line end", [vec![0; 5_000], vec![b'\n']].concat(), ErrorKind::Corrupt),
        ("no JSON", b"hello\nworld\n".to_vec(), ErrorKind::Corrupt),
        ("no text", vec![0xff, 0xfe, b'\n', b'\n'], ErrorKind::Corrupt),
        ("half of the first line", lines[0][..20].into(), ErrorKind::Corrupt),
        ("the first line alone", lines[0].clone().into(), ErrorKind::Corrupt),
        ("the first line and half of the second", whole[..lines[0].len() + 20].into(), ErrorKind::Corrupt),
        ("no first line", lines[1..].concat().into(), ErrorKind::Corrupt),
        ("no version", whole.replacen("\"format\":1,", "", 1).into(), ErrorKind::Corrupt),
        ("version 0", whole.replacen("\"format\":1", "\"format\":0", 1).into(), ErrorKind::Corrupt),
        ("a negative version", whole.replacen("\"format\":1", "\"format\":-1", 1).into(), ErrorKind::Corrupt),
        ("a newer version", newer.into(), ErrorKind::NewerVersion),
        (
            "two versions",
            whole.replacen("\"format\":1", "\"format\":1,\"format\":1", 1).into(),
            ErrorKind::Corrupt,
        ),
        (
            "two ids",
            whole.replacen("\"id\":\"s\"", "\"id\":\"s\",\"id\":\"s\"", 1).into(),
            ErrorKind::Corrupt,
        ),
        ("another session's", whole.replacen("\"id\":\"s\"", "\"id\":\"t\"", 1).into(), ErrorKind::Corrupt),
        ("a bad id", whole.replacen("\"id\":\"s\"", "\"id\":\"../s\"", 1).into(), ErrorKind::Corrupt),
        (
            "a last line with two heads",
            whole.replacen("\"after\":9", "\"after\":9,\"after\":9", 1).into(),
            ErrorKind::Corrupt,
        ),
        ("a last line that is none of ours", format!("{whole}{{}}\n").into(), ErrorKind::Corrupt),
        (
            "a field that is not known",
            whole.replace("{\"after\":9,", "{\"after\":9,\"x\":1,").into(),
            ErrorKind::Corrupt,
        ),
        (
            "a head elsewhere",
            whole.replace("\"head\":{\"seq\":10", "\"head\":{\"seq\":11").into(),
            ErrorKind::Corrupt,
        ),
    ];
    for (what, bytes, kind) in cases {
        let directory = tempfile::tempdir().unwrap();
        let store = damaged(directory.path(), &bytes).await;
        let session = id("s");
        for error in [
            store.read(&session, ReadRange::all()).await.unwrap_err(),
            store.append(&session, 10, batch(1, 10, 1)).await.unwrap_err(),
            store.append(&session, 0, batch(9, 0, 1).creating(root(&session))).await.unwrap_err(),
            store.lease(&session, Lease::new(1, 9, Default::default())).await.unwrap_err(),
            store.query(&SessionFilter::id(session.clone())).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), kind, "{what}: {error:?}");
            assert!(error.to_string().contains("session: s"), "{what}: {error}");
        }
        let listed = store.query(&SessionFilter::all()).await.unwrap();
        assert_eq!(
            listed.iter().map(|it| it.record.id.as_str()).collect::<Vec<_>>(),
            ["before", "t"],
            "{what}"
        );
        let problems = store.problems().await.unwrap();
        let [problem] = problems.as_slice() else { panic!("{what}: {problems:?}") };
        assert_eq!(problem.session, Some(session.clone()), "{what}");
        let newer = kind == ErrorKind::NewerVersion;
        assert_eq!(
            problem.kind,
            if newer { FileProblemKind::NewerVersion } else { FileProblemKind::Damaged },
            "{what}"
        );
        others_load(&store).await;
        // Nothing was changed, and it can be removed.
        assert_eq!(fs::read(store.path_of(&session)).unwrap(), bytes, "{what}");
        assert_eq!(store.delete(&session).await.unwrap(), 1, "{what}");
        assert!(store.query(&SessionFilter::id(session)).await.unwrap().is_empty(), "{what}");
    }
}

#[tokio::test]
async fn attack_08_a_damaged_line_in_the_middle_spoils_what_is_read_across_it_only() {
    let lines = recorded().await;
    // The line of event 5: gone, twice, cut, another number, garbage, joined with the next one.
    let with = |line: &str| [&lines[..5].concat(), line, &lines[6..].concat()].concat();
    let line = &lines[5];
    let cases = [
        ("gone", with("")),
        ("twice", with(&format!("{line}{line}"))),
        ("cut", with(&format!("{}\n", &line[..line.len() / 2]))),
        ("another number", with(&line.replace("\"after\":4,\"seq\":5", "\"after\":4,\"seq\":6"))),
        ("an event of another number", with(&line.replace("[{\"seq\":5", "[{\"seq\":6"))),
        ("a key twice", with(&line.replacen("\"kind\":", "\"kind\":\"x\",\"kind\":", 1))),
        ("garbage", with("\u{fffd}garbage\n")),
        ("nothing in it", with("\n")),
        ("no line end", with(line.trim_end())),
        ("zeros", with(&format!("{}\n", "\0".repeat(line.len() - 1)))),
    ];
    for (what, text) in cases {
        let directory = tempfile::tempdir().unwrap();
        let store = damaged(directory.path(), &text).await;
        let session = id("s");
        for range in [
            ReadRange::all(),
            ReadRange::after(4),
            ReadRange::after(3).with_limit(3),
            ReadRange::after(4).with_limit(2),
        ] {
            let error = store.read(&session, range).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}, {range:?}: {error:?}");
            assert!(error.to_string().contains("session: s"), "{error}");
        }
        let problems = store.problems().await.unwrap();
        assert!(
            matches!(problems.as_slice(), [it] if it.kind == FileProblemKind::Damaged),
            "{what}: {problems:?}"
        );
        // Events before the damage load, and so do those after it (from a checkpoint, say).
        assert_eq!(store.read(&session, ReadRange::all().with_limit(4)).await.unwrap().len(), 4, "{what}");
        let rest = store.read(&session, ReadRange::after(6)).await.unwrap();
        assert_eq!(rest.iter().map(|row| row.seq()).collect::<Vec<_>>(), [7, 8, 9, 10], "{what}");
        // Its end is intact: it is listed, and appends continue.
        assert_eq!(store.append(&session, 10, batch(1, 10, 1)).await.unwrap(), 11, "{what}");
        assert_eq!(store.query(&SessionFilter::all()).await.unwrap().len(), 3, "{what}");
        others_load(&store).await;
    }
}

#[tokio::test]
async fn what_is_set_aside_leaves_its_id_free_and_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let store = damaged(directory.path(), "garbage\n").await;
    let session = id("s");
    let aside = store.set_aside(&session).await.unwrap();
    assert_eq!(fs::read(&aside).unwrap(), b"garbage\n");
    assert_eq!(store.set_aside(&session).await.unwrap_err().kind(), ErrorKind::NotFound);
    let problems = store.problems().await.unwrap();
    assert!(
        matches!(problems.as_slice(), [it] if it.kind == FileProblemKind::SetAside { aside: aside.clone() }),
        "{problems:?}"
    );
    create(&store, "s", 2).await;
    assert_ne!(store.set_aside(&session).await.unwrap(), aside);
    assert_eq!(fs::read(&aside).unwrap(), b"garbage\n");
}

#[tokio::test]
async fn attack_f11_a_session_is_set_aside_with_all_below_it() {
    for damaged in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let store = quick(directory.path()).await;
        let (root, below, lowest) = (create(&store, "s", 4).await, id("s.3$$0"), id("s.3$$0.1$$0"));
        for (session, parent) in [(&below, &root), (&lowest, &below)] {
            store.append(session, 0, batch(1, 0, 3).creating(child(session, parent))).await.unwrap();
        }
        create(&store, "s.4", 1).await;
        if damaged {
            fs::write(store.path_of(&root), "garbage\n").unwrap();
        }
        let aside = store.set_aside(&root).await.unwrap();
        assert!(aside.to_string_lossy().contains("s-s.jsonl.damaged"), "{}", aside.display());
        assert_eq!(store.problems().await.unwrap().len(), 3);
        create(&store, "s", 1).await;
        // A run of the new session finds nothing at the places of its children.
        for session in [&below, &lowest] {
            assert_eq!(store.query(&SessionFilter::id(session.clone())).await.unwrap(), []);
        }
        assert_eq!(store.query(&SessionFilter::all()).await.unwrap().len(), 2, "and its neighbour stays");
    }
}

#[tokio::test]
async fn parents_that_go_round_in_a_circle_can_be_listed_and_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let store = quick(directory.path()).await;
    let (a, b) = (create(&store, "a", 1).await, id("b"));
    store.append(&b, 0, batch(1, 0, 1).creating(child(&b, &a))).await.unwrap();
    let file = store.path_of(&a);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("\"parent\":null", "\"parent\":\"b\"", 1)).unwrap();
    assert_eq!(store.query(&SessionFilter::tree(b.clone())).await.unwrap().len(), 2);
    assert_eq!(store.delete(&b).await.unwrap(), 2);
}
