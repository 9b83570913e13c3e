//! The nouns below all others: errors, ids and time, tokens and money, digests, and bounds on what comes from outside.
//!
//! They know each other (an id that is refused is an error, an error may tell a cost) and no other room.

pub(crate) mod bound;
mod digest;
mod error;
mod id;
pub(crate) mod json;
pub(crate) mod shown;
mod usage;

pub use digest::Digest;
pub(crate) use error::NotSent;
pub use error::{Error, ErrorKind, ErrorRecord, Result, RetryStatus};
pub use id::{Clock, RequestId, RunId, SessionId, SystemClock, Timestamp};
pub use usage::{Money, PriceTier, Prices, Usage};
