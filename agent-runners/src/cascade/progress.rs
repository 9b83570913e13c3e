//! The progress of a cascade's run: a fold of its records. Pure.

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind, Result,
    event::{Record, Recorded},
    run::Outcome,
};

use super::records::{CascadeStarted, CascadeStep, NAMESPACE};

/// What a run recorded, as far as what comes next follows from it.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    /// The attempt that has begun and not ended.
    pub(super) open: Option<Arc<CascadeStarted>>,
    /// The check of its answer, if that has begun.
    pub(super) check: Option<Arc<CascadeStarted>>,
    /// The newest attempt that has ended.
    pub(super) last: Option<Arc<CascadeStep>>,
}

impl Progress {
    /// Applies records of the run, in their order.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for one that cannot be read, [`ErrorKind::NewerVersion`] for one of a newer version.
    pub(super) fn recall(&mut self, records: &[Recorded]) -> Result<()> {
        records.iter().try_for_each(|record| match record.name() {
            CascadeStarted::KIND => {
                record.get()?.into_iter().for_each(|it| self.started(it));
                Ok(())
            }
            CascadeStep::KIND => {
                record.get()?.into_iter().for_each(|it| self.ended(it));
                Ok(())
            }
            name if name.split('.').next() == Some(NAMESPACE) => Err(unknown(name)),
            _ => Ok(()),
        })
    }

    pub(super) fn started(&mut self, started: Arc<CascadeStarted>) {
        if started.check {
            self.check = Some(started);
        } else {
            (self.open, self.check) = (Some(started), None);
        }
    }

    pub(super) fn ended(&mut self, step: Arc<CascadeStep>) {
        (self.open, self.check, self.last) = (None, None, Some(step));
    }

    /// Returns the outcome of the run, if it has come to its end.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        let last = self.last.as_ref().filter(|_| self.open.is_none())?;
        let mut outcome = Outcome::new(last.ended.clone()?);
        outcome.text.clone_from(&last.outcome.text);
        outcome.failed.clone_from(&last.outcome.failed);
        Some(outcome)
    }
}

fn unknown(name: &str) -> Error {
    let text = format!(
        "records `{name}` of cascades are unknown here; the session was written by a newer version of entourage, update to read it"
    );
    Error::new(ErrorKind::NewerVersion, text)
}
