//! A directory that is missing from its path for a while: its sessions are out of reach, and no operation says that
//! they do not exist.

use std::{fs, path::Path};

use entourage_core::{
    ErrorKind, Result, Timestamp,
    session::{Lease, ReadRange, SessionFilter, SessionStore},
};
use entourage_store::JsonStore;

use crate::{batch, child, count, create, id, quick, root};

/// Every operation, by name.
async fn all_operations(store: &JsonStore) -> Vec<(&'static str, Result<()>)> {
    let (there, new) = (id("there"), id("new"));
    let below = id("there.1$$0");
    vec![
        ("append", store.append(&there, 1, batch(1, 1, 1)).await.map(drop)),
        ("create", store.append(&new, 0, batch(1, 0, 1).creating(root(&new))).await.map(drop)),
        ("create there", store.append(&there, 0, batch(7, 0, 1).creating(root(&there))).await.map(drop)),
        (
            "create below",
            store.append(&below, 0, batch(1, 0, 1).creating(child(&below, &there))).await.map(drop),
        ),
        ("lease", store.lease(&there, Lease::new(1, 1, Timestamp::default())).await),
        ("read", store.read(&there, ReadRange::all()).await.map(drop)),
        ("read another", store.read(&new, ReadRange::all()).await.map(drop)),
        ("look up", store.query(&SessionFilter::id(there.clone())).await.map(drop)),
        ("list", store.query(&SessionFilter::all()).await.map(drop)),
        ("delete", store.delete(&there).await.map(drop)),
        ("problems", store.problems().await.map(drop)),
        ("set aside", store.set_aside(&there).await.map(drop)),
    ]
}

fn in_place(path: &Path, how: &str) {
    match how {
        "nothing" => {}
        "a file" => fs::write(path, "").unwrap(),
        _ => fs::create_dir(path).unwrap(),
    }
}

#[tokio::test]
async fn attack_f3_a_directory_that_is_gone_or_replaced_is_an_error_and_no_store_without_sessions() {
    for how in ["nothing", "an empty directory", "another store", "a file"] {
        let place = tempfile::tempdir().unwrap();
        let (path, away) = (place.path().join("sessions"), place.path().join("away"));
        let store = quick(&path).await;
        create(&store, "there", 1).await;
        fs::rename(&path, &away).unwrap();
        in_place(&path, how);
        if how == "another store" {
            create(&quick(&path).await, "there", 5).await;
        }
        for (name, done) in all_operations(&store).await {
            let error = done.expect_err(name);
            assert_eq!(error.kind(), ErrorKind::Store, "{how}, {name}: {error:?}");
            if how != "a file" {
                assert!(error.to_string().contains("put it back"), "{how}, {name}: {error}");
            }
        }
        if how == "an empty directory" {
            assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "nothing is made in it");
        }
        if path.is_dir() {
            fs::remove_dir_all(&path).unwrap();
        } else {
            // None is there when nothing took its place.
            fs::remove_file(&path).ok();
        }
        fs::rename(&away, &path).unwrap();
        assert_eq!(count(&store, &id("there")).await, 1, "{how}");
        assert_eq!(store.append(&id("there"), 1, batch(1, 1, 1)).await.unwrap(), 2, "{how}");
        assert_eq!(store.query(&SessionFilter::all()).await.unwrap().len(), 1, "{how}");
    }
}

#[tokio::test]
async fn attack_f3_a_directory_that_is_restored_from_a_backup_goes_on() {
    let place = tempfile::tempdir().unwrap();
    let (path, backup) = (place.path().join("sessions"), place.path().join("backup"));
    let store = quick(&path).await;
    create(&store, "there", 1).await;
    fs::create_dir(&backup).unwrap();
    for entry in fs::read_dir(&path).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), backup.join(entry.file_name())).unwrap();
    }
    fs::remove_dir_all(&path).unwrap();
    assert_eq!(store.delete(&id("there")).await.unwrap_err().kind(), ErrorKind::Store);
    fs::rename(&backup, &path).unwrap();
    assert_eq!(store.append(&id("there"), 1, batch(1, 1, 1)).await.unwrap(), 2);
    assert_eq!(store.problems().await.unwrap(), []);
}

/// The label was never written, or only its name was.
#[tokio::test]
async fn attack_f3_a_directory_without_a_label_gets_one() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("sessions");
    create(&quick(&path).await, "there", 1).await;
    for text in [None, Some("")] {
        match text {
            None => fs::remove_file(path.join(".store")).unwrap(),
            Some(text) => fs::write(path.join(".store"), text).unwrap(),
        }
        let (store, second) = (quick(&path).await, quick(&path).await);
        for store in [store, second] {
            assert_eq!(count(&store, &id("there")).await, 1);
            assert_eq!(store.problems().await.unwrap(), []);
        }
        assert!(!fs::read(path.join(".store")).unwrap().is_empty());
    }
}

#[cfg(unix)]
#[tokio::test]
async fn errors_about_the_lock_of_the_directory_name_it() {
    for link in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let store = quick(place.path()).await;
        let lock = place.path().join(".lock");
        fs::remove_file(&lock).unwrap();
        if link {
            std::os::unix::fs::symlink(place.path().join("nowhere"), &lock).unwrap();
        } else {
            fs::create_dir(&lock).unwrap();
        }
        let session = id("s");
        for error in [
            store.append(&session, 0, batch(1, 0, 1).creating(root(&session))).await.unwrap_err(),
            store.delete(&session).await.unwrap_err(),
            store.query(&SessionFilter::all()).await.unwrap_err(),
            JsonStore::open(place.path()).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Store, "{error:?}");
            assert!(error.context().any(|(name, it)| name == "path" && it.ends_with(".lock")), "{error}");
        }
    }
}
