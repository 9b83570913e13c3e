//! A run, from one prompt to one outcome: the code that performs its effects and records them.

pub(crate) mod admit;
pub(crate) mod budget;
pub(crate) mod compact;
pub(crate) mod end;
pub(crate) mod entitle;
pub(crate) mod execute;
pub(crate) mod handle;
pub(crate) mod local;
mod misnamed;
pub(crate) mod watch;

pub use admit::check_prompt;
pub use handle::RunHandle;
