//! An agent in a session below another one.

use std::{
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use entourage_core::{
    Error, ErrorKind, ErrorRecord, Result, RunId, SessionId,
    agent::Agent,
    message::Message,
    run::{Delegate, Outcome, Status, Task},
    session::{SessionRecord, SessionState},
};
use futures_util::FutureExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    children::pool::{Number, Seat},
    effects::site::Site,
    env::Env,
    run::{
        execute::{Admission, Within, execute},
        local::lock,
    },
    session::journal::{Journal, windows::Windows},
};

/// The end of a child's run.
#[derive(Debug, Clone)]
pub(crate) struct ChildEnd {
    pub(crate) outcome: Box<Outcome>,
    /// Messages of the run, without its prompt.
    pub(crate) work: Vec<Arc<Message>>,
    /// The error of a run that could not begin or continue: its session cannot be opened or written, or its code
    /// differs. The session then has no record of this end.
    pub(crate) lost: Option<Box<ErrorRecord>>,
}

/// A child that was started and whose end was not yet observed.
pub(crate) struct Below {
    pub(crate) outcome: Ending,
    /// `None` for one that takes no slot.
    pub(crate) seat: Option<Number>,
}

/// The channel that carries a child's end.
pub(super) type Ending = watch::Receiver<Option<ChildEnd>>;

/// Child sessions with several runs, kept open between two of them.
pub(crate) type Kept = Arc<Mutex<Vec<Arc<Journal>>>>;

impl ChildEnd {
    fn new(outcome: Box<Outcome>) -> Self {
        Self { outcome, work: Vec::new(), lost: None }
    }

    /// True when its run may be open still, and is this process's.
    pub(crate) fn is_open(&self) -> bool {
        use ErrorKind::{Busy, Conflict, Corrupt, Diverged, NewerVersion};
        let elsewhere = |kind: ErrorKind| matches!(kind, Busy | Conflict | Corrupt | Diverged | NewerVersion);
        let lost = self.lost.as_ref().is_some_and(|error| !elsewhere(error.kind));
        lost || matches!(self.outcome.status, Status::Paused(_))
    }

    pub(crate) fn lost(error: &Error) -> Self {
        Self { lost: Some(Box::new(error.record())), ..Self::new(Box::new(Outcome::new(Status::of(error)))) }
    }
}

/// The choice of a run in a child's session.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Turn {
    /// The session's only run.
    Only,
    /// The run of this id, of several that follow each other.
    Of(RunId),
}

impl Turn {
    /// True when `run` is the chosen one.
    fn is(self, run: RunId) -> bool {
        match self {
            Self::Only => true,
            Self::Of(id) => id == run,
        }
    }
}

/// Waits for the seat's slot. Returns `None` for a child that was cancelled before: its end is recorded, and takes no
/// slot.
pub(super) async fn seated(seat: Seat, cancel: &CancellationToken) -> Option<Seat> {
    tokio::select! {
        biased;
        () = seat.placed() => {}
        () = cancel.cancelled() => {}
    }
    Some(seat).filter(|_| !cancel.is_cancelled())
}

/// Returns the child's session, as an earlier run of it left it open or else from the store, and keeps it open for the
/// next run.
///
/// # Errors
/// Those of [`open_child`].
pub(super) async fn open_kept(site: &Site, delegate: &Delegate, kept: Option<&Kept>) -> Result<Arc<Journal>> {
    let child = &delegate.child;
    let of_child = |journal: &Arc<Journal>| journal.session() == child;
    let open = kept.and_then(|kept| lock(kept).iter().find(|journal| of_child(journal)).cloned());
    if let Some(journal) = open.filter(|journal| !journal.is_broken()) {
        return Ok(journal);
    }
    let open = || open_child(&site.env, site.journal.session(), child.clone(), delegate.spawn.role.clone());
    let mut journal = open().await?;
    if journal.seq() > 0 {
        // After the child was read: a process that worked there had taken the run above before. One that works there
        // from now on makes this one's first append fail.
        site.journal.check_held().await?;
        if journal.may_be_worked_on() {
            // It writes nothing more, and what it has written until then is read. Its run may be over by then, so the
            // lease is held from the first event on that is stored here.
            let taken = journal.take_over(&site.emitter, site.now(), Duration::ZERO).await;
            taken.inspect_err(|error| site.journal.refused(error))?;
            journal = open().await?;
            site.journal.check_held().await?;
        }
    }
    journal.join(&site.journal, &site.env);
    if let Some(kept) = kept {
        let mut kept = lock(kept);
        kept.retain(|journal| !of_child(journal));
        kept.push(Arc::clone(&journal));
    }
    Ok(journal)
}

/// Checks that the session found at a child's place is that child: of the same run, and of the same agent.
///
/// # Errors
/// [`ErrorKind::Conflict`] for a session that exists before its run asked for it, and those of
/// [`Journal::check_above`]; [`ErrorKind::Diverged`] for another agent's. One of several runs in a session is checked
/// by its id instead.
pub(super) fn check_found(journal: &Journal, site: &Site, delegate: &Delegate) -> Result<()> {
    let agent = delegate.spawn.agent.name();
    let found = journal.read(|state| (state.head().seq > 0).then(|| Arc::clone(&state.head().agent)));
    let Some(found) = found else { return Ok(()) };
    let of_one_run = delegate.run.is_none();
    if delegate.anew && of_one_run {
        return Err(stray(journal.session(), site.journal.session()));
    }
    journal.check_above(&site.journal, (of_one_run && !delegate.lasting).then_some(site.origin.run))?;
    if of_one_run && *found != *agent {
        let text = format!(
            "the child was started with the agent `{found}`; go on with that one, not with `{agent}`"
        );
        return Err(Error::new(ErrorKind::Diverged, text).with("session", journal.session().as_str()));
    }
    Ok(())
}

impl Journal {
    /// Checks that this session, found at the place of a child of `parent`, was made below it, and not below an earlier
    /// session of that id. With `run`, checks that this run asked for it.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] for any other session.
    pub(crate) fn check_above(&self, parent: &Self, run: Option<RunId>) -> Result<()> {
        let named = self.read(|state| (state.head().seq > 0).then(|| state.above()));
        let is_child = match named {
            None => true,
            Some(Some(above)) => parent.is_above(&above) && run.is_none_or(|run| run == above.run),
            // Older versions did not store it. A child is no older than its parent.
            Some(None) => self.record.created >= parent.record.created,
        };
        if is_child { Ok(()) } else { Err(stray(self.session(), parent.session())) }
    }
}

/// Returns the error for a session at the place of a child of `parent` that another run left there.
fn stray(found: &SessionId, parent: &SessionId) -> Error {
    let text = "the session at the place of a child is another run's, or was left by an earlier session of the parent's id; \
                delete it or move it away, then start again";
    Error::new(ErrorKind::Conflict, text).with("session", found.as_str()).with("parent", parent.as_str())
}

async fn reopened(env: &Arc<Env>, child: &SessionId) -> Result<Option<Arc<Journal>>> {
    match Journal::look_up(env, child).await? {
        Some(info) => Journal::reopen(env, info).await.map(Some),
        None => Ok(None),
    }
}

/// Opens the child's session: as the store has it, or a new one.
pub(crate) async fn open_child(
    env: &Arc<Env>,
    parent: &SessionId,
    child: SessionId,
    role: impl Into<Arc<str>>,
) -> Result<Arc<Journal>> {
    let found = match &env.store {
        // In a box of its own: it takes kilobytes, which would otherwise be part of every run's task.
        Some(_) => Box::pin(reopened(env, &child)).await?,
        None => None,
    };
    match found {
        Some(journal) if journal.parent() != Some(parent) => Err(Error::new(
            ErrorKind::Conflict,
            "a session of this id exists and is not this one's child; choose other ids for your sessions",
        )
        .with("session", child.as_str())),
        Some(journal) => Ok(journal),
        None => Ok(Journal::create(env, SessionRecord::child(child, parent.clone(), role, env.clock.now()))),
    }
}

/// Runs a child in its session, from its start or from where a dead process left it. One that has ended does not run
/// again: see [`known_end`].
pub(crate) fn run_child(
    env: &Arc<Env>,
    journal: &Arc<Journal>,
    agent: Arc<dyn Agent>,
    task: Task,
    turn: Turn,
    within: Box<Within>,
) -> impl Future<Output = Result<ChildEnd>> + Send + use<> {
    let open = journal.read(|state| state.run().map(|run| run.id));
    let admission = match open {
        Some(run) if turn.is(run) => Admission::Resume,
        _ => Admission::Start(task),
    };
    let resumes = matches!(admission, Admission::Resume);
    let run = execute(Arc::clone(env), Arc::clone(journal), agent, admission, within);
    let journal = Arc::clone(journal);
    run.map(move |outcome| {
        if journal.is_broken() {
            return outcome.map(ChildEnd::new);
        }
        let recorded = journal.read(|state| {
            let ended = state.ended().filter(|ended| turn.is(ended.id))?;
            Some((Arc::clone(&ended.end), state.messages_after(ended.messages_before)))
        });
        Ok(match (outcome, recorded) {
            (Ok(outcome), Some((_, work))) => ChildEnd { work, ..ChildEnd::new(outcome) },
            // A failure too is returned as it was recorded: with its spend up to then.
            (Err(_), Some((end, work))) => ChildEnd { work, ..ChildEnd::new(Box::new(end.outcome.clone())) },
            (Ok(outcome), None) => ChildEnd::new(outcome),
            // Its run is still open, or another process'.
            (Err(error), None) if resumes || is_of_the_session(error.kind()) => return Err(error),
            // It was not admitted.
            (Err(error), None) => ChildEnd::new(Box::new(Outcome::new(Status::of(&error)))),
        })
    })
}

/// True when the failure is the session's, whatever runs in it.
fn is_of_the_session(kind: ErrorKind) -> bool {
    use ErrorKind::{Busy, Conflict, Corrupt, NewerVersion, Store};
    matches!(kind, Busy | Conflict | Corrupt | NewerVersion | Store)
}

/// Waits for the child's end.
pub(crate) async fn ended(child: SessionId, mut outcome: Ending) -> (SessionId, Result<ChildEnd>) {
    let result = match outcome.wait_for(Option::is_some).await {
        Ok(outcome) => outcome.clone().ok_or_else(Error::cancelled),
        Err(_) => Err(Error::new(ErrorKind::Internal, "a child's task ended without an outcome")),
    };
    (child, result)
}

/// Reads the end of a run of a child's session from its record.
pub(crate) async fn recorded_end(env: &Env, child: &SessionId, turn: Turn) -> Result<Option<ChildEnd>> {
    let (Turn::Of(run), Some(store)) = (turn, &env.store) else {
        let Some(journal) = Journal::find(env, child).await? else { return Ok(None) };
        let outcome = journal.last_outcome().await?;
        return Ok(outcome.map(|outcome| ChildEnd::new(Box::new(outcome))));
    };
    let (mut state, mut windows) = (SessionState::default(), Windows::after(store, child, 0));
    while let Some(rows) = windows.next().await? {
        for row in rows {
            state.apply(&row.into_envelope(child)?);
            if let Some(ended) = state.ended().filter(|ended| ended.id == run) {
                let work = state.messages_after(ended.messages_before);
                return Ok(Some(ChildEnd { work, ..ChildEnd::new(Box::new(ended.end.outcome.clone())) }));
            }
        }
    }
    Ok(None)
}

/// Returns the run's end, if it has ended.
///
/// # Errors
/// Those of the store.
pub(crate) async fn known_end(journal: &Journal, turn: Turn) -> Result<Option<ChildEnd>> {
    let ended = journal.read(|state| {
        if state.run().is_some_and(|run| turn.is(run.id)) {
            return None;
        }
        Some(state.ended().filter(|ended| turn.is(ended.id)).map(|ended| ChildEnd {
            work: state.messages_after(ended.messages_before),
            ..ChildEnd::new(Box::new(ended.end.outcome.clone()))
        }))
    });
    match ended {
        Some(Some(ended)) => Ok(Some(ended)),
        // A session of an older version, whose state does not hold the end.
        Some(None) if matches!(turn, Turn::Only) && journal.seq() > 0 => {
            let outcome = Box::pin(journal.last_outcome()).await?;
            Ok(outcome.map(|outcome| ChildEnd::new(Box::new(outcome))))
        }
        _ => Ok(None),
    }
}
