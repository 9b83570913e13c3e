//! An agent in a session below another one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use tokio::sync::watch;

use super::{
    Admission, Env, Journal, Outcome, RunContext, Spawn, Status, Within, execute,
    local::lock,
    pool::{Number, Seat},
};
use crate::{
    Error, ErrorKind, ErrorRecord, Result, RunId, SessionId,
    message::Message,
    session::{EndedRun, ReadRange, SessionRecord, SessionState},
};

/// How a child's run ended.
#[derive(Debug, Clone)]
pub(crate) struct ChildEnd {
    pub(crate) outcome: Outcome,
    /// What was said in the run, its prompt aside.
    pub(crate) work: Vec<Arc<Message>>,
    /// Why its session could not be opened or written: then that is no end which the session knows of.
    pub(crate) lost: Option<ErrorRecord>,
}

/// A child that was started, and whose end nobody took note of.
pub(super) struct Below {
    pub(super) outcome: Ending,
    /// `None` for one that takes no place.
    pub(super) seat: Option<Number>,
}

/// Where a child's end is told.
pub(super) type Ending = watch::Receiver<Option<ChildEnd>>;

/// Sessions that have one run after the other, open between two.
pub(super) type Kept = Arc<Mutex<HashMap<SessionId, Arc<Journal>>>>;

impl ChildEnd {
    fn new(outcome: Outcome) -> Self {
        Self { outcome, work: Vec::new(), lost: None }
    }

    pub(crate) fn lost(error: &Error) -> Self {
        Self { lost: Some(error.record()), ..Self::new(Outcome::new(Status::of(error))) }
    }

    fn of(journal: &Journal, ended: &EndedRun) -> Self {
        let work = journal.read(|state| state.messages_after(ended.messages_before));
        Self { work, ..Self::new(ended.end.outcome.clone()) }
    }
}

/// Which run of a child's session is meant.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Turn {
    /// The only one that it has.
    Only,
    /// The one of this id, of several that follow each other.
    Of(RunId),
}

impl Turn {
    /// Whether `run` is meant.
    fn is(self, run: RunId) -> bool {
        match self {
            Self::Only => true,
            Self::Of(id) => id == run,
        }
    }
}

/// The seat, once there is a place for it; `None` for a child that was cancelled before: that is recorded, and takes no
/// place.
pub(super) async fn seated(seat: Option<Seat>, within: &mut Within) -> Option<Seat> {
    let seat = seat?;
    tokio::select! {
        biased;
        () = seat.placed() => {}
        () = within.cancel.cancelled() => {}
    }
    within.unseated = within.cancel.is_cancelled();
    Some(seat).filter(|_| !within.unseated)
}

/// Runs the child, and keeps its session open for the run after this one.
///
/// # Errors
/// Why its session could not be opened or written.
pub(super) async fn run_kept(
    parent: &RunContext,
    child: SessionId,
    spawn: Spawn,
    turn: Turn,
    within: Within,
    kept: Option<Kept>,
) -> Result<ChildEnd> {
    let env = parent.env();
    let open = kept.as_ref().and_then(|kept| lock(kept).get(&child).cloned());
    let journal = match open.filter(|journal| !journal.is_broken()) {
        Some(journal) => journal,
        None => open_child(env, parent.session(), child.clone(), spawn.role.clone()).await?,
    };
    if let Some(kept) = kept {
        lock(&kept).insert(child, Arc::clone(&journal));
    }
    run_child(env, &journal, spawn, turn, within).await
}

/// The child's session: as the store has it, or a new one.
pub(crate) async fn open_child(
    env: &Arc<Env>,
    parent: &SessionId,
    child: SessionId,
    role: impl Into<Arc<str>>,
) -> Result<Arc<Journal>> {
    match Journal::find(env, &child).await? {
        Some(journal) if journal.parent() != Some(parent) => Err(Error::new(
            ErrorKind::Conflict,
            "a session of this id exists and is not this one's child; choose other ids for your sessions",
        )
        .with("session", child.as_str())),
        Some(journal) => Ok(Arc::new(journal)),
        None => {
            let record = SessionRecord::child(child, parent.clone(), role, env.clock.now());
            Ok(Arc::new(Journal::create(env, record)))
        }
    }
}

/// Runs a child in its session: from its start, or on from where a dead process left it. A run that ended gives its
/// outcome again.
pub(crate) async fn run_child(
    env: &Arc<Env>,
    journal: &Arc<Journal>,
    spawn: Spawn,
    turn: Turn,
    mut within: Within,
) -> Result<ChildEnd> {
    if let Some(end) = known_end(journal, turn).await? {
        return Ok(end);
    }
    let open = journal.read(|state| state.run().map(|run| run.id));
    let admission = match open {
        Some(run) if turn.is(run) => Admission::Resume,
        _ => Admission::Start(spawn.task),
    };
    if let Turn::Of(run) = turn {
        within.run = Some(run);
    }
    let run = Box::pin(execute(Arc::clone(env), Arc::clone(journal), spawn.agent, admission, within));
    let outcome = run.await;
    let recorded = journal.read(|state| state.ended().filter(|ended| turn.is(ended.id)).cloned());
    match (outcome, recorded) {
        // A failure too is handed on as it was recorded: with what it had spent by then.
        (Ok(_) | Err(_), Some(ended)) if !journal.is_broken() => Ok(ChildEnd::of(journal, &ended)),
        (Ok(outcome), _) => Ok(ChildEnd::new(outcome)),
        // It was not admitted.
        (Err(error), _) if !journal.is_broken() => Ok(ChildEnd::new(Outcome::new(Status::of(&error)))),
        (Err(error), _) => Err(error),
    }
}

/// The child's end, once it was told.
pub(super) async fn ended(child: SessionId, mut outcome: Ending) -> (SessionId, Result<ChildEnd>) {
    let result = match outcome.wait_for(Option::is_some).await {
        Ok(outcome) => outcome.clone().ok_or_else(Error::cancelled),
        Err(_) => Err(Error::new(ErrorKind::Internal, "a child's task ended without an outcome")),
    };
    (child, result)
}

/// How a run of a child's session ended, as its record tells.
pub(crate) async fn recorded_end(env: &Env, child: &SessionId, turn: Turn) -> Result<Option<ChildEnd>> {
    let (Turn::Of(run), Some(store)) = (turn, &env.store) else {
        let Some(journal) = Journal::find(env, child).await? else { return Ok(None) };
        let outcome = journal.last_outcome().await?;
        return Ok(outcome.map(ChildEnd::new));
    };
    let mut state = SessionState::default();
    for row in store.read(child, ReadRange::all()).await? {
        state.apply(&row.into_envelope(child)?);
        if let Some(ended) = state.ended().filter(|ended| ended.id == run) {
            let work = state.messages_after(ended.messages_before);
            return Ok(Some(ChildEnd { work, ..ChildEnd::new(ended.end.outcome.clone()) }));
        }
    }
    Ok(None)
}

/// How the run ended, if it has.
async fn known_end(journal: &Journal, turn: Turn) -> Result<Option<ChildEnd>> {
    let (open, ended) = journal.read(|state| {
        let open = state.run().is_some_and(|run| turn.is(run.id));
        (open, state.ended().filter(|ended| turn.is(ended.id)).cloned())
    });
    match ended {
        _ if open => Ok(None),
        Some(ended) => Ok(Some(ChildEnd::of(journal, &ended))),
        // A session that was stored before states knew of ends.
        None if matches!(turn, Turn::Only) && journal.seq() > 0 => {
            let outcome = journal.last_outcome().await?;
            Ok(outcome.map(ChildEnd::new))
        }
        None => Ok(None),
    }
}
