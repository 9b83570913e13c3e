//! Leases. Each names the owner of a session for a while; its rising generation fences off former owners.

use serde::{Deserialize, Serialize};

use super::SessionRecord;
use crate::Timestamp;

/// A session's lease.
///
/// A runtime that runs an agent holds one. It comes with each append, which renews it. It keeps programs that look for
/// dead runs (`Runtime::recover`) away from live ones. Two writers' events never mix even
/// without it, and whatever the clocks say: see [`SessionStore::append`](super::SessionStore::append).
///
/// # Clocks
/// `until` is a time on the holder's clock, and others compare it with their own. A live run renews its lease after a
/// third of the lease's time, so clocks may differ by half of that time (15 seconds of the default 30) without effect.
/// Where they differ more, or one jumps:
/// - If a holder with a clock ahead of others dies, they stay away for longer by that difference.
///   `Session::resume` ignores clocks and goes on at once.
/// - A live holder with a clock behind loses its session to `Runtime::recover`. Its next append or renewal is an
///   [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) and it stores nothing more; a tool in flight may have run.
/// - A released lease is over by any clock.
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
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Lease {
    /// The runtime that holds it.
    pub owner: u64,
    /// Generation, which rises by one with each new owner.
    pub generation: u64,
    /// Time until which others are asked to stay away; 1970 for a released lease.
    pub until: Timestamp,
    /// When the session that it is for was created; `None` compares nothing. Asked when it is stored, and no part of
    /// what is stored, nor of what makes two leases equal.
    #[serde(skip)]
    pub created: Option<Timestamp>,
}

impl PartialEq for Lease {
    fn eq(&self, other: &Self) -> bool {
        (self.owner, self.generation, self.until) == (other.owner, other.generation, other.until)
    }
}

impl Eq for Lease {}

impl Lease {
    /// A lease.
    #[must_use]
    pub fn new(owner: u64, generation: u64, until: Timestamp) -> Self {
        Self { owner, generation, until, created: None }
    }

    /// The same lease, for the session of this record alone: not for one that is made later under its id.
    #[must_use]
    pub fn of(mut self, record: &SessionRecord) -> Self {
        self.created = Some(record.created);
        self
    }

    /// True while others are asked to stay away, at `now`.
    #[must_use]
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.until > now
    }

    /// True if this lease may replace the stored one: it has a later generation, or the same generation and owner.
    #[must_use]
    pub fn replaces(&self, stored: Option<&Self>) -> bool {
        stored.is_none_or(|stored| {
            self.generation > stored.generation
                || (self.generation == stored.generation && self.owner == stored.owner)
        })
    }
}
