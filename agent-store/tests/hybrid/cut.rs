//! Moves that are cut short at every step.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, SessionId, Timestamp,
    session::{Batch, Lease, ReadRange, Row, SessionFilter, SessionInfo, SessionStore},
};
use entourage_store::{ActiveStore, Held, HybridStore, JsonStore, SqliteStore};

use crate::{Place, all_contents, batch, contents, create, create_tree, id, ids, micros, quick};

/// Counts operations on both stores and fails from one on, as if the process had died there: before it, or after it was
/// done but before anybody heard.
#[derive(Debug)]
struct Power {
    used: AtomicUsize,
    cut: usize,
    after: bool,
}

#[derive(Debug)]
struct Wired<S>(S, Arc<Power>);

impl<S> Wired<S> {
    async fn at<T>(&self, operation: impl Future<Output = Result<T>>) -> Result<T> {
        let n = self.1.used.fetch_add(1, Ordering::Relaxed);
        if n > self.1.cut || (n == self.1.cut && !self.1.after) {
            return Err(Error::new(ErrorKind::Store, "the power is cut"));
        }
        let done = operation.await;
        if n == self.1.cut { Err(Error::new(ErrorKind::Store, "the power is cut")) } else { done }
    }
}

#[async_trait]
impl<S: SessionStore> SessionStore for Wired<S> {
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
impl<S: ActiveStore> ActiveStore for Wired<S> {
    async fn held(&self) -> Result<Vec<Held>> {
        self.at(self.0.held()).await
    }
    async fn batches(&self, session: &SessionId, after: u64, events: usize) -> Result<Vec<Batch>> {
        self.at(self.0.batches(session, after, events)).await
    }
    async fn seal(&self, session: &SessionId, expected: u64) -> Result<()> {
        self.at(self.0.seal(session, expected)).await
    }
}

/// Archives `talk` until the power is cut; `None` when it did not come to that.
async fn cut_short(active: &JsonStore, archive: &SqliteStore, cut: usize, after: bool) -> Option<Error> {
    let power = Arc::new(Power { used: AtomicUsize::new(0), cut, after });
    let (active, archive) =
        (Wired(active.clone(), Arc::clone(&power)), Wired(archive.clone(), Arc::clone(&power)));
    let result = HybridStore::new(active, archive).archive(&id("talk")).await;
    (power.used.load(Ordering::Relaxed) > cut).then(|| result.err()).flatten()
}

/// Lets leases of the dead run out.
async fn expire(active: &JsonStore) {
    for held in active.held().await.unwrap() {
        if let (false, Some(lease)) = (held.sealed, held.info.lease) {
            let over = Lease::new(lease.owner, lease.generation, micros(0));
            active.lease(&held.info.record.id, over).await.unwrap();
        }
    }
}

#[tokio::test]
async fn lo10_a_move_that_is_cut_short_at_any_step_loses_nothing_and_is_finished_later() {
    let (mut points, mut both) = (0, 0);
    for after in [false, true] {
        for cut in 0.. {
            let place = Place::new();
            let (active, archive) = quick(&place).await;
            let tree = create_tree(&active, "talk").await;
            let before = all_contents(&active, &tree).await;
            let Some(error) = cut_short(&active, &archive, cut, after).await else { break };
            assert_eq!(error.kind(), ErrorKind::Store, "{cut}: {error:?}");
            points += 1;

            // Another process sees everything, each session once, before anything is mended.
            let store = HybridStore::new(active.clone(), archive.clone());
            assert_eq!(all_contents(&store, &tree).await, before, "{cut} {after}");
            assert_eq!(ids(&store, &SessionFilter::all()).await.len(), 4, "{cut} {after}");
            assert_eq!(ids(&store, &SessionFilter::all().page(1, 2)).await.len(), 2, "{cut} {after}");
            assert_eq!(ids(&store, &SessionFilter::tree(tree[1].clone())).await.len(), 2, "{cut} {after}");
            let held = active.held().await.unwrap();
            both += usize::from(held.iter().any(|it| it.sealed));
            // It goes on where the session is, and an echo of the past stores nothing.
            assert_eq!(store.append(&tree[1], 4, batch(2, 4, 1)).await.unwrap(), 6, "{cut} {after}");
            for session in &tree {
                assert_eq!(store.append(session, 6, batch(9, 6, 1)).await.unwrap(), 7, "{cut} {after}");
            }
            let newborn = create(&store, "talk.7$$0", Some(&tree[2])).await;
            let now = all_contents(&store, &tree).await;

            expire(&active).await;
            let reopened = place.open().await;
            assert!(reopened.active().problems().await.unwrap().is_empty());
            reopened.archive(&tree[0]).await.unwrap();
            assert_eq!(place.files(), 0, "{cut} {after}");
            assert_eq!(all_contents(reopened.archived(), &tree).await, now, "{cut} {after}");
            assert_eq!(contents(reopened.archived(), &newborn).await.0.len(), 6);
            assert_eq!(reopened.archive(&tree[0]).await.unwrap(), 0);
            assert_eq!(reopened.delete(&tree[0]).await.unwrap(), 5);
            assert_eq!(ids(&reopened, &SessionFilter::all()).await, [""; 0]);
        }
    }
    println!("cut at {points} points, of which {both} left sessions in both places");
    assert!(points > 60 && both > 8, "{points} {both}");
}

#[tokio::test]
async fn lo10_opening_finishes_what_a_crash_left_in_both_places_and_the_archive_wins() {
    // The first cut at which all files are sealed: they are all there still.
    let (mut place, mut cut) = (Place::new(), 0);
    let (tree, before, active, archive) = loop {
        let (active, archive) = quick(&place).await;
        let tree = create_tree(&active, "talk").await;
        let before = all_contents(&active, &tree).await;
        cut_short(&active, &archive, cut, false).await.unwrap();
        if active.held().await.unwrap().iter().all(|it| it.sealed) {
            break (tree, before, active, archive);
        }
        (place, cut) = (Place::new(), cut + 1);
    };
    assert_eq!((place.files(), active.held().await.unwrap().len()), (4, 4));
    assert_eq!(active.query(&SessionFilter::all()).await.unwrap(), []);
    // What counts is in the archive: a later change there is what everybody sees.
    let store = HybridStore::new(active.clone(), archive.clone());
    store.append(&tree[0], 6, batch(3, 6, 1)).await.unwrap();
    assert_eq!(contents(&store, &tree[0]).await.0.len(), 7);

    let reopened = place.open().await;
    assert_eq!(place.files(), 0);
    assert_eq!(all_contents(&reopened, &tree[1..]).await, before[1..]);
    assert_eq!(contents(&reopened, &tree[0]).await.0.len(), 7);
}

/// Deleting is not undone by what a move left behind.
#[tokio::test]
async fn lo10_a_tree_can_be_deleted_in_the_middle_of_its_move() {
    let mut points = 0;
    for cut in 0.. {
        let place = Place::new();
        let (active, archive) = quick(&place).await;
        let tree = create_tree(&active, "talk").await;
        if cut_short(&active, &archive, cut, true).await.is_none() {
            break;
        }
        points += 1;
        let store = HybridStore::new(active, archive);
        assert_eq!(store.delete(&tree[0]).await.unwrap(), 4, "{cut}");
        for place in [place.open().await, store] {
            assert_eq!(ids(&place, &SessionFilter::all()).await, [""; 0], "{cut}");
            assert_eq!(place.read(&tree[1], ReadRange::all()).await.unwrap_err().kind(), ErrorKind::NotFound);
        }
        assert_eq!(place.files(), 0);
    }
    assert!(points > 30);
}

/// The mover holds the lease itself while it copies: a run that wants to begin there sees that it is taken.
#[tokio::test]
async fn lo10_the_move_holds_the_lease() {
    let place = Place::new();
    let (active, archive) = quick(&place).await;
    let tree = create_tree(&active, "talk").await;
    active.lease(&tree[0], Lease::new(5, 2, micros(0))).await.unwrap();
    let mut cut = 0;
    // Until the first copy is under way.
    while archive.query(&SessionFilter::all()).await.unwrap().is_empty() {
        expire(&active).await;
        cut_short(&active, &archive, cut, true).await.unwrap();
        cut += 1;
    }
    for session in &tree {
        let lease = active.query(&SessionFilter::id(session.clone())).await.unwrap()[0].lease.unwrap();
        assert!(lease.is_live(Timestamp::now()), "{lease:?}");
    }
    let store = HybridStore::new(active, archive);
    assert_eq!(store.archive(&tree[0]).await.unwrap_err().kind(), ErrorKind::Busy);
    let error =
        store.append(&tree[0], 6, batch(5, 6, 1).leased(Lease::new(5, 2, micros(9)))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
}
