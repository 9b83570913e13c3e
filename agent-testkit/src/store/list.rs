//! The contract of listing and deleting: the order, exact pages, whole trees and no neighbour.

use entourage_core::{
    ErrorKind, SessionId,
    session::{Batch, ReadRange, SessionFilter, SessionRecord, SessionStatus, SharedStore},
};

use super::{
    Checked, Fixture,
    sample::{
        batch, contents, create, create_below, head, id, ids, info, micros, refused, root, row, same, written,
    },
};

/// Creates a session of one event that was updated at `updated`.
async fn dated(store: &SharedStore, record: SessionRecord, updated: i64, status: SessionStatus) -> Checked {
    let session = record.id.clone();
    let mut head = head(1, updated);
    head.status = status;
    store.append(&session, 0, Batch::new(1, vec![row(1, "dated")], head).creating(record)).await?;
    Ok(())
}

async fn expect(store: &SharedStore, filter: &SessionFilter, expected: &[&str]) -> Checked {
    let expected: Vec<String> = expected.iter().map(|id| (*id).to_owned()).collect();
    same(&format!("{filter:?}"), &ids(store, filter).await?, &expected)
}

pub(super) async fn newest_first_and_ties_by_id(at: Fixture) -> Checked {
    expect(&at.store, &SessionFilter::all(), &[]).await?;
    for (name, updated) in [("b", 5), ("a", 5), ("B", 5), ("z", 9), ("new", 8), ("old", -3), ("b.1$$0", 5)] {
        dated(&at.store, root(&id(name)?), updated, SessionStatus::Idle).await?;
    }
    expect(&at.store, &SessionFilter::all(), &["z", "new", "B", "a", "b", "b.1$$0", "old"]).await?;
    // An update moves a session; being created earlier does not hold it back.
    at.store.append(&id("old")?, 1, Batch::new(1, vec![row(2, "update")], head(2, 10))).await?;
    expect(&at.store, &SessionFilter::all(), &["old", "z", "new", "B", "a", "b", "b.1$$0"]).await
}

pub(super) async fn pages_have_no_gaps_and_no_repeats(at: Fixture) -> Checked {
    for n in 0..23_i64 {
        // Many share a time, so only the ids keep pages apart.
        dated(&at.store, root(&id(&format!("s{n:02}"))?), n / 6, SessionStatus::Idle).await?;
    }
    let all = ids(&at.store, &SessionFilter::all()).await?;
    same("the number of sessions", &all.len(), &23)?;
    for size in [1, 2, 5, 22, 23, 24] {
        let mut paged = Vec::new();
        for offset in (0..=23).step_by(size) {
            paged.extend(ids(&at.store, &SessionFilter::roots().page(offset, size)).await?);
        }
        same(&format!("pages of {size}"), &paged, &all)?;
    }
    expect(&at.store, &SessionFilter::all().page(23, 5), &[]).await?;
    expect(&at.store, &SessionFilter::all().page(0, 0), &[]).await?;
    expect(&at.store, &SessionFilter::all().page(usize::MAX, usize::MAX), &[]).await?;
    same("a page of everything", &ids(&at.store, &SessionFilter::all().page(0, usize::MAX)).await?, &all)
}

pub(super) async fn filters_select(at: Fixture) -> Checked {
    let below = |name: &str, parent: &str| -> Checked<SessionRecord> {
        Ok(SessionRecord::child(id(name)?, id(parent)?, "child", micros(1)))
    };
    dated(&at.store, root(&id("p")?), 1, SessionStatus::Running).await?;
    dated(&at.store, root(&id("q")?), 2, SessionStatus::Idle).await?;
    dated(&at.store, below("p.1$$0", "p")?, 3, SessionStatus::Paused).await?;
    dated(&at.store, below("p.1$$1", "p")?, 4, SessionStatus::Running).await?;
    dated(&at.store, below("grandchild", "p.1$$0")?, 5, SessionStatus::Running).await?;
    dated(&at.store, below("p.2", "q")?, 6, SessionStatus::Idle).await?;

    let of = |name: &str| -> Checked<SessionFilter> { Ok(SessionFilter::id(id(name)?)) };
    let children = |name: &str| -> Checked<SessionFilter> { Ok(SessionFilter::children_of(id(name)?)) };
    let (all, roots) = (SessionFilter::all, SessionFilter::roots);
    expect(&at.store, &all(), &["p.2", "grandchild", "p.1$$1", "p.1$$0", "q", "p"]).await?;
    expect(&at.store, &roots(), &["q", "p"]).await?;
    expect(&at.store, &roots().with_status(SessionStatus::Running), &["p"]).await?;
    expect(&at.store, &children("p")?, &["p.1$$1", "p.1$$0"]).await?;
    expect(&at.store, &children("p")?.page(1, 1), &["p.1$$0"]).await?;
    expect(&at.store, &children("p")?.with_status(SessionStatus::Paused), &["p.1$$0"]).await?;
    expect(&at.store, &children("p.1$$0")?, &["grandchild"]).await?;
    expect(&at.store, &children("grandchild")?, &[]).await?;
    expect(&at.store, &children("nobody")?, &[]).await?;
    expect(&at.store, &all().with_status(SessionStatus::Running), &["grandchild", "p.1$$1", "p"]).await?;
    expect(&at.store, &all().with_status(SessionStatus::Running).page(1, 1), &["p.1$$1"]).await?;
    expect(&at.store, &of("p")?, &["p"]).await?;
    expect(&at.store, &of("grandchild")?, &["grandchild"]).await?;
    expect(&at.store, &of("p")?.with_status(SessionStatus::Idle), &[]).await?;
    expect(&at.store, &of("P")?, &[]).await
}

pub(super) async fn attack_13_delete_takes_the_tree_and_no_neighbour(at: Fixture) -> Checked {
    let doomed = create(&at.store, "s1").await?;
    let child = create_below(&at.store, &doomed, "s1.1$$0").await?;
    create_below(&at.store, &doomed, "sibling").await?;
    let grandchild = create_below(&at.store, &child, "s1.1$$0.1$$0").await?;
    let deepest = create_below(&at.store, &grandchild, "deepest").await?;
    // Their ids start alike, but they are not children of this session.
    for name in ["s10", "s", "s1.", "s1.1$$", "s1.1$$01", "S1", "s1_", "s1-1"] {
        create(&at.store, name).await?;
    }
    let other = id("s10")?;
    create_below(&at.store, &other, "s1.2$$0").await?;
    let kept = ["S1", "s", "s1-1", "s1.", "s1.1$$", "s1.1$$01", "s1.2$$0", "s10", "s1_"];
    let before = contents(&at.store, &other).await?;

    same("deleted below the child", &at.store.delete(&grandchild).await?, &2)?;
    same("deleted with the rest", &at.store.delete(&doomed).await?, &3)?;
    expect(&at.store, &SessionFilter::all(), &kept).await?;
    for gone in [&doomed, &child, &grandchild, &deepest] {
        refused(gone.as_str(), at.store.read(gone, ReadRange::all()).await, ErrorKind::NotFound)?;
        refused(gone.as_str(), at.store.append(gone, 1, batch(1, 1, 1)).await, ErrorKind::NotFound)?;
    }
    for name in kept {
        same(&format!("events of {name}"), &contents(&at.store, &id(name)?).await?.len(), &1)?;
    }
    same("the neighbour's events", &contents(&at.store, &other).await?, &before)
}

pub(super) async fn deleting_what_is_not_there_is_fine(at: Fixture) -> Checked {
    let unknown = id("nobody")?;
    same("deleted of nothing", &at.store.delete(&unknown).await?, &0)?;
    let session = create(&at.store, "s").await?;
    same("deleted of nothing", &at.store.delete(&unknown).await?, &0)?;
    same("deleted", &at.store.delete(&session).await?, &1)?;
    same("deleted again", &at.store.delete(&session).await?, &0)
}

pub(super) async fn a_deleted_session_can_be_made_anew(at: Fixture) -> Checked {
    let parent = create(&at.store, "parent").await?;
    let session: SessionId = create_below(&at.store, &parent, "s").await?;
    at.store.append(&session, 1, batch(1, 1, 5)).await?;
    at.store.delete(&session).await?;
    // The same writer and numbers as before: deleted events must not count as stored.
    let again = batch(1, 0, 2).creating(root(&session));
    let expected = written(&again.rows)?;
    same("the number", &at.store.append(&session, 0, again).await?, &2)?;
    same("the events", &contents(&at.store, &session).await?, &expected)?;
    same("the parent", &info(&at.store, &session).await?.record.parent, &None)?;
    same(
        "the old parent's children",
        &ids(&at.store, &SessionFilter::children_of(parent)).await?,
        &Vec::new(),
    )
}
