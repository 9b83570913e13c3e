//! Crashes between the steps of a mover in a directory.

use entourage_core::{
    RunId, Timestamp,
    session::{Columns, ReadRange, SessionFilter, SessionHead, SessionRecord, SessionStore},
};

use super::*;
use crate::{Durability, HybridStore, SqliteStore};

fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

fn first(session: &SessionId) -> Batch {
    let columns = Columns::new(1, Timestamp::default(), "warning", RunId::generate(), "root");
    let mut head = SessionHead::default();
    head.seq = 1;
    Batch::new(1, vec![Row::stored(columns, "{}".to_owned())], head)
        .creating(SessionRecord::root(session.clone(), Timestamp::default()))
}

async fn directory(place: &tempfile::TempDir) -> JsonStore {
    let builder = JsonStore::builder(place.path().join("active"));
    builder.durability(Durability::ProcessDeath).build().await.unwrap()
}

fn notes_and_files(active: &JsonStore) -> usize {
    let names = fs::read_dir(active.path()).unwrap();
    names.filter(|name| name.as_ref().unwrap().file_name().to_string_lossy().starts_with("s-")).count()
}

/// After a power cut, a file system may have kept any part of the changes that were not flushed.
#[tokio::test]
async fn a_loss_of_power_while_sealed_sessions_are_removed_hides_none_of_them() {
    let archive = SqliteStore::in_memory().await.unwrap();
    let sessions = [id("a"), id("b")];
    let batches = sessions.clone().map(|session| first(&session));
    for (session, batch) in sessions.iter().zip(&batches) {
        archive.append(session, 0, batch.clone()).await.unwrap();
    }
    let of: Vec<_> = sessions.iter().collect();
    let steps: Vec<_> = removal(&of).collect();
    let mut states = 0;
    for cut in 0..=steps.len() {
        let flushed = steps[..cut].iter().rposition(|step| *step == Removal::Flush).map_or(0, |at| at + 1);
        let pending = &steps[flushed..cut];
        for kept in 0..1_u32 << pending.len() {
            let place = tempfile::tempdir().unwrap();
            let active = directory(&place).await;
            let directory = Arc::clone(&active.0.directory);
            for (session, batch) in sessions.iter().zip(&batches) {
                active.append(session, 0, batch.clone()).await.unwrap();
                let found = active.query(&SessionFilter::id(session.clone())).await.unwrap();
                active.seal(&found[0]).await.unwrap();
                // The deletion of the note at the seal is one of the changes that may be lost.
                fs::write(directory.note_of(session), session.as_str()).unwrap();
            }
            let survived = pending.iter().enumerate().filter(|(n, _)| kept & (1 << n) != 0);
            for step in steps[..flushed].iter().chain(survived.map(|(_, step)| step)) {
                take(&directory, *step).unwrap();
            }
            let store = HybridStore::new(active.clone(), archive.clone());
            let listed = store.query(&SessionFilter::all()).await.unwrap().len();
            assert_eq!(listed, 2, "{:?} and of {pending:?} {kept:b}", &steps[..flushed]);
            for session in &sessions {
                assert_eq!(store.read(session, ReadRange::all()).await.unwrap().len(), 1);
            }
            store.recover().await.unwrap();
            assert_eq!(
                (notes_and_files(&active), store.query(&SessionFilter::all()).await.unwrap().len()),
                (0, 2)
            );
            states += 1;
        }
    }
    assert!(states > 12, "{states}");
}

/// The file name of a note does not spell out a long id.
#[tokio::test]
async fn a_note_that_a_crash_left_without_its_id_is_written_again() {
    let place = tempfile::tempdir().unwrap();
    let active = directory(&place).await;
    let session = id(&"x".repeat(200));
    active.append(&session, 0, first(&session)).await.unwrap();
    fs::write(active.0.directory.note_of(&session), "").unwrap();
    active.note_copy(&session).await.unwrap();
    assert_eq!(active.held().await.unwrap().copies, [session]);
}
