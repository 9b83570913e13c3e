//! An open session: its record, its queue of prompts and its modes, and the public handle.

pub(crate) mod below;
pub(crate) mod delivery;
pub(crate) mod desk;
mod handle;
pub(crate) mod journal;
mod mode;
mod modes;
mod opening;
mod past;
pub(crate) mod questions;
pub(crate) mod queue;
mod stop;
mod waiting;

pub use handle::Session;
pub use mode::{CurrentModeUpdate, Mode};
pub use past::Moment;
