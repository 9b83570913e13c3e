//! Faults of the disk or of SQLite: an operation that meets one is a typed error, and the next one works once the fault
//! is gone.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use entourage_core::{
    Error, ErrorKind, Result, SessionId, Timestamp,
    session::{Lease, ReadRange, SessionFilter, SessionStore},
};
use entourage_store::SqliteStore;
use sqlx::Connection;

use crate::{batch, count, create, id, plain, root, run};

fn lease(generation: u64) -> Lease {
    Lease::new(7, generation, Timestamp::from_micros(5))
}

/// Runs every operation of a store on a session that ends with `seq`, and returns the results.
async fn all_operations(
    store: &SqliteStore,
    session: &SessionId,
    seq: u64,
) -> Vec<(&'static str, Result<()>)> {
    vec![
        ("append", store.append(session, seq, batch(1, seq, 1)).await.map(drop)),
        ("create", store.append(&id("new"), 0, batch(1, 0, 1).creating(root(&id("new")))).await.map(drop)),
        ("lease", store.lease(session, lease(seq)).await),
        ("delete", store.delete(&id("victim")).await.map(drop)),
        ("read", store.read(session, ReadRange::all()).await.map(drop)),
        ("query", store.query(&SessionFilter::all()).await.map(drop)),
    ]
}

async fn all_work(store: &SqliteStore, session: &SessionId, seq: u64) {
    for (operation, done) in all_operations(store, session, seq).await {
        done.unwrap_or_else(|error| panic!("{operation}: {error:?}"));
    }
    store.delete(&id("new")).await.unwrap();
    create(store, "victim", 1).await;
}

async fn some_sessions(path: &Path) -> (SqliteStore, SessionId) {
    let store = SqliteStore::open(path).await.unwrap();
    let session = create(&store, "s", 1).await;
    create(&store, "victim", 1).await;
    (store, session)
}

/// `raise(rollback)` ends the transaction, as SQLite does by itself on a full or failing disk.
#[tokio::test]
async fn after_a_transaction_that_sqlite_ended_by_itself_the_next_ones_work() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let (store, session) = some_sessions(&path).await;
    let mut plain = plain(&path).await;
    let triggers: [(&'static str, &'static str); 2] = [
        (
            "CREATE TRIGGER t1 BEFORE INSERT ON events BEGIN SELECT raise(rollback, 'ended'); END; \
             CREATE TRIGGER t2 BEFORE UPDATE OF lease_until ON sessions WHEN new.seq = old.seq \
             BEGIN SELECT raise(rollback, 'ended'); END; \
             CREATE TRIGGER t3 BEFORE DELETE ON sessions BEGIN SELECT raise(rollback, 'ended'); END",
            "rollback",
        ),
        (
            "CREATE TRIGGER t1 BEFORE INSERT ON events BEGIN SELECT raise(abort, 'ended'); END; \
             CREATE TRIGGER t2 BEFORE UPDATE OF lease_until ON sessions WHEN new.seq = old.seq \
             BEGIN SELECT raise(abort, 'ended'); END; \
             CREATE TRIGGER t3 BEFORE DELETE ON sessions BEGIN SELECT raise(abort, 'ended'); END",
            "abort",
        ),
    ];
    for (seq, (make, how)) in (1..).zip(triggers) {
        run(&mut plain, make).await;
        // Twice, as the first pass may leave something that the second one meets.
        for _ in 0..2 {
            for (operation, done) in all_operations(&store, &session, seq).await {
                let reads = matches!(operation, "read" | "query");
                assert_eq!(done.is_ok(), reads, "{operation} while each change ends in {how}");
            }
        }
        run(&mut plain, "DROP TRIGGER t1; DROP TRIGGER t2; DROP TRIGGER t3").await;
        all_work(&store, &session, seq).await;
    }
    assert_eq!(count(&store, &session).await, 3);
}

#[cfg(feature = "hybrid")]
#[tokio::test]
async fn an_archive_goes_on_after_a_transaction_that_sqlite_ended_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("archive.db");
    let store = entourage_store::HybridStore::open(directory.path().join("active"), &path).await.unwrap();
    for name in ["one", "two"] {
        store.append(&id(name), 0, batch(1, 0, 2).creating(root(&id(name)))).await.unwrap();
    }
    let mut plain = plain(&path).await;
    run(&mut plain, "CREATE TRIGGER t BEFORE INSERT ON events BEGIN SELECT raise(rollback, 'ended'); END")
        .await;
    store.archive(&id("one")).await.unwrap_err();
    store.archive(&id("two")).await.unwrap_err();
    run(&mut plain, "DROP TRIGGER t").await;
    for name in ["one", "two"] {
        assert_eq!(store.archive(&id(name)).await.unwrap(), 1, "{name}");
        assert_eq!(store.append(&id(name), 2, batch(1, 2, 1)).await.unwrap(), 3);
    }
}

/// Returns the paths of the database and of the logs beside it.
fn files(path: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|suffix| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    })
}

/// Moves the database with its logs.
fn shift(from: &Path, to: &Path) {
    for (from, to) in files(from).iter().zip(files(to)) {
        if from.exists() {
            fs::rename(from, to).unwrap();
        }
    }
}

async fn all_fail(store: &SqliteStore, session: &SessionId, hint: &str) {
    for (operation, done) in all_operations(store, session, 1).await {
        let error: Error = done.expect_err(operation);
        assert_eq!(error.kind(), ErrorKind::Store, "{operation}: {error:?}");
        assert!(error.to_string().contains(hint), "{operation}: {error}");
    }
}

#[tokio::test]
async fn a_database_that_is_gone_is_an_error_and_one_that_comes_back_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let (path, away) = (directory.path().join("sessions.db"), directory.path().join("away.db"));
    let (store, session) = some_sessions(&path).await;

    shift(&path, &away);
    all_fail(&store, &session, "the database file is gone").await;
    assert!(!path.exists(), "nothing is made in its place");
    shift(&away, &path);
    all_work(&store, &session, 1).await;

    // The original is deleted, and a copy takes its place.
    for (from, to) in files(&path).iter().zip(files(&away)) {
        fs::copy(from, to).unwrap();
        fs::remove_file(from).unwrap();
    }
    all_fail(&store, &session, "the database file is gone").await;
    fs::remove_file(&files(&away)[2]).unwrap();
    shift(&away, &path);
    all_work(&store, &session, 2).await;
    assert_eq!(count(&store, &session).await, 3);
    let fresh = SqliteStore::open(&path).await.unwrap();
    assert_eq!(count(&fresh, &session).await, 3, "it is the file at the path that was written");
}

/// SQLite would apply the log to whichever file it lies beside.
#[tokio::test]
async fn a_backup_beside_the_log_of_another_file_is_refused_until_the_log_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let (path, backup) = (directory.path().join("sessions.db"), directory.path().join("backup.db"));
    let (store, session) = some_sessions(&path).await;
    let mut other = plain(&path).await;
    sqlx::query("VACUUM INTO ?").bind(backup.to_str().unwrap()).execute(&mut other).await.unwrap();
    other.close().await.unwrap();
    store.append(&session, 1, batch(1, 1, 3)).await.unwrap();

    fs::remove_file(&path).unwrap();
    fs::copy(&backup, &path).unwrap();
    all_fail(&store, &session, "the log of the one before").await;
    assert_eq!(fs::read(&path).unwrap(), fs::read(&backup).unwrap(), "what was refused is as it was");
    files(&path)[1..].iter().for_each(|log| fs::remove_file(log).unwrap());
    all_work(&store, &session, 1).await;
}

#[tokio::test]
async fn a_file_that_takes_the_databases_place_is_judged_like_any_other() {
    let directory = tempfile::tempdir().unwrap();
    let (path, away) = (directory.path().join("sessions.db"), directory.path().join("away.db"));
    let (store, session) = some_sessions(&path).await;

    shift(&path, &away);
    fs::write(&path, "").unwrap();
    all_fail(&store, &session, "the database file is gone").await;
    fs::remove_file(&path).unwrap();
    let mut other = plain(&path).await;
    run(&mut other, "CREATE TABLE sessions (id TEXT)").await;
    other.close().await.unwrap();
    let before = fs::read(&path).unwrap();
    all_fail(&store, &session, "belongs to another program").await;
    assert_eq!(fs::read(&path).unwrap(), before);
    fs::remove_file(&path).unwrap();

    // Another one of this kind is used, and so is the first one when it is back.
    let (second, _) = some_sessions(&path).await;
    second.append(&session, 1, batch(1, 1, 4)).await.unwrap();
    assert_eq!(count(&store, &session).await, 5);
    store.append(&session, 5, batch(1, 5, 1)).await.unwrap();
    assert_eq!(count(&second, &session).await, 6);
    second.close().await;
    for file in files(&path).iter().filter(|file| file.exists()) {
        fs::remove_file(file).unwrap();
    }
    shift(&away, &path);
    all_work(&store, &session, 1).await;
}

/// Bounds the size of files of this process: writes beyond it fail as on a broken disk. Returns false if that cannot be
/// set.
fn bound_files(bytes: Option<u64>) -> bool {
    let bytes = bytes.map_or("unlimited".to_owned(), |bytes| bytes.to_string());
    Command::new("prlimit")
        .args(["--pid", &std::process::id().to_string(), &format!("--fsize={bytes}:")])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs in a process of its own, which ignores the signal that the bound raises.
#[test]
fn after_a_disk_that_failed_for_a_moment_the_next_operations_work() {
    let child = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "faults::inner_a_disk_that_fails", "--ignored", "--nocapture"])
        .output();
    let Ok(child) = child else { return };
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains(" 1 passed"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by another test in a process of its own"]
async fn inner_a_disk_that_fails() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let (store, session) = some_sessions(&path).await;
    if !bound_files(None) {
        return;
    }
    for seq in 1..4 {
        assert!(bound_files(Some(1)));
        for (operation, done) in all_operations(&store, &session, seq).await {
            match done {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Store, "{operation}: {error:?}");
                    assert!(error.to_string().contains("check the disk"), "{operation}: {error}");
                }
                Ok(()) => {
                    assert!(matches!(operation, "read" | "query"), "{operation} wrote to a broken disk");
                }
            }
        }
        assert!(bound_files(None));
        all_work(&store, &session, seq).await;
    }
    let damage: String =
        sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut plain(&path).await).await.unwrap();
    assert_eq!(damage, "ok");
}
