//! The nouns below all others: errors, ids and time, tokens and money, digests, and bounds on what comes from outside.
//!
//! They know each other (an id that is refused is an error, an error may tell a cost) and no other room.

mod approval;
pub(crate) mod bound;
mod digest;
mod error;
mod failure;
mod id;
pub(crate) mod json;
mod limits;
mod pause;
mod setters;
pub(crate) mod shown;
mod stop;
mod todo;
mod usage;

pub use approval::{ApprovalId, CallId};
pub use digest::Digest;
pub use error::{Error, ErrorKind, ErrorRecord, Result, RetryStatus};
pub use failure::Failure;
pub use id::{Clock, EffectKey, RequestId, RunAbove, RunId, SessionId, SystemClock, Timestamp};
pub use limits::{BudgetLimits, Charge, Exhausted, Spend};
pub use pause::Pause;
pub(crate) use setters::{setters, take_absent};
pub use stop::{FailedTask, FinishReason, StopReason};
pub use todo::{Todo, TodoStatus};
pub use usage::{Money, PriceTier, Prices, Usage};
