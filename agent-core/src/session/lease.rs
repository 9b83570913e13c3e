//! Who may write: a lease names the owner of a session for a while, and a rising generation fences off who had it
//! before.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// A session's lease.
///
/// A runtime that runs an agent holds one: it comes with every append and is renewed by it. It keeps programs that look
/// for dead runs ([`Runtime::recover`](crate::Runtime::recover)) away from live ones; that no two writers' events ever
/// mix does not depend on it, nor on anybody's clock: see [`SessionStore::append`](super::SessionStore::append).
///
/// # Clocks
/// `until` is a moment of the holder's clock, and others compare it with their own. A live run renews its lease after a
/// third of the lease's time, so clocks may be apart by half of that time (15 seconds of the default 30) and nobody
/// notices. Where they are further apart, or one jumps:
/// - A holder whose clock is ahead keeps others away for as much longer, should it die.
///   [`Session::resume`](crate::Session::resume) asks no clock and goes on at once.
/// - A live holder whose clock is behind is taken over from by [`Runtime::recover`](crate::Runtime::recover). It ends with
///   [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) at its next append or renewal and stores nothing more; a tool
///   that it had under way may have run.
/// - A lease that was given back is over by everybody's clock.
///
/// ```
/// use entourage_core::{Timestamp, session::Lease};
///
/// let (soon, later) = (Timestamp::from_micros(1), Timestamp::from_micros(2));
/// let first = Lease::new(7, 1, later);
/// let second = Lease::new(8, 2, later);
/// assert!(first.replaces(None) && second.replaces(Some(&first)));
/// assert!(!first.replaces(Some(&second)), "a stale owner is refused");
/// assert!(first.is_live(soon) && !first.is_live(later));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Lease {
    /// The runtime that holds it.
    pub owner: u64,
    /// Rises by one with each new owner.
    pub generation: u64,
    /// Until when others are asked to stay away; 1970 for a lease that was given back.
    pub until: Timestamp,
}

impl Lease {
    /// A lease.
    #[must_use]
    pub fn new(owner: u64, generation: u64, until: Timestamp) -> Self {
        Self { owner, generation, until }
    }

    /// Whether others are asked to stay away at `now`.
    #[must_use]
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.until > now
    }

    /// Whether this lease may take the place of the stored one: it is of a later generation, or the same owner's.
    #[must_use]
    pub fn replaces(&self, stored: Option<&Self>) -> bool {
        stored.is_none_or(|stored| {
            self.generation > stored.generation
                || (self.generation == stored.generation && self.owner == stored.owner)
        })
    }
}
