//! The rows of a session, a bounded number at a time.

use entourage_core::{
    Result, SessionId,
    session::{ReadRange, Row, SharedStore},
};

/// Rows that are read at once.
pub(crate) const WINDOW: usize = 1_000;

/// The rows of a session after an event, in windows of [`WINDOW`] rows.
pub(crate) struct Windows<'a> {
    store: &'a SharedStore,
    session: &'a SessionId,
    /// Number of the event before the next window; `None` after the last one.
    after: Option<u64>,
}

impl<'a> Windows<'a> {
    pub(crate) fn after(store: &'a SharedStore, session: &'a SessionId, after: u64) -> Self {
        Self { store, session, after: Some(after) }
    }

    /// Returns the next rows, oldest first; `None` after the last ones.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Row>>> {
        let Some(after) = self.after else { return Ok(None) };
        let rows = self.store.read(self.session, ReadRange::after(after).with_limit(WINDOW)).await?;
        self.after = rows.last().filter(|_| rows.len() == WINDOW).map(Row::seq);
        Ok(Some(rows).filter(|rows| !rows.is_empty()))
    }
}
