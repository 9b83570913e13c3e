//! The store's files: their names, their content, and their form for people.

use std::fs;

use entourage_core::{
    ErrorKind, SessionId, Timestamp,
    session::{Columns, Lease, ReadRange, Row, SessionFilter, SessionStore},
};
use entourage_store::{FileProblemKind, JsonStore};

use crate::{batch, child, count, create, id, quick, root};

#[tokio::test]
async fn attack_07_names_differ_without_their_case_and_none_is_special() {
    let directory = tempfile::tempdir().unwrap();
    let store = quick(directory.path()).await;
    let long = |end: &str| format!("{}{end}", "Xy".repeat((240 - end.len()) / 2));
    let names = [
        "a",
        "A",
        "aA",
        "Aa",
        "AA",
        "con",
        "CON",
        "nul.txt",
        ".hidden",
        "...",
        "-rf",
        "a.jsonl",
        "a.jsonl.new",
        "a.jsonl.torn-1",
        "a.jsonl.jsonl",
        "$HOME",
        "$$",
        "a.",
        "lock",
        ".lock",
        "s-a",
        "a.1$$0",
    ];
    let names: Vec<String> = names
        .into_iter()
        .map(str::to_owned)
        .chain([long("aa"), long("AA"), long("ab"), "Q".repeat(240)])
        .collect();
    for name in &names {
        create(&store, name, 1).await;
    }
    let mut files = std::collections::HashSet::new();
    for name in &names {
        let file = store.path_of(&id(name));
        assert_eq!(file.parent(), Some(directory.path()));
        assert!(file.is_file(), "{name}");
        let file = file.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(file.starts_with("s-") && file.ends_with(".jsonl") && file.len() < 220, "{file}");
        assert!(files.insert(file.to_ascii_lowercase()), "{name} shares its file");
    }
    let again = quick(directory.path()).await;
    assert_eq!(again.query(&SessionFilter::all()).await.unwrap().len(), names.len());
    assert_eq!(again.problems().await.unwrap(), []);
    for name in &names {
        assert_eq!(count(&again, &id(name)).await, 1);
        assert_eq!(again.delete(&id(name)).await.unwrap(), 1, "{name}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "only the lock and the label are left");
}

/// A delete follows the records, never file names that look alike.
#[tokio::test]
async fn attack_13_a_neighbour_whose_file_is_called_alike_stays() {
    let directory = tempfile::tempdir().unwrap();
    let store = quick(directory.path()).await;
    for name in ["s1", "s10", "s1.jsonl", "s1.jsonl.new", "s1.1$$0", "S1"] {
        create(&store, name, 1).await;
    }
    assert_eq!(store.delete(&id("s1")).await.unwrap(), 1);
    assert_eq!(quick(directory.path()).await.query(&SessionFilter::all()).await.unwrap().len(), 5);
}

#[tokio::test]
async fn a_file_reads_like_a_log() {
    let directory = tempfile::tempdir().unwrap();
    let store = quick(directory.path()).await;
    let session = id("s");
    let mut first = batch(7, 0, 2).creating(root(&session));
    let columns =
        Columns::new(2, Timestamp::from_micros(5), "note", first.rows[0].columns().run, "lead/scout");
    first.rows[1] = Row::stored(columns, "{\n  \"pretty\": true\n}".to_owned());
    store.append(&session, 0, first.leased(Lease::new(3, 1, Timestamp::from_micros(9)))).await.unwrap();
    store.lease(&session, Lease::new(4, 2, Timestamp::from_micros(0))).await.unwrap();
    store.append(&session, 2, batch(8, 2, 1)).await.unwrap();

    let text = fs::read_to_string(store.path_of(&session)).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4);
    assert_eq!((&lines[0]["format"], &lines[0]["session"]["id"]), (&1.into(), &"s".into()));
    assert_eq!(
        (&lines[1]["after"], &lines[1]["seq"], &lines[1]["writer"]),
        (&0.into(), &2.into(), &7.into())
    );
    assert_eq!(lines[1]["events"][0]["body"]["text"], "by 7");
    assert_eq!(lines[1]["events"][1]["quoted"], true);
    assert_eq!(lines[1]["lease"]["generation"], 1);
    assert_eq!(
        (&lines[2]["after"], &lines[2]["seq"], &lines[2]["lease"]["owner"]),
        (&2.into(), &2.into(), &4.into())
    );
    // A batch without a lease keeps the one before.
    assert_eq!((&lines[3]["head"]["seq"], &lines[3]["lease"]["owner"]), (&3.into(), &4.into()));
    let rows = store.read(&session, ReadRange::after(1).with_limit(1)).await.unwrap();
    assert_eq!(rows[0].body().unwrap(), "{\n  \"pretty\": true\n}");
}

#[tokio::test]
async fn attack_10_a_stale_owner_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = quick(directory.path()).await;
    let session = create(&store, "s", 1).await;
    let lease = |owner, generation| Lease::new(owner, generation, Timestamp::from_micros(9));
    store.append(&session, 1, batch(1, 1, 1).leased(lease(1, 1))).await.unwrap();
    store.lease(&session, lease(2, 2)).await.unwrap();
    let before = fs::read(store.path_of(&session)).unwrap();
    let error = store.append(&session, 2, batch(1, 2, 1).leased(lease(1, 1))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
    assert_eq!(store.lease(&session, lease(1, 1)).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(store.lease(&session, lease(3, 2)).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(fs::read(store.path_of(&session)).unwrap(), before);
    let second = quick(directory.path()).await;
    second.append(&session, 2, batch(2, 2, 1).leased(lease(2, 2))).await.unwrap();
    assert_eq!(store.query(&SessionFilter::all()).await.unwrap()[0].lease, Some(lease(2, 2)));
    assert_eq!(store.lease(&id("t"), lease(1, 1)).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_body_that_is_no_json_is_refused_before_anything_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let store = quick(directory.path()).await;
    let session = create(&store, "s", 1).await;
    let before = fs::read(store.path_of(&session)).unwrap();
    for body in ["", "{", "{} {}", "\u{0}", "{\"a\":1}\n{\"after\":1}"] {
        let mut bad = batch(1, 1, 2);
        bad.rows[1] = Row::stored(bad.rows[1].columns(), body.to_owned());
        let error = store.append(&session, 1, bad).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{body:?}: {error:?}");
    }
    assert_eq!(fs::read(store.path_of(&session)).unwrap(), before);
}

#[tokio::test]
async fn foreign_files_are_reported_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let store = quick(directory.path()).await;
    create(&store, "s", 1).await;
    for name in
        ["notes.txt", "s-.jsonl", "s-A.jsonl", "s-a b.jsonl", "s-+1.jsonl", "s-x.json", "s-x.jsonl.bak"]
    {
        fs::write(directory.path().join(name), "mine").unwrap();
    }
    fs::create_dir(directory.path().join("folder")).unwrap();
    let store = quick(directory.path()).await;
    let problems = store.problems().await.unwrap();
    assert_eq!(problems.len(), 8, "{problems:?}");
    assert!(problems.iter().all(|it| it.kind == FileProblemKind::Foreign && it.session.is_none()));
    assert_eq!(store.query(&SessionFilter::all()).await.unwrap().len(), 1);
    store.delete(&id("s")).await.unwrap();
    assert_eq!(fs::read(directory.path().join("s-A.jsonl")).unwrap(), b"mine");
}

#[tokio::test]
async fn a_path_that_is_no_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    for path in [file, directory.path().join("missing/sessions")] {
        let error = JsonStore::open(&path).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Store, "{error:?}");
        assert!(error.to_string().contains("path: "), "{error}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[cfg(unix)]
mod unix {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    #[tokio::test]
    async fn files_are_their_owners_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sessions");
        let store = JsonStore::open(&path).await.unwrap();
        let session = create(&store, "s", 1).await;
        fs::write(
            store.path_of(&session),
            [fs::read(store.path_of(&session)).unwrap(), b"{\"af".to_vec()].concat(),
        )
        .unwrap();
        store.append(&session, 1, batch(1, 1, 1)).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        let files: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap()).collect();
        assert_eq!(files.len(), 4);
        for file in files {
            assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600, "{file:?}");
        }
    }

    #[tokio::test]
    async fn attack_07_links_are_not_followed() {
        let outside = tempfile::tempdir().unwrap();
        let elsewhere = quick(&outside.path().join("store")).await;
        let target = elsewhere.path_of(&create(&elsewhere, "s", 2).await);
        let before = fs::read(&target).unwrap();

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sessions");
        let store = quick(&path).await;
        symlink(&target, store.path_of(&id("s"))).unwrap();
        symlink(outside.path().join("missing"), store.path_of(&id("dangling"))).unwrap();
        fs::create_dir(store.path_of(&id("folder"))).unwrap();
        for name in ["s", "dangling", "folder"] {
            let session = id(name);
            for error in [
                store.read(&session, ReadRange::all()).await.unwrap_err(),
                store.append(&session, 2, batch(1, 2, 1)).await.unwrap_err(),
                store.append(&session, 0, batch(1, 0, 1).creating(root(&session))).await.unwrap_err(),
                store.delete(&session).await.unwrap_err(),
                store.set_aside(&session).await.unwrap_err(),
            ] {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{name}: {error:?}");
            }
        }
        let store = quick(&path).await;
        assert!(store.query(&SessionFilter::all()).await.unwrap().is_empty());
        assert_eq!(store.problems().await.unwrap().len(), 3);
        assert_eq!(fs::read(&target).unwrap(), before);
        assert!(!outside.path().join("missing").exists());

        let link = directory.path().join("link");
        symlink(&path, &link).unwrap();
        assert_eq!(JsonStore::open(&link).await.unwrap_err().kind(), ErrorKind::Store);
        // Nor is a link in the place of the lock.
        fs::remove_file(path.join(".lock")).unwrap();
        symlink(outside.path().join("missing"), path.join(".lock")).unwrap();
        let other = id("other");
        assert!(store.append(&other, 0, batch(1, 0, 1).creating(root(&other))).await.is_err());
        assert!(!outside.path().join("missing").exists());
    }
}

#[tokio::test]
async fn ca07_a_tree_is_deleted_from_its_leaves_so_that_a_second_try_finishes_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = quick(directory.path()).await;
    let mut parent = create(&store, "level0", 1).await;
    for level in 1..30 {
        let session: SessionId = id(&format!("level{level}"));
        store.append(&session, 0, batch(1, 0, 1).creating(child(&session, &parent))).await.unwrap();
        parent = session;
    }
    // A directory in the place of level 10 stops the first try there, as a crash would.
    let (blocked, kept) = (store.path_of(&id("level10")), directory.path().join("kept"));
    fs::rename(&blocked, &kept).unwrap();
    fs::create_dir(&blocked).unwrap();
    // Nothing below a missing session is found from above, so the try begins there.
    assert!(store.delete(&id("level10")).await.is_err());
    fs::remove_dir(&blocked).unwrap();
    fs::rename(&kept, &blocked).unwrap();
    let left = store.query(&SessionFilter::tree(id("level0"))).await.unwrap();
    assert_eq!(left.len(), 11, "what is left still hangs together");
    assert_eq!(store.delete(&id("level0")).await.unwrap(), 11);
    assert!(store.query(&SessionFilter::all()).await.unwrap().is_empty());
}
