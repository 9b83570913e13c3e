//! Opening a session: of 1,000 events, and of 100,000 whose conversation was compacted again and again.

use std::{path::Path, sync::Arc, time::Instant};

use entourage::store::Durability;
use entourage_core::{
    SessionId,
    session::{SessionState, SharedStore},
};
use entourage_runtime::{Runtime, Session};

use crate::{
    Results, id,
    material::{Gathering, fill, reader},
    median, sqlite,
};

/// Number of runs after which opening is measured. Together they write more events than lie between two checkpoints,
/// so that the tail after the newest one takes all its lengths.
const PHASES: usize = 12;

/// A session in a file of its own, with a handle that works in it.
pub(crate) struct Long {
    store: SharedStore,
    id: SessionId,
    live: Session,
    /// Keeps the session alive.
    _runtime: Runtime,
}

impl Long {
    pub(crate) async fn make(directory: &Path, events: u64) -> Self {
        let path = directory.join(format!("long-{events}.db"));
        let store: SharedStore = Arc::new(sqlite(&path, Durability::ProcessDeath).await);
        let id = id(&format!("long-{events}"));
        let gathering = Arc::new(Gathering::new(Arc::clone(&store), 5_000));
        fill(&(Arc::clone(&gathering) as SharedStore), &id, events).await;
        gathering.flush().await.unwrap();
        let runtime = Runtime::builder().shared_store(Arc::clone(&store)).build();
        let live = runtime.open(&id).await.unwrap();
        Self { store, id, live, _runtime: runtime }
    }

    /// Opens the session as a process that never saw it.
    pub(crate) async fn open(&self) -> SessionState {
        let runtime = Runtime::builder().shared_store(Arc::clone(&self.store)).build();
        runtime.open(&self.id).await.unwrap().state().await.unwrap()
    }

    async fn go_on(&self) {
        self.live.start(&reader(11), "Read the next ten pages.").outcome().await.unwrap();
        assert_eq!(self.open().await, self.live.state().await.unwrap());
    }

    async fn seconds(&self) -> f64 {
        let start = Instant::now();
        drop(std::hint::black_box(self.open().await));
        start.elapsed().as_secs_f64()
    }

    /// Number of events after the newest checkpoint.
    async fn tail(&self) -> u64 {
        let head = self.live.head().await.unwrap();
        head.seq - head.checkpoint
    }
}

pub(crate) fn measure(results: &mut Results, tokio: &tokio::runtime::Runtime, directory: &Path, quick: bool) {
    let (sizes, samples) = if quick { ([1_000, 3_000], 1) } else { ([1_000, 100_000], 21) };
    let sides = sizes.map(|events| tokio.block_on(Long::make(directory, events)));
    let (mut seconds, mut peaks, mut tails) = ([0.0; 2], [0; 2], [0; 2]);
    for _ in 0..PHASES {
        let mut times = [Vec::new(), Vec::new()];
        sides.iter().for_each(|side| tokio.block_on(side.go_on()));
        for _ in 0..samples {
            for (times, side) in times.iter_mut().zip(&sides) {
                times.push(tokio.block_on(side.seconds()));
            }
        }
        for (place, side) in sides.iter().enumerate() {
            seconds[place] += median(times[place].clone()) / PHASES as f64;
            let counts = counting_alloc::count(|| drop(tokio.block_on(side.open())));
            peaks[place] = peaks[place].max(counts.peak);
            tails[place] = tails[place].max(tokio.block_on(side.tail()));
        }
    }
    for ((events, seconds), (peak, tail)) in sizes.iter().zip(seconds).zip(peaks.iter().zip(tails)) {
        let (micros, kib) = (seconds * 1e6, peak / 1_024);
        println!("resume of {events} events: {micros:.0} µs, heap {kib} KiB, up to {tail} events read again");
    }
    results.add("resume_time", seconds[1] / seconds[0], Some(1.3));
    results.add("resume_heap", peaks[1] as f64 / peaks[0] as f64, Some(1.3));
}
