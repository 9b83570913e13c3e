//! The life of a run's contexts. It ends with the run, however that ends; nothing is done or recorded through them
//! then.

use std::{
    future::Future,
    sync::atomic::{AtomicBool, Ordering},
};

use entourage_core::{Error, ErrorKind, Result, run::Observation};
use futures_util::FutureExt;

use crate::session::journal::Journal;

/// One life of a run, from where it begins or continues to its end in this process. Shared by all its contexts.
#[derive(Debug, Default)]
pub(crate) struct Life {
    over: AtomicBool,
}

impl Life {
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Ends this life. The caller must hold the journal's lock, so that nothing is staged through it from then on.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Checks that the run is not over.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when it is.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.is_over() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidInput,
            "the run that this context belongs to is over, so nothing more is done through it; wait within the run for what it starts, or start a new run",
        ))
    }

    /// Returns the observation of `effect`, unless the run ended meanwhile: nothing records it then.
    pub(crate) fn outlasts<'a>(
        &'a self,
        effect: impl Future<Output = Result<Observation>> + Send + 'a,
    ) -> impl Future<Output = Result<Observation>> + Send + 'a {
        effect.map(|observed| match self.is_over() {
            false => observed,
            true => Err(Error::new(ErrorKind::Cancelled, "the run ended while this was under way")),
        })
    }
}

impl Journal {
    /// Ends `life`: nothing is staged in it from now on.
    pub(crate) fn end(&self, life: &Life, cancelled: bool) {
        let mut inner = self.lock();
        if !life.is_over() {
            inner.end_of_life(cancelled);
        }
        life.end();
    }
}
