//! Handshakes with servers, over the pipes of a child or over HTTP.

use std::time::Duration;

use entourage_core::{Error, ErrorKind, bound};
use reqwest::redirect::{Attempt, Policy};
use rmcp::{
    model::ProtocolVersion,
    service::{
        ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService,
        ServiceError,
    },
    transport::{
        StreamableHttpClientTransport,
        streamable_http_client::{StreamableHttpClient, StreamableHttpClientTransportConfig},
    },
};
use tokio::sync::watch;

use super::{
    answer::{self, Answer},
    bounded::Bounded,
    client::Client,
    content,
    ends::{Ending, Hold, Part, hold},
    login::{Login, Wanted},
    paced::Paced,
    pipes::Pipes,
    server::{McpLifecycle, McpServer, Reach},
};
use crate::{process::server::ServerProcess, tls};

/// Most bytes of one message.
const MESSAGE: usize = 16 << 20;
const REDIRECTS: usize = 5;

/// Reason that there is no connection.
pub(super) enum Failure {
    /// It wants a login, in these words if it has said so just now.
    NeedsAuth(Option<Wanted>),
    /// A login was begun, and failed.
    Login(String),
    Other(String),
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Other(text)
    }
}

impl Failure {
    /// Adds what the server said before it ended.
    pub(super) async fn with_words_of(self, process: &ServerProcess) -> Self {
        match self {
            Self::Other(reason) => Self::Other(process.with_last_words(reason).await),
            Self::NeedsAuth(_) | Self::Login(_) => self,
        }
    }

    /// The failure of what was a login.
    pub(super) fn of_login(self) -> Self {
        match self {
            Self::Other(reason) => Self::Login(reason),
            other => other,
        }
    }
}

/// A connection to a server that was greeted.
pub(super) struct Opened {
    pub(super) service: RunningService<RoleClient, Client>,
    pub(super) process: Option<ServerProcess>,
    pub(super) hold: Hold,
}

/// Reaches a server, and greets it. Dropped, it leaves no process and no request. `held` is dropped once a process
/// that was started has ended.
pub(super) async fn open(
    server: &McpServer,
    client: Client,
    login: Option<&Login>,
    held: watch::Receiver<()>,
) -> Result<Opened, Failure> {
    let opened = Box::pin(reached(server, client, login, held)).await?;
    let spoken = opened.service.peer_info().map(|info| info.protocol_version.clone());
    match spoken.filter(|version| !ProtocolVersion::KNOWN_VERSIONS.contains(version)) {
        Some(version) => {
            let known: Vec<_> = ProtocolVersion::KNOWN_VERSIONS.iter().map(ProtocolVersion::as_str).collect();
            let version = content::told(version.as_str(), bound::WORD);
            Err(format!("it speaks the version `{version}`, and this program {}", known.join(", ")).into())
        }
        None => Ok(opened),
    }
}

async fn reached(
    server: &McpServer,
    client: Client,
    login: Option<&Login>,
    held: watch::Receiver<()>,
) -> Result<Opened, Failure> {
    let lifecycle = lifecycle(server.lifecycle);
    let (hold, part) = hold();
    match &server.reach {
        Reach::Command { program, args, env, dir } => {
            let (process, output, input) =
                ServerProcess::start((program, args), env, dir.as_deref(), held)
                    .map_err(|error| format!("`{}` cannot be started: {error}", program.to_string_lossy()))?;
            let transport = Pipes::new(&server.name, output, input, MESSAGE);
            let transport = Ending::new(Bounded::new(transport), part);
            match client.serve_with_lifecycle(transport, lifecycle).await {
                Ok(service) => Ok(Opened { service, process: Some(process), hold }),
                Err(error) => Err(failed(server, &error).with_words_of(&process).await),
            }
        }
        Reach::Http { url, headers, with_proxies, .. } => {
            let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
            config.custom_headers =
                headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
            (config.max_sse_event_size, config.max_json_response_size) = (MESSAGE, MESSAGE);
            // A server that knows the session no more may have other tools, which are listed on a new connection.
            config.reinit_on_expired_session = false;
            let service = match login {
                Some(login) => {
                    let http = login.client(part.clone()).await?;
                    greeted(client, http, config, lifecycle, part).await
                }
                None => {
                    let inner = http(*with_proxies).map_err(|error| error.to_string())?;
                    let http = Paced::new(inner, part.clone());
                    greeted(client, http, config, lifecycle, part).await
                }
            };
            let service = service.map_err(|error| failed(server, &error))?;
            Ok(Opened { service, process: None, hold })
        }
    }
}

async fn greeted<C: StreamableHttpClient + Sync>(
    client: Client,
    http: C,
    config: StreamableHttpClientTransportConfig,
    lifecycle: ClientLifecycleMode,
    part: Part,
) -> Result<RunningService<RoleClient, Client>, ClientInitializeError> {
    let transport = StreamableHttpClientTransport::with_client(http, config);
    client.serve_with_lifecycle(Ending::new(transport, part), lifecycle).await
}

fn lifecycle(lifecycle: McpLifecycle) -> ClientLifecycleMode {
    let preferred_versions = vec![ProtocolVersion::LATEST];
    match lifecycle {
        McpLifecycle::Initialize => ClientLifecycleMode::Initialize,
        McpLifecycle::Discover => ClientLifecycleMode::Discover { preferred_versions },
        McpLifecycle::Auto => ClientLifecycleMode::Auto {
            preferred_versions,
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        },
    }
}

/// The client of servers at an address.
pub(super) fn http(with_proxies: bool) -> Result<reqwest::Client, Error> {
    let same_origin = |attempt: Attempt<'_>| {
        let origin = attempt.previous().last().map(reqwest::Url::origin);
        match origin == Some(attempt.url().origin()) && attempt.previous().len() <= REDIRECTS {
            true => attempt.follow(),
            // Headers with keys go nowhere else (ATTACKS 37).
            false => attempt.stop(),
        }
    };
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(tls::config()?)
        .connect_timeout(Duration::from_secs(10))
        .redirect(Policy::custom(same_origin))
        .referer(false);
    let client = if with_proxies { client } else { client.no_proxy() };
    client.build().map_err(|error| {
        Error::new(ErrorKind::Config, "the client for MCP servers could not be set up").caused_by(error)
    })
}

/// The login that a server wants: by a header, where it refused with 401 or 403.
fn wanted(header: &str, is_unknown: bool, answer: Option<&Answer>) -> Option<Wanted> {
    // Servers of older versions say no more than this.
    let is_unknown = is_unknown || answer == Some(&Answer::Status(401));
    match (header.is_empty(), is_unknown) {
        (true, false) => None,
        (_, true) => Wanted::read(header, false),
        (false, false) => Wanted::read(header, true),
    }
}

/// The login that a server wants before it performs a call.
pub(super) fn wanted_for_call(error: &ServiceError) -> Option<Wanted> {
    let header = error.auth_challenge().unwrap_or_default();
    wanted(header, error.is_authorization_required(), Answer::of_call(error).as_ref())
}

fn failed(server: &McpServer, error: &ClientInitializeError) -> Failure {
    let (header, answered) = (error.auth_challenge().unwrap_or_default(), Answer::of_handshake(error));
    if let Some(wanted) = wanted(header, error.is_authorization_required(), answered.as_ref()) {
        return Failure::NeedsAuth(Some(wanted));
    }
    if let Some(answered) = answered {
        return Failure::Other(format!("it answered with {answered}"));
    }
    if let ClientInitializeError::LegacyFallbackFailed { fallback, .. } = error {
        return failed(server, fallback);
    }
    let closed = || "it closed the connection before it answered".to_owned();
    let text = match error {
        ClientInitializeError::ConnectionClosed(_) => closed(),
        ClientInitializeError::TransportError { .. } if matches!(server.reach, Reach::Command { .. }) => {
            closed()
        }
        ClientInitializeError::TransportError { error, .. } => {
            format!("no connection: {}", answer::deepest(error.error.as_ref()))
        }
        ClientInitializeError::JsonRpcError(error) => answer::refusal(error),
        ClientInitializeError::NoCompatibleProtocolVersion { server_supported: theirs, .. } => {
            let theirs: Vec<_> = theirs.iter().map(ProtocolVersion::as_str).collect();
            format!("it speaks no version that this program does, but {}", theirs.join(", "))
        }
        // The library would show what it made of the answer.
        _ => "its answer to the greeting is not one of an MCP server".to_owned(),
    };
    // What a server at an address sent may be anything, also long.
    Failure::Other(server.told(&text, bound::WORD))
}
