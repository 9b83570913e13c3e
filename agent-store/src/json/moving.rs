//! What `HybridStore` needs to move sessions out of a directory: whole batches, the note that a copy elsewhere does not
//! count, and the seal that ends a session's life here.

use std::{
    fs,
    io::{self, Read as _},
    path::PathBuf,
};

use async_trait::async_trait;
use entourage_core::{
    Error, Result, SessionId,
    session::{Batch, Row, SessionInfo},
};

use super::{
    JsonStore,
    directory::{Directory, Inventory},
    error::Failure,
    file::{self, SessionFile},
    line, name,
    session::{locked, looking_also_sealed, scan},
};
use crate::{
    hybrid::{ActiveStore, Held, Holdings},
    owned::owned,
};

/// Bytes of bodies after which a page of batches ends.
const PAGE: usize = 4 << 20;
/// Longest note in bytes: it holds an id.
const LONGEST_NOTE: u64 = 4 << 10;

#[async_trait]
impl ActiveStore for JsonStore {
    async fn held(&self) -> Result<Holdings> {
        self.look("store.query", |directory| holdings(directory, &directory.steady_inventory()?)).await
    }

    async fn batches(&self, session: &SessionId, after: u64, events: usize) -> Result<Vec<Batch>> {
        let id = session.clone();
        let work = move |directory: &Directory| batches(directory, &id, after, events);
        self.on("store.read", session.clone(), (), work).await
    }

    async fn note_copy(&self, session: &SessionId) -> Result<()> {
        let (store, id) = (self.clone(), session.clone());
        owned(async move {
            let turn = store.turn(&id).await;
            let of = id.clone();
            store.on("store.archive", id, turn, move |directory| directory.note_copy(&of)).await
        })
        .await
    }

    async fn is_copy(&self, session: &SessionId) -> Result<bool> {
        let id = session.clone();
        self.on("store.query", session.clone(), (), move |directory| directory.is_copy(&id)).await
    }

    async fn seal(&self, expected: &SessionInfo) -> Result<()> {
        let (store, expected) = (self.clone(), expected.clone());
        let id = expected.record.id.clone();
        owned(async move {
            let turns = (store.whole_turn().await, store.turn(&id).await);
            store.on("store.seal", id, turns, move |directory| seal(directory, &expected)).await
        })
        .await
    }

    async fn remove(&self, sealed: &[SessionId]) -> Result<()> {
        let (store, sealed) = (self.clone(), sealed.to_vec());
        let Some(first) = sealed.first().cloned() else { return Ok(()) };
        owned(async move {
            let turn = store.whole_turn().await;
            store.on("store.archive", first, turn, move |directory| remove(directory, &sealed)).await
        })
        .await
    }
}

fn holdings(directory: &Directory, inventory: &Inventory) -> Result<Holdings, Failure> {
    let held = |known: &super::directory::Known| Held::new(known.info.clone(), known.sealed);
    let mut copies = Vec::new();
    for note in &inventory.notes {
        let session = match name::noted(note) {
            Some(Some(session)) => session,
            _ => match read_note(&directory.path.join(note))? {
                Some(session) => session,
                None => continue,
            },
        };
        if inventory.sessions.get(&session).is_none_or(|known| !known.sealed) {
            copies.push(session);
        }
    }
    Ok(Holdings::new(inventory.sessions.values().map(|known| held(known)).collect(), copies))
}

fn batches(
    directory: &Directory,
    session: &SessionId,
    after: u64,
    events: usize,
) -> Result<Vec<Batch>, Failure> {
    looking_also_sealed(directory, session, |file| {
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

fn seal(directory: &Directory, expected: &SessionInfo) -> Result<(), Failure> {
    let session = &expected.record.id;
    // Under this lock nobody creates a child, which would have a sealed parent.
    let _lock = directory.lock()?;
    let (file, end) = locked(directory, session)?;
    if end.state.head.seq != expected.head.seq {
        return Err(Error::append_conflict(session, expected.head.seq, end.state.head.seq).into());
    }
    if end.state.lease != expected.lease {
        let held = end.state.lease.map_or(0, |lease| lease.generation);
        return Err(Error::fenced(session, held).into());
    }
    let line = line::change(&line::State { sealed: true, ..end.state })?;
    file.add(end.whole, &line, directory.durability)?;
    // The seal says more than the note; should that stay behind, it goes before the file does.
    directory.remove_note(session).ok();
    Ok(())
}

fn remove(directory: &Directory, sealed: &[SessionId]) -> Result<(), Failure> {
    let _lock = directory.lock()?;
    for session in sealed {
        let file = match SessionFile::lock(&directory.path_of(session), directory.patience) {
            Err(Failure::Missing) => continue,
            locked => locked?,
        };
        let state = file.end()?.state;
        if !state.sealed {
            return Err(Error::append_conflict(session, 0, state.head.seq).into());
        }
        directory.remove_note(session)?;
        file.remove()?;
    }
    directory.flush()
}

impl Directory {
    fn note_of(&self, session: &SessionId) -> PathBuf {
        let mut path = self.path_of(session).into_os_string();
        path.push(name::COPIED);
        path.into()
    }

    /// Needs the session to be here: the lock of its file keeps it from being sealed or deleted meanwhile.
    fn note_copy(&self, session: &SessionId) -> Result<(), Failure> {
        let _locked = locked(self, session)?;
        let written = file::create_new(&self.note_of(session), session.as_str().as_bytes(), self.durability);
        match written {
            Err(Failure::Io(error)) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            written => written.and_then(|()| self.flush()),
        }
    }

    fn is_copy(&self, session: &SessionId) -> Result<bool, Failure> {
        // The seal is looked for first: it comes before the note goes.
        if self.look_up(session).is_ok_and(|known| known.sealed) {
            return Ok(false);
        }
        match self.note_of(session).symlink_metadata() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn remove_note(&self, session: &SessionId) -> Result<(), Failure> {
        match fs::remove_file(self.note_of(session)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// The session that a note names; `None` when it names none, or is gone.
fn read_note(path: &std::path::Path) -> Result<Option<SessionId>, Failure> {
    let mut text = String::new();
    let opened = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let read = opened.take(LONGEST_NOTE).read_to_string(&mut text);
    Ok(read.ok().and_then(|_| SessionId::new(text).ok()))
}
