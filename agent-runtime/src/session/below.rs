//! Sessions below others. An agent runs in one through its root alone: the root's run gives it its scope and its
//! budget.

use std::sync::Arc;

use entourage_core::{Error, ErrorKind, Result, SessionId};

use crate::{env::Env, session::journal::Journal};

/// Largest depth of sessions. No derived id is long enough for more.
const DEEPEST: usize = 240;

/// Refuses to run an agent in a session below another one, where it would have neither scope nor budget.
///
/// # Errors
/// [`ErrorKind::InvalidInput`], naming the root; the store's.
pub(super) async fn refuse_below(env: &Arc<Env>, journal: &Journal) -> Result<()> {
    match journal.parent() {
        Some(parent) => Err(Box::pin(below(env, journal.session(), parent)).await),
        None => Ok(()),
    }
}

/// Returns the error for a caller that wants to run an agent in a session below `parent`.
pub(super) async fn below(env: &Env, session: &SessionId, parent: &SessionId) -> Error {
    let root = match root(env, parent).await {
        Ok(root) => root,
        Err(error) => return error,
    };
    let text = format!(
        "the session is below `{root}`, whose run gives it its scope and its budget; start or resume that one instead"
    );
    Error::new(ErrorKind::InvalidInput, text).with("session", session.as_str()).with("root", root.as_str())
}

/// Returns the topmost session above, or `session` itself.
async fn root(env: &Env, session: &SessionId) -> Result<SessionId> {
    let mut top = session.clone();
    for _ in 0..DEEPEST {
        match Journal::look_up(env, &top).await?.and_then(|info| info.record.parent) {
            Some(parent) => top = parent,
            None => break,
        }
    }
    Ok(top)
}

/// Refuses a new root whose id looks like one that is derived from another session's: that session's child of the same
/// id could not have its own session any more.
///
/// # Errors
/// [`ErrorKind::InvalidInput`].
pub(super) fn check_root_id(id: &SessionId) -> Result<()> {
    if !id.as_str().contains("$$") {
        return Ok(());
    }
    let text =
        "there is no such session, and `$$` marks the ids of sessions below others; choose an id without it";
    Err(Error::new(ErrorKind::InvalidInput, text).with("session", id.as_str()))
}
