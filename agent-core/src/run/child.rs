//! An agent in a session below another one.

use std::sync::Arc;

use super::{Admission, Env, Journal, Outcome, Spawn, Within, execute};
use crate::{Error, ErrorKind, Result, SessionId, session::SessionRecord};

/// Runs a child in its own session: from its start, or on from where a dead process left it. A child that ended gives
/// its outcome again.
pub(crate) async fn run_child(
    env: &Arc<Env>,
    parent: &SessionId,
    child: SessionId,
    spawn: Spawn,
    within: Within,
) -> Result<Outcome> {
    let (journal, admission) = match Journal::find(env, &child).await? {
        Some(journal) if journal.parent() != Some(parent) => {
            return Err(Error::new(
                ErrorKind::Conflict,
                "a session of this id exists and is not this one's child; choose other ids for your sessions",
            )
            .with("session", child.as_str()));
        }
        Some(journal) => match finished(&journal).await? {
            Some(outcome) => return Ok(outcome),
            None => (journal, Admission::Resume),
        },
        None => {
            let record = SessionRecord::child(child, parent.clone(), spawn.role, env.clock.now());
            (Journal::create(env, record), Admission::Start(spawn.task))
        }
    };
    Box::pin(execute(Arc::clone(env), Arc::new(journal), spawn.agent, admission, within)).await
}

/// The outcome of a child whose run is over.
async fn finished(journal: &Journal) -> Result<Option<Outcome>> {
    if journal.read(|state| state.run().is_some()) {
        return Ok(None);
    }
    journal.last_outcome().await
}
