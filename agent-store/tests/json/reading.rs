//! A read of a long session costs what it asks for, not the whole file.

use std::fs;

use entourage_core::session::{ReadRange, Row, SessionFilter, SessionStore};

use crate::{batch, create, id, quick};

const EVENTS: u64 = 20_000;

/// Bytes that this process has read so far.
#[cfg(target_os = "linux")]
fn bytes_read() -> u64 {
    let io = fs::read_to_string("/proc/self/io").unwrap();
    io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

/// Runs alone in its process, because it measures the reads of the whole process.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "the test below starts it in a process of its own"]
fn measured_alone() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let store = quick(directory.path()).await;
        let session = create(&store, "s", 1).await;
        // Batches of one to seven events, as runs append them.
        let (mut at, mut size) = (1, 1);
        while at < EVENTS {
            let count = size.min(EVENTS - at);
            at = store.append(&session, at, batch(at, at, count)).await.unwrap();
            size = size % 7 + 1;
        }
        let file = fs::metadata(store.path_of(&session)).unwrap().len();
        let mut worst = 0;
        for after in [0, 1, 77, 9_999, 10_000, 19_998, 19_999, 20_000, 20_001] {
            let before = bytes_read();
            let rows = store.read(&session, ReadRange::after(after).with_limit(50)).await.unwrap();
            worst = worst.max(bytes_read() - before);
            let expected: Vec<u64> = (after + 1..=EVENTS.min(after + 50)).collect();
            assert_eq!(rows.iter().map(Row::seq).collect::<Vec<_>>(), expected, "after {after}");
        }
        let before = bytes_read();
        assert_eq!(store.query(&SessionFilter::all()).await.unwrap()[0].head.seq, EVENTS);
        let listed = bytes_read() - before;
        let before = bytes_read();
        store.append(&session, EVENTS, batch(1, EVENTS, 1)).await.unwrap();
        let appended = bytes_read() - before;
        println!("file {file} window {worst} list {listed} append {appended}");
        assert!(worst < 300_000 && worst < file / 10, "{worst} of {file} bytes for 50 events");
        assert!(listed < 60_000 && appended < 60_000, "list {listed}, append {appended}");

        // A whole export, page by page.
        let mut after = 0;
        loop {
            let rows = store.read(&session, ReadRange::after(after).with_limit(500)).await.unwrap();
            for row in &rows {
                after += 1;
                assert_eq!(row.seq(), after);
            }
            if rows.is_empty() {
                break;
            }
        }
        assert_eq!(after, EVENTS + 1);
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_window_of_a_long_session_reads_a_small_part_of_its_file() {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "reading::measured_alone", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    println!("{text}");
}

/// Lines of every length, so that the search meets them at all offsets.
#[tokio::test]
async fn every_window_is_found_whatever_the_lines_look_like() {
    let directory = tempfile::tempdir().unwrap();
    let store = quick(directory.path()).await;
    let session = create(&store, "s", 3).await;
    let mut at = 3;
    for n in 0_u64..60 {
        let mut next = batch(n, at, n % 5 + 1);
        if n % 7 == 0 {
            let large = format!("\"{}\"", "x".repeat(1 << (n % 17)));
            next.rows[0] = Row::stored(next.rows[0].columns(), large);
        }
        at = store.append(&session, at, next).await.unwrap();
    }
    let all: Vec<u64> = store.read(&session, ReadRange::all()).await.unwrap().iter().map(Row::seq).collect();
    assert_eq!(all, (1..=at).collect::<Vec<_>>());
    for after in 0..=at + 1 {
        for limit in [1, 4] {
            let rows = store.read(&session, ReadRange::after(after).with_limit(limit)).await.unwrap();
            let expected: Vec<u64> = (after + 1..=at.min(after + limit as u64)).collect();
            assert_eq!(rows.iter().map(Row::seq).collect::<Vec<_>>(), expected, "after {after}");
        }
    }
    assert!(store.read(&id("t"), ReadRange::after(5)).await.is_err());
}
