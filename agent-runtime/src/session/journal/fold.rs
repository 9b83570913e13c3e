//! A session read from its store: the fold of its events, from the newest checkpoint on.

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    event::{Checkpoint, Envelope, Event, Origin},
    session::{ReadRange, Row, SessionState, SharedStore},
};

use crate::session::journal::windows::Windows;

/// A session as read from the store.
#[derive(Default)]
pub(crate) struct Fold {
    pub(crate) state: SessionState,
    /// Events of the open run, if there is one.
    pub(crate) recorded: Vec<Event>,
}

impl Fold {
    /// Reads the session up to the last row that `includes` accepts, from its newest checkpoint on if there is one.
    ///
    /// A checkpoint that cannot be read costs time, not the session: all of it follows from the other events.
    pub(crate) async fn newest(
        store: &SharedStore,
        id: &SessionId,
        checkpoint: u64,
        includes: impl Fn(&Row) -> bool,
    ) -> Result<Self> {
        let from = checkpoint.saturating_sub(1);
        let fold = match Self::read(store, id, from, &includes).await {
            Err(error) if error.kind() == ErrorKind::Corrupt && from > 0 => {
                Self::read(store, id, 0, &includes).await
            }
            // Version 0.1 left out of its checkpoints what a run waits for.
            Ok(fold) if from > 0 && fold.state.lacks_its_pause() => Self::read(store, id, 0, &includes).await,
            fold => fold,
        };
        fold?.with_first(store, id).await
    }

    /// Adds the run of the session's first event, which checkpoints of older versions lack.
    async fn with_first(mut self, store: &SharedStore, id: &SessionId) -> Result<Self> {
        if self.state.head().seq > 0 && self.state.first_run().is_none() {
            let rows = store.read(id, ReadRange::all().with_limit(1)).await?;
            self.state.set_first_run(rows.first().map(|row| row.columns().run));
        }
        Ok(self)
    }

    async fn read(
        store: &SharedStore,
        id: &SessionId,
        from: u64,
        includes: impl Fn(&Row) -> bool,
    ) -> Result<Self> {
        let (mut fold, mut newest) = (Self::default(), from);
        let mut windows = Windows::after(store, id, from);
        'windows: while let Some(rows) = windows.next().await? {
            for row in rows {
                if !includes(&row) {
                    break 'windows;
                }
                newest = row.seq();
                fold.take_row(row, id, from)?;
            }
        }
        // The checkpoint to begin at is missing, and without it the rest means nothing.
        if newest == from && from > 0 {
            return Err(misplaced(id, from + 1));
        }
        fold.with_whole_run(store, id).await
    }

    /// Folds in one row of those after number `from`.
    fn take_row(&mut self, row: Row, id: &SessionId, from: u64) -> Result<()> {
        let (columns, seq) = (row.columns(), row.seq());
        let first = seq == from + 1;
        let envelope = row.into_envelope(id).and_then(|envelope| match &envelope.event {
            Event::Checkpoint(checkpoint) if !is_at(checkpoint, seq) => Err(misplaced(id, seq)),
            Event::Checkpoint(_) => Ok(envelope),
            _ if first && from > 0 => Err(misplaced(id, seq)),
            _ => Ok(envelope),
        });
        match envelope {
            // The fold already holds what this checkpoint says: one that cannot be read is made again.
            Err(error) if !first && columns.kind == "checkpoint" && error.kind() == ErrorKind::Corrupt => {
                let checkpoint = Checkpoint::new(self.state.clone(), None, false);
                let origin = Arc::new(Origin::new(id.clone(), columns.run, columns.agent));
                let event = Event::Checkpoint(Arc::new(checkpoint));
                self.take(Envelope::new(origin, seq, columns.at, event));
            }
            envelope => self.take(envelope?),
        }
        Ok(())
    }

    fn take(&mut self, envelope: Envelope) {
        self.state.apply(&envelope);
        if matches!(envelope.event, Event::RunStarted(_)) {
            self.recorded.clear();
        }
        match self.state.run() {
            Some(_) => self.recorded.push(envelope.event),
            None => self.recorded.clear(),
        }
    }

    /// Adds the events of the open run before the checkpoint: a hand-written agent needs all its effects.
    async fn with_whole_run(mut self, store: &SharedStore, id: &SessionId) -> Result<Self> {
        let Some(run) = self.state.run().filter(|run| run.keyed) else { return Ok(self) };
        if !matches!(self.recorded.first(), Some(Event::RunStarted(_))) {
            let rows = store.read(id, ReadRange::after(run.seq.saturating_sub(1))).await?;
            let effects = rows.into_iter().filter(|row| row.columns().kind != "checkpoint");
            let events = effects.map(|row| Ok(row.into_envelope(id)?.event));
            self.recorded = events.collect::<Result<_>>()?;
        }
        Ok(self)
    }
}

fn misplaced(id: &SessionId, seq: u64) -> Error {
    Error::new(ErrorKind::Corrupt, "the event is not the checkpoint that the session is to be read from")
        .with("session", id.as_str())
        .with("event", seq.to_string())
}

/// True when `checkpoint` is the fold of the events before number `seq`, or of those of the session that this one was
/// forked from.
fn is_at(checkpoint: &Checkpoint, seq: u64) -> bool {
    let newest = checkpoint.state.head().seq;
    match &checkpoint.forked {
        Some(forked) => seq == 1 && newest == forked.seq,
        None => newest.checked_add(1) == Some(seq),
    }
}
