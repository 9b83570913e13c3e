//! An open session: its record, its queue of prompts and its modes, and the public handle.

pub(crate) mod below;
pub(crate) mod delivery;
mod form;
mod given;
mod guarded;
mod handle;
pub(crate) mod journal;
pub(crate) mod live;
mod mode;
mod modes;
mod opening;
mod past;
mod pending;
mod permission;
pub(crate) mod questions;
pub(crate) mod queue;
mod rewind;
pub(crate) mod runs;
mod stop;
mod unqueued;
mod waiting;

pub use form::AnswerForm;
pub use handle::Session;
pub use mode::{CurrentModeUpdate, Mode};
pub use past::Moment;
pub use pending::{Pending, Waiting};
pub use rewind::Rewound;
