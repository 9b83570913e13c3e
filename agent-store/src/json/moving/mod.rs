//! Moves of sessions out of a directory, for `HybridStore`: whole batches, the note that a copy elsewhere does not
//! count, and the seal that ends a session here. No file is deleted before its note is surely gone.

use std::{
    fs,
    io::{self, Read as _},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, RetryStatus, SessionId,
    session::{Batch, Row, SessionInfo},
};

use super::{
    JsonStore, aside,
    directory::{Directory, Inventory},
    error::Failure,
    file::{self, SessionFile},
    line, name,
    session::{locked, looking_also_sealed, scan},
};
use crate::{
    owned::owned,
    tiers::{ActiveStore, Held, Holdings, Leave},
};

/// Bytes of bodies after which a page of batches ends.
const PAGE: usize = 4 << 20;
/// Longest note in bytes: it holds an id.
const LONGEST_NOTE: u64 = 4 << 10;
/// Content of the file `.archive`, for people who find it.
const ABOUT: &[u8] =
    b"Sessions of this directory may be in its archive, which must not be replaced by an empty one.\n\
To begin a new archive all the same, remove this file.\n";

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
            let turn = store.0.turns.of(&id).await;
            let of = id.clone();
            let work = move |directory: &Directory, patience| directory.note_copy(&of, patience);
            store.write("store.archive", id, turn, work).await
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
            let turns = (store.whole_turn().await, store.0.turns.of(&id).await);
            store.on("store.seal", id, turns, move |directory| seal(directory, &expected)).await
        })
        .await
    }

    async fn leave(&self) -> Result<Leave> {
        let work = |directory: &Directory| {
            let lock = directory.lock_with(file::lock_file, name::MOVING);
            lock.map_err(|failure| match failure {
                Failure::Locked => Failure::Refused(busy()),
                failure => failure,
            })
        };
        let directory = Arc::clone(&self.0.directory);
        let locked = aside(move || {
            directory.here(work).map_err(|failure| failure.into_error("store.archive", &directory.path))
        });
        locked.await.map(Leave::new)
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

impl JsonStore {
    /// Returns true if sessions of this directory may be in an archive, so that there must be one.
    pub(crate) async fn has_archive(&self) -> Result<bool> {
        let labelled = self.look("store.open", |directory| {
            match directory.path.join(name::ARCHIVE).symlink_metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                found => Ok(found.map(|_| true)?),
            }
        });
        if labelled.await? {
            return Ok(true);
        }
        // The directory is older than the label.
        let held = self.held().await?;
        Ok(!held.copies.is_empty() || held.sessions.iter().any(|held| held.sealed))
    }

    /// Stores, for good, that the directory has an archive.
    pub(crate) async fn note_archive(&self) -> Result<()> {
        self.look("store.open", |directory| {
            let _lock = directory.lock()?;
            match file::create_new(&directory.path.join(name::ARCHIVE), ABOUT, directory.durability) {
                Err(Failure::Io(error)) if error.kind() != io::ErrorKind::AlreadyExists => Err(error.into()),
                _ => directory.flush(),
            }
        })
        .await
    }

    /// Moves a session's file aside, as [`JsonStore::set_aside`] does, without those of its descendants, which are in
    /// use.
    pub(crate) async fn set_one_aside(&self, session: &SessionId) -> Result<PathBuf> {
        let (store, id) = (self.clone(), session.clone());
        owned(async move {
            let turn = store.whole_turn().await;
            store.on("store.set_aside", id.clone(), turn, move |directory| directory.set_one_aside(&id)).await
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
    let (file, end) = locked(directory, session, directory.patience)?;
    if end.state.head.seq != expected.head.seq {
        return Err(Error::append_conflict(session, expected.head.seq, end.state.head.seq).into());
    }
    if end.state.lease != expected.lease {
        let held = end.state.lease.map_or(0, |lease| lease.generation);
        return Err(Error::fenced(session, held).into());
    }
    let line = line::change(&line::State { sealed: true, ..end.state })?;
    file.add(end.whole, &line, directory.durability)?;
    // The seal overrides the note. A note that stays is deleted before the file is.
    directory.remove_note(session).ok();
    Ok(())
}

fn remove(directory: &Directory, sealed: &[SessionId]) -> Result<(), Failure> {
    let _lock = directory.lock()?;
    let mut there = Vec::new();
    for session in sealed {
        // Opens one file at a time, however many there are: a seal stays.
        if sealed_file(directory, session)?.is_some() {
            there.push(session);
        }
    }
    removal(&there).try_for_each(|step| take(directory, step))
}

/// A step of the removal of moved sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Removal<'a> {
    Note(&'a SessionId),
    /// Makes the steps so far survive a power cut.
    Flush,
    File(&'a SessionId),
}

/// Returns the steps in order. In a power cut, a file system may keep a later one of two changes and lose the earlier
/// one. A note without its file hides the archive's session, which is then the only copy; a sealed file without its
/// note is completed by the next mover. So no file is deleted before the deletion of its note is flushed, also of one
/// that was deleted at the seal.
fn removal<'a>(sealed: &'a [&'a SessionId]) -> impl Iterator<Item = Removal<'a>> {
    let notes = sealed.iter().map(|session| Removal::Note(session));
    let files = sealed.iter().map(|session| Removal::File(session));
    let flush = (!sealed.is_empty()).then_some(Removal::Flush);
    notes.chain(flush).chain(files).chain(flush)
}

fn take(directory: &Directory, step: Removal<'_>) -> Result<(), Failure> {
    match step {
        Removal::Note(session) => directory.remove_note(session),
        Removal::Flush => directory.flush(),
        Removal::File(session) => match sealed_file(directory, session)? {
            Some(file) => file.remove(),
            None => Ok(()),
        },
    }
}

/// Locks the file of a sealed session; `None` if it is gone. A session that is not sealed is a conflict.
fn sealed_file(directory: &Directory, session: &SessionId) -> Result<Option<SessionFile>, Failure> {
    let file = match SessionFile::lock(&directory.path_of(session), directory.patience) {
        Err(Failure::Missing) => return Ok(None),
        locked => locked?,
    };
    let state = file.end()?.state;
    if state.sealed { Ok(Some(file)) } else { Err(Error::append_conflict(session, 0, state.head.seq).into()) }
}

fn busy() -> Error {
    let text = "another process moves or deletes sessions of this directory; try again later";
    Error::new(ErrorKind::Busy, text).with_retry(RetryStatus::Temporary)
}

impl Directory {
    fn note_of(&self, session: &SessionId) -> PathBuf {
        let mut path = self.path_of(session).into_os_string();
        path.push(name::COPIED);
        path.into()
    }

    /// Stores the note of a session, which must be here: the lock of its file keeps it from being sealed or deleted
    /// meanwhile.
    fn note_copy(&self, session: &SessionId, patience: Duration) -> Result<(), Failure> {
        let _locked = locked(self, session, patience)?;
        let note = self.note_of(session);
        if read_note(&note)?.as_ref() != Some(session) {
            // A process that died may have left a note without the id.
            self.remove_note(session)?;
            file::create_new(&note, session.as_str().as_bytes(), self.durability)?;
        }
        // Also for an existing note: its writer may have died before this.
        self.flush()
    }

    fn is_copy(&self, session: &SessionId) -> Result<bool, Failure> {
        // The seal is checked first: it is stored before the note is deleted.
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

/// Returns the session that a note names; `None` if it names none, or is gone.
fn read_note(path: &std::path::Path) -> Result<Option<SessionId>, Failure> {
    let mut text = String::new();
    let opened = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let read = opened.take(LONGEST_NOTE).read_to_string(&mut text);
    Ok(read.ok().and_then(|_| SessionId::new(text).ok()))
}

#[cfg(test)]
mod tests;
