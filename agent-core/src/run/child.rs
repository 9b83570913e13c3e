//! An agent in a session below another one.

use std::sync::Arc;

use super::{Admission, Env, Journal, Outcome, Spawn, Status, Within, execute};
use crate::{
    Error, ErrorKind, Result, RunId, SessionId,
    message::Message,
    session::{EndedRun, SessionRecord},
};

/// How a child's run ended.
#[derive(Debug, Clone)]
pub(crate) struct ChildEnd {
    pub(crate) outcome: Outcome,
    /// What was said in the run, its prompt aside.
    pub(crate) work: Vec<Arc<Message>>,
}

impl ChildEnd {
    pub(crate) fn failed(error: &Error) -> Self {
        Self { outcome: Outcome::new(Status::of(error)), work: Vec::new() }
    }

    fn of(journal: &Journal, ended: &EndedRun) -> Self {
        let work = journal.read(|state| state.messages_after(ended.messages_before));
        Self { outcome: ended.end.outcome.clone(), work }
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
    if let Some(end) = ended(journal, turn).await? {
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
        (Ok(outcome), _) => Ok(ChildEnd { outcome, work: Vec::new() }),
        (Err(error), _) => Err(error),
    }
}

/// How the run ended, if it has.
async fn ended(journal: &Journal, turn: Turn) -> Result<Option<ChildEnd>> {
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
            Ok(outcome.map(|outcome| ChildEnd { outcome, work: Vec::new() }))
        }
        None => Ok(None),
    }
}
