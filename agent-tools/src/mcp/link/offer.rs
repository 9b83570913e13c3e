//! The tools that a server offers: listed when it is connected, and whenever it says that they changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use entourage_core::Error;
use rmcp::{
    model::{PaginatedRequestParams, ServerPeerInfo, SubscriptionFilter, Tool},
    service::{Peer, RoleClient, RunningServiceCancellationToken, ServiceError},
};
use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};

use super::{Link, Live, attempt::GIVEN_UP};
use crate::{
    mcp::{
        answer,
        client::{Calls, Client},
        content,
        declared::Declared,
        ends::Gone,
        handshake::{Failure, open, wanted_for_call},
        salvage,
        server::Reach,
    },
    process::server::ServerProcess,
};

/// Least time between two lists of a server's tools.
const RELIST: Duration = Duration::from_secs(1);
/// Time in which the answers of a server that has ended are read.
const ANSWERS: Duration = Duration::from_secs(1);
/// Most tools of a server, and most pages in which it lists them.
const TOOLS: usize = 1_000;
const PAGES: usize = 100;
/// Bytes of its tools after which no further page is asked for.
const LISTED: usize = 16 << 20;
/// Most bytes of a server's instructions.
const INSTRUCTIONS: usize = 16 << 10;

/// The tools that a server listed, and the number of those that cannot be read.
struct Listed {
    tools: Vec<Tool>,
    unread: usize,
}

impl Link {
    /// Makes a connection for the attempt with this number, and keeps it.
    pub(super) async fn connect(self: &Arc<Self>, number: u64) -> Result<Arc<Live>, Failure> {
        let (calls, changed) = (Arc::<Calls>::default(), Arc::<Notify>::default());
        let client = Client {
            server: self.server.name.clone(),
            calls: Arc::clone(&calls),
            changed: Arc::clone(&changed),
            approver: self.approver.clone(),
            asks: Arc::default(),
        };
        let live = Live::new(
            open(&self.server, client, self.login.as_ref(), self.processes.subscribe()).await?,
            calls,
            self.runtime.clone(),
        );
        let listed = {
            let mut listed = Box::pin(list(live.peer()));
            live.ended().or_done(listed.as_mut()).await
        };
        let listed = match listed {
            Ok(listed) => listed,
            Err(error) => {
                let failure = match wanted_for_call(&error) {
                    Some(wanted) => Failure::NeedsAuth(Some(wanted)),
                    None => Failure::Other(format!("it does not list its tools: {}", answer::reason(&error))),
                };
                return Err(match &live.process {
                    Some(process) => failure.with_words_of(process).await,
                    None => failure,
                });
            }
        };
        let link = Arc::downgrade(self);
        let offered = Offered::new(&link, live.peer(), listed).await.map_err(|error| error.to_string())?;
        let keeper = Keeper {
            link,
            peer: live.peer().clone(),
            calls: Arc::clone(&live.calls),
            time: self.server.connect_time(),
            changed,
            ended: live.process.as_ref().map(ServerProcess::watch),
            gone: live.hold.gone(),
            service: live.service.cancellation_token(),
        };
        let live = Arc::new(live);
        {
            let mut slot = self.slot();
            // One that was given up may come this far in its last poll. Nobody would end its server.
            if !slot.is_current(number) || *self.shut.borrow() {
                return Err(Failure::Other(GIVEN_UP.to_owned()));
            }
            if let Some(offered) = offered {
                self.show(offered);
            }
            slot.live = Some(Arc::clone(&live));
        }
        // Only now: it looks whether the connection is still this one.
        drop(live.keeper.set(self.runtime.spawn(keeper.keep()).abort_handle()));
        Ok(live)
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

    fn show(&self, offered: Offered) {
        let Offered { tools, left_out, instructions, changed } = offered;
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
    }

    /// Notes the end of a connection that was not ended here.
    fn broke(&self) {
        let reason = match &self.server.reach {
            Reach::Command { .. } => "it ended or closed its output; it is started again when it is needed",
            Reach::Http { .. } => "the connection ended; it is made again when it is needed",
        };
        self.shown().failed(reason, false);
    }
}

/// Lists a server's tools.
async fn list(peer: &Peer<RoleClient>) -> Result<Listed, ServiceError> {
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

/// The tools and instructions that a server offers next.
struct Offered {
    tools: Vec<Declared>,
    left_out: usize,
    instructions: String,
    /// Names of the tools that changed since they were accepted.
    changed: BTreeSet<String>,
}

impl Offered {
    /// Declares what the server listed; `None` if nobody needs it any more. Holds no link while it waits: the
    /// connection ends with the last of its users.
    ///
    /// # Errors
    /// That the pins cannot be kept: then what was offered before is.
    async fn new(link: &Weak<Link>, peer: &Peer<RoleClient>, listed: Listed) -> Result<Option<Self>, Error> {
        let info = peer.peer_info();
        let declared = link.upgrade().map(|link| {
            let (tools, left_out) = link.declare(info.as_deref(), listed);
            (tools, left_out, link.server.name.clone(), Arc::clone(&link.pins))
        });
        let Some((tools, left_out, server, pins)) = declared else { return Ok(None) };
        let digests: BTreeMap<_, _> =
            tools.iter().map(|tool| (tool.spec.name().to_owned(), tool.digest)).collect();
        let changed = pins.changed(&server, digests).await?;
        let instructions = info.and_then(|info| info.instructions.clone()).unwrap_or_default();
        Ok(Some(Self { tools, left_out, instructions, changed }))
    }
}

/// The declaration of before, if it is the same, so that the set of tools is.
fn same(before: &[Arc<Declared>], declared: Declared) -> Arc<Declared> {
    let known = before.iter().find(|other| other.is_same(&declared));
    known.map_or_else(|| Arc::new(declared), Arc::clone)
}

/// The one that keeps a connection up to date. It holds no link while it waits.
struct Keeper {
    link: Weak<Link>,
    peer: Peer<RoleClient>,
    /// Tells this connection from others of the link.
    calls: Arc<Calls>,
    time: Duration,
    changed: Arc<Notify>,
    ended: Option<watch::Receiver<bool>>,
    gone: Gone,
    service: RunningServiceCancellationToken,
}

impl Keeper {
    /// Lists the tools anew when the server says that they changed, and notes the end of the connection.
    async fn keep(self) {
        tokio::select! {
            () = self.relist() => {}
            () = self.end() => {}
        }
        let Self { link, calls, gone, service, .. } = self;
        if let Some(link) = link.upgrade().filter(|link| link.slot().is_on(&calls)) {
            link.broke();
        }
        // A process that lives on may hold the pipes of a server that has ended. Nobody answers there any more.
        let _ = timeout(ANSWERS, gone.wait()).await;
        service.cancel();
    }

    async fn end(&self) {
        let ended = async {
            match self.ended.clone() {
                // An error means that nobody is left to tell, which is the same.
                Some(mut ended) => drop(ended.wait_for(|ended| *ended).await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = ended => {}
            () = self.gone.clone().wait() => {}
        }
    }

    /// Lists the tools anew for ever.
    async fn relist(&self) {
        let mut subscription = None;
        if self.peer.peer_info().is_some_and(|info| !info.protocol_version.has_initialize()) {
            let filter = SubscriptionFilter::builder().tools_list_changed().build();
            subscription = self.peer.listen(filter).await.ok();
        }
        loop {
            let news = async {
                match &mut subscription {
                    Some(subscription) => matches!(subscription.next().await, Ok(Some(_))),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.changed.notified() => {}
                goes_on = news => if !goes_on {
                    subscription = None;
                    continue;
                },
            }
            let listed = timeout(self.time, list(&self.peer)).await;
            let is_current = self.link.upgrade().is_some_and(|link| link.slot().is_on(&self.calls));
            if let Ok(Ok(listed)) = listed
                && is_current
            {
                // Where the pins cannot be kept, a call of a tool that changed is refused.
                let offered = Offered::new(&self.link, &self.peer, listed).await;
                if let (Ok(Some(offered)), Some(link)) = (offered, self.link.upgrade()) {
                    let slot = link.slot();
                    // Another one may have come meanwhile, or none.
                    if slot.is_on(&self.calls) {
                        link.show(offered);
                    }
                    drop(slot);
                }
            }
            sleep(RELIST).await;
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::mcp::{McpLifecycle, McpServer, McpState};

    #[tokio::test]
    async fn an_attempt_that_was_given_up_keeps_no_connection() {
        const SCRIPT: &str = r#"while read -r line; do
            id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
            about='"capabilities":{},"serverInfo":{"name":"sh","version":"1"}'
            case "$line" in *'"initialize"'*)
                printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18",%s}}\n' "$id" "$about" ;;
            esac
        done"#;
        let server =
            McpServer::command("files", "sh", ["-c", SCRIPT]).with_lifecycle(McpLifecycle::Initialize);
        let runtime = tokio::runtime::Handle::current();
        let link = Arc::new(Link::new(server, Arc::default(), None, runtime));
        // Nobody waits for it.
        let number = link.slot().number();
        assert!(link.connect(number).await.is_err());
        assert!(link.slot().live.is_none());
        assert_eq!(link.state(), McpState::Starting);
        timeout(Duration::from_secs(60), link.processes.closed()).await.unwrap();
        let live = link.live().await.unwrap();
        assert_eq!(link.state(), McpState::Connected { tools: 0, left_out: 0 });
        drop(live);
        link.shut_down().await;
        let number = link.slot().number();
        assert!(link.connect(number).await.is_err());
        assert!(link.slot().live.is_none());
    }
}
