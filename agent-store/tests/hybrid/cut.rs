//! Moves that are cut short at every step.

use entourage_core::{
    Error, ErrorKind,
    session::{ReadRange, SessionFilter, SessionStore},
};
use entourage_store::{ActiveStore, HybridStore, JsonStore, SqliteStore};

use crate::{Place, all_contents, batch, contents, create, create_tree, id, ids, quick, round, wire::Wire};

/// Archives `talk` until the power is cut; `None` if the move ended before.
async fn cut_short(active: &JsonStore, archive: &SqliteStore, cut: usize, after: bool) -> Option<Error> {
    let wire = Wire::cutting(cut, after);
    let result = wire.store(active, archive).archive(&id("talk")).await;
    (wire.used() > cut).then(|| result.err()).flatten()
}

#[tokio::test]
async fn lo10_a_move_that_is_cut_short_at_any_step_loses_nothing_and_is_finished_later() {
    let (mut points, mut both) = (0, 0);
    for after in [false, true] {
        for cut in 0.. {
            let place = Place::new();
            let (active, archive) = round(&place, cut).await;
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
            let held = active.held().await.unwrap().sessions;
            both += usize::from(held.iter().any(|it| it.sealed));
            // Appends continue where the session is, and a repeated old batch stores nothing.
            assert_eq!(store.append(&tree[1], 4, batch(2, 4, 1)).await.unwrap(), 6, "{cut} {after}");
            for session in &tree {
                assert_eq!(store.append(session, 6, batch(9, 6, 1)).await.unwrap(), 7, "{cut} {after}");
            }
            let newborn = create(&store, "talk.7$$0", Some(&tree[2])).await;
            let now = all_contents(&store, &tree).await;

            let in_file = archive.path() == place.archive();
            let reopened = if in_file { place.open().await } else { HybridStore::new(active, archive) };
            reopened.recover().await.unwrap();
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
    // The first cut after which all files are sealed; all of them still exist.
    let (mut place, mut cut) = (Place::new(), 0);
    let (tree, before, active, archive) = loop {
        let (active, archive) = quick(&place).await;
        let tree = create_tree(&active, "talk").await;
        let before = all_contents(&active, &tree).await;
        cut_short(&active, &archive, cut, false).await.unwrap();
        if active.held().await.unwrap().sessions.iter().all(|it| it.sealed) {
            break (tree, before, active, archive);
        }
        (place, cut) = (Place::new(), cut + 1);
    };
    assert_eq!((place.files(), active.held().await.unwrap().sessions.len()), (4, 4));
    assert_eq!(active.query(&SessionFilter::all()).await.unwrap(), []);
    // The archive counts now: a later change there is what everybody sees.
    let store = HybridStore::new(active.clone(), archive.clone());
    store.append(&tree[0], 6, batch(3, 6, 1)).await.unwrap();
    assert_eq!(contents(&store, &tree[0]).await.0.len(), 7);

    let reopened = place.open().await;
    assert_eq!(place.files(), 0);
    assert_eq!(all_contents(&reopened, &tree[1..]).await, before[1..]);
    assert_eq!(contents(&reopened, &tree[0]).await.0.len(), 7);
}

/// A delete is not undone by what a cut move left behind.
#[tokio::test]
async fn lo10_a_tree_can_be_deleted_in_the_middle_of_its_move() {
    let mut points = 0;
    for cut in 0.. {
        let place = Place::new();
        let (active, archive) = round(&place, cut).await;
        let tree = create_tree(&active, "talk").await;
        if cut_short(&active, &archive, cut, true).await.is_none() {
            break;
        }
        points += 1;
        let in_file = archive.path() == place.archive();
        let store = HybridStore::new(active, archive);
        assert_eq!(store.delete(&tree[0]).await.unwrap(), 4, "{cut}");
        let reopened = if in_file { place.open().await } else { store.clone() };
        for place in [reopened, store] {
            assert_eq!(ids(&place, &SessionFilter::all()).await, [""; 0], "{cut}");
            assert_eq!(place.read(&tree[1], ReadRange::all()).await.unwrap_err().kind(), ErrorKind::NotFound);
        }
        assert_eq!(place.files(), 0);
    }
    assert!(points > 30);
}
