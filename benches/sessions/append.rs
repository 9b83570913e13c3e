//! Appends to one session, beside bare sqlx writing the same rows.

use std::{path::Path, time::Instant};

use entourage::store::{Durability, SqliteStore};
use entourage_core::session::SessionStore;
use sqlx::{Row, SqliteConnection};

use crate::{
    Results, floor,
    material::{self, Writer},
    median, ratio, sqlite,
};

/// Both sides with a session of one batch, each in a file of its own.
pub(crate) struct Sides {
    store: SqliteStore,
    ours: Writer,
    db: SqliteConnection,
    floors: Writer,
}

impl Sides {
    pub(crate) async fn open(directory: &Path, durability: Durability) -> Self {
        let step = material::step().await;
        let path = |name: &str| directory.join(format!("{name}-{durability:?}.db"));
        let store = sqlite(&path("ours"), durability).await;
        let (mut ours, mut floors) = (step.clone(), step);
        create(&store, &mut ours).await;
        // The floor uses tables made by the store, so that indexes and checks are the same.
        let made = sqlite(&path("floor"), durability).await;
        create(&made, &mut floors).await;
        made.close().await;
        let db = floor::open(&path("floor"), durability == Durability::PowerLoss).await;
        Self { store, ours, db, floors }
    }

    /// Seconds for `times` appends, each awaited before the next.
    pub(crate) async fn ours(&mut self, times: usize) -> f64 {
        // Work that the journal does before an append does not count as the store's.
        let batches: Vec<_> = (0..times).map(|_| self.ours.next()).collect();
        let start = Instant::now();
        for (expected, batch) in batches {
            self.store.append(&self.ours.session, expected, batch).await.unwrap();
        }
        start.elapsed().as_secs_f64()
    }

    pub(crate) async fn floor(&mut self, times: usize) -> f64 {
        let made: Vec<_> = (0..times).map(|_| floor::Made::new(self.floors.next())).collect();
        let start = Instant::now();
        for made in made {
            floor::append(&mut self.db, self.floors.session.as_str(), made).await;
        }
        start.elapsed().as_secs_f64()
    }

    /// Checks that both files have the same content.
    async fn check(mut self, directory: &Path, durability: Durability) {
        self.store.close().await;
        let mut ours = floor::open(&directory.join(format!("ours-{durability:?}.db")), false).await;
        for sql in ["SELECT * FROM sessions", "SELECT * FROM events ORDER BY seq"] {
            let [ours, floor] = [fetch(&mut ours, sql).await, fetch(&mut self.db, sql).await];
            assert_eq!(ours.len(), floor.len(), "{sql}");
            assert_eq!(ours, floor, "{sql}");
        }
    }
}

async fn create(store: &SqliteStore, writer: &mut Writer) {
    let (expected, batch) = writer.next();
    store.append(&writer.session, expected, batch).await.unwrap();
}

/// Every value as text.
async fn fetch(db: &mut SqliteConnection, sql: &'static str) -> Vec<String> {
    let rows = sqlx::query(sql).fetch_all(db).await.unwrap();
    let cell = |row: &sqlx::sqlite::SqliteRow, column: usize| {
        let number = row.try_get::<Option<i64>, _>(column).ok().map(|number| format!("{number:?}"));
        number.unwrap_or_else(|| format!("{:?}", row.try_get::<Option<String>, _>(column).unwrap()))
    };
    let line = |row| (0..Row::len(row)).map(|column| cell(row, column)).collect::<Vec<_>>().join(" | ");
    rows.iter().map(line).collect()
}

pub(crate) async fn measure(results: &mut Results, directory: &Path, quick: bool) {
    for (name, durability, target) in [
        ("append", Durability::PowerLoss, Some(1.5)),
        // Without the wait for the disk, the store's own cost shows.
        ("append_unsynced", Durability::ProcessDeath, None),
    ] {
        let (samples, times) = if quick { (5, 4) } else { (501, 4) };
        let mut sides = Sides::open(directory, durability).await;
        // The first append of each side prepares its statements.
        sides.floor(times).await;
        sides.ours(times).await;
        let (mut floor, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..samples {
            floor.push(sides.floor(times).await);
            ours.push(sides.ours(times).await);
        }
        let micros = |seconds: &[f64]| median(seconds.to_vec()) * 1e6 / times as f64;
        println!("{name}: {:.0} µs a batch of 3 events, floor {:.0} µs", micros(&ours), micros(&floor));
        results.add(name, ratio(&floor, &ours), target);
        sides.check(directory, durability).await;
    }
}
