//! A session's journal: the one in use, or as the store has it now.

use std::sync::Arc;

use entourage_core::{Error, Result, Timestamp, session::SessionRecord};

use crate::session::{
    below::check_root_id,
    journal::{Journal, apart::apart},
    live::Live,
};

impl Live {
    /// Returns the session's journal: the one in use, or as the store has it now, or new if that is allowed.
    pub(crate) async fn journal(self: &Arc<Self>, create: bool) -> Result<Arc<Journal>> {
        self.opened(create, false).await
    }

    /// Opens the journal. With `anew` the store is read even though an agent is about to run here.
    ///
    /// One caller at a time reads the store, and others wait for it. So the read continues when its caller is dropped.
    pub(super) async fn opened(self: &Arc<Self>, create: bool, anew: bool) -> Result<Arc<Journal>> {
        if let Some(journal) = self.used_here(anew) {
            return Ok(journal);
        }
        if create && let Some(journal) = self.created_now()? {
            return Ok(journal);
        }
        let shared = Arc::clone(self);
        apart(&self.env.tasks, Box::pin(async move { shared.open(create, anew).await })).await
    }

    /// Returns the time at which the stored session that was last seen here was created.
    pub(super) fn created(&self) -> Option<Timestamp> {
        let state = self.lock();
        let stored = state.journal.as_ref().filter(|journal| journal.committed() > 0);
        stored.map(|journal| journal.record.created)
    }

    /// Returns the journal of the agent that runs here: nobody else appends to it.
    fn used_here(&self, anew: bool) -> Option<Arc<Journal>> {
        let state = self.lock();
        let runs_here = state.queue.active().is_some_and(|running| running.agent.is_some());
        state.journal.as_ref().filter(|journal| runs_here && !anew && !journal.is_broken()).cloned()
    }

    /// Creates the journal of a session that is known to be new: nothing has to be waited for. `None` for any other
    /// session, and while another caller opens it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](entourage_core::ErrorKind::InvalidInput) for an id that no root may have.
    fn created_now(&self) -> Result<Option<Arc<Journal>>> {
        let Ok(_one_at_a_time) = self.opening.try_lock() else { return Ok(None) };
        let is_new = {
            let state = self.lock();
            state.journal.is_none() && state.new
        };
        if is_new { self.create().map(Some) } else { Ok(None) }
    }

    /// Creates the session's journal. The caller must hold the lock of openings.
    fn create(&self) -> Result<Arc<Journal>> {
        check_root_id(&self.id)?;
        let record = SessionRecord::root(self.id.clone(), self.env.clock.now());
        Ok(self.keep(Journal::create(&self.env, record), |_| false))
    }

    /// Makes this the session's journal, unless the one in use was written to while this one was read. Returns the
    /// session's journal. Queued prompts are staged under the same lock, so each is in exactly one journal.
    fn keep(&self, journal: Arc<Journal>, written: impl FnOnce(&Journal) -> bool) -> Arc<Journal> {
        let mut state = self.lock();
        if let Some(used) = state.journal.as_ref().filter(|used| !used.is_broken() && written(used)) {
            return Arc::clone(used);
        }
        let stored = state.journal.as_ref().map_or(0, |used| used.committed());
        state.queue.find_staged(&journal, stored);
        state.journal = Some(Arc::clone(&journal));
        journal
    }

    async fn open(&self, create: bool, anew: bool) -> Result<Arc<Journal>> {
        let _one_at_a_time = self.opening.lock().await;
        if let Some(journal) = self.used_here(anew) {
            return Ok(journal);
        }
        let (used, known_new) = {
            let state = self.lock();
            (state.journal.clone(), state.journal.is_none() && state.new)
        };
        let used = used.filter(|journal| !journal.is_broken());
        // Nobody else appends to what is being written here, or held.
        let keeps_results = self.env.unstored.of(&self.id).is_some();
        let is_in_use = |journal: &&Arc<Journal>| match keeps_results {
            true => journal.is_writing(),
            false => journal.is_in_use(self.env.clock.now()),
        };
        if let Some(journal) = used.as_ref().filter(is_in_use) {
            return Ok(Arc::clone(journal));
        }
        // Queued prompts may be written there while the store is read.
        let before = used.as_ref().map(|journal| journal.seq());
        let written = |journal: &Journal| before.is_some_and(|seq| journal.seq() != seq);
        let stored = if known_new { None } else { Journal::look_up(&self.env, &self.id).await? };
        if let Some(journal) = used.filter(|journal| !keeps_results && journal.is_current(stored.as_ref())) {
            return Ok(journal);
        }
        let journal = match stored {
            Some(info) => Journal::reopen(&self.env, info).await?,
            None if create => return self.create(),
            None => return Err(Error::no_session(&self.id).during("session.open")),
        };
        Ok(self.keep(journal, written))
    }
}
