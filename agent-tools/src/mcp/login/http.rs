//! The client for what belongs to logins: metadata, registrations and tokens.
//!
//! The addresses that it asks are named by servers. It asks none that leads elsewhere than the person wanted (ATTACKS
//! 41), follows no redirect, and keeps what is secret from the library that sends through it, which logs.

use std::{
    collections::BTreeSet,
    error::Error as StdError,
    fmt,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use entourage_core::{Error, ErrorKind, Result};
use reqwest::{
    Response, Url,
    dns::{Name, Resolve, Resolving},
    header::{CONTENT_TYPE, HeaderMap, LOCATION, WWW_AUTHENTICATE},
    redirect::Policy,
};
use rmcp::transport::auth::{OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRequest};
use tokio::time::timeout;

use super::token;
use crate::{address::first_closed, tls};

/// Most bytes of an answer, and of a header in it.
const ANSWER: usize = 256 << 10;
const HEADER: usize = 8 << 10;
/// Longest address.
const ADDRESS: usize = 8 << 10;
/// Time for one answer, and most requests of one login: metadata may name many servers.
const TIME: Duration = Duration::from_secs(20);
const REQUESTS: usize = 32;
/// The code of a login as the library knows it.
pub(super) const CODE: &str = "the-code-of-this-login";

/// Asks for logins.
pub(super) struct Guarded {
    http: reqwest::Client,
    guard: Guard,
    left: AtomicUsize,
    /// The code that stands in for [`CODE`].
    code: Mutex<Option<String>>,
}

/// The hosts that may be asked.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    /// Those that the user named: that of the server, and others.
    named: Arc<BTreeSet<String>>,
    /// True if the server is on this machine.
    is_local: bool,
    /// True where a proxy looks names up.
    with_proxies: bool,
}

/// An address that is not asked, or an answer that is of no use.
#[derive(Debug)]
pub(super) struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Refused {}

/// The host of an address as it is written in it, without brackets.
fn host(url: &Url) -> Option<&str> {
    let host = url.host_str()?;
    Some(host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host))
}

/// True if the address is one of this machine alone.
pub(in crate::mcp) fn is_loopback(url: &Url) -> bool {
    let Some(host) = host(url) else { return false };
    let host = host.trim_end_matches('.');
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

impl Guard {
    pub(super) fn new(server: &Url, hosts: &BTreeSet<String>, with_proxies: bool) -> Self {
        let named = hosts.iter().cloned().chain(host(server).map(str::to_owned)).collect();
        Self { named: Arc::new(named), is_local: is_loopback(server), with_proxies }
    }

    /// Checks an address that a server names before it is asked, or shown to a person.
    pub(super) fn check(&self, text: &str) -> Result<Url, Refused> {
        let wrong = |why: &str| Refused(format!("an address for its login {why}"));
        if text.len() > ADDRESS {
            return Err(wrong("is too long"));
        }
        let url = Url::parse(text).map_err(|_| wrong("cannot be read"))?;
        let is_loopback = is_loopback(&url);
        if !(url.scheme() == "https" || url.scheme() == "http" && is_loopback) {
            return Err(wrong("does not begin with https://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("has a user in it"));
        }
        let host = host(&url).ok_or_else(|| wrong("has no host"))?;
        let is_closed = match host.parse::<IpAddr>() {
            Ok(address) => self.closed(host, [address]).is_some(),
            Err(_) => is_loopback && !self.is_local,
        };
        match is_closed && !self.named.contains(host) {
            true => Err(wrong("leads into a private network, which the server is not in")),
            false => Ok(url),
        }
    }

    fn closed(&self, host: &str, found: impl IntoIterator<Item = IpAddr>) -> Option<IpAddr> {
        match self.named.contains(host) {
            true => None,
            false => first_closed(found, |address| self.is_local && address.is_loopback()),
        }
    }
}

impl Resolve for Guard {
    /// The addresses of a name, if all of them may be asked. The connection takes these and no others.
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let closed = guard.closed(name.as_str(), found.iter().map(SocketAddr::ip));
            match closed.filter(|_| !guard.with_proxies) {
                Some(_) => Err(Box::new(Refused("its host leads into a private network".to_owned()))
                    as Box<dyn StdError + Send + Sync>),
                None => Ok(Box::new(found.into_iter()) as Box<dyn Iterator<Item = SocketAddr> + Send>),
            }
        })
    }
}

impl Guarded {
    pub(super) fn new(guard: Guard) -> Result<Self> {
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::config()?)
            .connect_timeout(Duration::from_secs(10))
            .redirect(Policy::none())
            .referer(false)
            .dns_resolver(guard.clone());
        let client = if guard.with_proxies { client } else { client.no_proxy() };
        let http = client.build().map_err(|error| {
            Error::new(ErrorKind::Config, "the client for logins could not be set up").caused_by(error)
        })?;
        Ok(Self { http, guard, left: AtomicUsize::new(REQUESTS), code: Mutex::default() })
    }

    /// Checks an address that a server names.
    pub(super) fn check(&self, address: &str) -> Result<Url, Refused> {
        self.guard.check(address)
    }

    /// Begins another login, with its own number of requests.
    pub(super) fn refill(&self) {
        self.left.store(REQUESTS, Ordering::Relaxed);
    }

    /// Sets the code that is sent in place of [`CODE`].
    pub(super) fn set_code(&self, code: Option<String>) {
        *self.code.lock().unwrap_or_else(PoisonError::into_inner) = code;
    }

    async fn ask(
        &self,
        mut request: http::Request<Vec<u8>>,
    ) -> Result<http::Response<Vec<u8>>, OAuthHttpClientError> {
        self.check(&request.uri().to_string())?;
        let kind = request.headers().get(CONTENT_TYPE);
        let is_for_token = kind.is_some_and(|kind| kind == "application/x-www-form-urlencoded");
        let is_left = |left: usize| left.checked_sub(1);
        if is_for_token {
            self.fill_in(request.body_mut());
        } else if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_left).is_err() {
            return Err(Box::new(Refused("its login needs too many requests".to_owned())));
        }
        let sent = self.http.execute(reqwest::Request::try_from(request)?).await;
        let response = sent.map_err(|error| unreached(&error))?;
        let status = response.status();
        let mut answer = http::Response::builder().status(status);
        if let Some(headers) = answer.headers_mut() {
            keep(response.headers(), headers);
        }
        let mut body = read(response).await?;
        if is_for_token {
            body = token::kept(&body, status.is_success());
        }
        Ok(answer.body(body)?)
    }

    /// Puts the code of the login into a request for a token.
    fn fill_in(&self, body: &mut Vec<u8>) {
        let Some(code) = self.code.lock().unwrap_or_else(PoisonError::into_inner).clone() else { return };
        let (Ok(mut form), Ok(text)) = (Url::parse("http://localhost"), std::str::from_utf8(body)) else {
            return;
        };
        form.set_query(Some(text));
        let pairs: Vec<(String, String)> = form.query_pairs().into_owned().collect();
        form.query_pairs_mut().clear().extend_pairs(pairs.iter().map(|(key, value)| {
            let is_code = key == "code" && value == CODE;
            (key, if is_code { &code } else { value })
        }));
        *body = form.query().unwrap_or_default().as_bytes().to_vec();
    }
}

impl OAuthHttpClient for Guarded {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        let OAuthHttpRequest { request, .. } = request;
        Box::pin(async move {
            let late = |_| Box::new(Refused(format!("it did not answer within {} s", TIME.as_secs())));
            timeout(TIME, self.ask(request)).await.map_err(late)?
        })
    }
}

/// The headers of an answer that a login has a use for.
fn keep(from: &HeaderMap, to: &mut HeaderMap) {
    for name in [CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE] {
        for value in from.get_all(&name).iter().filter(|value| value.len() <= HEADER).take(4) {
            to.append(name.clone(), value.clone());
        }
    }
}

async fn read(mut response: Response) -> Result<Vec<u8>, OAuthHttpClientError> {
    let mut body = Vec::new();
    // The server's own address may answer with a stream, which does not end.
    let kind = response.headers().get(CONTENT_TYPE).map(|kind| kind.as_bytes().to_ascii_lowercase());
    if kind.is_some_and(|kind| kind.starts_with(b"text/event-stream")) {
        return Ok(body);
    }
    while let Some(chunk) = response.chunk().await.map_err(|error| unreached(&error))? {
        if body.len().saturating_add(chunk.len()) > ANSWER {
            return Err(Box::new(Refused(format!("an answer has more than {} KiB", ANSWER >> 10))));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// A failure without the address, and without what was sent.
fn unreached(error: &reqwest::Error) -> Refused {
    let mut cause: Option<&dyn StdError> = error.source();
    let mut text = "it cannot be reached".to_owned();
    while let Some(error) = cause {
        if let Some(Refused(why)) = error.downcast_ref() {
            text.clone_from(why);
        }
        cause = error.source();
    }
    Refused(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(server: &str, hosts: &[&str]) -> Guard {
        let hosts = hosts.iter().map(|&host| host.to_owned()).collect();
        Guard::new(&Url::parse(server).unwrap(), &hosts, false)
    }

    #[test]
    fn attack_41_an_address_for_a_login_leads_to_the_internet_or_where_the_user_said() {
        let public = guard("https://mcp.example/mcp", &["sso.corp", "10.0.0.7"]);
        let local = guard("http://localhost:8080/mcp", &[]);
        for (address, from_public, from_local) in [
            ("https://login.example/a?b=c", true, true),
            ("HTTPS://LOGIN.EXAMPLE/", true, true),
            ("https://1.1.1.1/", true, true),
            ("https://mcp.example:444/", true, true),
            ("https://sso.corp/", true, true),
            ("https://10.0.0.7/", true, false),
            ("https://10.0.0.8/", false, false),
            ("https://[fd00::1]/", false, false),
            ("https://[::ffff:10.0.0.8]/", false, false),
            ("https://0x0a000008/", false, false),
            ("https://169.254.169.254/latest", false, false),
            ("https://localhost/", false, true),
            ("https://a.localhost./", false, true),
            ("https://127.0.0.1/", false, true),
            ("http://127.0.0.1:9/", false, true),
            ("http://[::1]:9/", false, true),
            ("http://login.example/", false, false),
            ("http://mcp.example/", false, false),
            ("http://sso.corp/", false, false),
            ("http://127.0.0.1.example/", false, false),
            ("https://user@login.example/", false, false),
            ("https://user:password@login.example/", false, false),
            ("file:///etc/passwd", false, false),
            ("file://localhost/etc/passwd", false, false),
            ("javascript:alert(1)", false, false),
            ("data:text/html,x", false, false),
            ("ms-msdt:/id", false, false),
            ("-https://login.example", false, false),
            ("/authorize", false, false),
            ("https://", false, false),
            ("", false, false),
        ] {
            assert_eq!(public.check(address).is_ok(), from_public, "{address}");
            assert_eq!(local.check(address).is_ok(), from_local, "{address}");
        }
        assert!(public.check(&format!("https://login.example/{}", "x".repeat(ADDRESS))).is_err());
    }

    #[tokio::test]
    async fn attack_41_a_name_that_leads_into_a_private_network_is_not_asked() {
        // A name of this machine, as a public server's metadata could have it.
        let resolved =
            |guard: Guard| async move { guard.resolve("localhost".parse().unwrap()).await.is_ok() };
        assert!(!resolved(guard("https://mcp.example/mcp", &[])).await);
        assert!(resolved(guard("https://mcp.example/mcp", &["localhost"])).await);
        assert!(resolved(guard("http://127.0.0.1:1/mcp", &[])).await);
    }

    #[test]
    fn attack_41_others_do_not_see_the_code() {
        let guarded = Guarded::new(guard("https://mcp.example/mcp", &[])).unwrap();
        guarded.set_code(Some("c&1".to_owned()));
        let mut body = format!("grant_type=authorization_code&code={CODE}&a={CODE}").into_bytes();
        guarded.fill_in(&mut body);
        let text = String::from_utf8(body).unwrap();
        assert_eq!(text, format!("grant_type=authorization_code&code=c%261&a={CODE}"));
    }
}
