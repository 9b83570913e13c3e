//! The changes that renames have shown, to a session or to an approver, so that a call makes no other one.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use entourage_core::Digest;

/// Most changes that are remembered, of all sessions together. Of one that was forgotten the files have to be as the
/// session has seen them, which holds after a restart of the program as well.
const MOST: usize = 256;

/// Digests of changes, by those of the calls that showed them, the newest last.
#[derive(Debug, Default)]
pub(super) struct Offered(Mutex<VecDeque<(Digest, Digest)>>);

impl Offered {
    fn changes(&self) -> MutexGuard<'_, VecDeque<(Digest, Digest)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, call: Digest, change: Digest) {
        let mut changes = self.changes();
        changes.retain(|(other, _)| *other != call);
        changes.push_back((call, change));
        if changes.len() > MOST {
            changes.pop_front();
        }
    }

    /// Takes out the change of a call: it is none of a later one.
    pub(super) fn taken(&self, call: Digest) -> Option<Digest> {
        let mut changes = self.changes();
        let place = changes.iter().position(|(other, _)| *other == call)?;
        changes.remove(place).map(|(_, change)| change)
    }

    pub(super) fn of(&self, call: Digest) -> Option<Digest> {
        self.changes().iter().find(|(other, _)| *other == call).map(|(_, change)| *change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ce02_the_last_change_that_was_shown_counts_and_the_oldest_is_forgotten() {
        let offered = Offered::default();
        let digest = |number: usize| Digest::of([number.to_string().as_bytes()]);
        let (a, b) = (digest(MOST), digest(MOST + 1));
        offered.note(a, a);
        offered.note(a, b);
        assert_eq!((offered.of(a), offered.of(b)), (Some(b), None));
        assert_eq!((offered.taken(a), offered.taken(a), offered.taken(b)), (Some(b), None, None));
        (0..MOST).for_each(|number| offered.note(digest(number), a));
        assert_eq!((offered.of(a), offered.of(digest(0))), (None, Some(a)));
    }
}
