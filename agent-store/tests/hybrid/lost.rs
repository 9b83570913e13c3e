//! One side that is out of reach for a while, and deletes that died half way. A session that cannot be reached is never
//! taken for one that does not exist.

use std::fs;

use entourage_core::{
    ErrorKind,
    session::{ReadRange, SessionFilter, SessionStore},
};
use entourage_store::{ActiveStore, HybridStore, SqliteStore};

use crate::{
    Place, all_contents, batch, contents, create, create_tree, id, ids, micros, quick, root, round,
    wire::Wire,
};

#[tokio::test]
async fn attack_f2_while_the_directory_is_gone_nothing_goes_to_the_archive_in_its_stead() {
    for empty in [false, true] {
        let place = Place::new();
        let (active, archive) = quick(&place).await;
        let store = HybridStore::new(active.clone(), archive);
        let old = create(&store, "old", None).await;
        store.archive(&old).await.unwrap();
        let session = create(&store, "s", None).await;
        let away = place.active().with_file_name("away");
        fs::rename(place.active(), &away).unwrap();
        if empty {
            fs::create_dir(place.active()).unwrap();
        }
        let new = id("new");
        for done in [
            store.append(&session, 0, batch(5, 0, 1).creating(root(&session))).await.map(drop),
            store.append(&session, 6, batch(5, 6, 1)).await.map(drop),
            store.append(&new, 0, batch(5, 0, 1).creating(root(&new))).await.map(drop),
            store.append(&old, 6, batch(5, 6, 1)).await.map(drop),
            store.read(&session, ReadRange::all()).await.map(drop),
            store.query(&SessionFilter::id(session.clone())).await.map(drop),
            store.query(&SessionFilter::all()).await.map(drop),
            store.delete(&session).await.map(drop),
            store.archive(&session).await.map(drop),
            store.archive_idle(micros(i64::MAX)).await.map(drop),
            store.recover().await.map(drop),
            active.is_copy(&session).await.map(drop),
            active.held().await.map(drop),
            active.leave().await.map(drop),
        ] {
            let error = done.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Store, "{error:?}");
            assert!(error.to_string().contains("put it back"), "{error}");
        }
        assert_eq!(ids(store.archived(), &SessionFilter::all()).await, ["old"]);
        if empty {
            fs::remove_dir(place.active()).unwrap();
        }
        fs::rename(&away, place.active()).unwrap();
        assert_eq!(store.append(&session, 6, batch(1, 6, 1)).await.unwrap(), 7);
        assert_eq!(store.archive(&session).await.unwrap(), 1);
        assert_eq!(ids(&store, &SessionFilter::all()).await.len(), 2);
    }
}

/// The archive at the next start.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Archive {
    Away,
    Emptied,
    Damaged,
}

#[tokio::test]
async fn attack_f7_an_archive_that_is_missing_or_damaged_at_the_start_is_told_and_never_replaced() {
    for how in [Archive::Away, Archive::Emptied, Archive::Damaged] {
        let place = Place::new();
        let store = place.open().await;
        let old = create(&store, "old", None).await;
        store.archive(&old).await.unwrap();
        let session = create(&store, "s", None).await;
        store.archived().close().await;
        let away = place.archive().with_file_name("away.db");
        fs::rename(place.archive(), &away).unwrap();
        match how {
            Archive::Away => {}
            Archive::Emptied => fs::write(place.archive(), "").unwrap(),
            Archive::Damaged => fs::write(place.archive(), "This is no database.").unwrap(),
        }

        let store = place.open().await;
        let kind = if how == Archive::Damaged { ErrorKind::Corrupt } else { ErrorKind::Store };
        assert_eq!(store.archive_error().unwrap().kind(), kind, "{how:?}");
        assert_eq!(ids(&store, &SessionFilter::all()).await, ["s"]);
        assert_eq!(store.archive_error().unwrap().kind(), kind, "{how:?}");
        assert_eq!(store.append(&session, 6, batch(1, 6, 1)).await.unwrap(), 7);
        let young = create(&store, "young", None).await;
        // A runtime looks for a session of this id first.
        assert_eq!(store.query(&SessionFilter::id(old.clone())).await.unwrap_err().kind(), kind);
        assert_eq!(store.read(&old, ReadRange::all()).await.unwrap_err().kind(), kind);
        assert_eq!(store.archive(&session).await.unwrap_err().kind(), kind);

        fs::rename(&away, place.archive()).unwrap();
        for store in [store, place.open().await] {
            assert_eq!(contents(&store, &old).await.0.len(), 6, "{how:?}");
            assert_eq!(ids(&store, &SessionFilter::all()).await.len(), 3);
            assert!(store.archive_error().is_none());
        }
        assert_eq!(place.open().await.archive(&young).await.unwrap(), 1);
    }
}

#[tokio::test]
async fn attack_f7_an_archive_is_made_where_there_was_none_and_after_its_label_is_removed() {
    let place = Place::new();
    let store = place.open().await;
    let old = create(&store, "old", None).await;
    store.archive(&old).await.unwrap();
    store.archived().close().await;
    fs::remove_file(place.archive()).unwrap();
    assert!(place.open().await.archive_error().is_some());
    assert!(!place.archive().exists());
    fs::remove_file(place.active().join(".archive")).unwrap();
    let store = place.open().await;
    assert!(store.archive_error().is_none());
    assert_eq!(ids(&store, &SessionFilter::all()).await, [""; 0]);
    // A directory that is older than the label has notes or sealed files.
    let half = create(&store, "half", None).await;
    store.active().note_copy(&half).await.unwrap();
    store.archived().close().await;
    fs::remove_file(place.active().join(".archive")).unwrap();
    fs::remove_file(place.archive()).unwrap();
    assert!(place.open().await.archive_error().is_some());
    assert!(!place.archive().exists());
}

/// A delete dies at any point, of a tree whose move died at any point.
#[tokio::test]
async fn attack_f6_a_delete_that_is_cut_short_leaves_each_session_whole_or_gone() {
    let (mut points, mut left_some) = (0, 0);
    for moved in (0..).step_by(3) {
        let mut is_moved = false;
        for cut in 0.. {
            let place = Place::new();
            let (active, _) = quick_active(&place).await;
            let archive = SqliteStore::in_memory().await.unwrap();
            let tree = create_tree(&active, "talk").await;
            let before = all_contents(&active, &tree).await;
            let mover = Wire::cutting(moved, true);
            is_moved = mover.store(&active, &archive).archive(&tree[0]).await.is_ok();
            let deleter = Wire::cutting(cut, true);
            let deleted = deleter.store(&active, &archive).delete(&tree[0]).await;
            let name = format!("the move cut at {moved}, the delete at {cut}");
            if deleter.used() <= cut {
                assert_eq!(deleted.unwrap(), 4, "{name}");
                break;
            }
            points += 1;

            let store = HybridStore::new(active.clone(), archive.clone());
            let left = ids(&store, &SessionFilter::all()).await;
            left_some += usize::from(!left.is_empty() && left.len() < 4);
            for (session, before) in tree.iter().zip(&before) {
                if left.contains(&session.to_string()) {
                    assert_eq!(contents(&store, session).await, *before, "{name}");
                } else {
                    assert_eq!(store.query(&SessionFilter::id(session.clone())).await.unwrap(), [], "{name}");
                }
            }
            assert!(store.archive_error().is_none(), "{name}");
            // Nothing is left that a mover stumbles over.
            store.recover().await.unwrap_or_else(|error| panic!("{name}: {error:?}"));
            store.archive_idle(micros(i64::MAX)).await.unwrap_or_else(|error| panic!("{name}: {error:?}"));
            assert_eq!(store.delete(&tree[0]).await.unwrap(), left.len() as u64, "{name}");
            assert_eq!(ids(&store, &SessionFilter::all()).await, [""; 0], "{name}");
            assert_eq!((place.files(), ids(&archive, &SessionFilter::all()).await.len()), (0, 0), "{name}");
            // The id is free, and nothing of the one before shows.
            create(&store, "talk", None).await;
            assert_eq!(ids(&store, &SessionFilter::all()).await, ["talk"], "{name}");
        }
        if is_moved {
            break;
        }
    }
    println!("a delete was cut at {points} points, {left_some} left a part of the tree");
    assert!(points > 60 && left_some > 0, "{points} {left_some}");
}

async fn quick_active(place: &Place) -> (entourage_store::JsonStore, SqliteStore) {
    // Any round but the first of eight has its archive in memory.
    round(place, 1).await
}

/// Earlier versions, or an exchange of the archive, left a sealed file and no session in the archive.
#[tokio::test]
async fn attack_f6_a_move_whose_copy_is_lost_is_told_and_its_id_not_used_anew() {
    let place = Place::new();
    let store = place.open().await;
    let lost = create(&store, "lost", None).await;
    let info = store.query(&SessionFilter::id(lost.clone())).await.unwrap().remove(0);
    store.active().seal(&info).await.unwrap();
    for store in [&store, &place.open().await] {
        assert_eq!(ids(store, &SessionFilter::all()).await, [""; 0]);
        let told = store.archive_error().expect("the list says what it lacks");
        assert!(told.to_string().contains("session: lost"), "{told}");
        let created = store.append(&lost, 0, batch(5, 0, 1).creating(root(&lost))).await;
        let error = created.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Store, "{error:?}");
        assert!(error.to_string().contains("delete the session"), "{error}");
    }
    assert_eq!(store.delete(&lost).await.unwrap(), 0);
    create(&store, "lost", None).await;
    assert_eq!(ids(&store, &SessionFilter::all()).await, ["lost"]);
    assert!(store.archive_error().is_none());
}

/// To follow the error's advice must not cost the newer session.
#[tokio::test]
async fn attack_f6_of_two_sessions_of_one_id_the_older_file_can_be_moved_away() {
    let place = Place::new();
    let store = place.open().await;
    let session = create(&store, "s", None).await;
    let info = store.query(&SessionFilter::id(session.clone())).await.unwrap().remove(0);
    store.active().seal(&info).await.unwrap();
    let mut later = root(&session);
    later.created = micros(99);
    store.archived().append(&session, 0, batch(5, 0, 2).creating(later)).await.unwrap();
    let error = store.archive(&session).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
    assert!(error.to_string().contains("set_aside"), "{error}");
    store.active().set_aside(&session).await.unwrap();
    assert_eq!(contents(&store, &session).await.0.len(), 2);
    assert_eq!(store.recover().await.unwrap(), 0);
}
