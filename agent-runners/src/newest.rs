//! Things made of the newest of some contents, such as an agent's tools: what has one address is digested once, and
//! encoded once by the wires.

use std::sync::{Mutex, PoisonError};

/// A content, and what was made of it.
pub(crate) struct Newest<Of, Made>(Mutex<Option<(Of, Made)>>);

impl<Of: Clone, Made: Clone> Newest<Of, Made> {
    /// Returns what was made of this content, by `is` the same as before, or else makes it.
    pub(crate) fn of(&self, of: &Of, is: impl FnOnce(&Of, &Of) -> bool, make: impl FnOnce() -> Made) -> Made {
        let mut newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*newest {
            Some((known, made)) if is(known, of) => made.clone(),
            _ => {
                let made = make();
                *newest = Some((of.clone(), made.clone()));
                made
            }
        }
    }
}

impl<Of, Made> Default for Newest<Of, Made> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}
