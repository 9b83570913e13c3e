//! Results that a store did not take: kept by the process, until their session is opened again.
//!
//! A run whose store fails ends in this process, and the store knows of no end. Results that its effects had by then
//! are in its journal alone, and that goes with it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use entourage_core::{
    Error, ErrorKind, Result, RunId, SessionId,
    event::{Envelope, Event},
    session::{ReadRange, SessionInfo, SessionRecord},
};

use crate::{
    env::Env,
    session::{delivery::emit::Emitter, journal::Journal},
};

/// Number of sessions with results that are kept. The oldest ones make room.
const MOST: usize = 1_000;

/// Attempts to store what was kept, while others write to the session.
const TRIES: u32 = 8;

/// The results that are kept, each session's once.
#[derive(Debug, Default)]
pub(crate) struct Unstored(Mutex<VecDeque<Arc<Results>>>);

/// The end of a run's events in this process, as far as the store is not known to have them.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) record: SessionRecord,
    pub(crate) run: RunId,
    /// Number of times that the run was resumed.
    pub(crate) resumed: u32,
    /// Number of the newest event that the store is known to have.
    pub(crate) committed: u64,
    /// The events after that one, until the run's end began.
    pub(crate) staged: Vec<Envelope>,
}

impl Unstored {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Results>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn keep(&self, results: Results) {
        let mut kept = self.lock();
        kept.retain(|known| known.record.id != results.record.id);
        if kept.len() >= MOST {
            kept.pop_front();
        }
        kept.push_back(Arc::new(results));
    }

    pub(crate) fn of(&self, session: &SessionId) -> Option<Arc<Results>> {
        self.lock().iter().find(|results| results.record.id == *session).cloned()
    }

    pub(crate) fn forget(&self, results: &Arc<Results>) {
        self.lock().retain(|known| !Arc::ptr_eq(known, results));
    }
}

/// The treatment of an event that the store did not take.
#[derive(PartialEq)]
enum Fate {
    /// It is stored later.
    Kept,
    /// Whoever asked for it was told that it failed.
    LeftOut,
    /// It says that something begins, which did not, since its store failed; or it may follow from that failure.
    Last,
}

impl Fate {
    fn of(event: &Event) -> Self {
        match event {
            Event::PromptQueued(_)
            | Event::PromptDropped(_)
            | Event::SignalReceived(_)
            | Event::ModeChanged(_)
            | Event::Delta(_)
            | Event::Progress(_) => Self::LeftOut,
            Event::ModelFinished(reply) if reply.error.is_none() => Self::Kept,
            Event::ToolFinished(call) if call.fatal.is_none() => Self::Kept,
            // A record that names a child says that it begins.
            Event::Recorded(value) if value.child().is_none() => Self::Kept,
            Event::ApprovalDecided(_)
            | Event::ChildFinished(_)
            | Event::Observed(_)
            | Event::MessageAdded(_)
            | Event::TodosChanged(_)
            | Event::LabelsAdded(_)
            | Event::Titled(_)
            | Event::Compacted(_)
            | Event::OutputsCleared(_)
            | Event::WarningRaised(_) => Self::Kept,
            _ => Self::Last,
        }
    }
}

impl Results {
    /// Returns what is still to be stored, if the store has `since` after the events that it is known to have. `None`
    /// if somebody else wrote there.
    pub(crate) fn rest(&self, since: &[Envelope]) -> Option<Vec<Envelope>> {
        let mut staged = self.staged.as_slice();
        for event in since {
            match staged {
                // It was stored although the store said otherwise.
                [first, rest @ ..] if first == event => staged = rest,
                _ if Fate::of(&event.event) == Fate::LeftOut => {}
                _ => return None,
            }
        }
        let before_the_last = staged.iter().take_while(|event| Fate::of(&event.event) != Fate::Last);
        Some(before_the_last.filter(|event| Fate::of(&event.event) == Fate::Kept).cloned().collect())
    }
}

impl Journal {
    /// Returns the results that the store did not take, if the store failed in the newest run here.
    pub(crate) fn results(&self) -> Option<Results> {
        let inner = self.lock();
        let (newest, run, resumed) = inner.lived.filter(|_| inner.broken.is_some())?;
        let staged = inner.staged.iter().take_while(|event| event.seq <= newest).cloned().collect();
        let results =
            Results { record: self.record.clone(), run, resumed, committed: inner.committed, staged };
        let some = inner.committed > 0 && results.rest(&[]).is_some_and(|rest| !rest.is_empty());
        some.then_some(results)
    }

    /// Reads the session that the store lists as `info`, after storing the results that this process has kept for it,
    /// unless another process runs an agent there.
    pub(crate) async fn reopen(env: &Arc<Env>, mut info: SessionInfo) -> Result<Arc<Self>> {
        let mut failed = false;
        for _ in 0..TRIES {
            let journal = Self::read_from_store(env, info).await?;
            let Some(results) = env.unstored.of(journal.session()) else { return Ok(journal) };
            let rest = journal.rest_of(&results).await?.unwrap_or_default();
            if rest.is_empty() {
                env.unstored.forget(&results);
                return Ok(journal);
            }
            for event in rest {
                journal.stage(&event.origin, event.at, event.event);
            }
            let stored = journal.commit(&Emitter::new(None, env)).await;
            // Whoever goes on with the run needs its events as they are stored.
            let found = Self::look_up(env, journal.session()).await?;
            info = found.ok_or_else(|| Error::no_session(journal.session()))?;
            match stored.map_err(|error| error.kind()) {
                // A signal, or an agent of another process: the next look tells.
                Err(ErrorKind::Conflict) => {}
                Ok(()) | Err(ErrorKind::NotFound) => {
                    env.unstored.forget(&results);
                    break;
                }
                // A store that cannot be written may still be read.
                Err(_) if failed => break,
                Err(_) => failed = true,
            }
        }
        Self::read_from_store(env, info).await
    }

    /// Returns what is still to be stored of `results`; `None` if another process has the session or its run by now.
    async fn rest_of(&self, results: &Results) -> Result<Option<Vec<Envelope>>> {
        let open = self.read(|state| state.run().map(|run| (run.id, run.resumed)));
        let same = self.record == results.record && open == Some((results.run, results.resumed));
        let Some(store) = self.store.as_ref().filter(|_| same && self.is_owned()) else { return Ok(None) };
        let rows = store.read(self.session(), ReadRange::after(results.committed)).await?;
        let since: Vec<_> =
            rows.into_iter().map(|row| row.into_envelope(self.session())).collect::<Result<_>>()?;
        Ok(results.rest(&since))
    }
}
