//! The spend of one run in a session that outlives it, read backwards from the session's end: the number of rows read
//! grows with the run, and not with the session's age.

use std::collections::{HashSet, VecDeque};

use entourage_core::{
    Result, RunId, SessionId,
    budget::Spend,
    event::Event,
    session::{Account, ReadRange, Row, SharedStore},
};

/// Rows that are read at once.
const WINDOW: u64 = 256;

/// The runs of a child's session that belong to the run above.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Began<'a> {
    /// This one and all after it.
    Run(RunId),
    /// The oldest of these and all after it.
    AnyOf(&'a HashSet<RunId>),
}

/// The place of a row in the search for the first run.
enum Place {
    /// The first run begins here.
    First,
    /// One of the runs begins here, and an earlier one may.
    One,
    /// All that belongs to the run above comes later.
    Before,
    Between,
}

impl Began<'_> {
    fn place(self, kind: &str, run: RunId) -> Place {
        let begins = kind == "run_started";
        match self {
            Self::Run(first) if begins && run == first => Place::First,
            Self::Run(_) => Place::Between,
            Self::AnyOf(runs) if runs.contains(&run) => {
                if begins {
                    Place::One
                } else {
                    Place::Between
                }
            }
            // One that an earlier run above began. Other ids are those of prompts that the session was given directly.
            Self::AnyOf(_) if run.is_derived() => Place::Before,
            Self::AnyOf(_) => Place::Between,
        }
    }
}

/// Returns the spend of a session from the first of the runs `began` on, and the number of that run's first event;
/// `None` when none of them began. `newest` is the number of the session's newest event.
///
/// # Errors
/// The store's.
pub(crate) async fn since(
    store: &SharedStore,
    session: &SessionId,
    newest: u64,
    began: Began<'_>,
) -> Result<Option<(Spend, u64)>> {
    let (mut rows, mut first, mut before) = (VecDeque::new(), None, newest);
    'windows: while before > 0 {
        let after = before.saturating_sub(WINDOW);
        let limit = usize::try_from(before - after).unwrap_or(usize::MAX);
        let window = store.read(session, ReadRange::after(after).with_limit(limit)).await?;
        for row in window.into_iter().rev() {
            let columns = row.columns();
            let place = began.place(&columns.kind, columns.run);
            if matches!(place, Place::Before) {
                break 'windows;
            }
            if matches!(place, Place::First | Place::One) {
                first = Some(row.seq());
            }
            rows.push_front(row);
            if matches!(place, Place::First) {
                break 'windows;
            }
        }
        before = after;
    }
    let Some(first) = first else { return Ok(None) };
    let account = charged(rows.into_iter().filter(|row| row.seq() >= first), session)?;
    Ok(Some((account.spent(), first)))
}

fn charged(rows: impl Iterator<Item = Row>, session: &SessionId) -> Result<Account> {
    let mut account = Account::default();
    for row in rows {
        // A checkpoint says nothing that the events before it do not.
        if row.columns().kind != "checkpoint" {
            let event: Event = row.into_envelope(session)?.event;
            account.apply(&event);
        }
    }
    Ok(account)
}
