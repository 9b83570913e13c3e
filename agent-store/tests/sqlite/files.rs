//! The files that a store accepts, and that a refused one stays as it was.

use std::{fs, path::Path};

use entourage_core::{
    Error, ErrorKind,
    session::{ReadRange, SessionFilter, SessionStore},
};
use entourage_store::SqliteStore;
use sqlx::Connection;

use crate::{batch, count, create, id, plain, run};

/// Opens `path`, which must be refused with a text that names the path and holds `hint`, and be left as it was.
async fn refused(path: &Path, kind: ErrorKind, hint: &str) -> Error {
    let before = fs::read(path).ok();
    let error = SqliteStore::open(path).await.expect_err("the file must be refused");
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(text.contains(&path.display().to_string()) && text.contains(hint), "{text}");
    assert_eq!(fs::read(path).ok(), before, "the refused file was changed");
    error
}

#[tokio::test]
async fn attack_08_a_text_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in [
        ("notes.txt", "these are notes\n".repeat(1_000)),
        ("short", "x".to_owned()),
        ("almost", "SQLite format 3\n".repeat(100)),
    ] {
        let path = directory.path().join(name);
        fs::write(&path, content).unwrap();
        refused(&path, ErrorKind::Corrupt, "choose another path").await;
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3, "files were left beside the refused ones");
}

#[tokio::test]
async fn attack_08_a_database_cut_short_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let store = SqliteStore::open(&path).await.unwrap();
    create(&store, "s", 2_000).await;
    store.close().await;
    let whole = fs::read(&path).unwrap();
    for keep in [whole.len() - 1, whole.len() / 2, 4_096, 100, 50] {
        fs::write(&path, &whole[..keep]).unwrap();
        refused(&path, ErrorKind::Corrupt, "restore it from a backup").await;
    }
    fs::write(&path, &whole).unwrap();
    assert_eq!(count(&SqliteStore::open(&path).await.unwrap(), &id("s")).await, 2_000);
}

#[tokio::test]
async fn attack_08_a_damaged_page_is_a_typed_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let store = SqliteStore::open(&path).await.unwrap();
    create(&store, "s", 2_000).await;
    store.close().await;
    let mut bytes = fs::read(&path).unwrap();
    // The tables' description comes first: the second half of the pages is events and their indexes.
    let half = bytes.len() / 2 / 4_096 * 4_096;
    bytes[half..].fill(0xa5);
    fs::write(&path, &bytes).unwrap();

    let store = SqliteStore::open(&path).await.unwrap();
    let error = store.read(&id("s"), ReadRange::all()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    assert!(error.to_string().contains("session: s"), "{error}");
    assert_eq!(
        store.query(&SessionFilter::all()).await.unwrap().len(),
        1,
        "the list does not need the events"
    );
}

#[tokio::test]
async fn attack_08_a_newer_version_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    SqliteStore::open(&path).await.unwrap().close().await;
    let mut newer = plain(&path).await;
    // First only in the log beside the file, then in the file.
    run(&mut newer, "PRAGMA user_version = 99").await;
    refused(&path, ErrorKind::NewerVersion, "update").await;
    newer.close().await.unwrap();
    refused(&path, ErrorKind::NewerVersion, "update").await;
}

#[tokio::test]
async fn another_programs_database_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let statements: [&'static str; 4] = [
        "CREATE TABLE sessions (id TEXT)",
        "PRAGMA application_id = 77; CREATE TABLE t (x)",
        "PRAGMA journal_mode = WAL; CREATE TABLE t (x)",
        "PRAGMA user_version = 3; CREATE TABLE t (x)",
    ];
    for (n, sql) in statements.into_iter().enumerate() {
        let path = directory.path().join(format!("{n}.db"));
        let mut other = plain(&path).await;
        run(&mut other, sql).await;
        other.close().await.unwrap();
        refused(&path, ErrorKind::Store, "belongs to another program").await;
    }
}

/// The log of a store whose process died lies beside another file: SQLite would write it over that one.
#[tokio::test]
async fn a_foreign_or_damaged_file_beside_the_log_of_a_store_is_refused_and_stays_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str, suffix: &str| directory.path().join(format!("{name}{suffix}"));
    let store = SqliteStore::open(at("own.db", "")).await.unwrap();
    create(&store, "s", 2_000).await;
    SqliteStore::open(at("newer.db", "")).await.unwrap().close().await;
    for (name, sql) in [
        ("foreign.db", "PRAGMA journal_mode = WAL; CREATE TABLE t (x)"),
        ("numbered.db", "PRAGMA application_id = 77; CREATE TABLE t (x)"),
        ("newer.db", "PRAGMA user_version = 99"),
    ] {
        let mut other = plain(&at(name, "")).await;
        run(&mut other, sql).await;
        other.close().await.unwrap();
    }
    for (name, content) in [
        ("text.db", "these are notes\n".repeat(1_000).into_bytes()),
        ("zeros.db", vec![0; 8_192]),
        ("short.db", b"SQLite format 3\0".to_vec()),
    ] {
        fs::write(at(name, ""), content).unwrap();
    }
    for (name, kind, hint) in [
        ("text.db", ErrorKind::Corrupt, "choose another path"),
        ("zeros.db", ErrorKind::Corrupt, "choose another path"),
        ("short.db", ErrorKind::Corrupt, ""),
        ("foreign.db", ErrorKind::Store, "belongs to another program"),
        ("numbered.db", ErrorKind::Store, "belongs to another program"),
        ("newer.db", ErrorKind::NewerVersion, "update"),
    ] {
        for logs in [&["-wal", "-shm"][..], &["-wal"], &["-shm"]] {
            for log in logs {
                fs::copy(at("own.db", log), at(name, log)).unwrap();
            }
            let log = fs::read(at(name, "-wal")).ok();
            refused(&at(name, ""), kind, hint).await;
            assert!(log.is_none() || fs::read(at(name, "-wal")).ok() == log, "{name}: the log is somebody's");
            for log in ["-wal", "-shm"] {
                fs::remove_file(at(name, log)).ok();
            }
        }
    }
    // A file with its own log is accepted, from a dead process as from a living one.
    for suffix in ["", "-wal", "-shm"] {
        fs::copy(at("own.db", suffix), at("copy.db", suffix)).unwrap();
    }
    for name in ["copy.db", "own.db"] {
        assert_eq!(count(&SqliteStore::open(at(name, "")).await.unwrap(), &id("s")).await, 2_000, "{name}");
    }
}

#[tokio::test]
async fn places_where_no_database_can_be_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    refused(directory.path(), ErrorKind::Store, "is a directory").await;
    refused(&directory.path().join("missing/sessions.db"), ErrorKind::Store, "create it first").await;
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    refused(&file.join("sessions.db"), ErrorKind::Store, "directory").await;
    assert!(!directory.path().join("missing").exists());
    #[cfg(target_os = "linux")]
    {
        refused(Path::new("/proc/sessions.db"), ErrorKind::Store, "cannot be opened").await;
        refused(Path::new("/dev/null"), ErrorKind::Store, "no regular file").await;
    }
    let error = SqliteStore::open("").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
}

#[tokio::test]
async fn a_write_protected_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    SqliteStore::open(&path).await.unwrap().close().await;
    let mut permissions = fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&path, permissions).unwrap();
    refused(&path, ErrorKind::Store, "make it writable").await;
}

#[tokio::test]
async fn odd_but_fine_paths_are_taken_literally() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["empty.db", "file:x?mode=memory", ":memory:", "with space % ? # é🚀.db"] {
        let path = directory.path().join(name);
        if name == "empty.db" {
            fs::write(&path, "").unwrap();
        }
        let store = SqliteStore::open(&path).await.unwrap();
        let session = create(&store, "s", 1).await;
        store.close().await;
        assert_eq!(store.path(), path);
        assert_eq!(count(&SqliteStore::open(&path).await.unwrap(), &session).await, 1, "{name}");
    }
}

#[tokio::test]
async fn a_closed_store_leaves_one_file_with_everything_and_says_that_it_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let session = create(&store, "s", 3).await;
    store.close().await;
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "the log was written back");
    let error = store.append(&session, 3, batch(1, 3, 1)).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Store && error.to_string().contains("open it again"), "{error}");
    assert_eq!(count(&SqliteStore::open(&path).await.unwrap(), &session).await, 3);
}

/// Copies of the files of an open store stand for those that a power cut leaves.
#[tokio::test]
async fn a_crash_loses_no_append_and_keeps_no_half_of_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let session = create(&store, "s", 1).await;
    let log = directory.path().join("sessions.db-wal");
    let before = fs::metadata(&log).unwrap().len();
    store.append(&session, 1, batch(1, 1, 400)).await.unwrap();
    let (file, log) = (fs::read(&path).unwrap(), fs::read(&log).unwrap());

    let crashed = async |name: &str, log: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, &file).unwrap();
        fs::write(directory.path().join(format!("{name}-wal")), log).unwrap();
        let store = SqliteStore::open(&path).await.unwrap();
        let found = count(&store, &session).await;
        store.append(&session, found as u64, batch(2, found as u64, 1)).await.unwrap();
        store.close().await;
        found
    };
    assert_eq!(crashed("whole.db", &log).await, 401);
    let torn = usize::try_from(before).unwrap();
    for (n, keep) in [log.len() - 1, log.len() - 5_000, torn + 5_000, torn + 1].into_iter().enumerate() {
        assert_eq!(crashed(&format!("torn{n}.db"), &log[..keep]).await, 1, "{keep} of {} bytes", log.len());
    }
}

#[cfg(unix)]
#[tokio::test]
async fn only_its_user_may_read_a_database_that_a_store_made() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let path = directory.path().join("sessions.db");
    let store = SqliteStore::open(&path).await.unwrap();
    create(&store, "s", 1).await;
    count(&store, &id("s")).await;
    for name in ["sessions.db", "sessions.db-wal", "sessions.db-shm"] {
        assert_eq!(mode(&directory.path().join(name)), 0o600, "{name}");
    }
    store.close().await;

    // A mode that somebody chose stays, for the logs too; an empty file counts as chosen.
    for (name, content, chosen) in
        [("wider.db", fs::read(&path).unwrap(), 0o664), ("empty.db", vec![], 0o640)]
    {
        let path = directory.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(chosen)).unwrap();
        let store = SqliteStore::open(&path).await.unwrap();
        create(&store, "t", 1).await;
        assert_eq!(mode(&path), chosen, "{name}");
        assert_eq!(mode(&directory.path().join(format!("{name}-wal"))), chosen, "{name}");
    }
}

#[tokio::test]
async fn however_long_a_store_may_wait_it_opens() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    for wait in [std::time::Duration::MAX, std::time::Duration::from_millis(u64::from(u32::MAX))] {
        let store = SqliteStore::builder(&path).busy_timeout(wait).build().await.unwrap();
        store.query(&SessionFilter::all()).await.unwrap();
    }
}
