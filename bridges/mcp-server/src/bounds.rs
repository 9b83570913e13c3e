//! Bounds on what clients may make a server do.

use std::time::Duration;

/// HTTP connections at once.
pub(crate) const CONNECTIONS: usize = 512;
/// Clients of a server that listen for changes at once. They stay as long as they like, and others need room as well.
pub(crate) const LISTENERS: usize = CONNECTIONS / 2;
/// Answer to one more.
pub(crate) const MANY_LISTEN: &str = "as many clients listen to the server as may; try again later";
/// Answer to a connection beyond those that there may be.
pub(crate) const MANY_CONNECT: &str = "the server has as many connections as it may; try again later";
/// Least time after which an unused HTTP session ends: its client has to come back for its second request.
pub(crate) const LEAST_IDLE: Duration = Duration::from_secs(1);
/// Least bytes of a message that a program can set: those with which a client begins fit in.
pub(crate) const LEAST_MESSAGE: usize = 1 << 10;

/// Bounds of a server. A program can set all but the connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Calls of one conversation at once.
    pub(crate) calls: usize,
    /// HTTP connections at once.
    pub(crate) connections: usize,
    /// HTTP sessions at once.
    pub(crate) sessions: usize,
    /// Time after which an unused HTTP session ends.
    pub(crate) idle: Duration,
    /// Bytes of one message.
    pub(crate) message: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            calls: 16,
            connections: CONNECTIONS,
            sessions: 64,
            idle: Duration::from_secs(30 * 60),
            message: 4 << 20,
        }
    }
}
