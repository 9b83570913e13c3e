//! The mode of a session: picked at any time, also while a run is active, and kept with the session.

use std::sync::Arc;

use entourage_core::{
    Result, RunId, bound,
    event::{Event, ModeChanged, Origin},
};

use crate::{
    CurrentModeUpdate, Mode,
    run::admit::check_lease,
    session::{Session, delivery::emit::Emitter},
};

impl Session {
    /// Picks the mode of the session's next run. An active or paused run keeps the mode that it began with; queued
    /// prompts get the new one. History and todo list stay.
    ///
    /// Subscribers, observers and the stream of an active run see it as [`Event::ModeChanged`]. Picking the current
    /// mode again changes nothing. Returns once the mode is stored; dropping the future takes nothing back.
    ///
    /// The agent decides what a mode means: see [`RunContext::mode`](entourage_core::run::RunContext::mode). A mode
    /// widens nothing: in a child session the agent has the scope and the budget of its root's run in any mode.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](entourage_core::ErrorKind::InvalidInput) when `offered` has no mode of this id,
    /// [`ErrorKind::TooLarge`](entourage_core::ErrorKind::TooLarge) for an id of more than 512 bytes,
    /// [`ErrorKind::Busy`](entourage_core::ErrorKind::Busy) while another process runs an agent in the session, and in
    /// a child session while an agent runs there; the store's.
    pub async fn set_mode(&self, id: &str, offered: &[Mode]) -> Result<CurrentModeUpdate> {
        bound::check_name(id, "the mode's id")?;
        let mode = Arc::clone(&Mode::find(offered, id)?.id);
        let journal = self.0.journal(true).await?;
        let now = self.env().clock.now();
        check_lease(&journal, now)?;
        // Only the lease shows that a child runs below another session's run.
        if journal.parent().is_some() {
            journal.check_unleased(now)?;
        }
        let (known, run, agent) = journal.read(|state| {
            let known = state.mode().is_some_and(|known| *known == mode);
            (known, state.run().map(|run| run.id), Arc::clone(&state.head().agent))
        });
        if !known {
            let run = run.unwrap_or_else(RunId::generate);
            let origin = Arc::new(Origin::new(self.id().clone(), run, agent));
            let changed = ModeChanged::new(Arc::clone(&mode));
            journal.stage(&origin, now, Event::ModeChanged(Arc::new(changed)));
            let sink = self.0.lock().queue.sink_of(run);
            let emitter = Emitter::new(sink, self.env()).at(Arc::clone(&self.0), run);
            journal.commit(&emitter).await?;
        }
        Ok(CurrentModeUpdate::new(mode))
    }

    /// Returns the id of the mode of the session's next run; `None` when none was ever picked, and for a session that
    /// is not stored.
    ///
    /// # Errors
    /// The store's.
    pub async fn mode(&self) -> Result<Option<Arc<str>>> {
        self.read(|state| state.mode().cloned()).await
    }
}
