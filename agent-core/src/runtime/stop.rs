//! Ending a run that nobody will continue: a paused one, or one that a process left.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::Session;
use crate::{
    Error, ErrorKind, Result, RunId, SessionId,
    event::Origin,
    run::{Emitter, Env, Journal, Status},
    session::{SessionFilter, SessionStatus},
};

pub(super) async fn stop(session: &Session) -> Result<bool> {
    let shared = &session.0;
    let mark = shared.cancel();
    shared.unwound(mark).await;
    let run = RunId::generate();
    let _active = shared.claim(run, &CancellationToken::new(), false).await?;
    let journal = match shared.journal(false).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        journal => journal?,
    };
    let emitter = Emitter::new(None, &shared.env).at(Arc::clone(shared) as _, run);
    let ended = end(&shared.env, &journal, &emitter).await?;
    shared.lock().line.let_go();
    // The root ends first: if this process dies here, nobody continues what is below it.
    end_below(&shared.env, shared.id.clone()).await?;
    Ok(ended)
}

/// Records that the session's open run was cancelled, if it has one. Returns true if it had.
async fn end(env: &Arc<Env>, journal: &Arc<Journal>, emitter: &Emitter) -> Result<bool> {
    let now = env.clock.now();
    if journal.leased(now).is_some() {
        return Err(Error::new(ErrorKind::Busy, "an agent runs in the session; wait for it or cancel it")
            .with("session", journal.session().as_str()));
    }
    let open = journal.read(|state| state.run().map(|run| (run.id, Arc::clone(&run.agent))));
    let Some((run, agent)) = open else { return Ok(false) };
    let mut outcome = journal.spent();
    outcome.status = Status::Cancelled;
    journal.close(&Arc::new(Origin::new(journal.session().clone(), run, agent)), env, &outcome);
    journal.commit(emitter).await?;
    Ok(true)
}

async fn end_below(env: &Arc<Env>, session: SessionId) -> Result<()> {
    let Some(store) = &env.store else { return Ok(()) };
    let mut parents = vec![session];
    while let Some(parent) = parents.pop() {
        for below in store.query(&SessionFilter::children_of(parent)).await? {
            let id = below.record.id;
            if below.head.status != SessionStatus::Idle
                && let Some(journal) = Journal::find(env, &id).await?
            {
                end(env, &journal, &Emitter::new(None, env)).await?;
            }
            parents.push(id);
        }
    }
    Ok(())
}
