//! The life of a run's context: it ends with the run, however that ends, and nothing is done or recorded through it then.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::FutureExt;

use super::{Journal, Observation, RunContext};
use crate::{Error, ErrorKind, Result, Timestamp, event::Event, session::SessionState};

/// One life of a run: from where it begins, or is gone on with, to its end in this process. Shared by all its contexts.
#[derive(Debug, Default)]
pub(crate) struct Life {
    over: AtomicBool,
}

impl Life {
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Ends it. The caller holds the journal's lock, so nothing is staged through it from then on.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Checks that the run goes on.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when it does not.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.is_over() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidInput,
            "the run that this context belongs to is over, so nothing more is done through it; wait within the run for what it starts, or start a new run",
        ))
    }

    /// The observation of `effect`, unless the run ended meanwhile: then nobody knows of it.
    pub(super) fn outlasts<'a>(
        &'a self,
        effect: impl Future<Output = Result<Observation>> + Send + 'a,
    ) -> impl Future<Output = Result<Observation>> + Send + 'a {
        effect.map(|observed| match self.is_over() {
            false => observed,
            true => Err(Error::new(ErrorKind::Cancelled, "the run ended while this was under way")),
        })
    }
}

impl RunContext {
    pub(crate) fn life(&self) -> &Arc<Life> {
        &self.given().life
    }

    /// Adds an event of the run. Returns its number.
    ///
    /// # Errors
    /// Those of [`Life::check`].
    pub(crate) fn stage(&self, at: Timestamp, event: Event) -> Result<u64> {
        self.journal().stage_in(self.life(), self.origin(), at, event)
    }

    /// Adds an event of the run that follows from the state as it is then, its own number included.
    ///
    /// # Errors
    /// Those of [`Life::check`] and of `make`; nothing is added then.
    pub(crate) fn stage_with(
        &self,
        at: Timestamp,
        make: impl FnOnce(&SessionState) -> Result<Event>,
    ) -> Result<u64> {
        self.journal().stage_with(self.life(), self.origin(), at, make)
    }

    /// Stores what is staged.
    ///
    /// # Errors
    /// Those of [`Life::check`], the store's.
    pub(crate) async fn commit(&self) -> Result<()> {
        self.life().check()?;
        self.journal().commit(self.emitter()).await
    }

    /// Ends the contexts of this run: what is asked through them from now on is refused.
    pub(super) fn end_life(&self) {
        self.journal().end(self.life());
    }
}

impl Journal {
    /// From now on nothing is staged in `life`.
    pub(super) fn end(&self, life: &Life) {
        let _nobody_stages = self.lock();
        life.end();
    }
}
