//! Values that a run has recorded and its session keeps.

use entourage_core::{event::Kept, session::SessionState};

/// Number of values of a kind that the open run of this state has recorded.
pub(crate) fn kept_in_run(state: &SessionState, kind: &str) -> usize {
    let of_run = state.kept().iter().rev().take_while(|kept| !matches!(kept, Kept::Prompt(_)));
    of_run.filter(|kept| matches!(kept, Kept::Value(value) if value.name() == kind)).count()
}
