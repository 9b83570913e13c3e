//! The connection to one server: made, kept, made anew once when it broke, and ended.

mod first;
mod logins;

use std::{
    collections::BTreeSet,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use entourage_core::{Error, bound, permission::Approver};
use rmcp::{
    model::{ClientRequest, PaginatedRequestParams, PingRequest, ServerPeerInfo, SubscriptionFilter, Tool},
    service::{Peer, PeerRequestOptions, RoleClient, RunningService, ServiceError},
};
use tokio::{
    sync::{Notify, watch},
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};

use super::{
    McpState,
    client::{Calls, Client},
    content,
    declared::Declared,
    handshake::{Failure, open, wanted_for_call},
    login::Login,
    pins::Pins,
    salvage,
    server::{McpServer, Reach},
};
use crate::process::server::ServerProcess;

pub(in crate::mcp) use logins::LOGINS;

/// A server that was silent for this long is asked whether it is there before the next call, for so long.
const SILENCE: Duration = Duration::from_secs(30);
const PING: Duration = Duration::from_secs(5);
/// Least time between two lists of a server's tools.
const RELIST: Duration = Duration::from_secs(1);
/// Most tools of a server, and most pages in which it lists them.
const TOOLS: usize = 1_000;
const PAGES: usize = 100;
/// Bytes of its tools after which no further page is asked for.
const LISTED: usize = 16 << 20;
/// Most bytes of a server's instructions.
const INSTRUCTIONS: usize = 16 << 10;

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
    /// Held while a connection is made, so that one is made for all who wait.
    live: tokio::sync::Mutex<Option<Arc<Live>>>,
    shown: Mutex<Shown>,
    /// Rises with each change of the tools.
    revision: AtomicU64,
    /// True once the first attempt to connect has ended.
    settled: watch::Sender<bool>,
    /// Told when somebody asks for the tools of a server that failed.
    asked: Notify,
    shut: watch::Sender<bool>,
}

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
    fn connected(&mut self) {
        self.is_final = false;
        self.state = McpState::Connected { tools: self.tools.len(), left_out: self.left_out };
    }
}

/// The tools that a server listed, and the number of those that cannot be read.
struct Listed {
    tools: Vec<Tool>,
    unread: usize,
}

/// A connection that was made.
pub(in crate::mcp) struct Live {
    service: RunningService<RoleClient, Client>,
    pub(in crate::mcp) calls: Arc<Calls>,
    process: Option<ServerProcess>,
    /// The last time that the server said something.
    heard: Mutex<Instant>,
    keeper: Option<AbortHandle>,
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(keeper) = &self.keeper {
            keeper.abort();
        }
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
            live: tokio::sync::Mutex::default(),
            shown: Mutex::new(Shown {
                state,
                is_final: false,
                tools: Vec::new(),
                left_out: 0,
                instructions: String::new(),
            }),
            revision: AtomicU64::new(0),
            settled: watch::channel(settled).0,
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

    fn is_over(&self) -> String {
        format!("the MCP server `{}` is not running", self.server.name)
    }

    /// Returns the connection, made anew if it broke.
    ///
    /// # Errors
    /// The reason that there is none, for the model.
    pub(in crate::mcp) async fn live(self: &Arc<Self>) -> Result<Arc<Live>, String> {
        if self.server.is_disabled {
            return Err(self.is_over());
        }
        let mut slot = self.live.lock().await;
        if *self.shut.borrow() {
            return Err(self.is_over());
        }
        if let Some(live) = &*slot
            && live.answers().await
        {
            return Ok(Arc::clone(live));
        }
        // Apart, since each call would have room for a handshake otherwise.
        Box::pin(self.reconnect(&mut slot, self.shut.subscribe())).await
    }

    /// Makes the connection of `slot` anew.
    async fn reconnect(
        self: &Arc<Self>,
        slot: &mut Option<Arc<Live>>,
        mut shut: watch::Receiver<bool>,
    ) -> Result<Arc<Live>, String> {
        // What it started ends before another one is.
        *slot = None;
        self.shown().state = McpState::Starting;
        let made = tokio::select! {
            biased;
            _ = shut.wait_for(|shut| *shut) => return Err(self.is_over()),
            made = self.connect_with_login() => made,
        };
        let live = made.map_err(|failure| self.failed(failure))?;
        *slot = Some(Arc::clone(&live));
        Ok(live)
    }

    /// Notes a failure, and returns what the model is told of it.
    fn failed(&self, failure: Failure) -> String {
        let (reason, is_final) = match failure {
            Failure::NeedsAuth(_) => return self.wants_login(),
            Failure::Login(reason) => (reason, true),
            Failure::Other(reason) => (reason, false),
        };
        let reason = self.server.told(&reason, bound::TEXT);
        let mut shown = self.shown();
        (shown.state, shown.is_final) = (McpState::Failed(reason.clone()), is_final);
        drop(shown);
        format!("the MCP server `{}` cannot be reached: {reason}", self.server.name)
    }

    async fn connect(self: &Arc<Self>) -> Result<Arc<Live>, Failure> {
        let (calls, changed) = (Arc::<Calls>::default(), Arc::<Notify>::default());
        let client = Client {
            server: self.server.name.clone(),
            calls: Arc::clone(&calls),
            changed: Arc::clone(&changed),
            approver: self.approver.clone(),
            asks: Arc::default(),
        };
        let (service, process) = open(&self.server, client, self.login.as_ref()).await?;
        let mut live = Live { service, calls, process, heard: Mutex::new(Instant::now()), keeper: None };
        let listed = match self.list(live.peer()).await {
            Ok(listed) => listed,
            Err(reason) => {
                let failure = match wanted_for_call(&reason) {
                    Some(wanted) => Failure::NeedsAuth(Some(wanted)),
                    None => Failure::Other(format!("it does not list its tools: {reason}")),
                };
                return Err(match &live.process {
                    Some(process) => failure.with_words_of(process).await,
                    None => failure,
                });
            }
        };
        self.offer(live.peer(), listed).await.map_err(|error| error.to_string())?;
        let ended = live.process.as_ref().map(ServerProcess::watch);
        let keeper = keep(Arc::downgrade(self), live.peer().clone(), changed, ended);
        live.keeper = Some(tokio::spawn(keeper).abort_handle());
        Ok(Arc::new(live))
    }

    /// Lists the server's tools.
    async fn list(&self, peer: &Peer<RoleClient>) -> Result<Listed, ServiceError> {
        let (mut tools, mut unread, mut cursor, mut bytes) = (Vec::new(), 0_usize, None, 0_usize);
        if peer.peer_info().is_some_and(|info| info.capabilities.tools.is_none()) {
            return Ok(Listed { tools, unread });
        }
        for _ in 0..PAGES {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let (page, left_out) = salvage::tools(peer, page).await?;
            unread = unread.saturating_add(left_out);
            bytes = bytes.saturating_add(serde_json::to_vec(&page.tools).map_or(0, |text| text.len()));
            tools.extend(page.tools);
            cursor = page.next_cursor;
            if cursor.is_none() || tools.len() > TOOLS || bytes > LISTED {
                break;
            }
        }
        Ok(Listed { tools, unread })
    }

    /// Declares what the server listed, and the tools for its resources and prompts. Returns the number of listed tools
    /// that are left out, too.
    fn declare(&self, info: Option<&ServerPeerInfo>, listed: Listed) -> (Vec<Declared>, usize) {
        let server = &self.server;
        let Listed { tools: mut listed, unread } = listed;
        if let Some(wanted) = &server.tools {
            listed.retain(|tool| wanted.iter().any(|name| *name == tool.name));
        }
        let mut names = BTreeSet::new();
        // The first of a name is the one; another one would be called in its place.
        let mut is_first = |declared: &Declared| names.insert(declared.spec.name().to_owned());
        let declared = listed.iter().take(TOOLS).filter_map(|tool| Declared::tool(server, tool));
        let mut tools: Vec<_> = declared.filter(&mut is_first).collect();
        let left_out = listed.len().saturating_sub(tools.len()).saturating_add(unread);
        let has = info.map(|info| &info.capabilities);
        let own = [
            has.and_then(|has| has.resources.as_ref()).map(|_| Declared::resources(server)),
            has.and_then(|has| has.prompts.as_ref()).map(|_| Declared::prompts(server)),
        ];
        let is_wanted =
            |own: &Declared| server.tools.as_ref().is_none_or(|wanted| own.is_among(&server.name, wanted));
        tools.extend(own.into_iter().flatten().filter(is_wanted).filter(is_first));
        (tools, left_out)
    }

    /// Offers what the server listed.
    ///
    /// # Errors
    /// That the pins cannot be kept: then what was offered before is.
    async fn offer(&self, peer: &Peer<RoleClient>, listed: Listed) -> Result<(), Error> {
        let info = peer.peer_info();
        let (tools, left_out) = self.declare(info.as_deref(), listed);
        let instructions = info.and_then(|info| info.instructions.clone()).unwrap_or_default();
        let digests = tools.iter().map(|tool| (tool.spec.name().to_owned(), tool.digest)).collect();
        let changed = self.pins.changed(&self.server.name, digests).await?;
        let before = self.tools();
        let asked = |declared: Declared| match changed.contains(declared.spec.name()) {
            true => declared.asked_about(&self.server.name, &self.pins),
            false => declared,
        };
        let tools: Vec<_> = tools.into_iter().map(|declared| same(&before, asked(declared))).collect();
        let is_same =
            tools.len() == before.len() && tools.iter().zip(&before).all(|(a, b)| Arc::ptr_eq(a, b));
        {
            let mut shown = self.shown();
            (shown.tools, shown.left_out) = (tools, left_out);
            shown.connected();
            shown.instructions = content::told(&instructions, INSTRUCTIONS);
        }
        if !is_same {
            self.revision.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    /// Ends the connection and the server, and makes no other.
    pub(in crate::mcp) async fn shut_down(&self) {
        self.shut.send_replace(true);
        let live = self.live.lock().await.take();
        if let Some(live) = live {
            live.service.cancellation_token().cancel();
            if let Some(process) = &live.process {
                process.end().await;
            }
        }
        if !self.server.is_disabled {
            self.shown().state = McpState::Disabled;
        }
        self.settled.send_replace(true);
    }
}

impl Live {
    pub(in crate::mcp) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Who is asked what the server wants to know of the user.
    pub(in crate::mcp) fn approver(&self) -> Option<&Arc<dyn Approver>> {
        self.service.service().approver.as_ref()
    }

    /// Notes that the server said something.
    pub(in crate::mcp) fn hear(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// True if the connection is there. A server that was silent for long is asked.
    async fn answers(&self) -> bool {
        if self.service.is_closed() || self.peer().is_transport_closed() {
            return false;
        }
        if self.heard.lock().unwrap_or_else(PoisonError::into_inner).elapsed() < SILENCE {
            return true;
        }
        // From 2026-07-28 on there are no pings: a request says by itself that there is nobody.
        if self.peer().peer_info().is_none_or(|info| !info.protocol_version.has_initialize()) {
            return true;
        }
        let ping = ClientRequest::PingRequest(PingRequest::default());
        let options = PeerRequestOptions::with_timeout(PING);
        let asked =
            async { self.peer().send_request_with_option(ping, options).await?.await_response().await };
        let asked = timeout(PING, Box::pin(asked));
        let answered = matches!(asked.await, Ok(Ok(_) | Err(ServiceError::McpError(_))));
        if answered {
            self.hear();
        }
        answered
    }
}

/// The declaration of before, if it is the same, so that the set of tools is.
fn same(before: &[Arc<Declared>], declared: Declared) -> Arc<Declared> {
    let known = before.iter().find(|other| other.is_same(&declared));
    known.map_or_else(|| Arc::new(declared), Arc::clone)
}

/// Lists the tools anew when the server says that they changed, and notes its end.
async fn keep(
    link: Weak<Link>,
    peer: Peer<RoleClient>,
    changed: Arc<Notify>,
    ended: Option<watch::Receiver<bool>>,
) {
    let modern = peer.peer_info().is_some_and(|info| !info.protocol_version.has_initialize());
    let mut subscription = None;
    if modern {
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        subscription = peer.listen(filter).await.ok();
    }

    let end = async {
        match ended {
            // An error means that nobody is left to tell, which is the same.
            Some(mut ended) => drop(ended.wait_for(|ended| *ended).await),
            None => std::future::pending().await,
        }
    };
    tokio::pin!(end);
    loop {
        let news = async {
            match &mut subscription {
                Some(subscription) => matches!(subscription.next().await, Ok(Some(_))),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = changed.notified() => {}
            goes_on = news => if !goes_on {
                subscription = None;
                continue;
            },
            () = &mut end => {
                let Some(link) = link.upgrade() else { return };
                link.shown().state = McpState::Failed("it ended; it is started again when it is needed".to_owned());
                return;
            }
        }
        let Some(link) = link.upgrade() else { return };
        if let Ok(Ok(listed)) = timeout(link.server.connect_time(), link.list(&peer)).await {
            // Where the pins cannot be kept, a call of a tool that changed is refused.
            let _ = link.offer(&peer, listed).await;
        }
        drop(link);
        sleep(RELIST).await;
    }
}
