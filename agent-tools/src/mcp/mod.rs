//! Tools of MCP servers: [`Mcp`] connects to them, and is the set of their tools.
//!
//! What servers say is data. Descriptions, results and instructions come from outside, and a server that is a command
//! runs with all rights of this program.

mod answer;
mod asked;
mod bounded;
mod client;
mod config;
mod content;
mod declared;
mod elicit;
mod ends;
mod handshake;
mod link;
mod login;
mod long;
mod paced;
mod pins;
mod pipes;
mod readable;
mod salvage;
mod server;
mod tool;
mod unread;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use entourage_core::{
    Error, ErrorKind, Result,
    permission::Approver,
    tool::{Tool, Tools, Toolset},
};

use tokio::task::AbortHandle;

use link::Link;
use pins::Pins;
use tool::RemoteTool;

pub use login::McpLogin;
pub use server::{McpLifecycle, McpServer};

/// The tools of MCP servers. Clones share the connections.
///
/// # Contract
/// - [`Mcp::start`] returns at once, and the servers start side by side. The set has the tools of a server from when it
///   is connected: a program with one run waits for [`Mcp::ready`], and one that a person talks to does not.
/// - The tools are named `mcp_<server>_<tool>`. A tool with hints that it only reads has the access read, and network
///   unless it says that it touches no world outside and its server is on this machine; any other can do anything but
///   start agents and ask the user. No tool names what it touches, so no scope with roots or hosts admits one.
/// - A server that has resources or prompts has the tools `mcp_<server>_resources` and `mcp_<server>_prompts` too.
/// - A server that cannot be reached, and has no tools yet, is tried again while agents ask for the tools: after 1 s at
///   the earliest, then after twice as long each time, up to 1 minute; after 1 s anew once it was there for longer than
///   that. [`Mcp::reconnect`] tries at once.
/// - One attempt to connect is made for all who wait, who share its failure. It ends when nobody waits for it any more.
/// - A connection that broke is made anew once for the next call. A call that ran when it broke is repeated if its tool
///   only reads, or if the server did not get it, and is an error result otherwise. A server that was silent for 30 s
///   is pinged before a call. A server at an address that knows the session no more (404), or is not there, did not get
///   the call. Before it is repeated, the tools are listed anew. The stream of an answer that breaks off is asked for
///   again, if the server says that it can be, until it refuses that or was not reached for more than 30 s.
/// - What a server asks of this program is answered: 32 requests at once of one at an address, which has 5 s to take
///   each answer, and as many of one over pipes as it takes the answers of. Then it is read no further. Requests that
///   it cancels count no more.
/// - When a call is dropped, the server is told, and may go on nevertheless.
/// - A tool whose description, schema or hints are not those that were accepted is asked about, whatever the rules
///   allow. What a server says first is accepted; [`McpBuilder::pinned_in`] keeps it beyond this process.
/// - Of a server 1,000 tools are taken, each with at most 16 KiB of description and 256 KiB of schema; a message has at
///   most 16 MiB, and a call whose answer is longer, or cannot be read, is an error result that says so.
///   [`McpState::Connected`] tells how many tools were left out.
/// - The connections live in the runtime in which the servers were started. Once that has ended, calls and
///   [`Mcp::reconnect`] fail, and the servers have to be started again.
/// - The servers end with the last clone and the last of their tools: their process groups are killed. To let them end
///   by themselves, wait for [`Mcp::shut_down`].
///
/// ```
/// use entourage_tools::mcp::{Mcp, McpServer};
/// use entourage_core::tool::Toolset;
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let missing = McpServer::command("files", "no-such-program", ["--root", "."]);
/// let mcp = Mcp::start([missing]).unwrap();
/// mcp.ready().await;
/// for (server, state) in mcp.servers() {
///     println!("{server}: {state}"); // files: failed: `no-such-program` cannot be started: …
/// }
/// assert!(mcp.tools().is_empty()); // give it to an agent with `ReactAgent::builder(…).toolset(mcp)`
/// # });
/// ```
#[derive(Clone)]
pub struct Mcp {
    links: Arc<[Arc<Link>]>,
    starts: Arc<Starts>,
    view: Arc<View>,
}

/// The tasks that connect for the first time. They end with the last clone: a person who logs in takes long.
#[derive(Debug)]
struct Starts(Vec<AbortHandle>);

impl Drop for Starts {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

/// The part of the tools that one set has.
#[derive(Debug, Default)]
struct View {
    /// Tools by server; all of a server's if it names none.
    only: Option<BTreeMap<String, BTreeSet<String>>>,
    /// The tools at a revision, handed out until there is another one: wires cache the encoded list by its address.
    made: Mutex<Option<(u64, Tools)>>,
}

/// State of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum McpState {
    /// It is not started, or [`Mcp::shut_down`] was called.
    Disabled,
    /// It is being started or asked.
    Starting,
    /// It is there.
    Connected {
        /// Number of its tools that are offered.
        tools: usize,
        /// Number of its tools that are not: with a name of another, too large, or too many.
        left_out: usize,
    },
    /// It cannot be reached, for this reason. The next call tries again, and while it has no tools the next agent that
    /// asks for them; after a login that failed, [`Mcp::reconnect`] alone.
    Failed(String),
    /// It wants a login, or refused the one that it was given. With [`McpServer::with_login`], a person is waited for,
    /// or did not log in.
    NeedsAuth,
}

impl fmt::Display for McpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("disabled"),
            Self::Starting => f.write_str("starting"),
            Self::Connected { tools, left_out: 0 } => write!(f, "connected, {tools} tools"),
            Self::Connected { tools, left_out } => write!(f, "connected, {tools} tools, {left_out} left out"),
            Self::Failed(reason) => write!(f, "failed: {reason}"),
            Self::NeedsAuth => f.write_str("needs a login"),
        }
    }
}

/// Settings of [`Mcp`] beside the servers. Made by [`Mcp::builder`].
#[derive(Debug, Default)]
pub struct McpBuilder {
    servers: Vec<McpServer>,
    approver: Option<ApproverOfServers>,
    pins: Option<PathBuf>,
}

struct ApproverOfServers(Arc<dyn Approver>);

impl fmt::Debug for ApproverOfServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Approver")
    }
}

impl McpBuilder {
    /// Adds servers.
    pub fn servers(mut self, servers: impl IntoIterator<Item = McpServer>) -> Self {
        self.servers.extend(servers);
        self
    }

    /// Passes the questions of servers to the user (elicitation) to this approver; without one they are declined.
    ///
    /// The question names the tool `mcp_<server>`, its arguments are the answer that would be given, and its preview
    /// is what the server asks. To allow it gives this answer, to edit it another one. A server of a version before
    /// 2026-07-28 does not say which call it asks about: while it works for several runs, it is declined.
    ///
    /// The time of the answer counts in the time limits of the call and of all agents above it.
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        self.approver = Some(ApproverOfServers(Arc::new(approver)));
        self
    }

    /// Keeps what was accepted of the servers' tools in a file, which only its user can read. Several processes may
    /// share it. Keep it where no agent can write.
    pub fn pinned_in(mut self, file: impl Into<PathBuf>) -> Self {
        self.pins = Some(file.into());
        self
    }

    /// Starts the servers, and returns at once. Their connections live in the tokio runtime in which this is called: it
    /// has to run while they are used from any other, and ends them when it ends.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for names of servers that are not 1 to 32 letters, digits, `_` and `-`, or of which one
    /// begins with another and `_`, and outside of a tokio runtime; those of reading the file of pins.
    pub fn start(self) -> Result<Mcp> {
        McpServer::check(&self.servers)?;
        let runtime = tokio::runtime::Handle::try_current().map_err(|error| {
            Error::new(ErrorKind::Config, "MCP servers are started within a tokio runtime").caused_by(error)
        })?;
        let pins = Arc::new(self.pins.map_or_else(|| Ok(Pins::default()), Pins::open)?);
        let link = |server| {
            let approver = self.approver.as_ref().map(|approver| Arc::clone(&approver.0));
            Arc::new(Link::new(server, Arc::clone(&pins), approver, runtime.clone()))
        };
        let links: Arc<[_]> = self.servers.into_iter().map(link).collect();
        let starts = links.iter().filter(|link| !link.server.is_disabled);
        let starts = starts.map(|link| runtime.spawn(Arc::clone(link).begin()).abort_handle());
        let starts = Arc::new(Starts(starts.collect()));
        Ok(Mcp { links, starts, view: Arc::default() })
    }
}

impl Mcp {
    /// Starts these servers, and returns at once: [`Mcp::builder`] has more settings.
    ///
    /// # Errors
    /// Those of [`McpBuilder::start`].
    pub fn start(servers: impl IntoIterator<Item = McpServer>) -> Result<Self> {
        Self::builder().servers(servers).start()
    }

    /// Begins the settings.
    pub fn builder() -> McpBuilder {
        McpBuilder::default()
    }

    /// Waits until each server is connected or has failed; at most the time that each has to connect, and that a person
    /// has to log in.
    pub async fn ready(&self) {
        for link in &*self.links {
            link.settled().await;
        }
    }

    /// Returns the servers with their states, in the order in which they were given.
    pub fn servers(&self) -> Vec<(String, McpState)> {
        self.links.iter().map(|link| (link.server.name().to_owned(), link.state())).collect()
    }

    /// Returns what the connected servers say of their use, each in a block with its name, to be appended to an agent's
    /// instructions; empty if they say nothing. At most 16 KiB of each server. It is text from outside.
    pub fn instructions(&self) -> String {
        let said = self.links.iter().filter(|link| self.view.has_server(link.server.name()));
        let said = said.map(|link| (link.server.name(), link.instructions()));
        let said = said.filter(|(_, text)| !text.is_empty());
        let blocks = said.map(|(name, text)| {
            // It cannot end its own block.
            let text = text.replace("</mcp_server", "< /mcp_server");
            format!("<mcp_server name=\"{name}\">\n{text}\n</mcp_server>")
        });
        blocks.collect::<Vec<_>>().join("\n")
    }

    /// Returns the set of these tools alone, on the same connections: of each server the named tools, or all of them
    /// if none is named. An empty list of servers has no tools.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a server that there is not, with the list of those that there are.
    pub fn only<'a>(&self, servers: impl IntoIterator<Item = (&'a str, Vec<&'a str>)>) -> Result<Self> {
        let mut only: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (server, tools) in servers {
            if !self.links.iter().any(|link| link.server.name() == server) {
                return Err(self.no_server(server));
            }
            only.insert(server.to_owned(), tools.into_iter().map(str::to_owned).collect());
        }
        let view = View { only: Some(only), made: Mutex::default() };
        Ok(Self { links: Arc::clone(&self.links), starts: Arc::clone(&self.starts), view: Arc::new(view) })
    }

    /// Connects a server anew that is not connected. A person is asked at once if it wants a login, also where nobody
    /// answered before. Returns the state in which the server then is: [`McpState::NeedsAuth`] if nobody logged in
    /// again. Waits as long as [`Mcp::ready`]. Nothing changes for a server that is connected, disabled or shut down.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a server that there is not, with the list of those that there are.
    pub async fn reconnect(&self, server: &str) -> Result<McpState> {
        let link = self.links.iter().find(|link| link.server.name() == server);
        let link = link.ok_or_else(|| self.no_server(server))?;
        link.connect_now().await;
        Ok(link.state())
    }

    fn no_server(&self, server: &str) -> Error {
        let names: Vec<_> = self.links.iter().map(|link| link.server.name()).collect();
        let text = format!("there is no MCP server `{server}`; there are: {}", names.join(", "));
        Error::new(ErrorKind::Config, text)
    }

    /// Ends the servers: their inputs end, after 2 s they are asked to end, and after 2 s more they are killed. Calls
    /// that run fail, and later ones are refused. When this is dropped, the servers end nevertheless, and another call
    /// of it waits for that.
    pub async fn shut_down(&self) {
        let ends: Vec<_> = self.links.iter().map(|link| link.runtime.spawn(link.shut_down())).collect();
        for ended in ends {
            // A panic there ends that server alone. If the runtime has ended, the servers have too.
            let _ = ended.await;
        }
    }
}

impl View {
    fn has_server(&self, server: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains_key(server))
    }

    fn has(&self, server: &str, declared: &declared::Declared) -> bool {
        let Some(only) = &self.only else { return true };
        let Some(tools) = only.get(server) else { return false };
        tools.is_empty() || declared.is_among(server, tools)
    }
}

impl Toolset for Mcp {
    fn tools(&self) -> Tools {
        self.links.iter().filter(|link| self.view.has_server(link.server.name())).for_each(|link| link.ask());
        // Read first: what changes meanwhile is another revision.
        let revision = self.links.iter().map(|link| link.revision()).fold(0, u64::wrapping_add);
        let mut made = self.view.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, tools)) = &*made
            && *of == revision
        {
            return tools.clone();
        }
        let mut sorted: BTreeMap<String, Arc<dyn Tool>> = BTreeMap::new();
        for link in &*self.links {
            for declared in link.tools() {
                if self.view.has(link.server.name(), &declared) {
                    let name = declared.spec.name().to_owned();
                    sorted.insert(name, Arc::new(RemoteTool { link: Arc::clone(link), declared }));
                }
            }
        }
        let tools = Tools::from_sorted(sorted.into_values());
        *made = Some((revision, tools.clone()));
        tools
    }
}

impl fmt::Debug for Mcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.servers()).finish()
    }
}
