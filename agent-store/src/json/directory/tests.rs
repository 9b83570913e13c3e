//! Costs of lists and creations, in files that they read.

use std::sync::atomic::Ordering;

use entourage_core::{
    RunId, Timestamp,
    session::{Batch, Columns, Row, SessionHead},
};

use super::*;
use crate::json::session;

const MANY: usize = 2_000;

fn id(n: usize) -> SessionId {
    SessionId::new(format!("s{n}")).unwrap()
}

fn batch(expected: u64) -> Batch {
    let columns = Columns::new(expected + 1, Timestamp::default(), "warning", RunId::generate(), "root");
    let mut head = SessionHead::default();
    head.seq = expected + 1;
    Batch::new(1, vec![Row::stored(columns, "{}".to_owned())], head)
}

fn open(path: &Path) -> Directory {
    Directory::open(path.to_owned(), Durability::ProcessDeath, Duration::from_secs(5)).unwrap()
}

/// Dates the files back by a minute, so that their stamps are settled.
fn settle(path: &Path) {
    change_at(path, SystemTime::now() - Duration::from_secs(60));
}

fn change_at(path: &Path, at: SystemTime) {
    for entry in fs::read_dir(path).unwrap() {
        let file = File::options().write(true).open(entry.unwrap().path()).unwrap();
        file.set_modified(at).unwrap();
    }
}

#[test]
fn a_clock_that_was_set_back_by_days_makes_no_list_read_every_file() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("sessions");
    let directory = open(&path);
    for n in 0..20 {
        let record = SessionRecord::root(id(n), Timestamp::default());
        session::append(&directory, &id(n), 0, &batch(0).creating(record), directory.patience).unwrap();
    }
    change_at(&path, SystemTime::now() + Duration::from_secs(3 * 86_400));
    let mut reads = Vec::new();
    for _ in 0..3 {
        assert_eq!(directory.steady_inventory().unwrap().sessions.len(), 20);
        reads.push(directory.reads.swap(0, Ordering::Relaxed));
    }
    assert_eq!(reads, [20, 0, 0]);
    session::append(&directory, &id(7), 1, &batch(1), directory.patience).unwrap();
    assert_eq!(directory.steady_inventory().unwrap().sessions[&id(7)].info.head.seq, 2, "what changed shows");
    assert_eq!(directory.reads.swap(0, Ordering::Relaxed), 1);
}

#[test]
fn of_thousands_of_sessions_only_what_changed_is_read() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("sessions");
    let directory = open(&path);
    let reads = |directory: &Directory| directory.reads.swap(0, Ordering::Relaxed);
    for n in 0..MANY {
        let record = SessionRecord::root(id(n), Timestamp::default());
        session::append(&directory, &id(n), 0, &batch(0).creating(record), directory.patience).unwrap();
    }
    assert_eq!(reads(&directory), 0, "a new session looks at no other");
    settle(&path);
    let directory = open(&path);
    assert_eq!(directory.steady_inventory().unwrap().sessions.len(), MANY);
    assert_eq!(reads(&directory), MANY, "each once");
    for _ in 0..3 {
        assert_eq!(directory.steady_inventory().unwrap().sessions.len(), MANY);
    }
    assert_eq!(reads(&directory), 0);
    // Lists at the same time do not make each other read.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(directory.steady_inventory().unwrap().sessions.len(), MANY));
        }
    });
    assert_eq!(reads(&directory), 0);
    session::append(&directory, &id(7), 1, &batch(1), directory.patience).unwrap();
    assert_eq!(directory.look_up(&id(9)).unwrap().info.head.seq, 1);
    assert_eq!(reads(&directory), 1, "opening one reads one");
    let listed = directory.steady_inventory().unwrap();
    assert_eq!((listed.sessions[&id(7)].info.head.seq, reads(&directory)), (2, 1), "what changed");
    let child = SessionRecord::child(id(MANY), id(3), "child", Timestamp::default());
    session::append(&directory, &id(MANY), 0, &batch(0).creating(child), directory.patience).unwrap();
    assert_eq!(reads(&directory), 1, "a child looks at its parent");
    settle(&path);
    directory.steady_inventory().unwrap();
    reads(&directory);
    assert_eq!(directory.delete(&id(3)).unwrap(), 2);
    assert_eq!((directory.steady_inventory().unwrap().sessions.len(), reads(&directory)), (MANY - 1, 0));
}
