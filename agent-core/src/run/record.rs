//! Values that an agent records, and its view of its session's state.

use std::sync::Arc;

use super::RunContext;
use crate::{
    Digest, Error, ErrorKind, Result,
    event::{Event, Record, Recorded},
    session::SessionState,
};

impl RunContext {
    /// Records a value, for an agent that runs again from its top on resume: a value that is recorded at this place
    /// already is not recorded again. It is stored before the next effect leaves the process.
    ///
    /// # Errors
    /// [`ErrorKind::Diverged`] when another value is recorded at this place; those of [`Record::weigh`]; an error when
    /// the run is over.
    pub fn record<T: Record>(&self, value: T) -> Result<()> {
        self.check_effects()?;
        let key = self.next_key(Digest::of([b"record".as_slice(), T::KIND.as_bytes()]));
        let value = Recorded::keyed(value, key);
        self.effects().append(self, Some(key), &mut |_, _| Ok(value.clone()))
    }

    /// Records a value, for an agent that goes on where [its record](RunContext::recorded) ends: each call adds one.
    ///
    /// # Errors
    /// Those of [`Record::weigh`]; an error when the run is over.
    pub fn append<T: Record>(&self, value: T) -> Result<()> {
        self.append_with(|_, _| Ok(value)).map(drop)
    }

    /// Appends a value that follows from the session's state and from the number of its event. The session waits for
    /// `make`, which must not read or record by this context.
    ///
    /// # Errors
    /// Those of `make` and of [`Record::weigh`]; an error when the run is over. Nothing is recorded then.
    pub fn append_with<T: Record>(
        &self,
        make: impl FnOnce(&SessionState, u64) -> Result<T>,
    ) -> Result<Arc<T>> {
        self.check_effects()?;
        let wrong = || Error::new(ErrorKind::Internal, "the effects must make a record once");
        let (mut make, mut made) = (Some(make), None);
        self.effects().append(self, None, &mut |state, seq| {
            let value = Arc::new(make.take().ok_or_else(wrong)?(state, seq)?);
            made = Some(Arc::clone(&value));
            Ok(Recorded::new::<T>(value))
        })?;
        made.ok_or_else(wrong)
    }

    /// Returns the values of type `T` that this run recorded before it was resumed, oldest first; none in a new run.
    ///
    /// # Errors
    /// Those of [`Recorded::get`].
    pub fn recorded<T: Record>(&self) -> Result<Vec<Arc<T>>> {
        self.effects().recorded().iter().filter_map(|event| event.record().transpose()).collect()
    }

    /// Returns the values of a namespace that this run recorded before it was resumed, oldest first; none in a new run.
    #[must_use]
    pub fn records(&self, namespace: &str) -> Vec<Recorded> {
        let is_in = |name: &str| name.strip_prefix(namespace).is_some_and(|rest| rest.starts_with('.'));
        let value = |event: &Event| match event {
            Event::Recorded(value) if is_in(value.name()) => Some(value.clone()),
            _ => None,
        };
        self.effects().recorded().iter().filter_map(value).collect()
    }

    /// Reads the session's state. The session waits for `read`, which must not read or record by this context.
    pub fn read<T>(&self, mut read: impl FnMut(&SessionState) -> T) -> T {
        let mut found = None;
        self.effects().read(&mut |state| found = Some(read(state)));
        found.unwrap_or_else(|| read(&SessionState::default()))
    }

    /// True when the run was cancelled or asked to pause: it starts nothing new then.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.cancellation().is_cancelled() || self.effects().is_pausing()
    }

    /// Stores all that was recorded, without waiting for the next effect to do it.
    ///
    /// # Errors
    /// The store's; an error when the run is over.
    pub async fn commit(&self) -> Result<()> {
        self.effects().commit(self).await
    }
}
