//! Children of this process: the shell that reads command lines, their environment, their groups and their ends.
//!
//! It decides nothing about what may run, and keeps no output.

pub(crate) mod disk;
pub(crate) mod drive;
pub(crate) mod environment;
pub(crate) mod spawn;
