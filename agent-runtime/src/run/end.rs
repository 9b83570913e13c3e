//! The end of a run in its session's record: as its agent came to it, or from outside for a run that nobody continues.

use std::{borrow::Cow, sync::Arc, time::Duration};

use entourage_core::{
    ErrorKind, Result, SessionId, bound,
    event::{Event, Origin, RunFinished, RunPaused, ToolFinished},
    run::{Outcome, Status},
    session::{ReadRange, SessionFilter, SessionInfo, SessionState, SessionStatus},
};

use crate::{
    effects::snapshot::RootRun,
    env::Env,
    session::{
        delivery::emit::Emitter,
        journal::{Journal, closing::open_results},
    },
};

/// Retries of an end after another process was faster.
const TRIES: u32 = 8;

/// The place of a title's session below its parent, which no other child has: no event has the number 0.
pub(crate) const TITLE: (u64, u64) = (0, 0);

/// True for the session in which a title is made, beside the runs of its parent.
pub(crate) fn is_title(session: &SessionId) -> bool {
    session.origin().is_some_and(|(_, seq, index)| (seq, index) == TITLE)
}

/// Answers every open call and records the end, or records the pause.
pub(crate) fn close(journal: &Journal, origin: &Arc<Origin>, env: &Env, outcome: &Outcome) {
    match &outcome.status {
        Status::Paused(pause) => {
            let paused = Event::RunPaused(Arc::new(RunPaused::new(pause.clone())));
            journal.stage(origin, env.clock.now(), paused);
        }
        _ => finish(journal, origin, env, RunFinished::new(outcome.clone(), false)),
    }
}

/// Ends the open run of a session, in which the run of `newer` is about to take its place.
pub(super) fn abandon(journal: &Journal, newer: &Origin, env: &Env) {
    end_open(journal, &newer.agent, env, true);
}

/// Ends the open run of a session, which nobody continues. Returns false if it has none. `path` names its agents.
pub(crate) fn end_open(journal: &Journal, path: &Arc<str>, env: &Env, abandoned: bool) -> bool {
    let open = journal.read(|state| state.run().map(|run| (run.id, Arc::clone(&run.agent))));
    let Some((run, agent)) = open else { return false };
    // The newest name is the run's own, whoever ends it.
    let path = match path.rsplit_once('/') {
        Some((above, _)) => [above, "/", &*agent].concat().into(),
        None => agent,
    };
    let mut outcome = journal.spent();
    outcome.status = Status::Cancelled;
    let origin = Arc::new(Origin::new(journal.session().clone(), run, path));
    finish(journal, &origin, env, RunFinished::new(outcome, abandoned));
    true
}

fn finish(journal: &Journal, origin: &Arc<Origin>, env: &Env, mut end: RunFinished) {
    let now = env.clock.now();
    for (index, result) in journal.read(|state| open_results(state, &end)) {
        let finished = ToolFinished::new(index, Arc::new(result));
        journal.stage(origin, now, Event::ToolFinished(Arc::new(finished)));
    }
    end.outcome.labels |= journal.read(SessionState::labels);
    // An agent written by hand may say more than a store takes.
    if let Cow::Owned(cut) = bound::shortened(&end.outcome.text, bound::VALUE) {
        end.outcome.text = cut;
    }
    journal.stage(origin, now, Event::RunFinished(Arc::new(end)));
}

/// Ends all runs that are open below a session whose own run ends next. Takes the session over first, for `lease`: a
/// process that had it writes nothing more.
///
/// # Errors
/// [`ErrorKind::Conflict`] when another process took the session over, the store's. Some of the runs may have ended
/// then; a further call ends the others.
pub(crate) async fn end_below(
    env: &Arc<Env>,
    journal: &Arc<Journal>,
    emitter: &Emitter,
    lease: Duration,
    abandoned: bool,
) -> Result<()> {
    let open = open_below(env, journal.session()).await?;
    if open.is_empty() {
        return Ok(());
    }
    journal.take_over(emitter, env.clock.now(), lease).await?;
    for info in open {
        end_stored(env, info, abandoned).await?;
    }
    Ok(())
}

/// Returns the sessions below `top` with an open run. A title is made beside the runs, and not by one of them.
///
/// # Errors
/// The store's.
pub(crate) async fn open_below(env: &Env, top: &SessionId) -> Result<Vec<SessionInfo>> {
    let Some(store) = &env.store else { return Ok(Vec::new()) };
    let mut open = Vec::new();
    for status in [SessionStatus::Paused, SessionStatus::Running] {
        open.extend(store.query(&SessionFilter::tree(top.clone()).with_status(status)).await?);
    }
    open.retain(|info| info.record.id != *top && !is_title(&info.record.id));
    Ok(open)
}

/// Ends the run of a stored session that is open in `info`. A session that cannot be read is left as it is.
///
/// # Errors
/// The store's.
pub(crate) async fn end_stored(env: &Arc<Env>, info: SessionInfo, abandoned: bool) -> Result<()> {
    let (id, run) = (info.record.id.clone(), info.head.run);
    let mut tries = 0;
    let mut found = Some(info);
    while let Some(info) = found {
        // With what its run came to while the store failed.
        let journal = match Box::pin(Journal::reopen(env, info)).await {
            Ok(journal) => journal,
            Err(error) if is_unreadable(error.kind()) => break,
            Err(error) => return Err(error),
        };
        if run.is_none() || journal.read(|state| state.run().map(|run| run.id)) != run {
            break;
        }
        let path = open_path(env, &journal).await?;
        end_open(&journal, &path, env, abandoned);
        // The process that had it writes nothing more, and no process has it.
        journal.hold_lease(Duration::ZERO);
        match journal.commit(&Emitter::new(None, env)).await {
            Err(error) if error.kind() == ErrorKind::Conflict && tries < TRIES => tries += 1,
            ended => return ended,
        }
        found = match Journal::look_up(env, &id).await {
            Err(error) if is_unreadable(error.kind()) => None,
            found => found?,
        };
    }
    Ok(())
}

/// Ends the run of a session below one whose run is over: it was begun too late to be ended with that one.
///
/// # Errors
/// The store's.
pub(super) async fn end_orphan(env: &Arc<Env>, session: &SessionId, root: &RootRun) -> Result<()> {
    match Journal::look_up(env, session).await? {
        Some(info) if root.is_over(env).await? => end_stored(env, info, true).await,
        _ => Ok(()),
    }
}

fn is_unreadable(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::Corrupt | ErrorKind::NewerVersion)
}

/// Returns the names of the open run's agents, from the root down.
///
/// # Errors
/// The store's.
pub(crate) async fn open_path(env: &Env, journal: &Journal) -> Result<Arc<str>> {
    let Some((seq, agent)) = journal.read(|state| state.run().map(|run| (run.seq, Arc::clone(&run.agent))))
    else {
        return Ok(Arc::default());
    };
    let Some(store) = &env.store else { return Ok(agent) };
    let first = store.read(journal.session(), ReadRange::after(seq.saturating_sub(1)).with_limit(1)).await?;
    Ok(first.first().map_or(agent, |row| row.columns().agent))
}
