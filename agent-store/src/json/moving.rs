//! What `HybridStore` needs to move sessions out of a directory: whole batches, and the seal that ends a session's life
//! here.

use async_trait::async_trait;
use entourage_core::{
    Error, Result, SessionId,
    session::{Batch, Row},
};

use super::{
    JsonStore,
    directory::Directory,
    error::Failure,
    line,
    session::{locked, looking, scan},
};
use crate::{
    hybrid::{ActiveStore, Held},
    owned::owned,
};

/// Bytes of bodies after which a page of batches ends.
const PAGE: usize = 4 << 20;

#[async_trait]
impl ActiveStore for JsonStore {
    async fn held(&self) -> Result<Vec<Held>> {
        let listed = |directory: &Directory| {
            let sessions = directory.steady_inventory()?.sessions.into_values();
            Ok(sessions.map(|known| Held::new(known.info(), known.state.sealed)).collect())
        };
        self.look("store.query", listed).await
    }

    async fn batches(&self, session: &SessionId, after: u64, events: usize) -> Result<Vec<Batch>> {
        let id = session.clone();
        let work = move |directory: &Directory| batches(directory, &id, after, events);
        self.on("store.read", session.clone(), (), work).await
    }

    async fn seal(&self, session: &SessionId, expected: u64) -> Result<()> {
        let (store, id) = (self.clone(), session.clone());
        owned(async move {
            let turns = (store.whole_turn().await, store.turn(&id).await);
            let of = id.clone();
            store.on("store.seal", id, turns, move |directory| seal(directory, &of, expected)).await
        })
        .await
    }
}

fn batches(
    directory: &Directory,
    session: &SessionId,
    after: u64,
    events: usize,
) -> Result<Vec<Batch>, Failure> {
    looking(directory, session, |file| {
        let record = file.record()?;
        let (mut batches, mut count, mut bytes) = (Vec::new(), 0, 0);
        scan(file, after, |line| {
            let Some(writer) = line.writer else {
                return Err(Failure::damaged("a line of events names no writer"));
            };
            let head = line.head.clone();
            let rows: Vec<Row> = line.rows(after).collect::<Result<_, _>>()?;
            count += rows.len();
            for row in &rows {
                bytes += row.body()?.len();
            }
            let batch = Batch::new(writer, rows, head);
            let first = after == 0 && batches.is_empty();
            batches.push(if first { batch.creating(record.clone()) } else { batch });
            Ok(count < events && bytes < PAGE)
        })?;
        Ok(batches)
    })
}

fn seal(directory: &Directory, session: &SessionId, expected: u64) -> Result<(), Failure> {
    // Under this lock nobody creates a child, which would have a sealed parent.
    let _lock = directory.lock()?;
    let (file, end) = locked(directory, session)?;
    if end.state.head.seq != expected {
        return Err(Error::append_conflict(session, expected, end.state.head.seq).into());
    }
    let line = line::change(&line::State { sealed: true, ..end.state })?;
    file.add(end.whole, &line, directory.durability)
}
