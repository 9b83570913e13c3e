//! The mode of a session: picked at any time, also while a run is under way, and kept with the session.

use std::sync::Arc;

use super::Session;
use crate::{
    Error, ErrorKind, Result, RunId,
    agent::{CurrentModeUpdate, Mode},
    event::{Event, ModeChanged, Origin},
    run::{Emitter, RunContext, check_lease},
};

impl Session {
    /// Picks the mode that the session's next run works in (CW12). A run that is under way, or paused, keeps the mode it
    /// began with; prompts that wait have not begun. History and the list of what is to be done stay.
    ///
    /// Subscribers, observers and the stream of a run that is under way see it as an event,
    /// [`Event::ModeChanged`]. Picking the mode that is picked already changes nothing. Returns once it is stored;
    /// dropping the future takes nothing back.
    ///
    /// What a mode means is its agent's business: see [`RunContext::mode`]. It widens nothing: in a session below another one
    /// the agent has the scope and the budget of its root's run in any mode.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when `offered` has no mode of this id, [`ErrorKind::Busy`] while another process runs an
    /// agent in the session, and below a run that is under way; the store's.
    pub async fn set_mode(&self, id: &str, offered: &[Mode]) -> Result<CurrentModeUpdate> {
        let mode = Arc::clone(&Mode::find(offered, id)?.id);
        let journal = self.0.journal(true).await?;
        let now = self.env().clock.now();
        check_lease(&journal, now)?;
        // Of a child that runs below another session's run only the lease tells.
        if journal.parent().is_some() && journal.leased(now).is_some() {
            let text = "an agent runs in the session; wait for it or cancel it";
            return Err(Error::new(ErrorKind::Busy, text).with("session", self.id().as_str()));
        }
        let (known, run, agent) = journal.read(|state| {
            let known = state.mode().is_some_and(|known| *known == mode);
            (known, state.run().map(|run| run.id), Arc::clone(&state.head().agent))
        });
        if !known {
            let run = run.unwrap_or_else(RunId::generate);
            let origin = Arc::new(Origin::new(self.id().clone(), run, agent));
            let changed = ModeChanged { mode: Arc::clone(&mode) };
            journal.stage(&origin, now, Event::ModeChanged(Arc::new(changed)));
            let sink = self.0.lock().line.sink_of(run);
            let emitter = Emitter::new(sink, self.env()).at(Arc::clone(&self.0) as _, run);
            journal.commit(&emitter).await?;
        }
        Ok(CurrentModeUpdate::new(mode))
    }

    /// The id of the mode that the session's next run works in; `None` when none was ever picked, and for a session that
    /// is not stored.
    ///
    /// # Errors
    /// The store's.
    pub async fn mode(&self) -> Result<Option<Arc<str>>> {
        self.read(|state| state.mode().cloned()).await
    }
}

impl RunContext {
    /// The id of the mode that this run works in to its end: the one that was picked for its session when it began.
    /// `None` when none was.
    #[must_use]
    pub fn mode(&self) -> Option<Arc<str>> {
        self.journal().read(|state| state.run().and_then(|run| run.mode.clone()))
    }
}
