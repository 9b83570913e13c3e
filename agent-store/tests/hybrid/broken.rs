//! An archive that is gone, cut, exchanged or unreadable, and copies that do not count.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    session::{
        Batch, Lease, ReadRange, Row, SessionFilter, SessionInfo, SessionRecord, SessionStore, SharedStore,
    },
};
use entourage_store::{ActiveStore, ArchiveStore, HybridStore, JsonStore, SqliteStore};

use crate::{
    Place, all_contents, batch, contents, create, create_tree, id, ids, micros, quick, root, wire::Wire,
};

/// Loses or damages the archive's file while it is in use, in the way named by `how`.
fn lose(path: &std::path::Path, how: &str) {
    let beside = |ending: &str| path.with_file_name(format!("archive.db{ending}"));
    match how {
        "deleted" => {
            for ending in ["", "-wal", "-shm"] {
                fs::remove_file(beside(ending)).ok();
            }
        }
        "exchanged" => {
            fs::rename(path, beside(".old")).unwrap();
            for ending in ["-wal", "-shm"] {
                fs::rename(beside(ending), beside(&format!(".old{ending}"))).ok();
            }
            fs::File::create(path).unwrap();
        }
        "a directory" => {
            lose(path, "deleted");
            fs::create_dir(path).unwrap();
        }
        "cut" => fs::File::options().write(true).open(path).unwrap().set_len(1_000).unwrap(),
        _ => {
            lose(path, "deleted");
            fs::write(path, "This is no database, it only stands in its place.").unwrap();
        }
    }
}

#[tokio::test]
async fn attack_36_nothing_is_deleted_that_cannot_be_read_again_in_the_archives_file() {
    for how in ["deleted", "exchanged", "a directory", "cut", "overwritten"] {
        let place = Place::new();
        let (active, archive) = quick(&place).await;
        let store = HybridStore::new(active.clone(), archive);
        let old = create(&store, "old", None).await;
        store.archive(&old).await.unwrap();
        let tree = create_tree(&store, "talk").await;
        let before = all_contents(&active, &tree).await;
        lose(&place.archive(), how);
        match store.archive(&tree[0]).await {
            Err(error) => {
                let kinds = [ErrorKind::Store, ErrorKind::Corrupt, ErrorKind::NotFound];
                assert!(kinds.contains(&error.kind()), "{how}: {error:?}");
                assert_eq!(all_contents(&active, &tree).await, before, "{how}");
                assert_eq!(store.append(&tree[1], 6, batch(9, 6, 1)).await.unwrap(), 7, "{how}");
            }
            // A cut file may have been rewritten from the log: then the next process sees everything.
            Ok(moved) => {
                assert_eq!((how, moved), ("cut", 4));
                let next = SqliteStore::open(place.archive()).await.unwrap();
                assert_eq!(all_contents(&next, &tree).await, before, "{how}");
            }
        }
    }
}

/// An archive that can be made unreadable.
#[derive(Debug)]
struct Fragile(SqliteStore, Arc<AtomicBool>);

impl Fragile {
    async fn at<T>(&self, operation: impl Future<Output = Result<T>>) -> Result<T> {
        if self.1.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Corrupt, "the database is damaged"));
        }
        operation.await
    }
}

#[async_trait]
impl SessionStore for Fragile {
    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        self.at(self.0.append(session, expected, batch)).await
    }
    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        self.at(self.0.read(session, range)).await
    }
    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        self.at(self.0.query(filter)).await
    }
    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        self.at(self.0.lease(session, lease)).await
    }
    async fn delete(&self, session: &SessionId) -> Result<u64> {
        self.at(self.0.delete(session)).await
    }
}

#[async_trait]
impl ArchiveStore for Fragile {
    async fn afresh(&self) -> Result<Option<SharedStore>> {
        self.at(self.0.afresh()).await
    }
}

async fn fragile(place: &Place) -> (HybridStore<JsonStore, Fragile>, Arc<AtomicBool>) {
    let (active, archive) = quick(place).await;
    let broken = Arc::new(AtomicBool::new(false));
    (HybridStore::new(active, Fragile(archive, Arc::clone(&broken))), broken)
}

#[tokio::test]
async fn attack_44_without_its_archive_the_store_starts_goes_on_with_and_lists_active_sessions() {
    let place = Place::new();
    let (store, broken) = fragile(&place).await;
    let old = create(&store, "old", None).await;
    store.archive(&old).await.unwrap();
    let tree = create_tree(&store, "talk").await;
    assert_eq!(ids(&store, &SessionFilter::all()).await.len(), 5);
    assert!(store.archive_error().is_none());

    broken.store(true, Ordering::Relaxed);
    let young = create(&store, "young", None).await;
    create(&store, "young.1$$0", Some(&young)).await;
    store.append(&tree[1], 6, batch(9, 6, 1)).await.unwrap();
    store.lease(&tree[1], Lease::new(1, 1, micros(0))).await.unwrap();
    assert_eq!(contents(&store, &tree[1]).await.0.len(), 7);
    assert_eq!(ids(&store, &SessionFilter::all()).await.len(), 6);
    assert_eq!(ids(&store, &SessionFilter::roots().page(0, 1)).await.len(), 1);
    assert_eq!(ids(&store, &SessionFilter::tree(tree[1].clone())).await.len(), 2);
    assert_eq!(store.archive_error().unwrap().kind(), ErrorKind::Corrupt, "the list says what it lacks");
    // All else is an error, never a guess.
    assert_eq!(store.query(&SessionFilter::id(old.clone())).await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(store.read(&old, ReadRange::all()).await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(store.append(&old, 6, batch(9, 6, 1)).await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(store.delete(&tree[0]).await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(store.archive(&tree[0]).await.unwrap_err().kind(), ErrorKind::Corrupt);
    let record = SessionRecord::child(id("old.1$$0"), old.clone(), "child", micros(1));
    let below = store.append(&id("old.1$$0"), 0, batch(1, 0, 1).creating(record)).await;
    assert_eq!(below.unwrap_err().kind(), ErrorKind::Corrupt, "below what is archived");

    broken.store(false, Ordering::Relaxed);
    assert_eq!(ids(&store, &SessionFilter::all()).await.len(), 7);
    assert!(store.archive_error().is_none());
    assert_eq!(store.archive_idle(micros(i64::MAX)).await.unwrap().len(), 2);
    assert_eq!(place.files(), 0);
}

#[tokio::test]
async fn an_archive_that_was_closed_is_an_error_and_no_shorter_list() {
    let place = Place::new();
    let (active, archive) = quick(&place).await;
    let store = HybridStore::new(active, archive);
    create(&store, "s", None).await;
    store.archived().close().await;
    let error = store.query(&SessionFilter::all()).await.unwrap_err();
    assert!(error.to_string().contains("the store was closed"), "{error}");
    assert!(store.archive_error().is_none());
}

#[tokio::test]
async fn a_new_session_of_an_archived_id_is_not_moved_over_the_old_one() {
    let place = Place::new();
    let (store, broken) = fragile(&place).await;
    let session = create(&store, "s", None).await;
    store.archive(&session).await.unwrap();
    let old = contents(store.archived(), &session).await;
    broken.store(true, Ordering::Relaxed);
    store.append(&session, 0, batch(5, 0, 9).creating(root(&session))).await.unwrap();
    broken.store(false, Ordering::Relaxed);
    assert_eq!(contents(&store, &session).await.0.len(), 9);
    for _ in 0..2 {
        assert_eq!(store.archive(&session).await.unwrap_err().kind(), ErrorKind::Conflict);
    }
    assert_eq!(contents(store.archived(), &session).await, old);
    assert_eq!(contents(&store, &session).await.0.len(), 9);
}

/// Returns a move that was cut between the first copy and the seal, of a session that got more events since.
async fn stale(place: &Place) -> (JsonStore, SqliteStore, SessionId) {
    let (active, archive) = quick(place).await;
    let session = create(&active, "talk", None).await;
    let mut cut = 0;
    while archive.query(&SessionFilter::all()).await.unwrap().is_empty() {
        Wire::cutting(cut, true).store(&active, &archive).archive(&session).await.unwrap_err();
        cut += 1;
    }
    active.append(&session, 6, batch(1, 6, 3)).await.unwrap();
    (active, archive, session)
}

#[tokio::test]
async fn attack_37_the_copy_of_a_failed_move_is_not_served_when_the_file_is_damaged_later() {
    let place = Place::new();
    let (active, archive, session) = stale(&place).await;
    assert!(active.is_copy(&session).await.unwrap());
    drop(HybridStore::new(active.clone(), archive));
    let file = active.path_of(&session);
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[5..]).unwrap();

    let store = place.open().await;
    let of = SessionFilter::id(session.clone());
    for _ in 0..2 {
        assert_eq!(store.query(&of).await.unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(store.read(&session, ReadRange::all()).await.unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(
            store.append(&session, 6, batch(1, 6, 1)).await.unwrap_err().kind(),
            ErrorKind::Corrupt,
            "what was appended to the copy would be lost"
        );
        assert_eq!(ids(&store, &SessionFilter::all()).await, [""; 0]);
    }
    // Once its file is mended, the session goes on.
    let damaged = fs::read(&file).unwrap();
    fs::write(&file, &whole).unwrap();
    assert_eq!(contents(&store, &session).await.0.len(), 9);
    // Once set aside, it is gone, and another session may take its id.
    fs::write(&file, &damaged).unwrap();
    store.active().set_aside(&session).await.unwrap();
    assert_eq!(store.query(&of).await.unwrap(), []);
    assert_eq!(store.read(&session, ReadRange::all()).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(ids(&store, &SessionFilter::all()).await, [""; 0]);
    assert_eq!(store.archive(&session).await.unwrap_err().kind(), ErrorKind::NotFound);
    store.append(&session, 0, batch(5, 0, 2).creating(root(&session))).await.unwrap();
    assert_eq!(contents(&store, &session).await.0.len(), 2);
    // The next move replaces the copy of the first session.
    assert_eq!(store.archive(&session).await.unwrap(), 1);
    assert_eq!(contents(&store, &session).await.0.len(), 2);
    assert_eq!(contents(store.archived(), &session).await.0.len(), 2);
    assert_eq!(store.delete(&session).await.unwrap(), 1);
}

#[tokio::test]
async fn attack_37_a_copy_whose_file_is_lost_is_deleted_with_it() {
    for damaged in [false, true] {
        let place = Place::new();
        let (active, archive, session) = stale(&place).await;
        let store = HybridStore::new(active.clone(), archive);
        if damaged {
            fs::write(active.path_of(&session), "").unwrap();
        } else {
            fs::remove_file(active.path_of(&session)).unwrap();
        }
        assert_eq!(store.delete(&session).await.unwrap(), u64::from(damaged));
        assert_eq!(store.archived().query(&SessionFilter::all()).await.unwrap(), []);
        assert!(!active.is_copy(&session).await.unwrap());
        create(&store, "talk", None).await;
        store.archive(&session).await.unwrap();
        assert_eq!(contents(&store, &session).await.0.len(), 6);
    }
}

/// Files that cannot be read, one of each kind among many intact ones.
#[tokio::test]
async fn attack_44_an_unreadable_file_is_an_error_of_its_session_alone() {
    let place = Place::new();
    let (active, archive) = quick(&place).await;
    let store = HybridStore::new(active.clone(), archive);
    for n in 0..40 {
        create(&store, &format!("s{n:02}"), None).await;
    }
    let broken: Vec<SessionId> = (0..4).map(|n| id(&format!("s{n:02}"))).collect();
    for session in &broken {
        fs::remove_file(active.path_of(session)).unwrap();
    }
    fs::write(active.path_of(&broken[0]), [0xff; 40_000]).unwrap();
    fs::write(active.path_of(&broken[1]), "{\"format\":9}\n").unwrap();
    fs::create_dir(active.path_of(&broken[2])).unwrap();
    fs::write(active.path_of(&broken[3]), "").unwrap();
    assert_eq!(ids(&store, &SessionFilter::all()).await.len(), 36);
    assert_eq!(ids(&store, &SessionFilter::roots().page(30, 10)).await.len(), 6);
    create(&store, "young", None).await;
    create(&store, "s05.1$$0", Some(&id("s05"))).await;
    assert_eq!(contents(&store, &id("s04")).await.0.len(), 6);
    for session in &broken {
        let error = store.read(session, ReadRange::all()).await.unwrap_err();
        assert!([ErrorKind::Corrupt, ErrorKind::NewerVersion].contains(&error.kind()), "{error:?}");
        assert!(store.query(&SessionFilter::id(session.clone())).await.is_err());
    }
    let named = active.problems().await.unwrap().into_iter().filter_map(|problem| problem.session);
    assert_eq!(named.collect::<Vec<_>>(), broken);
    assert_eq!(store.archive_idle(micros(i64::MAX)).await.unwrap().len(), 37);
    assert_eq!(store.active().held().await.unwrap().sessions, []);
}

/// A move whose copy is lost cannot be finished. It blocks no other session, and no move of another tree.
#[tokio::test]
async fn attack_44_a_move_that_cannot_be_finished_holds_up_nothing_else() {
    let place = Place::new();
    let (active, _) = quick(&place).await;
    let lost = create(&active, "lost", None).await;
    let found = active.query(&SessionFilter::id(lost.clone())).await.unwrap();
    active.seal(&found[0]).await.unwrap();
    for name in ["a", "z"] {
        create(&active, name, None).await;
    }
    let store = place.open().await;
    assert_eq!(contents(&store, &id("a")).await.0.len(), 6);
    assert_eq!(store.recover().await.unwrap_err().kind(), ErrorKind::Store);
    assert_eq!(store.archive_idle(micros(i64::MAX)).await.unwrap_err().kind(), ErrorKind::Store);
    assert_eq!(place.files(), 1, "all others were moved");
    assert_eq!(store.delete(&lost).await.unwrap(), 0);
    assert_eq!(store.recover().await.unwrap(), 0);
}
