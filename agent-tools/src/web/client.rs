//! The client of the web tools: asks only hosts of the internet, and reads only so much.

use std::{net::IpAddr, time::Duration};

use entourage_core::{
    Error,
    tool::{Access, Footprint, ToolError},
};
use reqwest::{
    StatusCode, Url,
    header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION},
};

use super::{
    given::Given,
    readers::Readers,
    transport::{Answer, Ask, Closed, Fault, Guard, Transport},
};

/// Most redirects that are followed, and the longest address.
const REDIRECTS: usize = 10;
const ADDRESS: usize = 8_192;

const ACCEPTED: &str = "text/html,application/xhtml+xml,text/markdown,text/plain,application/json,*/*;q=0.5";

/// Asks hosts of the internet, and addresses that were opened. Clones share their connections.
#[derive(Debug, Clone)]
pub(super) struct Client {
    transport: Transport,
    guard: Guard,
    pub(super) with_proxies: bool,
    readers: Readers,
}

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
        let transport = Transport::own(guard.clone(), with_proxies)?;
        Ok(Self { transport, guard, with_proxies, readers: Readers::default() })
    }

    fn given(client: Given, guard: Guard, with_proxies: bool) -> Self {
        let transport = Transport::Given(client, !with_proxies);
        Self { transport, guard, with_proxies, readers: Readers::default() }
    }

    /// True if it asks through a client of the program.
    pub(super) fn is_given(&self) -> bool {
        matches!(self.transport, Transport::Given(..))
    }

    /// The same client for other addresses.
    pub(super) fn guarded(&self, guard: Guard) -> Result<Self, Error> {
        self.set_up(guard, self.with_proxies)
    }

    /// The same client through proxies.
    pub(super) fn through_proxies(&self) -> Result<Self, Error> {
        self.set_up(self.guard.clone(), true)
    }

    /// The same client with one of the program in its place.
    pub(super) fn replaced(&self, client: Given) -> Self {
        Self::given(client, self.guard.clone(), self.with_proxies)
    }

    fn set_up(&self, guard: Guard, with_proxies: bool) -> Result<Self, Error> {
        match &self.transport {
            Transport::Own(_) => Self::new(guard, with_proxies),
            Transport::Given(client, _) => Ok(Self::given(client.clone(), guard, with_proxies)),
        }
    }

    /// The threads that read its pages.
    pub(super) fn readers(&self) -> &Readers {
        &self.readers
    }

    /// The answer of a service that the program chose to its request. Redirects are not followed.
    pub(super) async fn send(&self, ask: Ask) -> Result<Answer, Error> {
        let sent = self.transport.send(ask, &self.guard).await;
        sent.map_err(|fault| fault.of_service("it could not be reached"))
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
            let (url, answer) = self.open(address, footprint).await?;
            read(url, answer, limit).await
        };
        let late = |_| ToolError::tell(format!("the page did not arrive within {} s", time.as_secs()));
        tokio::time::timeout(time, asked).await.map_err(late)?
    }

    /// The response to an address that `footprint` names, after redirects to the same host. The caller bounds its time.
    pub(super) async fn open(
        &self,
        address: &str,
        footprint: &Footprint,
    ) -> Result<(Url, Answer), ToolError> {
        let mut url = self.checked(address, footprint)?;
        for _ in 0..=REDIRECTS {
            let ask = Ask::get(url.clone()).header(ACCEPT, HeaderValue::from_static(ACCEPTED));
            let sent = self.transport.send(ask, &self.guard).await;
            let answer = sent.map_err(|fault| unreachable(&url, &fault))?;
            let Some(target) = target(&url, answer.status, &answer.headers)? else {
                return Ok((url, answer));
            };
            if !matches!(target.scheme(), "http" | "https") {
                return Err(ToolError::tell(format!(
                    "`{url}` redirects to an address of `{}`, and only http and https are followed",
                    target.scheme()
                )));
            }
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

/// Reads an answer up to `limit`. What is not read is given up with its connection.
async fn read(url: Url, mut answer: Answer, limit: usize) -> Result<Reply, ToolError> {
    let (status, headers) = (answer.status, &answer.headers);
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
    while let Some(chunk) = answer.piece().await.map_err(|fault| unreachable(&url, &fault))? {
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

fn unreachable(url: &Url, fault: &Fault) -> ToolError {
    let what = if fault.is_closed() { "is refused" } else { "could not be read" };
    ToolError::tell(format!("`{url}` {what}: {fault}"))
}
