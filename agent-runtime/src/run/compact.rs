//! Compaction of an idle session.

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind, Result, RunId,
    context::{Compaction, CompactionCause},
    event::Origin,
    permission::Scope,
    provider::Model,
    run::Limits,
};
use tokio_util::sync::CancellationToken;

use crate::{
    effects::{
        compaction::{Ended, Here, perform},
        site::{Given, Site},
    },
    env::Env,
    run::local::LocalEffects,
    session::{delivery::emit::Emitter, journal::Journal},
};

/// Makes the conversation of an idle session smaller. Returns false when nothing could be removed.
///
/// # Errors
/// [`ErrorKind::Busy`], [`ErrorKind::Cancelled`], the store's, and the reason that no summary was taken.
pub(crate) async fn compact_session(
    env: Arc<Env>,
    journal: Arc<Journal>,
    (run, emitter, cancel): (RunId, Emitter, CancellationToken),
    compaction: &Compaction,
    model: &Model,
) -> Result<bool> {
    if let Some(open) = journal.read(|state| state.run().map(|open| open.id)) {
        return Err(Error::new(
            ErrorKind::Busy,
            "the session has an unfinished run; resume it, or start another one",
        )
        .with("run", open.to_string()));
    }
    journal.check_unleased(env.clock.now())?;
    let agent = journal.read(|state| Arc::clone(&state.head().agent));
    let origin = Arc::new(Origin::new(journal.session().clone(), run, agent));
    let site = Arc::new(Site::new(env, journal, origin, emitter));
    let given = Given { scope: Scope::all(), cancel, budget: None };
    let effects = Arc::new(LocalEffects::new(Arc::clone(&site), given.clone(), Vec::new()));
    let cx = site.context(given, Arc::clone(&effects) as _);
    let here = Here { site: &site, cx: &cx, local: &*effects };
    let ended =
        perform(here, compaction, model, CompactionCause::Asked, Limits::default().model_silence).await;
    if effects.has_children() {
        effects.join_children().await;
    }
    // A cancel records no end: a compaction that was begun ends with the next run or compaction.
    let ended = ended?;
    site.commit().await?;
    match ended {
        Ended::Smaller => Ok(true),
        Ended::Impossible => Ok(false),
        Ended::Failed(error) => Err(error),
    }
}
