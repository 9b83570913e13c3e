//! A session of a million events: listed, paged and exported by a process that does nothing else.

use std::{path::Path, process::Command, sync::Arc, time::Instant};

use entourage::store::{Durability, JsonStore};
use entourage_core::{
    SessionId,
    session::{SessionFilter, SharedStore},
};
use entourage_runtime::Runtime;
use futures_util::StreamExt;

use crate::{
    MIB, Results, high_water_mark, id,
    material::{Gathering, fill},
    runtime, sqlite,
};

/// Target for the peak memory, in MiB.
const TARGET: f64 = 64.0;

/// The kind of store that holds the session.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Medium {
    Sqlite,
    Json,
}

impl Medium {
    fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Json => "json",
        }
    }

    async fn open(self, path: &Path) -> SharedStore {
        match self {
            Self::Sqlite => Arc::new(sqlite(path, Durability::ProcessDeath).await),
            Self::Json => {
                Arc::new(JsonStore::builder(path).durability(Durability::ProcessDeath).build().await.unwrap())
            }
        }
    }

    /// Rows of one append. In a file each batch is a line, and lines of real runs are short.
    fn batch(self) -> usize {
        match self {
            Self::Sqlite => 5_000,
            Self::Json => 4,
        }
    }
}

fn session() -> SessionId {
    id("million")
}

pub(crate) fn measure(results: &mut Results, directory: &Path, medium: Medium, quick: bool) {
    let events: u64 = if quick { 20_000 } else { 1_000_000 };
    let path = directory.join(format!("million-{}", medium.name()));
    let tokio = runtime();
    let start = Instant::now();
    let written = tokio.block_on(async {
        let store = medium.open(&path).await;
        let gathering = Arc::new(Gathering::new(Arc::clone(&store), medium.batch()));
        fill(&(Arc::clone(&gathering) as SharedStore), &session(), events).await;
        gathering.flush().await.unwrap();
        store.query(&SessionFilter::id(session())).await.unwrap().remove(0).head.seq
    });
    drop(tokio);
    println!("{}: {written} events written in {:.0} s", medium.name(), start.elapsed().as_secs_f64());
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output =
        command.args(["read", medium.name(), path.to_str().unwrap(), &written.to_string()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let (lines, figures) = text.trim_end().rsplit_once('\n').unwrap();
    println!("{lines}");
    let mut figures = figures.split_whitespace().map(|figure| figure.parse::<f64>().unwrap());
    for what in ["heap", "rss"] {
        let mib = figures.next().unwrap() / MIB;
        results.add(&format!("million_{}_{what}_mib", medium.name()), mib, Some(TARGET));
    }
    // A gigabyte that is not used from here on.
    let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
    removed.unwrap();
}

/// The `main` of the reading process. Prints its figures, then the peaks of its heap and of its memory.
pub(crate) fn be_reader(arguments: &[String]) {
    let medium = if arguments[0] == "json" { Medium::Json } else { Medium::Sqlite };
    let (path, events) = (Path::new(&arguments[1]), arguments[2].parse().unwrap());
    let tokio = runtime();
    let counts = counting_alloc::count(|| tokio.block_on(read(medium, path, events)));
    println!("{} {}", counts.peak, high_water_mark());
}

async fn read(medium: Medium, path: &Path, events: u64) {
    let runtime = Runtime::builder().shared_store(medium.open(path).await).build();
    let name = medium.name();
    let millis = |start: Instant| start.elapsed().as_secs_f64() * 1e3;

    let start = Instant::now();
    let roots = runtime.sessions(&SessionFilter::roots().page(0, 100)).await.unwrap();
    assert_eq!(
        roots.iter().map(|info| (&info.record.id, info.head.seq)).collect::<Vec<_>>(),
        [(&session(), events)]
    );
    println!("{name}: roots listed in {:.2} ms", millis(start));
    let start = Instant::now();
    let count = runtime.sessions(&SessionFilter::all()).await.unwrap().len();
    assert!(count as u64 > events / 1_000, "each summary is a session too: {count}");
    println!("{name}: all {count} sessions listed in {:.2} ms", millis(start));

    let session = runtime.session_with_id(session());
    for (place, after) in [("start", 0), ("middle", events / 2), ("end", events - 100)] {
        let start = Instant::now();
        let page = session.events(after, 100).await.unwrap();
        assert!(page.iter().map(|event| event.seq).eq(after + 1..=after + 100));
        println!("{name}: page of 100 at the {place} in {:.2} ms", millis(start));
    }

    let start = Instant::now();
    let mut lines = Box::pin(session.export());
    let (mut count, mut bytes) = (0, 0);
    while let Some(line) = lines.next().await {
        let line = line.unwrap();
        count += 1;
        bytes += line.len();
        assert!(line.contains(&format!("\"seq\":{count},\"at\"")), "{line}");
    }
    assert_eq!(count, events);
    println!("{name}: {:.0} MiB exported in {:.1} s", bytes as f64 / MIB, millis(start) / 1e3);
}
