//! Random numbers.

use std::hash::{BuildHasher, RandomState};

/// Returns 64 random bits.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(())
}
