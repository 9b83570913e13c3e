//! Children of this process: the shell that reads command lines, servers, their environment, groups and ends.
//!
//! It decides nothing about what may run, and keeps no output.

#[cfg(any(feature = "hooks", feature = "shell"))]
pub(crate) mod disk;
#[cfg(any(feature = "hooks", feature = "shell"))]
pub(crate) mod drive;
pub(crate) mod environment;
pub(crate) mod group;
#[cfg(any(feature = "lsp", feature = "mcp"))]
pub(crate) mod server;
#[cfg(any(feature = "hooks", feature = "shell"))]
pub(crate) mod spawn;
