//! Ending a run that nobody will continue: a paused one, or one that a process left.

use std::{sync::Arc, time::Duration};

use entourage_core::{ErrorKind, Result, RunId, session::SessionInfo};
use tokio_util::sync::CancellationToken;

use crate::{
    env::Env,
    run::end::{end_below, end_open, open_below, open_path},
    session::{Session, delivery::emit::Emitter, journal::Journal},
};

pub(super) async fn stop(session: &Session) -> Result<bool> {
    let session = &session.0;
    let mark = session.cancel();
    session.unwound(mark).await;
    let run = RunId::generate();
    let _active = session.claim(run, &CancellationToken::new(), false).await?;
    let journal = match session.journal(false).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        journal => journal?,
    };
    let emitter = Emitter::new(None, &session.env).at(Arc::clone(session), run);
    let ended = end(&session.env, &journal, &emitter).await?;
    session.lock().queue.let_go();
    Ok(ended)
}

/// Records that the session's open run was cancelled, if it has one, and those below it before. Returns true if it had
/// one: until it has ended, a further stop finds what is left to end.
async fn end(env: &Arc<Env>, journal: &Arc<Journal>, emitter: &Emitter) -> Result<bool> {
    let now = env.clock.now();
    journal.check_unleased(now)?;
    // Such as a compaction, in another process.
    let at_work = |info: &SessionInfo| info.lease.is_some_and(|lease| lease.is_live(now));
    if let Some(info) = open_below(env, journal.session()).await?.iter().find(|info| at_work(info)) {
        return Err(Journal::busy(&info.record.id));
    }
    end_below(env, journal, emitter, Duration::ZERO, false).await?;
    let path = open_path(env, journal).await?;
    let ended = end_open(journal, &path, env, false);
    // A process that stood still until its lease was over writes nothing more either.
    journal.hold_lease(Duration::ZERO);
    journal.commit(emitter).await?;
    Ok(ended)
}
