//! A connection that was made.

use std::{
    error::Error,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use entourage_core::permission::Approver;
use rmcp::{
    model::{ClientRequest, PingRequest},
    service::{Peer, PeerRequestOptions, RoleClient, RunningService, ServiceError},
};
use tokio::{
    runtime::Handle,
    task::AbortHandle,
    time::{Instant, timeout},
};

use crate::{
    mcp::{
        answer,
        client::{Calls, Client},
        ends::{Ended, Gone, Hold},
        handshake::Opened,
    },
    process::server::ServerProcess,
};

/// A server that was silent for this long is asked whether it is there before the next call, for so long.
const SILENCE: Duration = Duration::from_secs(30);
const PING: Duration = Duration::from_secs(5);
/// Time in which what is left of a connection ends, once it was ended.
const REST: Duration = Duration::from_secs(5);

/// A connection that was made.
pub(in crate::mcp) struct Live {
    pub(super) service: RunningService<RoleClient, Client>,
    pub(in crate::mcp) calls: Arc<Calls>,
    pub(super) process: Option<ServerProcess>,
    pub(super) hold: Hold,
    /// The last time that the server said something.
    heard: Mutex<Instant>,
    pub(super) keeper: OnceLock<AbortHandle>,
    /// The runtime of the connection.
    pub(in crate::mcp) runtime: Handle,
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.get() {
            keeper.abort();
        }
    }
}

impl Live {
    pub(super) fn new(opened: Opened, calls: Arc<Calls>, runtime: Handle) -> Self {
        let Opened { service, process, hold } = opened;
        let (heard, keeper) = (Mutex::new(Instant::now()), OnceLock::new());
        Self { service, calls, process, hold, heard, keeper, runtime }
    }

    pub(in crate::mcp) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// The approver that answers what the server wants to know of the user.
    pub(in crate::mcp) fn approver(&self) -> Option<&Arc<dyn Approver>> {
        self.service.service().approver.as_ref()
    }

    /// Tells when nothing is left of the connection.
    pub(super) fn gone(&self) -> Gone {
        self.hold.gone()
    }

    /// Tells when no answer can come any more.
    pub(in crate::mcp) fn ended(&self) -> Ended {
        self.hold.ended()
    }

    /// Notes that the server takes nothing more on this connection, if this error of sending a request says so: at the
    /// other end of pipes each does, and at an address each request has a fate of its own. Returns true if it does.
    pub(in crate::mcp) fn takes_nothing(&self, error: &(dyn Error + 'static)) -> bool {
        let is_it = self.process.is_some() || answer::is_for_another(error);
        if is_it {
            self.hold.deaf().note();
        }
        is_it
    }

    /// Notes that the server said something.
    pub(in crate::mcp) fn hear(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn has_ended(&self) -> bool {
        self.process.as_ref().is_some_and(|process| *process.watch().borrow())
    }

    /// True if the connection and its process are there, as far as this side knows.
    fn is_there(&self) -> bool {
        // Another process may hold the pipes of one that has ended.
        let is_open = !self.service.is_closed() && !self.peer().is_transport_closed();
        // Who waits for an answer is told of the end before those two know.
        is_open && !self.hold.ended().is_over() && !self.has_ended() && !self.hold.deaf().is_noted()
    }

    /// True if the connection is there, and need not be asked: the server said something not long ago.
    pub(super) fn is_heard(&self) -> bool {
        let is_silent = || self.heard.lock().unwrap_or_else(PoisonError::into_inner).elapsed() >= SILENCE;
        // From 2026-07-28 on there are no pings: a request says by itself that there is nobody.
        let has_pings = || self.peer().peer_info().is_some_and(|info| info.protocol_version.has_initialize());
        self.is_there() && !(is_silent() && has_pings())
    }

    /// True if the connection is there. A server that was silent for long is asked.
    pub(super) async fn answers(&self) -> bool {
        if self.is_heard() || !self.is_there() {
            return self.is_there();
        }
        let ping = ClientRequest::PingRequest(PingRequest::default());
        let options = PeerRequestOptions::with_timeout(PING);
        let asked =
            async { self.peer().send_request_with_option(ping, options).await?.await_response().await };
        let mut asked = Box::pin(asked);
        let asked = timeout(PING, self.ended().or_done(asked.as_mut()));
        let answered = matches!(asked.await, Ok(Ok(_) | Err(ServiceError::McpError(_))));
        if answered {
            self.hear();
        }
        answered
    }

    /// Makes room for another connection. What still runs on one to an address ends by itself, and this with the last
    /// of it.
    pub(super) fn give_way(&self) {
        if self.process.is_some() || !self.hold.deaf().is_noted() {
            // A call may keep it, and need not be polled.
            self.cut();
        }
    }

    /// Ends the connection and the server at once, whoever holds this.
    pub(super) fn cut(&self) {
        // The answers of one that has ended by itself are still read, until its keeper ends the connection.
        if self.has_ended() {
            return;
        }
        if let Some(process) = &self.process {
            process.kill();
        }
        self.service.cancellation_token().cancel();
        self.hold.cut();
    }

    /// Ends the connection and the server, and waits for their end.
    pub(super) async fn end(&self) {
        self.service.cancellation_token().cancel();
        if let Some(process) = &self.process {
            process.end().await;
        }
        // A server at an address is told that its session is over, and may not answer.
        if timeout(REST, self.hold.gone().wait()).await.is_err() {
            self.hold.cut();
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::mcp::{
        McpLifecycle, McpServer,
        ends::{Ending, hold},
        handshake::open,
    };

    #[tokio::test]
    async fn a_connection_is_not_there_any_more_once_those_who_wait_are_told_of_its_end() {
        const SCRIPT: &str = r#"read -r line
        id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
        about='"capabilities":{},"serverInfo":{"name":"sh","version":"1"}'
        printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18",%s}}\n' "$id" "$about"
        sleep 600"#;
        let server =
            McpServer::command("files", "sh", ["-c", SCRIPT]).with_lifecycle(McpLifecycle::Initialize);
        let calls = Arc::<Calls>::default();
        let client = Client {
            server: "files".to_owned(),
            calls: Arc::clone(&calls),
            changed: Arc::default(),
            approver: None,
            asks: Arc::default(),
        };
        let processes = tokio::sync::watch::channel(()).0;
        let Ok(mut opened) = open(&server, client, None, processes.subscribe()).await else {
            panic!("it does not open")
        };
        let (hold, part) = hold();
        let theirs = std::mem::replace(&mut opened.hold, hold);
        let live = Live::new(opened, calls, Handle::current());
        assert!(live.is_there());
        // The task of the connection has not ended yet.
        drop(Ending::new((), part));
        assert!(!live.service.is_closed() && !live.is_there());
        drop((live, theirs));
        processes.closed().await;
    }
}
