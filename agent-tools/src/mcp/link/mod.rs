//! The connection to one server: made, kept, made anew once when it broke, and ended.

mod attempt;
mod first;
mod live;
mod logins;
mod offer;

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use entourage_core::{bound, permission::Approver};
use rmcp::service::ServiceError;
use tokio::{
    runtime::Handle,
    sync::{Notify, watch},
    task::JoinSet,
};

use super::{
    McpState,
    declared::Declared,
    handshake::Failure,
    login::Login,
    pins::Pins,
    server::{McpServer, Reach},
};
use attempt::Slot;

pub(in crate::mcp) use live::Live;
pub(in crate::mcp) use logins::LOGINS;

/// The connection to a server.
pub(in crate::mcp) struct Link {
    pub(in crate::mcp) server: McpServer,
    pins: Arc<Pins>,
    approver: Option<Arc<dyn Approver>>,
    login: Option<Login>,
    /// Rises with each login.
    logins: AtomicU64,
    /// Held during a login.
    turn: tokio::sync::Mutex<()>,
    slot: Mutex<Slot>,
    /// Held by the attempt that works.
    attempts: tokio::sync::Mutex<()>,
    shown: Mutex<Shown>,
    /// Rises with each change of the tools.
    revision: AtomicU64,
    /// True once the first attempt to connect has ended.
    settled: watch::Sender<bool>,
    /// Each process of the server that has not ended has a receiver.
    processes: watch::Sender<()>,
    /// The runtime in which the servers were started. All connections live in it, whoever asks for them.
    pub(in crate::mcp) runtime: Handle,
    /// Told when somebody asks for the tools of a server that failed.
    asked: Notify,
    shut: watch::Sender<bool>,
}

/// Reasons that a task did not come to its end.
const ENDED: &str = "the runtime in which the MCP servers were started has ended; start them again";
const PANICKED: &str = "this program panicked";

/// What is known of the server.
#[derive(Debug)]
struct Shown {
    state: McpState,
    /// True if a failure is one of a login, which is tried again by a call or by the program alone.
    is_final: bool,
    tools: Vec<Arc<Declared>>,
    left_out: usize,
    instructions: String,
}

impl Shown {
    /// Changes the state, unless no connection is to be made any more.
    fn set(&mut self, state: McpState) {
        if self.state != McpState::Disabled {
            self.state = state;
        }
    }

    fn connected(&mut self) {
        self.is_final = false;
        self.set(McpState::Connected { tools: self.tools.len(), left_out: self.left_out });
    }

    fn failed(&mut self, reason: impl Into<String>, is_final: bool) {
        self.is_final = is_final;
        self.set(McpState::Failed(reason.into()));
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("server", &self.server)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl Link {
    pub(in crate::mcp) fn new(
        server: McpServer,
        pins: Arc<Pins>,
        approver: Option<Arc<dyn Approver>>,
        runtime: Handle,
    ) -> Self {
        let (state, settled) = match server.is_disabled {
            true => (McpState::Disabled, true),
            false => (McpState::Starting, false),
        };
        let login = match &server.reach {
            Reach::Http { url, with_proxies, login: Some(login), .. } => {
                Some(Login::new(&server.name, url, *with_proxies, (**login).clone()))
            }
            _ => None,
        };
        Self {
            server,
            pins,
            approver,
            login,
            logins: AtomicU64::new(0),
            turn: tokio::sync::Mutex::default(),
            slot: Mutex::default(),
            attempts: tokio::sync::Mutex::default(),
            shown: Mutex::new(Shown {
                state,
                is_final: false,
                tools: Vec::new(),
                left_out: 0,
                instructions: String::new(),
            }),
            revision: AtomicU64::new(0),
            settled: watch::channel(settled).0,
            processes: watch::channel(()).0,
            runtime,
            asked: Notify::new(),
            shut: watch::channel(false).0,
        }
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::mcp) fn state(&self) -> McpState {
        self.shown().state.clone()
    }

    pub(in crate::mcp) fn tools(&self) -> Vec<Arc<Declared>> {
        self.shown().tools.clone()
    }

    pub(in crate::mcp) fn instructions(&self) -> String {
        self.shown().instructions.clone()
    }

    pub(in crate::mcp) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// True if the server's tool is still declared like this.
    pub(in crate::mcp) fn is_current(&self, declared: &Arc<Declared>) -> bool {
        self.shown().tools.iter().any(|tool| Arc::ptr_eq(tool, declared))
    }

    /// Has a task perform work that others may wait for, or that holds what they need: a caller may keep a future that
    /// it does not poll. The task is aborted when this is dropped.
    ///
    /// # Errors
    /// The reason that it did not come to its end.
    async fn driven<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, &'static str> {
        let mut task = JoinSet::new();
        task.spawn_on(work, &self.runtime);
        match task.join_next().await {
            Some(Ok(done)) => Ok(done),
            Some(Err(error)) if error.is_panic() => Err(PANICKED),
            _ => Err(ENDED),
        }
    }

    /// True if the runtime of the servers has ended: it takes no task.
    fn is_without_runtime(&self) -> bool {
        let task = self.runtime.spawn(std::future::pending::<()>());
        let is_refused = task.is_finished();
        task.abort();
        is_refused
    }

    /// Performs a part of a call until the server is shut down, which is its end on the connection too.
    pub(in crate::mcp) async fn until_shut<T>(
        &self,
        work: impl Future<Output = Result<T, ServiceError>>,
    ) -> Result<T, ServiceError> {
        let mut shut = self.shut.subscribe();
        tokio::select! {
            biased;
            _ = shut.wait_for(|shut| *shut) => Err(ServiceError::TransportClosed),
            done = work => done,
        }
    }

    fn is_over(&self) -> String {
        format!("the MCP server `{}` is not running", self.server.name)
    }

    /// Notes a failure, and returns what the model is told of it.
    fn failed(&self, failure: Failure) -> String {
        let (reason, is_final) = match failure {
            Failure::NeedsAuth(_) => return self.wants_login(),
            Failure::Login(reason) => (reason, true),
            Failure::Other(reason) => (reason, false),
        };
        let reason = self.server.told(&reason, bound::TEXT);
        self.shown().failed(reason.as_str(), is_final);
        format!("the MCP server `{}` cannot be reached: {reason}", self.server.name)
    }

    /// Ends the connection and the server, and makes no other: this from now on, also where the future is not polled.
    /// Each who polls one waits for the end.
    pub(in crate::mcp) fn shut_down(self: &Arc<Self>) -> impl Future<Output = ()> + Send + use<> {
        // Before those who wait for an attempt are told, who read it next.
        self.shown().state = McpState::Disabled;
        self.shut.send_replace(true);
        let end = End(Arc::clone(self));
        async move {
            let link = &end.0;
            let attempt = link.slot().running();
            if let Some(attempt) = attempt {
                // It ends at once.
                drop(attempt.await);
            }
            // One that was given up may be in its last poll.
            drop(link.attempts.lock().await);
            let live = link.slot().live.clone();
            if let Some(live) = live {
                live.end().await;
            }
            // Those of attempts and of broken connections, which were killed.
            link.processes.closed().await;
        }
    }
}

/// The end of a link. Dropped, it leaves nothing, also where the runtime that would wait for it has ended.
struct End(Arc<Link>);

impl Drop for End {
    fn drop(&mut self) {
        let live = self.0.slot().live.take();
        if let Some(live) = live {
            live.cut();
        }
        self.0.settled.send_replace(true);
    }
}
