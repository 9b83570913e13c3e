//! The client of the web tools: asks only hosts of the internet, and reads only so much.

use std::{
    collections::BTreeSet,
    error::Error as StdError,
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use entourage_core::{
    Error, ErrorKind,
    tool::{Access, Footprint, ToolError},
};
use reqwest::{
    RequestBuilder, Response, StatusCode, Url,
    dns::{Name, Resolve, Resolving},
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, LOCATION},
    redirect::Policy,
};
use serde_json::Value;

use super::readers::Readers;
use crate::{address::first_closed, tls};

/// Most redirects that are followed, and the longest address.
const REDIRECTS: usize = 10;
const ADDRESS: usize = 8_192;

const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Many sites answer nothing to a program that does not name itself like a browser.
const AGENT: &str = concat!("Mozilla/5.0 (compatible; entourage/", env!("CARGO_PKG_VERSION"), ")");
const ACCEPTED: &str = "text/html,application/xhtml+xml,text/markdown,text/plain,application/json,*/*;q=0.5";

/// Asks hosts of the internet, and addresses that were opened. Clones share their connections.
#[derive(Debug, Clone)]
pub(super) struct Client {
    http: reqwest::Client,
    guard: Guard,
    readers: Readers,
}

/// The addresses that may be asked.
#[derive(Debug, Clone)]
pub(super) enum Guard {
    /// Those of the internet, and these.
    Internet(Arc<BTreeSet<IpAddr>>),
    /// All: the program chose the one host that is asked.
    Chosen,
}

impl Guard {
    fn closed(&self, found: impl IntoIterator<Item = IpAddr>) -> Option<IpAddr> {
        match self {
            Self::Internet(open) => first_closed(found, |address| open.contains(&address)),
            Self::Chosen => None,
        }
    }
}

impl Resolve for Guard {
    /// The addresses of a name, if all of them may be asked. The connection takes these and no others.
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            match guard.closed(found.iter().map(SocketAddr::ip)) {
                Some(address) => Err(Box::new(Closed(address)) as Box<dyn StdError + Send + Sync>),
                None => Ok(Box::new(found.into_iter()) as Box<dyn Iterator<Item = SocketAddr> + Send>),
            }
        })
    }
}

/// A host leads to an address that is not of the internet.
#[derive(Debug)]
struct Closed(IpAddr);

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it leads to {}, which is not an address of another machine on the internet", self.0)
    }
}

impl StdError for Closed {}

/// A page, or as much of it as was asked for.
#[derive(Debug)]
pub(super) struct Reply {
    /// The address after redirects.
    pub(super) url: Url,
    pub(super) status: StatusCode,
    /// The type without its parameters, in lower case.
    pub(super) mime: String,
    pub(super) charset: Option<String>,
    pub(super) body: Vec<u8>,
    /// True if there was more.
    pub(super) is_cut: bool,
}

impl Client {
    pub(super) fn new(guard: Guard, with_proxies: bool) -> Result<Self, Error> {
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::config()?)
            .connect_timeout(CONNECT_TIME)
            .redirect(Policy::none())
            .referer(false)
            .user_agent(AGENT)
            .dns_resolver(guard.clone());
        let client = if with_proxies { client } else { client.no_proxy() };
        let http = client.build().map_err(|error| {
            Error::new(ErrorKind::Config, "the client for the web could not be set up").caused_by(error)
        })?;
        Ok(Self { http, guard, readers: Readers::default() })
    }

    /// The threads that read its pages.
    pub(super) fn readers(&self) -> &Readers {
        &self.readers
    }

    /// A request of the program to a service that it chose.
    pub(super) fn get_request(&self, url: Url) -> RequestBuilder {
        self.http.get(url).header(ACCEPT_ENCODING, "identity")
    }

    /// The same with a body.
    pub(super) fn post_request(&self, url: Url, body: &Value) -> RequestBuilder {
        let request = self.http.post(url).header(ACCEPT_ENCODING, "identity");
        request.header(CONTENT_TYPE, "application/json").body(body.to_string())
    }

    /// The response to such a request. Redirects are not followed.
    pub(super) async fn send(&self, request: RequestBuilder) -> Result<Response, Error> {
        request.send().await.map_err(|error| {
            // The address may hold what was searched for.
            let error = error.without_url();
            Error::new(ErrorKind::Transport, format!("it could not be reached: {}", cause(&error)))
        })
    }

    /// Reads an address that `footprint` names, at most `limit` bytes of it in at most `time`. Follows redirects to
    /// the same host.
    pub(super) async fn get(
        &self,
        address: &str,
        footprint: &Footprint,
        limit: usize,
        time: Duration,
    ) -> Result<Reply, ToolError> {
        let asked = async {
            let (url, response) = self.open(address, footprint).await?;
            read(url, response, limit).await
        };
        let late = |_| ToolError::tell(format!("the page did not arrive within {} s", time.as_secs()));
        tokio::time::timeout(time, asked).await.map_err(late)?
    }

    /// The response to an address that `footprint` names, after redirects to the same host. The caller bounds its time.
    pub(super) async fn open(
        &self,
        address: &str,
        footprint: &Footprint,
    ) -> Result<(Url, Response), ToolError> {
        let mut url = self.checked(address, footprint)?;
        for _ in 0..=REDIRECTS {
            let request =
                self.http.get(url.clone()).header(ACCEPT, ACCEPTED).header(ACCEPT_ENCODING, "identity");
            let response = request.send().await.map_err(|error| unreachable(&url, &error))?;
            let Some(target) = target(&url, response.status(), response.headers())? else {
                return Ok((url, response));
            };
            if target.scheme() != url.scheme() && target.scheme() != "https" {
                return Err(ToolError::tell(format!(
                    "`{url}` redirects to `{target}`, which is not encrypted"
                )));
            }
            if target.host_str() != url.host_str() {
                return Err(ToolError::tell(format!(
                    "`{url}` redirects to another host: fetch `{target}` if that is what you want"
                )));
            }
            url = self.checked(target.as_str(), footprint)?;
        }
        Err(ToolError::tell(format!("`{address}` redirects more than {REDIRECTS} times")))
    }

    /// The address, if it is of the web and `footprint` names its host in the form in which it is asked.
    fn checked(&self, address: &str, footprint: &Footprint) -> Result<Url, ToolError> {
        if address.len() > ADDRESS {
            return Err(ToolError::tell(format!("the address has more than {ADDRESS} bytes; shorten it")));
        }
        let shown = address.chars().take(200).collect::<String>();
        let url = Url::parse(address).map_err(|error| {
            ToolError::tell(format!("`{shown}` is no address: {error}; write it as https://host/path"))
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(ToolError::tell(format!("`{shown}` is no address of the web; use http or https")));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(ToolError::tell(format!("`{shown}` holds a user or a password; leave them out")));
        }
        let host = url.host_str().unwrap_or_default();
        let named = Footprint::new(Access::NETWORK).naming_host(host);
        if named.unclear || !named.hosts.iter().all(|host| footprint.hosts.contains(host)) {
            return Err(ToolError::tell(format!(
                "the host of `{shown}` can be read in several ways; write it as {host}"
            )));
        }
        let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        match self.guard.closed(literal) {
            Some(address) => Err(ToolError::tell(format!("`{shown}` is refused: {}", Closed(address)))),
            None => Ok(url),
        }
    }
}

/// The address that a response leads to, if it is a redirect.
fn target(url: &Url, status: StatusCode, headers: &HeaderMap) -> Result<Option<Url>, ToolError> {
    let is_redirect = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(location) = headers.get(LOCATION).filter(|_| is_redirect) else { return Ok(None) };
    let target = location.to_str().ok().and_then(|location| url.join(location).ok());
    target.map(Some).ok_or_else(|| ToolError::tell(format!("`{url}` redirects to what is no address")))
}

/// Reads a response up to `limit`. What is not read is given up with its connection.
async fn read(url: Url, mut response: Response, limit: usize) -> Result<Reply, ToolError> {
    let (status, headers) = (response.status(), response.headers());
    // None was asked for: what is packed could unpack to any size.
    if let Some(encoding) = headers
        .get(CONTENT_ENCODING)
        .filter(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
    {
        let encoding = encoding.to_str().unwrap_or("an unknown way");
        return Err(ToolError::tell(format!(
            "`{url}` answers packed as {encoding}, though this was not asked for"
        )));
    }
    let (mime, charset) = content_type(headers);
    let mut body = Vec::new();
    let mut is_cut = false;
    while let Some(chunk) = response.chunk().await.map_err(|error| unreachable(&url, &error))? {
        let room = limit.saturating_sub(body.len());
        is_cut = chunk.len() > room;
        body.extend(chunk.iter().take(room));
        if is_cut {
            break;
        }
    }
    Ok(Reply { url, status, mime, charset, body, is_cut })
}

/// The type of a response and its charset.
fn content_type(headers: &HeaderMap) -> (String, Option<String>) {
    let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut parts = text.split(';').map(str::trim);
    let mime = parts.next().unwrap_or_default().to_ascii_lowercase();
    let charset = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.eq_ignore_ascii_case("charset").then(|| value.trim_matches('"').to_owned())
    });
    (mime, charset)
}

fn unreachable(url: &Url, error: &reqwest::Error) -> ToolError {
    let refused = chain(error).any(|one| one.is::<Closed>());
    let what = if refused { "is refused" } else { "could not be read" };
    ToolError::tell(format!("`{url}` {what}: {}", cause(error)))
}

/// The cause that says most: that an address is closed, or else the innermost one.
fn cause(error: &reqwest::Error) -> String {
    let closed = chain(error).find(|one| one.is::<Closed>());
    closed.or_else(|| chain(error).last()).map(ToString::to_string).unwrap_or_default()
}

fn chain(error: &reqwest::Error) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    let first: &(dyn StdError + 'static) = error;
    std::iter::successors(Some(first), |one: &&(dyn StdError + 'static)| (*one).source())
}
