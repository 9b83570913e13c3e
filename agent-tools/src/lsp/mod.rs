//! Language servers: [`LanguageServers`] tells them of changed files, adds what they say to the results of file tools,
//! and has tools that ask them.
//!
//! A server says where things are and what should change; it changes nothing. Its answers are data from outside: they
//! are bounded, cleaned, and judged by the rules of the call before a model sees them.

mod ask;
mod connection;
mod feedback;
mod frame;
mod incoming;
mod known;
mod link;
mod live;
mod offered;
mod places;
mod position;
mod rename;
mod report;
mod server;
mod tool;
mod uri;
mod wire;

use std::{fmt, path::Path, sync::Arc, time::Duration};

use entourage_core::{Result, tool::Tool};

use crate::fs::Workspace;
use link::Link;
use offered::Offered;

pub use server::LanguageServer;

const AFTER_CHANGE: Duration = Duration::from_secs(5);
const AFTER_VIEW: Duration = Duration::from_millis(300);

/// The language servers of a workspace. Clones share them.
///
/// It is a layer around tools, for `RuntimeBuilder::tool_layer` or `layered`: a `write`, `edit`, `multiedit`, `undo` or
/// `view` of its workspace then tells the servers of the file, and its result ends with what they find wrong.
/// [`LanguageServers::tools`] are tools that ask the servers.
///
/// # Contract
/// - A call is told of whose footprint names the file at `path`; any other is passed on as it is.
/// - A server starts with the first file that concerns it, in a run that may only read as well. Where it starts, hangs
///   or fails, results are as they would be without it, after the wait at the latest. One that fails is started again
///   three times, and then by `lsp_restart` alone.
/// - After a change diagnostics are waited for until the server has spoken of the new text, reports no work and was
///   silent for 200 ms: 5 seconds at most, and 300 ms after a `view`. A call whose own time ends sooner waits less.
/// - Added are the diagnostics of the file and those of other files, each as a group with the errors first, at most 10
///   and the number of the others, and a summary. Hints are left out. Without diagnostics the summary says so after a
///   change, and nothing is added after a `view`. The metadata of the result has the numbers under `diagnostics`.
/// - Files that the rules of the call do not allow to read are not mentioned. A place outside of the workspace is named
///   and never read or changed.
/// - Of a server a message has at most 16 MiB, and 200 diagnostics of a file, 20,000 in all and 2,000 files are kept,
///   those of open files first; a message of a diagnostic is one line of at most 500 characters, without characters
///   that nobody sees.
/// - A file of more than 4 MiB, or that is not UTF-8, is not told. A server has at most 64 files open; those that
///   another program changed are told anew before anything is asked.
/// - The servers end with the last clone and the last of their tools: their process groups are killed. To let them end
///   by themselves, wait for [`LanguageServers::shut_down`].
///
/// ```
/// use entourage_runtime::Runtime;
/// use entourage_tools::{fs::Workspace, lsp::{LanguageServer, LanguageServers}};
///
/// # fn main() -> entourage_core::Result<()> {
/// let workspace = Workspace::open(".")?;
/// let servers = LanguageServers::builder(&workspace)
///     .server(LanguageServer::command("rust", "rust-analyzer", [""; 0]).for_extensions(["rs"]))
///     .build()?;
/// let runtime = Runtime::builder().tool_layer(servers.clone()).build();
/// let tools = [workspace.read_tools(), workspace.write_tools(), servers.tools()].concat();
/// assert!(tools.iter().any(|tool| tool.spec().name() == "lsp_references"));
/// # let _ = runtime;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LanguageServers(Arc<Inner>);

struct Inner {
    workspace: Workspace,
    links: Vec<Arc<Link>>,
    after_change: Duration,
    after_view: Duration,
    /// The renames that sessions were shown.
    offered: Offered,
    /// The renames that approvers were shown.
    approved: Offered,
}

/// Settings of [`LanguageServers`]. Made by [`LanguageServers::builder`].
#[derive(Debug)]
pub struct LanguageServersBuilder {
    workspace: Workspace,
    servers: Vec<LanguageServer>,
    after_change: Duration,
    after_view: Duration,
}

/// State of a language server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LanguageServerState {
    /// No file concerned it so far.
    Idle,
    /// It is being started.
    Starting,
    /// It is there.
    Running,
    /// It ended or could not be started, for this reason.
    Failed(String),
    /// It was shut down.
    Stopped,
}

impl fmt::Display for LanguageServerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle => f.write_str("not started"),
            Self::Starting => f.write_str("starting"),
            Self::Running => f.write_str("running"),
            Self::Failed(reason) => write!(f, "failed: {reason}"),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

impl LanguageServersBuilder {
    /// Adds a server.
    pub fn server(mut self, server: LanguageServer) -> Self {
        self.servers.push(server);
        self
    }

    /// Sets the longest wait for diagnostics after a change. Default: 5 seconds.
    pub fn wait_after_change(mut self, time: Duration) -> Self {
        self.after_change = time;
        self
    }

    /// Sets the longest wait for diagnostics after a `view`. Default: 300 ms.
    pub fn wait_after_view(mut self, time: Duration) -> Self {
        self.after_view = time;
        self
    }

    /// Returns the servers, of which none is started yet.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](entourage_core::ErrorKind::Config) for names that are not 1 to 32 letters, digits, `_` and
    /// `-` or are there twice, and for servers without extensions.
    pub fn build(self) -> Result<LanguageServers> {
        LanguageServer::check(&self.servers)?;
        let Self { workspace, servers, after_change, after_view } = self;
        let link = |server| Arc::new(Link::new(server, workspace.root().to_owned()));
        let links = servers.into_iter().map(link).collect();
        Ok(LanguageServers(Arc::new(Inner {
            workspace,
            links,
            after_change,
            after_view,
            offered: Offered::default(),
            approved: Offered::default(),
        })))
    }
}

impl LanguageServers {
    /// Begins the settings, for servers of the files of this workspace.
    pub fn builder(workspace: &Workspace) -> LanguageServersBuilder {
        LanguageServersBuilder {
            workspace: workspace.clone(),
            servers: Vec::new(),
            after_change: AFTER_CHANGE,
            after_view: AFTER_VIEW,
        }
    }

    /// The tools that ask the servers; none without servers.
    ///
    /// # Contract
    /// - `lsp_diagnostics`, `lsp_definition`, `lsp_references` and `lsp_symbols` read, and name the file that they are
    ///   asked about. A place is a line and the text of a symbol in it. Results are bounded, with the line at each
    ///   place.
    /// - `lsp_rename` without `files` reads: it returns the files and lines that would change. With `files` it changes
    ///   these, which its footprint names as written, and no other: all of them or none, by the rules of
    ///   [`Workspace::write_tools`], and not if the change is another one than the first call showed, or than this
    ///   process showed an approver. The session has seen the files whose differences were shown whole. The files may
    ///   have 64 MiB together, before and after the change; new texts with characters that nobody sees are refused.
    /// - Their results have the labels of the workspace, as its own tools have. So has a result with diagnostics.
    /// - `lsp_restart` ends a server and starts it again.
    /// - A call ends after 40 seconds; a server that hangs costs 30. One that does not start keeps no other from
    ///   answering.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        if self.0.links.is_empty() { Vec::new() } else { tool::all(self) }
    }

    /// Returns the servers with their states, in the order in which they were given.
    pub fn servers(&self) -> Vec<(String, LanguageServerState)> {
        self.0.links.iter().map(|link| (link.server.name().to_owned(), link.state())).collect()
    }

    /// Ends the servers: they are asked to shut down, and killed after at most 6 seconds. No other is started.
    pub async fn shut_down(&self) {
        let end = |link: &Arc<Link>| {
            let link = Arc::clone(link);
            tokio::spawn(async move { link.shut_down().await })
        };
        for ended in self.0.links.iter().map(end).collect::<Vec<_>>() {
            // A panic there ends that server alone.
            let _ = ended.await;
        }
    }

    fn workspace(&self) -> &Workspace {
        &self.0.workspace
    }

    /// The servers for a file.
    fn links_for(&self, path: &Path) -> Vec<Arc<Link>> {
        self.0.links.iter().filter(|link| link.server.is_for(path)).cloned().collect()
    }
}

impl fmt::Debug for LanguageServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.servers()).finish()
    }
}
