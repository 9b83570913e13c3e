//! Entourage's tools and agents as a server of the Model Context Protocol, over stdio or streamable HTTP.
//!
//! [`ToolServer`] takes any [`Toolset`] and any [`Agent`](entourage_core::agent::Agent). Each call of a client is a run
//! of the runtime: the scope and the `Policy` judge it, the `Approver` is asked, the store records it, and it is
//! bounded and cancelled like a call of a model.
//!
//! ```no_run
//! use entourage_core::tool::Tools;
//! use entourage_mcp_server::ToolServer;
//! use entourage_runtime::Runtime;
//!
//! # async fn example(files: Tools) -> entourage_core::Result<()> {
//! ToolServer::new("files", &Runtime::in_memory()).toolset(files).serve_stdio().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The example program `files` serves the read-only file tools of a directory, over stdio or HTTP.
//!
//! # What a client gets
//! | what happens | what the client gets |
//! |---|---|
//! | the tool answers | its text, images and files; never its metadata |
//! | an unknown tool, wrong arguments, a refusal, a panic, a failure | an error result (`isError`) with a text; the connection goes on |
//! | somebody has to decide, and nobody did yet | an error result with the id of the approval |
//! | the same call again, after the decision | the call continues from the question |
//! | a request whose id has another one in flight, of the same client | the error -32600; the first one goes on |
//! | a message of JSON that cannot be read: half a surrogate pair, a number out of range, 127 levels or more | the error -32700 over stdio, with the id if that can be read; the status 415 over HTTP |
//! | a `progressToken` in the call | the progress of the tool, and the names of the tools that a served agent calls; a client that reads slowly misses some |
//!
//! [`Runtime::pending`] lists the open questions, and `Session::decide` answers one, also in another process that
//! shares the store. A call is the same if its tool and its arguments are, in the same conversation.
//!
//! At most 64 calls of a conversation may be paused. A further call that pauses gets an error result that says so, and
//! its question is closed. Before that, the oldest paused call gives way that has its answer and was not made again.
//! When a client with a session leaves, and when the server ends, the open questions are closed: nobody would
//! continue the calls.
//!
//! # Conversations
//! The calls of one client are one conversation in the store: runs in the session `mcp-<id>`. A session has one run at
//! a time. So calls that overlap run in sessions beside it (`mcp-<id>-2`), a paused call keeps its session until it
//! continues, and a session with 1,000 runs is left for a new one. A grant for the session (`Decision::AllowSession`)
//! holds in the one that asked.
//!
//! HTTP clients of the protocol's version 2026-07-28 have no session, so all of them share one conversation, its
//! limits and its paused calls. If the process dies, `Runtime::recover` skips the runs that it left: nobody waits for
//! their results any more.
//!
//! # Cancellation
//! A call is cancelled by the client's `notifications/cancelled`, when its connection or session ends, and when the
//! server stops: the tool's future is dropped, and its processes end. When its input ends, a call in flight first has
//! up to five seconds to answer. An HTTP client with a session may lose its connection: its calls go on until the
//! session ends, and the answer of one is lost that ends before the client is back (by GET with `Last-Event-ID`).
//! Without a session they are cancelled at once.
//!
//! # Safety over HTTP
//! There is no authentication: everybody who reaches the port may call the tools. Bind to a loopback address. A
//! request gets 403 if its `Host` is neither a loopback name nor [allowed](ToolServer::allow_hosts), or if it has an
//! `Origin`, as those of browsers do, that is neither the server's own nor [allowed](ToolServer::allow_origins).

mod ahead;
mod bounded;
mod bounds;
mod call;
mod changes;
mod conversation;
mod handler;
mod http;
mod in_flight;
mod lines;
mod offer;
mod progress;
mod refusing;
mod served;
mod stdio;

use std::{fmt, sync::Arc, time::Duration};

use entourage_core::{
    Error, ErrorKind, Result,
    agent::IntoAgent,
    permission::Scope,
    tool::{Access, Tool, Tools, Toolset},
};
use entourage_runners::{AgentTool, Combined};
use entourage_runtime::{Runtime, check_agent_name};
use rmcp::{
    service::{ServerInitializeError, serve_server_with_ct},
    transport::async_rw::AsyncRwTransport,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::{Semaphore, watch},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    ahead::{Ahead, Counted, Written},
    bounded::Bounded,
    bounds::{Bounds, LEAST_IDLE, LEAST_MESSAGE, LISTENERS},
    conversation::Conversation,
    handler::Handler,
    in_flight::{InFlight, Tracked},
    lines::Lines,
    refusing::Refusing,
    served::Served,
};

/// A server of tools and agents for clients of the Model Context Protocol.
///
/// # Scope
/// By default clients may read and delegate to the agents that are served, which then may read as well: nothing is
/// written, run or sent, whatever the rules allow. [`ToolServer::scope`] sets another scope. Within it the runtime's
/// `Policy` decides; without rules of its own that asks for everything but reading. Tools out of scope are not listed.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_core::tool::{Access, Tools};
/// use entourage_mcp_server::ToolServer;
/// use entourage_runners::from_fn::typed;
/// use entourage_runtime::Runtime;
/// use rmcp::{ServiceExt, model::CallToolRequestParams};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Nothing {}
/// let now = typed("now", "The time.", Access::NONE, |_: Nothing| async { Ok("noon") });
/// let tools = Tools::new([std::sync::Arc::new(now) as _]).unwrap();
/// let server = ToolServer::new("clock", &Runtime::in_memory()).toolset(tools);
///
/// // A client in the same process; `serve_stdio` and `serve_http` serve those of others.
/// let (here, there) = tokio::io::duplex(4096);
/// let (read, write) = tokio::io::split(there);
/// let serving = tokio::spawn(server.serve_io(read, write));
/// let client = ().serve(here).await.unwrap();
/// let result = client.call_tool(CallToolRequestParams::new("now")).await.unwrap();
/// assert_eq!(result.content[0].as_text().unwrap().text, "noon");
/// client.cancel().await.unwrap();
/// serving.await.unwrap().unwrap();
/// # });
/// ```
#[must_use = "a server does nothing until it serves"]
pub struct ToolServer {
    name: String,
    version: String,
    instructions: Option<String>,
    runtime: Runtime,
    sets: Vec<Arc<dyn Toolset>>,
    agents: Vec<Arc<dyn Tool>>,
    scope: Scope,
    bounds: Bounds,
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl ToolServer {
    /// Creates a server without tools, whose calls run in `runtime`: under its policy, approver, budget and store.
    /// `name` is 1 to 64 letters, digits, `_` and `-`.
    pub fn new(name: impl Into<String>, runtime: &Runtime) -> Self {
        Self {
            name: name.into(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instructions: None,
            runtime: runtime.clone(),
            sets: Vec::new(),
            agents: Vec::new(),
            scope: Scope::all().with_access(Access::READ | Access::DELEGATE),
            bounds: Bounds::default(),
            hosts: Vec::new(),
            origins: Vec::new(),
        }
    }

    /// Adds tools. A set that changes while it is served is asked again for each request; if it then brings a name that
    /// an earlier set has, the earlier tool stays. Sets are looked at each second, and clients are told of a change
    /// (`notifications/tools/list_changed`).
    pub fn toolset(mut self, tools: impl Toolset + 'static) -> Self {
        self.sets.push(Arc::new(tools));
        self
    }

    /// Adds an agent as a tool of its name, with the argument `prompt`; the result is its answer. Each call begins a
    /// new conversation with it. For another name, description or time limit, add an [`AgentTool`] to a toolset.
    pub fn agent<Form>(mut self, agent: impl IntoAgent<Form>) -> Self {
        let agent = agent.into_agent();
        let name = agent.name().to_owned();
        self.agents.push(Arc::new(AgentTool::new(agent).with_name(name)));
        self
    }

    /// Sets the most that clients may do. Default: read, and delegate to the served agents.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Sets the version that clients are told. Default: that of this library.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// Sets a text for the models of clients: what the tools are for, and how to use them.
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.instructions = Some(text.into());
        self
    }

    /// Sets the number of calls of one client that run at once; at least 1. Default 16. Sixteen times as many wait, and
    /// further ones get an error result. A call whose run has ended no longer counts, also while its client does not
    /// read the result. Agents below a call are bounded by `RuntimeBuilder::sub_agents`.
    pub fn max_calls(mut self, calls: usize) -> Self {
        self.bounds.calls = calls;
        self
    }

    /// Sets the number of HTTP sessions at once; at least 1. Default 64. A client beyond that gets 503.
    pub fn max_sessions(mut self, sessions: usize) -> Self {
        self.bounds.sessions = sessions;
        self
    }

    /// Sets the time after which an HTTP session ends that its client does not use: without a request, and without an
    /// open stream of one; at least one second. Default 30 minutes. Its client gets 404 from then on, and begins a new
    /// one.
    pub fn idle_timeout(mut self, time: Duration) -> Self {
        self.bounds.idle = time.max(LEAST_IDLE);
        self
    }

    /// Sets the bytes of one message from a client; at least 1 KiB. Default 4 MiB. A larger request gets 413 over HTTP;
    /// over stdio it is skipped, without an answer.
    pub fn max_message(mut self, bytes: usize) -> Self {
        self.bounds.message = bytes.max(LEAST_MESSAGE);
        self
    }

    /// Adds hosts whose names requests over HTTP may use, as `example.com` (any port) or `example.com:8080`. The
    /// loopback names (`localhost`, `127.0.0.1`, `[::1]`) are always served.
    pub fn allow_hosts<S: Into<String>>(mut self, hosts: impl IntoIterator<Item = S>) -> Self {
        self.hosts.extend(hosts.into_iter().map(Into::into));
        self
    }

    /// Adds origins of web pages that may call over HTTP, as `https://example.com:443` or `http://localhost:*`.
    /// Default: none.
    pub fn allow_origins<S: Into<String>>(mut self, origins: impl IntoIterator<Item = S>) -> Self {
        self.origins.extend(origins.into_iter().map(Into::into));
        self
    }

    /// Serves the client that started this process, over standard input and output, until the input ends. The library
    /// writes nothing else to standard output. The program must not do so either: not by `println!`, and not by a
    /// subscriber of `tracing`. Dropping the future cancels all calls.
    ///
    /// Must be called within a tokio runtime with I/O. Its end waits for neither stream.
    ///
    /// # Errors
    /// As [`ToolServer::serve_io`], and [`ErrorKind::Io`] when the streams are no pipes and no thread can be started
    /// for them.
    pub async fn serve_stdio(self) -> Result<()> {
        let (read, write) = stdio::open().map_err(|error| {
            Error::new(ErrorKind::Io, "the standard streams cannot be opened").caused_by(error)
        })?;
        self.serve_io(read, write).await
    }

    /// Serves one client over a pair of byte streams, in lines of JSON, until `read` ends. Calls in flight then have
    /// five seconds to answer, and are cancelled. A subscription to changes ends at once. The server ends also if the
    /// client reads nothing: what it has not read two seconds later is dropped. Dropping the future cancels all calls.
    ///
    /// While 256 messages wait for the client to read them, no further one is taken from it. Up to 64 KiB are read
    /// ahead, so that the end of `read` is seen behind them. A client whose messages wait behind those, and to which
    /// nothing could be written for 60 seconds, is taken for gone, as if `read` had ended.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], before anything is read, for an invalid name and for two tools of one name;
    /// [`ErrorKind::Protocol`] when the client does not begin as one.
    pub async fn serve_io(
        self,
        read: impl AsyncRead + Send + Unpin + 'static,
        write: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Result<()> {
        let over = CancellationToken::new();
        let (served, tell) = self.served(over.clone())?;
        let ended = served.unheard.clone();
        let handler = Handler::of_one(Arc::clone(&served), Conversation::new(&served)?);
        let written = Written::default();
        let lines = Lines::new(Ahead::new(read, written.clone(), ended, over.clone()), served.bounds.message);
        let answers = AsyncRwTransport::new_server(tokio::io::empty(), Counted { output: write, written });
        let in_flight = InFlight::default();
        let transport = Refusing::new(lines, answers, in_flight.clone());
        let transport = Bounded::new(Tracked::new(transport, in_flight));
        let _over = over.clone().drop_guard();
        let _watching = changes::watch(&served, tell, over.clone());
        match serve_server_with_ct(handler, transport, over).await {
            Ok(serving) => {
                let ended = serving.waiting().await;
                served.unwound().await;
                ended.map(drop).map_err(|error| {
                    Error::new(ErrorKind::Internal, "the server ended by a panic").caused_by(error)
                })
            }
            Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => Ok(()),
            Err(error) => {
                let text = "the client did not begin a session of the Model Context Protocol; check what was \
                            connected to this server";
                Err(Error::new(ErrorKind::Protocol, text).caused_by(error))
            }
        }
    }

    /// Serves clients over streamable HTTP, at the path `/mcp` of `listener`, until `shutdown` is cancelled. Then all
    /// calls are cancelled, and connections have some seconds to end. Dropping the future ends them at once.
    ///
    /// There are at most 512 connections at once; a further one gets the status 503. At most 256 clients listen for
    /// changes at once, by `subscriptions/listen` or by GET. A further one gets an error, for GET the status 503.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], before anything is accepted, for an invalid name, two tools of one name, and a host or
    /// origin that cannot be one.
    pub async fn serve_http(self, listener: TcpListener, shutdown: CancellationToken) -> Result<()> {
        let hosts = http::Names::new(&self.hosts, &self.origins)?;
        let (served, tell) = self.served(shutdown.child_token())?;
        let _watching = changes::watch(&served, tell, shutdown);
        http::serve(&served, hosts, listener).await
    }

    /// Checks the settings, and returns what is served until `over`, with the one that tells of changes.
    fn served(self, over: CancellationToken) -> Result<(Arc<Served>, watch::Sender<()>)> {
        check_agent_name(&self.name)?;
        let agents = Tools::new(self.agents)?;
        let mut sets = self.sets;
        sets.push(Arc::new(agents));
        // Two tools of one name at the start are a mistake of the program.
        Tools::new(sets.iter().flat_map(|set| set.tools().iter().cloned().collect::<Vec<_>>()))?;
        let (tell, changes) = watch::channel(());
        let served = Served {
            name: self.name,
            version: self.version,
            instructions: self.instructions,
            runtime: self.runtime,
            tools: Combined::new(sets),
            scope: self.scope,
            bounds: self.bounds,
            changes,
            listeners: Arc::new(Semaphore::new(LISTENERS)),
            running: TaskTracker::new(),
            unheard: over.child_token(),
            over,
        };
        Ok((Arc::new(served), tell))
    }
}

impl fmt::Debug for ToolServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolServer")
            .field("name", &self.name)
            .field("sets", &self.sets)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}
