//! Lines that a crash cut short, at every byte.

use std::fs;

use entourage_core::{
    ErrorKind,
    session::{Lease, ReadRange, SessionFilter, SessionStore},
};
use entourage_store::{FileProblemKind, JsonStore};

use crate::{batch, count, create, id, quick, root};

/// Returns the bytes of a session of five events in three lines, and the offset of the last line.
async fn recorded() -> (Vec<u8>, usize) {
    let directory = tempfile::tempdir().unwrap();
    let store = quick(directory.path()).await;
    let session = create(&store, "s", 2).await;
    store.append(&session, 2, batch(1, 2, 3)).await.unwrap();
    let bytes = fs::read(store.path_of(&session)).unwrap();
    let last = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    (bytes, last)
}

#[tokio::test]
async fn attack_08_a_line_that_was_cut_at_any_byte_is_set_aside_and_the_rest_loads() {
    let (bytes, last) = recorded().await;
    for keep in last..bytes.len() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("s-s.jsonl");
        fs::write(&file, &bytes[..keep]).unwrap();
        let store = quick(directory.path()).await;
        let session = id("s");
        assert_eq!(count(&store, &session).await, 2, "{keep} bytes");
        let problems = store.problems().await.unwrap();
        if keep == last {
            assert!(problems.is_empty(), "{problems:?}");
        } else {
            let [problem] = problems.as_slice() else { panic!("{keep}: {problems:?}") };
            let FileProblemKind::Torn { aside, bytes: torn } = &problem.kind else { panic!("{problem:?}") };
            assert_eq!((problem.session.as_ref(), *torn), (Some(&session), (keep - last) as u64));
            assert_eq!(fs::read(aside).unwrap(), &bytes[last..keep]);
            assert_eq!(problem.path, file);
        }
        assert_eq!(fs::read(&file).unwrap(), &bytes[..last]);
        // The batch that was cut short is simply appended again.
        assert_eq!(store.append(&session, 2, batch(1, 2, 3)).await.unwrap(), 5);
        assert_eq!(fs::read(&file).unwrap(), bytes);
        // The file that was set aside is no session, and no foreign file either.
        let again = quick(directory.path()).await;
        assert_eq!(again.query(&SessionFilter::all()).await.unwrap().len(), 1);
        assert!(again.problems().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_writer_that_meets_a_torn_line_sets_it_aside_before_it_writes() {
    let (bytes, last) = recorded().await;
    let directory = tempfile::tempdir().unwrap();
    let store = quick(directory.path()).await;
    let session = id("s");
    let file = store.path_of(&session);
    for n in 1..=3 {
        fs::write(&file, &bytes[..bytes.len() - n]).unwrap();
        // Readers leave it alone: a write may be in flight.
        assert_eq!(count(&store, &session).await, 2);
        assert_eq!(store.query(&SessionFilter::id(session.clone())).await.unwrap()[0].head.seq, 2);
        assert_eq!(fs::read(&file).unwrap().len(), bytes.len() - n);
        match n {
            1 => assert_eq!(store.append(&session, 2, batch(7, 2, 1)).await.unwrap(), 3),
            2 => assert_eq!(
                store.append(&session, 1, batch(7, 1, 1)).await.unwrap_err().kind(),
                ErrorKind::Conflict
            ),
            _ => {
                let lease = Lease::new(1, 1, entourage_core::Timestamp::from_micros(5));
                store.lease(&session, lease).await.unwrap();
            }
        }
        let aside = directory.path().join(match n {
            1 => format!("s-s.jsonl.torn-{last}"),
            n => format!("s-s.jsonl.torn-{last}-{}", n - 1),
        });
        assert_eq!(fs::read(aside).unwrap(), &bytes[last..bytes.len() - n]);
    }
    assert_eq!(store.problems().await.unwrap().len(), 3);
}

/// After a power cut the file may be as long as it should be and hold zeros where data never arrived.
#[tokio::test]
async fn a_last_line_with_zeros_in_it_is_torn() {
    let (bytes, last) = recorded().await;
    for (from, to) in [(last, bytes.len()), (last, bytes.len() - 1), (last + 9, last + 30), (last, last + 1)]
    {
        let directory = tempfile::tempdir().unwrap();
        let mut cut = bytes.clone();
        cut[from..to].fill(0);
        fs::write(directory.path().join("s-s.jsonl"), &cut).unwrap();
        let store = quick(directory.path()).await;
        assert_eq!(count(&store, &id("s")).await, 2, "zeros at {from}..{to}");
        assert_eq!(store.problems().await.unwrap().len(), 1);
        assert_eq!(store.append(&id("s"), 2, batch(1, 2, 3)).await.unwrap(), 5);
    }
}

#[tokio::test]
async fn a_session_that_was_being_created_is_not_there() {
    let (bytes, last) = recorded().await;
    for keep in [0, 1, last, bytes.len()] {
        let directory = tempfile::tempdir().unwrap();
        let new = directory.path().join("s-s.jsonl.new");
        fs::write(&new, &bytes[..keep]).unwrap();
        let store = JsonStore::open(directory.path()).await.unwrap();
        assert!(!new.exists());
        assert!(store.query(&SessionFilter::all()).await.unwrap().is_empty());
        assert!(store.problems().await.unwrap().is_empty());
        let session = id("s");
        assert_eq!(store.append(&session, 0, batch(1, 0, 1).creating(root(&session))).await.unwrap(), 1);
        assert_eq!(store.read(&session, ReadRange::all()).await.unwrap().len(), 1);
    }
}
