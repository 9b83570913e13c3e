//! Active sessions as JSON lines, completed ones in an SQLite archive, and moves that are cut short at every step.

#![cfg(feature = "hybrid")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, clippy::indexing_slicing)]

#[path = "hybrid/beside.rs"]
mod beside;
#[path = "hybrid/broken.rs"]
mod broken;
#[path = "hybrid/cut.rs"]
mod cut;
#[path = "hybrid/handles.rs"]
mod handles;
#[path = "hybrid/lost.rs"]
mod lost;
#[path = "hybrid/outage.rs"]
mod outage;
#[path = "hybrid/wire.rs"]
mod wire;

use std::{fs, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, Result, RunId, SessionId, Timestamp,
    session::{
        Batch, Columns, Lease, ReadRange, Row, SessionFilter, SessionHead, SessionInfo, SessionRecord,
        SessionStatus, SessionStore,
    },
};
use entourage_store::{ActiveStore, Durability, FileProblemKind, HybridStore, JsonStore, SqliteStore};
use entourage_testkit::store::{Capabilities, Fixture, conformance};

fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

fn micros(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

/// Returns a batch of `count` events after `expected`, by `writer`, at the time `expected`.
fn batch(writer: u64, expected: u64, count: u64) -> Batch {
    let rows = (expected + 1..=expected + count)
        .map(|seq| {
            let columns = Columns::new(seq, micros(1), "warning", RunId::generate(), "root");
            // Bytes that a store must not touch.
            Row::stored(columns, format!("{{ \"text\" : \"by {writer}\",\n\"n\":{seq}.0 }}"))
        })
        .collect();
    let mut head = SessionHead::default();
    (head.seq, head.updated) = (expected + count, micros(i64::try_from(expected).unwrap()));
    Batch::new(writer, rows, head)
}

fn root(id: &SessionId) -> SessionRecord {
    SessionRecord::root(id.clone(), micros(1))
}

async fn create(store: &dyn SessionStore, name: &str, parent: Option<&SessionId>) -> SessionId {
    let id = id(name);
    let record = match parent {
        Some(parent) => SessionRecord::child(id.clone(), parent.clone(), "child", micros(1)),
        None => root(&id),
    };
    store.append(&id, 0, batch(1, 0, 2).creating(record)).await.unwrap();
    // Three writers took turns.
    for (writer, expected) in [(1, 2), (2, 3), (2, 4), (1, 5)] {
        store.append(&id, expected, batch(writer, expected, 1)).await.unwrap();
    }
    id
}

/// Creates a tree of four sessions.
async fn create_tree(store: &dyn SessionStore, name: &str) -> Vec<SessionId> {
    let root = create(store, name, None).await;
    let child = create(store, &format!("{name}.1$$0"), Some(&root)).await;
    let sibling = create(store, &format!("{name}.1$$1"), Some(&root)).await;
    let grandchild = create(store, &format!("{name}.1$$0.1$$0"), Some(&child)).await;
    vec![root, child, sibling, grandchild]
}

type Contents = (Vec<(Columns, String)>, SessionRecord, SessionHead);

async fn contents(store: &dyn SessionStore, id: &SessionId) -> Contents {
    let rows = store.read(id, ReadRange::all()).await.unwrap();
    let rows = rows.iter().map(|row| (row.columns(), row.body().unwrap().into_owned())).collect();
    let found = store.query(&SessionFilter::id(id.clone())).await.unwrap();
    let [info] = found.as_slice() else { panic!("{found:?}") };
    (rows, info.record.clone(), info.head.clone())
}

async fn all_contents(store: &dyn SessionStore, ids: &[SessionId]) -> Vec<Contents> {
    let mut all = Vec::new();
    for id in ids {
        all.push(contents(store, id).await);
    }
    all
}

async fn ids(store: &dyn SessionStore, filter: &SessionFilter) -> Vec<String> {
    store.query(filter).await.unwrap().iter().map(|info| info.record.id.to_string()).collect()
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn active(&self) -> std::path::PathBuf {
        self.0.path().join("active")
    }

    fn archive(&self) -> std::path::PathBuf {
        self.0.path().join("archive.db")
    }

    async fn open(&self) -> HybridStore {
        HybridStore::open(self.active(), self.archive()).await.unwrap()
    }

    /// Returns the number of session files in the directory.
    fn files(&self) -> usize {
        let is_session = |path: &Path| path.extension().is_some_and(|it| it == "jsonl");
        fs::read_dir(self.active())
            .unwrap()
            .filter(|entry| is_session(&entry.as_ref().unwrap().path()))
            .count()
    }
}

/// Opens a directory and an archive that do not wait for the disk.
async fn quick(place: &Place) -> (JsonStore, SqliteStore) {
    let active =
        JsonStore::builder(place.active()).durability(Durability::ProcessDeath).build().await.unwrap();
    let archive =
        SqliteStore::builder(place.archive()).durability(Durability::ProcessDeath).build().await.unwrap();
    (active, archive)
}

/// Opens the same for round `n` of many. Most rounds have the archive in memory, because such a test spends its time on
/// opening databases.
async fn round(place: &Place, n: usize) -> (JsonStore, SqliteStore) {
    if n.is_multiple_of(8) {
        return quick(place).await;
    }
    let active = JsonStore::builder(place.active()).durability(Durability::ProcessDeath);
    (active.build().await.unwrap(), SqliteStore::in_memory().await.unwrap())
}

/// A store that archives every session as soon as it is written: sessions in the archive keep the contract.
#[derive(Debug)]
struct Eager(HybridStore);

impl Eager {
    async fn archive(&self, session: &SessionId) -> Result<()> {
        if self.0.active().query(&SessionFilter::id(session.clone())).await?.is_empty() {
            return Ok(());
        }
        let mut root = session.clone();
        while let Some(info) = self.0.query(&SessionFilter::id(root.clone())).await?.pop() {
            match info.record.parent {
                Some(parent) => root = parent,
                None => break,
            }
        }
        match self.0.archive(&root).await {
            Ok(_) => Ok(()),
            Err(error)
                if [ErrorKind::Busy, ErrorKind::Conflict, ErrorKind::NotFound].contains(&error.kind()) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl SessionStore for Eager {
    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        let appended = self.0.append(session, expected, batch).await;
        self.archive(session).await?;
        appended
    }
    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        self.0.read(session, range).await
    }
    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        self.0.query(filter).await
    }
    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        self.0.lease(session, lease).await
    }
    async fn delete(&self, session: &SessionId) -> Result<u64> {
        self.0.delete(session).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lo10_a_store_that_archives_after_every_append_passes_the_suite() {
    let make = async || {
        let place = Place::new();
        let active =
            JsonStore::builder(place.active()).durability(Durability::ProcessDeath).build().await.unwrap();
        let archive =
            SqliteStore::builder(place.archive()).durability(Durability::ProcessDeath).build().await.unwrap();
        let store = Eager(HybridStore::new(active, archive));
        Fixture::from(Arc::new(store)).keeping(place.0)
    };
    let report = conformance("hybrid, archived at once", Capabilities::all().without_reopen(), make).await;
    println!("{report:#}");
    report.assert();
}

#[tokio::test]
async fn lo10_a_tree_moves_to_the_archive_byte_for_byte_and_goes_on_there() {
    let place = Place::new();
    let store = place.open().await;
    let tree = create_tree(&store, "talk").await;
    let neighbour = create(&store, "talk2", None).await;
    let before = all_contents(&store, &tree).await;

    assert_eq!(store.archive(&tree[0]).await.unwrap(), 4);
    assert_eq!(place.files(), 1, "the neighbour's");
    assert_eq!(all_contents(&store, &tree).await, before);
    assert_eq!(all_contents(store.archived(), &tree).await, before);
    assert_eq!(store.archive(&tree[0]).await.unwrap(), 0, "archiving again");
    assert_eq!(store.query(&SessionFilter::all()).await.unwrap().len(), 5);
    assert_eq!(ids(&store, &SessionFilter::tree(tree[1].clone())).await.len(), 2);

    // A late repetition of a batch from before the move stores nothing, whoever wrote it.
    for (writer, expected, count) in [(1, 0, 3), (2, 3, 2), (2, 4, 1), (1, 5, 1)] {
        assert_eq!(store.append(&tree[0], expected, batch(writer, expected, count)).await.unwrap(), 6);
    }
    assert_eq!(store.append(&tree[0], 0, batch(1, 0, 2).creating(root(&tree[0]))).await.unwrap(), 6);
    for (writer, expected) in [(2, 5), (1, 4), (9, 0)] {
        let error = store.append(&tree[0], expected, batch(writer, expected, 1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
    }
    assert_eq!(all_contents(&store, &tree).await, before);

    assert_eq!(store.append(&tree[0], 6, batch(3, 6, 1)).await.unwrap(), 7);
    let late = create(&store, "talk.7$$0", Some(&tree[0])).await;
    assert_eq!(place.files(), 1, "what is below an archived session is archived");
    assert_eq!(ids(&store, &SessionFilter::tree(tree[0].clone())).await.len(), 5);
    assert_eq!(contents(store.archived(), &late).await.0.len(), 6);

    let reopened = place.open().await;
    assert_eq!(
        reopened.query(&SessionFilter::all()).await.unwrap(),
        store.query(&SessionFilter::all()).await.unwrap()
    );
    assert_eq!(reopened.delete(&tree[0]).await.unwrap(), 5);
    assert_eq!(ids(&store, &SessionFilter::all()).await, ["talk2"]);
    assert_eq!(store.delete(&neighbour).await.unwrap(), 1);
}

#[tokio::test]
async fn lo10_lists_merge_both_newest_first() {
    let place = Place::new();
    let store = place.open().await;
    for n in 0..20_u64 {
        let session = id(&format!("s{n:02}"));
        let mut first = batch(1, 0, 1);
        first.head.updated = micros(i64::try_from(n % 5).unwrap());
        store.append(&session, 0, first.creating(root(&session))).await.unwrap();
        if n % 3 == 0 {
            assert_eq!(store.archive(&session).await.unwrap(), 1);
        }
    }
    let all = ids(&store, &SessionFilter::all()).await;
    let mut expected: Vec<(i64, String)> = (0..20_i64).map(|n| (-(n % 5), format!("s{n:02}"))).collect();
    expected.sort();
    assert_eq!(all, expected.into_iter().map(|(_, id)| id).collect::<Vec<_>>());
    for size in [1, 3, 7, 20, 50] {
        let mut paged = Vec::new();
        for offset in (0..20).step_by(size) {
            paged.extend(ids(&store, &SessionFilter::roots().page(offset, size)).await);
        }
        assert_eq!(paged, all, "pages of {size}");
    }
    assert_eq!(ids(&store, &SessionFilter::all().with_prefix("s1").page(2, 3)).await.len(), 3);
}

#[tokio::test]
async fn lo10_what_is_not_over_is_not_archived() {
    let place = Place::new();
    let store = place.open().await;
    let tree = create_tree(&store, "talk").await;
    for (seq, status) in [(6, SessionStatus::Running), (7, SessionStatus::Paused)] {
        let mut next = batch(1, seq, 1);
        next.head.status = status;
        store.append(&tree[3], seq, next).await.unwrap();
        assert_eq!(store.archive(&tree[0]).await.unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(store.archive_idle(Timestamp::now()).await.unwrap(), []);
    }
    store.append(&tree[3], 8, batch(1, 8, 1)).await.unwrap();
    // Somebody holds a lease though no run is in flight.
    let until = Timestamp::now().after(Duration::from_secs(60));
    store.lease(&tree[2], Lease::new(1, 1, until)).await.unwrap();
    assert_eq!(store.archive(&tree[0]).await.unwrap_err().kind(), ErrorKind::Busy);
    store.lease(&tree[2], Lease::new(1, 1, micros(0))).await.unwrap();
    let error = store.archive(&tree[1]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
    assert_eq!(store.archive(&id("nobody")).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(store.archived().query(&SessionFilter::all()).await.unwrap(), []);

    create(&store, "old", None).await;
    // The newest event anywhere in the tree counts.
    assert_eq!(store.archive_idle(micros(8)).await.unwrap(), [id("old")]);
    assert_eq!(store.archive_idle(micros(9)).await.unwrap(), [tree[0].clone()]);
    assert_eq!(place.files(), 0);
}

#[tokio::test]
async fn attack_10_leases_move_along_so_a_stale_owner_stays_refused_and_the_last_one_goes_on() {
    let place = Place::new();
    let store = place.open().await;
    let session = create(&store, "s", None).await;
    let (stale, last) = (Lease::new(7, 3, micros(5)), Lease::new(8, 4, micros(0)));
    store.append(&session, 6, batch(7, 6, 1).leased(stale)).await.unwrap();
    store.lease(&session, last).await.unwrap();
    store.archive(&session).await.unwrap();
    assert_eq!(store.query(&SessionFilter::id(session.clone())).await.unwrap()[0].lease, Some(last));
    let error = store.append(&session, 7, batch(7, 7, 1).leased(stale)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
    assert_eq!(store.append(&session, 7, batch(8, 7, 1).leased(last)).await.unwrap(), 8);
}

#[tokio::test]
async fn lo10_files_are_kept_while_the_archive_lacks_what_was_moved() {
    let place = Place::new();
    let (active, _) = quick(&place).await;
    let session = create(&active, "s", None).await;
    let found = active.query(&SessionFilter::id(session.clone())).await.unwrap();
    active.seal(&found[0]).await.unwrap();
    // The archive was lost, or this is another one.
    let store = HybridStore::new(active.clone(), SqliteStore::in_memory().await.unwrap());
    assert_eq!(store.archive(&session).await.unwrap_err().kind(), ErrorKind::Store);
    assert_eq!(store.recover().await.unwrap_err().kind(), ErrorKind::Store);
    assert_eq!(place.files(), 1);
    assert_eq!(store.delete(&session).await.unwrap(), 0);
    assert_eq!(place.files(), 0);
}

#[tokio::test]
async fn lo10_another_history_in_the_archive_is_a_conflict() {
    let place = Place::new();
    let store = place.open().await;
    let session = create(store.active(), "s", None).await;
    store.archived().append(&session, 0, batch(77, 0, 3).creating(root(&session))).await.unwrap();
    assert_eq!(contents(&store, &session).await.0.len(), 6, "the file counts as long as it is there");
    assert_eq!(store.archive(&session).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!((place.files(), contents(&store, &session).await.0.len()), (1, 6));
    // A failed attempt blocks nobody.
    assert_eq!(store.append(&session, 6, batch(1, 6, 1)).await.unwrap(), 7);
}

#[tokio::test]
async fn lo10_damaged_files_are_set_aside_and_reported() {
    let place = Place::new();
    let store = place.open().await;
    let tree = create_tree(&store, "talk").await;
    store.archive(&tree[0]).await.unwrap();
    create(&store, "fine", None).await;
    let damaged = create(&store, "damaged", None).await;
    let newer = create(&store, "newer", None).await;
    fs::write(store.active().path_of(&damaged), "{\"format\":1,").unwrap();
    fs::write(store.active().path_of(&newer), "{\"format\":2}\n").unwrap();
    // An archived session whose file came back damaged: the archive has it.
    fs::write(store.active().path_of(&tree[0]), "").unwrap();
    assert_eq!(store.read(&damaged, ReadRange::all()).await.unwrap_err().kind(), ErrorKind::Corrupt);

    let reopened = place.open().await;
    let problems = reopened.active().problems().await.unwrap();
    let aside: Vec<_> = problems
        .iter()
        .filter_map(|it| match &it.kind {
            FileProblemKind::SetAside { aside } => {
                Some((it.session.clone().unwrap(), fs::read(aside).unwrap()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(aside, [(tree[0].clone(), Vec::new())], "the archive has it");
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert_eq!(reopened.read(&newer, ReadRange::all()).await.unwrap_err().kind(), ErrorKind::NewerVersion);
    assert_eq!(reopened.read(&damaged, ReadRange::all()).await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(contents(&reopened, &tree[0]).await.0.len(), 6);
    assert_eq!(ids(&reopened, &SessionFilter::all()).await.len(), 5);
}

/// Writers continue while their sessions are moved over and over; every append that returned is stored.
#[tokio::test(flavor = "multi_thread")]
async fn lo10_no_append_is_lost_while_sessions_move() {
    let place = Place::new();
    let (active, archive) = quick(&place).await;
    let store = HybridStore::new(active.clone(), archive.clone());
    let sessions: Vec<_> = (0..8).map(|n| id(&format!("s{n}"))).collect();
    let mut writers = tokio::task::JoinSet::new();
    for session in sessions.clone() {
        // Each writer has a store of its own, as another process has.
        let store = HybridStore::new(active.clone(), archive.clone());
        writers.spawn(async move {
            store.append(&session, 0, batch(5, 0, 1).creating(root(&session))).await.unwrap();
            for expected in 1..40 {
                store.append(&session, expected, batch(5, expected, 1)).await.unwrap();
            }
        });
    }
    let (mut moved, mut seen) = (0, 0);
    while !writers.is_empty() {
        moved += store.archive_idle(micros(i64::MAX)).await.unwrap().len();
        let listed = ids(&store, &SessionFilter::all()).await;
        assert!(listed.len() >= seen, "a session that is moved is listed all the time");
        seen = listed.iter().collect::<std::collections::HashSet<_>>().len();
        assert_eq!(listed.len(), seen, "and once");
        while let Some(ended) = writers.try_join_next() {
            ended.unwrap();
        }
        tokio::task::yield_now().await;
    }
    moved += store.archive_idle(micros(i64::MAX)).await.unwrap().len();
    assert_eq!(moved, 8);
    for session in sessions {
        let (rows, ..) = contents(store.archived(), &session).await;
        assert_eq!(
            rows.iter().map(|(columns, _)| columns.seq).collect::<Vec<_>>(),
            (1..=40).collect::<Vec<_>>()
        );
    }
    assert_eq!(place.files(), 0);
}

/// A session of many events is copied page by page.
#[tokio::test]
async fn lo10_a_long_session_moves_in_pages() {
    let place = Place::new();
    let (active, archive) = quick(&place).await;
    let store = HybridStore::new(active, archive);
    let session = id("s");
    store.append(&session, 0, batch(1, 0, 700).creating(root(&session))).await.unwrap();
    for n in 0..300 {
        store.append(&session, 700 + n, batch(n / 100, 700 + n, 1)).await.unwrap();
    }
    let before = contents(&store, &session).await;
    assert_eq!(store.archive(&session).await.unwrap(), 1);
    assert_eq!(contents(store.archived(), &session).await, before);
    assert_eq!(store.append(&session, 850, batch(1, 850, 50)).await.unwrap(), 1_000);
    assert_eq!(store.append(&session, 850, batch(1, 850, 51)).await.unwrap_err().kind(), ErrorKind::Conflict);
}
