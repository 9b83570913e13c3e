//! The client of one service: sends requests and returns accepted replies; everything else is an error.
//!
//! Redirects are never followed: a POST would turn into a GET, and keys would leave. There is no total timeout; the
//! reader of a reply bounds its silence.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::SystemTime,
};

use bytes::Bytes;
use entourage_core::{
    Error, ErrorKind, Result, RetryStatus,
    provider::{CallContext, Delta, Egress, RateLimits, ResponseInfo},
};
use futures_util::{Stream, StreamExt};
use reqwest::{
    Method, Url,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION},
};
use secrecy::{ExposeSecret, SecretString};

use super::{
    Failing, Failure, Given, Redactor, headers, limits,
    tap::{self, Protocol, Shown, carries_secret},
    transport::{Answer, Fault, Outgoing, Transport},
};

/// Most bytes of a refusal's body that are read.
const MAX_REFUSAL: usize = 64 << 10;

/// Address, key and headers of a service.
#[derive(Default)]
pub(crate) struct Settings {
    pub(crate) base_url: String,
    pub(crate) vendor: String,
    pub(crate) key: Option<SecretString>,
    pub(crate) auth: Auth,
    /// Headers set by the caller; each replaces one of ours of the same name.
    pub(crate) headers: Vec<(String, SecretString)>,
    pub(crate) allow_insecure: bool,
    pub(crate) protocol: Protocol,
    /// The program's own client.
    pub(crate) client: Option<Given>,
    /// True to speak HTTP/2 without TLS only.
    #[cfg(all(test, feature = "http2"))]
    pub(crate) h2: bool,
}

/// The header that carries a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Auth {
    /// `Authorization: Bearer …`.
    #[default]
    Bearer,
    /// The bare key in a header of this name, such as `x-api-key`.
    Header(&'static str),
}

/// A request's path below the base address, with its query and headers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Target<'a> {
    /// Path segments. Each is escaped, so a name that contains a slash as a separator must be split by the caller.
    pub(crate) path: &'a [&'a str],
    /// Added to the query of the base address. A name that the base address has already keeps its value.
    pub(crate) query: &'a [(&'a str, &'a str)],
    /// Headers of the wire. [`Settings::headers`] of the same name take precedence.
    pub(crate) headers: &'a [(&'static str, &'a str)],
}

impl<'a> Target<'a> {
    pub(crate) fn path(path: &'a [&'a str]) -> Self {
        Self { path, ..Self::default() }
    }
}

/// A checked address with its headers and connections. Clones share the connections.
#[derive(Clone)]
pub(crate) struct Endpoint {
    transport: Transport,
    base: Url,
    headers: HeaderMap,
    redactor: Redactor,
    vendor: Arc<str>,
    protocol: Protocol,
}

impl Endpoint {
    /// Checks the settings without connecting.
    pub(crate) fn new(mut settings: Settings) -> Result<Self> {
        let base = check_base(&settings.base_url)?;
        let host = base.host_str().unwrap_or_default();
        let local = Egress::Loopback.admits(host);
        let secret = settings.key.is_some() || settings.headers.iter().any(|(name, _)| carries_secret(name));
        if base.scheme() == "http" && secret && !local && !settings.allow_insecure {
            return Err(config(format!(
                "the key for {host} would travel unencrypted over http; use https, or allow_insecure() in a network you trust"
            )));
        }
        let headers = header_map(&settings)?;
        let transport = match settings.client.take() {
            Some(client) => Transport::Given(client),
            #[cfg(all(test, feature = "http2"))]
            None if settings.h2 => Transport::own(local, reqwest::ClientBuilder::http2_prior_knowledge)?,
            None => Transport::own(local, |client| client)?,
        };
        let vendor = if settings.vendor.is_empty() { host.to_owned() } else { settings.vendor };
        let protocol = settings.protocol;
        let redactor = redactor(&base, settings.key.as_ref(), &settings.headers);
        Ok(Self { transport, redactor, vendor: vendor.into(), base, headers, protocol })
    }

    /// The same service and connections, for another of its wires.
    pub(crate) fn speaking(&self, protocol: Protocol) -> Self {
        Self { protocol, ..self.clone() }
    }

    pub(crate) fn vendor(&self) -> &str {
        &self.vendor
    }

    pub(crate) fn base(&self) -> &Url {
        &self.base
    }

    /// Sends `body` to `target` and returns once the service has accepted it.
    pub(crate) async fn post(&self, target: Target<'_>, body: Vec<u8>, cx: &CallContext) -> Result<Reply> {
        self.send(Method::POST, target, Some(body), cx).await
    }

    /// Reads at most `limit` bytes from `target`.
    pub(crate) async fn get(&self, target: Target<'_>, limit: usize, cx: &CallContext) -> Result<Vec<u8>> {
        self.send(Method::GET, target, None, cx).await?.whole(limit).await
    }

    async fn send(
        &self,
        method: Method,
        target: Target<'_>,
        body: Option<Vec<u8>>,
        cx: &CallContext,
    ) -> Result<Reply> {
        cx.check_host(self.base.host_str().unwrap_or_default())?;
        let (url, headers) = (self.url(target), self.headers_with(target.headers)?);
        let sent = body.as_deref().unwrap_or_default();
        let tapped = tap::Tapped { protocol: self.protocol, redactor: &self.redactor };
        let mut exchange = tapped.request(cx, method.as_str(), &url, &headers, sent);
        let mut failing =
            Failing { vendor: Arc::clone(&self.vendor), redactor: self.redactor.clone(), request_id: None };
        let asked = Outgoing { method, url, headers, body, timeout: cx.timeout };
        let answer = self.transport.send(asked).await.map_err(|fault| {
            let unsent = fault.is_connect || fault.error().is_some_and(Error::is_unsent);
            let error = self.unreachable(&failing, fault);
            if unsent { error.unsent() } else { error }
        })?;
        failing.request_id = headers::request_id(&answer.headers).map(|id| failing.quote(&id));
        tap::answer(&mut exchange, answer.status.as_u16(), &answer.headers);
        if answer.status.is_success() {
            if let Some(coding) = headers::compression(&answer.headers) {
                return Err(compressed(&failing, coding));
            }
            let limits = limits::limits(&answer.headers, SystemTime::now());
            return Ok(Reply { limits, body: answer.body, failing, exchange });
        }
        if answer.status.is_redirection() {
            return Err(self.redirected(&failing, &answer));
        }
        Err(refusal(&failing, answer, exchange).await)
    }

    fn url(&self, target: Target<'_>) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(target.path);
        }
        for (name, value) in target.query {
            if !self.base.query_pairs().any(|(known, _)| known == *name) {
                url.query_pairs_mut().append_pair(name, value);
            }
        }
        url
    }

    fn headers_with(&self, more: &[(&'static str, &str)]) -> Result<HeaderMap> {
        let mut headers = self.headers.clone();
        for (name, value) in more {
            let key = header_name(name)?;
            if !headers.contains_key(&key) {
                headers.insert(key, HeaderValue::from_str(value).map_err(|_| bad_header(name))?);
            }
        }
        Ok(headers)
    }

    fn unreachable(&self, failing: &Failing, fault: Fault) -> Error {
        let address = self.address();
        if let Some(error) = fault.error() {
            return failing.passed_on(error);
        }
        if fault.is_timeout && !fault.is_connect {
            return failing
                .error(ErrorKind::Timeout, format!("{} did not answer in time; try again", self.vendor));
        }
        if let Some(tls) = fault.tls() {
            let kind = if tls.is_refused { ErrorKind::Config } else { ErrorKind::Transport };
            let error = failing.error(kind, format!("TLS with {address} failed: {tls}"));
            return fault.causing(error);
        }
        let local = Egress::Loopback.admits(self.base.host_str().unwrap_or_default());
        if fault.is_connect && local {
            // Nothing listens there, and no wait starts a server.
            let refused = fault.is_refused();
            let text = format!("could not connect to {address}; is the server running?");
            let error = fault.causing(failing.error(ErrorKind::Transport, text));
            return if refused { error.with_retry(RetryStatus::Permanent) } else { error };
        }
        let text = if fault.is_connect {
            format!("could not connect to {address}; check the address and the network")
        } else if fault.is_foreign {
            let said = failing.quote(&fault.to_string());
            format!("the client given for {address} failed before an answer came: {said}; try again")
        } else {
            format!("the connection to {address} failed before an answer came; try again")
        };
        fault.causing(failing.error(ErrorKind::Transport, text))
    }

    /// Scheme, host and port, without path and query, which may be confidential.
    fn address(&self) -> String {
        self.base.origin().ascii_serialization()
    }

    fn redirected(&self, failing: &Failing, answer: &Answer) -> Error {
        let to = answer.headers.get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("nowhere");
        let to = self
            .base
            .join(&self.redactor.clean(to))
            .map_or_else(|_| "elsewhere".to_owned(), |to| failing.quote(&to.origin().ascii_serialization()));
        let text = format!(
            "{} redirects to {to}, which is not followed, so that the key stays with {}; set the base URL to the final address",
            self.vendor,
            self.address()
        );
        failing
            .error(ErrorKind::Transport, text)
            .with_retry(RetryStatus::Permanent)
            .with("status", answer.status.as_str())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({} at {}{})", self.vendor, self.address(), self.base.path())
    }
}

/// Query fields whose values are not secret, and may be the subject of a refusal.
const PLAIN_FIELDS: [&str; 3] = ["alt", "api-version", "api_version"];

/// The redactor of all values that may be secret: the key, headers, and the query of the address.
fn redactor(base: &Url, key: Option<&SecretString>, headers: &[(String, SecretString)]) -> Redactor {
    let fields: Vec<_> = base
        .query_pairs()
        .filter(|(name, _)| !PLAIN_FIELDS.contains(&&**name))
        .map(|(_, value)| value)
        .collect();
    let values = key.map(ExposeSecret::expose_secret).into_iter().chain(fields.iter().map(|value| &**value));
    Redactor::with_headers(values, headers.iter().map(|(name, value)| (name.as_str(), value.expose_secret())))
}

fn config(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Config, message).during("provider.build")
}

fn check_base(text: &str) -> Result<Url> {
    let url = Url::parse(text).map_err(|error| {
        config(format!("the base URL is no address: {error}; write one such as https://host/v1"))
    })?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(config(format!(
            "the base URL must begin with http:// or https://, not {}:",
            url.scheme()
        )));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(config("the base URL holds a user name or password; pass them with header() instead"));
    }
    if url.fragment().is_some() {
        return Err(config("the base URL ends in #…; leave that part out"));
    }
    Ok(url)
}

fn header_map(settings: &Settings) -> Result<HeaderMap> {
    let mut map = HeaderMap::new();
    map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    map.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
    if let Some(key) = &settings.key {
        let (name, value) = match settings.auth {
            Auth::Bearer => (AUTHORIZATION, HeaderValue::try_from(format!("Bearer {}", key.expose_secret()))),
            Auth::Header(name) => (header_name(name)?, HeaderValue::try_from(key.expose_secret())),
        };
        let mut value = value.map_err(|_| {
            config("the API key holds characters that no header can carry; was it copied with a line break?")
        })?;
        value.set_sensitive(true);
        map.insert(name, value);
    }
    for (name, value) in &settings.headers {
        let mut value = HeaderValue::try_from(value.expose_secret()).map_err(|_| bad_header(name))?;
        value.set_sensitive(true);
        map.insert(header_name(name)?, value);
    }
    Ok(map)
}

fn header_name(name: &str) -> Result<HeaderName> {
    HeaderName::try_from(name).map_err(|_| bad_header(name))
}

fn bad_header(name: &str) -> Error {
    config(format!("the header `{}` has an invalid name or value", name.escape_debug()))
}

fn compressed(failing: &Failing, coding: &str) -> Error {
    let (vendor, coding) = (&failing.vendor, failing.quote(coding));
    let text = format!(
        "{vendor} compressed its reply ({coding}), which was not asked for; turn compression off in the proxy or gateway between"
    );
    failing.error(ErrorKind::Protocol, text)
}

async fn refusal(failing: &Failing, answer: Answer, mut exchange: Option<Shown>) -> Error {
    let Answer { status, headers, body: mut pieces } = answer;
    let wait = headers::retry_after(&headers, SystemTime::now());
    let again = headers::should_retry(&headers);
    let coding = headers::compression(&headers);
    let mut body =
        coding.map_or_else(Vec::new, |coding| format!("its words are compressed ({coding})").into());
    let readable = body.is_empty();
    // A body that breaks off is still worth quoting.
    while readable && let Some(Ok(piece)) = pieces.next().await {
        tap::body(&mut exchange, &piece);
        let room = MAX_REFUSAL.saturating_sub(body.len());
        body.extend(piece.iter().take(room));
        if piece.len() >= room {
            break;
        }
    }
    let mut error = failing.refused(&Failure::from_body(&body), Some(status.as_u16()));
    if let Some(again) = again {
        error = error.with_retry(if again { RetryStatus::Temporary } else { RetryStatus::Permanent });
    }
    match wait {
        Some(wait) => error.with_retry_after(wait),
        None => error,
    }
}

/// The body of an accepted reply, piece by piece. Dropping it ends the call.
pub(crate) struct Reply {
    body: Pin<Box<dyn Stream<Item = Result<Bytes, Fault>> + Send>>,
    pub(crate) failing: Failing,
    limits: Option<RateLimits>,
    exchange: Option<Shown>,
}

impl Reply {
    #[cfg(test)]
    pub(crate) fn of(body: impl Stream<Item = Result<Bytes, Fault>> + Send + 'static) -> Self {
        Self { body: Box::pin(body), failing: Failing::default(), limits: None, exchange: None }
    }

    /// Reads the rest of the body, of at most `limit` bytes.
    pub(crate) async fn whole(&mut self, limit: usize) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(piece) = self.next().await {
            body.extend_from_slice(&piece?);
            if body.len() > limit {
                let text = format!("the answer is larger than {limit} bytes");
                return Err(self.failing.error(ErrorKind::TooLarge, text));
            }
        }
        Ok(body)
    }

    /// Facts about the call from the headers: its id, and the rest of the account's limits.
    pub(crate) fn info(&self) -> Option<Delta> {
        let mut info = ResponseInfo::default();
        info.request = self.failing.request_id.as_deref().map(Into::into);
        info.limits = self.limits.map(Box::new);
        (info != ResponseInfo::default()).then(|| Delta::Response(Box::new(info)))
    }
}

impl Stream for Reply {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.body.as_mut().poll_next(cx);
        if let Poll::Ready(Some(Ok(piece))) = &polled {
            tap::body(&mut self.exchange, piece);
        }
        polled.map_err(|fault| {
            if let Some(error) = fault.error() {
                return self.failing.passed_on(error);
            }
            let (kind, text) = match fault.is_timeout {
                true => (ErrorKind::Timeout, "did not finish its reply in time; try again"),
                false => (ErrorKind::Transport, "broke off in the middle of its reply; try again"),
            };
            fault.causing(self.failing.error(kind, format!("{} {text}", self.failing.vendor)))
        })
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("failing", &self.failing).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(all(feature = "http2", feature = "openai-chat"))]
#[path = "h2_tests.rs"]
mod h2_tests;

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
