//! A request's way to a host and the answer's way back: by the library's client, or by one that the program gives.
//! Guards the addresses.

use std::{
    collections::BTreeSet,
    error::Error as StdError,
    fmt,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use entourage_core::{Error, ErrorKind};
use futures_util::{Stream, StreamExt, TryStreamExt};
use reqwest::{
    Method, StatusCode, Url,
    dns::{Name, Resolve, Resolving},
    header::{ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT},
    redirect::Policy,
};
use serde_json::Value;

use super::given::{BoxError, Given};
use crate::{address::first_closed, tls};

const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Many sites answer nothing to a program that does not name itself like a browser.
const AGENT: &str = concat!("Mozilla/5.0 (compatible; entourage/", env!("CARGO_PKG_VERSION"), ")");

/// Most characters that are shown of what the program's own client says.
const SAID: usize = 300;

/// The addresses that may be asked.
#[derive(Debug, Clone)]
pub(super) enum Guard {
    /// Those of the internet, and these.
    Internet(Arc<BTreeSet<IpAddr>>),
    /// All: the program chose the one host that is asked.
    Chosen,
}

impl Guard {
    pub(super) fn closed(&self, found: impl IntoIterator<Item = IpAddr>) -> Option<IpAddr> {
        match self {
            Self::Internet(open) => first_closed(found, |address| open.contains(&address)),
            Self::Chosen => None,
        }
    }

    /// The addresses of a name, if all of them may be asked.
    async fn look_up(&self, name: &str) -> Result<Vec<SocketAddr>, BoxError> {
        let found: Vec<SocketAddr> = tokio::net::lookup_host((name, 0)).await?.collect();
        match self.closed(found.iter().map(SocketAddr::ip)) {
            Some(address) => Err(Box::new(Closed(address))),
            None => Ok(found),
        }
    }
}

impl Resolve for Guard {
    /// The connection takes these addresses and no others.
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let found = guard.look_up(name.as_str()).await?;
            Ok(Box::new(found.into_iter()) as Box<dyn Iterator<Item = SocketAddr> + Send>)
        })
    }
}

/// A host leads to an address that is not of the internet.
#[derive(Debug)]
pub(super) struct Closed(pub(super) IpAddr);

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it leads to {}, which is not an address of another machine on the internet", self.0)
    }
}

impl StdError for Closed {}

/// A request for one address. Nothing packed is asked for: what is packed could unpack to any size.
#[derive(Debug)]
pub(super) struct Ask {
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Bytes,
}

impl Ask {
    pub(super) fn get(url: Url) -> Self {
        let headers = HeaderMap::from_iter([
            (USER_AGENT, HeaderValue::from_static(AGENT)),
            (ACCEPT_ENCODING, HeaderValue::from_static("identity")),
        ]);
        Self { method: Method::GET, url, headers, body: Bytes::new() }
    }

    pub(super) fn post(url: Url, body: &Value) -> Self {
        let ask = Self { method: Method::POST, body: body.to_string().into(), ..Self::get(url) };
        ask.header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
    }

    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }
}

/// An answer of any status.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: Pin<Box<dyn Stream<Item = Result<Bytes, Fault>> + Send>>,
}

impl Answer {
    /// The next piece of the body.
    pub(super) async fn piece(&mut self) -> Result<Option<Bytes>, Fault> {
        self.body.next().await.transpose()
    }
}

/// Sends requests. Clones share the connections.
#[derive(Debug, Clone)]
pub(super) enum Transport {
    Own(reqwest::Client),
    /// A client of the program; false if a proxy looks hosts up.
    Given(Given, bool),
}

impl Transport {
    pub(super) fn own(guard: Guard, with_proxies: bool) -> Result<Self, Error> {
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::config()?)
            .connect_timeout(CONNECT_TIME)
            .redirect(Policy::none())
            .referer(false)
            .dns_resolver(guard);
        let client = if with_proxies { client } else { client.no_proxy() };
        client.build().map(Self::Own).map_err(|error| {
            Error::new(ErrorKind::Config, "the client for the web could not be set up").caused_by(error)
        })
    }

    /// The answer to a request. Redirects are not followed.
    pub(super) async fn send(&self, ask: Ask, guard: &Guard) -> Result<Answer, Fault> {
        let Ask { method, url, headers, body } = ask;
        match self {
            Self::Own(client) => {
                let request = client.request(method, url).headers(headers).body(body);
                let mut answer = request.send().await?;
                let (status, headers) = (answer.status(), std::mem::take(answer.headers_mut()));
                Ok(Answer { status, headers, body: Box::pin(answer.bytes_stream().map_err(Fault::from)) })
            }
            Self::Given(client, looks_up) => {
                let uri = http::Uri::try_from(url.as_str()).map_err(|error| Fault::ours(error.into()))?;
                let mut request = http::Request::new(body);
                (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (method, uri, headers);
                if let Some(name) = url.domain().filter(|_| *looks_up && matches!(guard, Guard::Internet(_)))
                {
                    let found = guard.look_up(name).await.map_err(Fault::ours)?;
                    request.extensions_mut().insert(found);
                }
                let (parts, body) = client.send(request).await.map_err(Fault::given)?.into_parts();
                let body = Box::pin(body.map_err(Fault::given));
                Ok(Answer { status: parts.status, headers: parts.headers, body })
            }
        }
    }
}

/// The reason that there is no answer, or no more of it. Its text is the cause that says most: that an address is
/// closed, or else the innermost one.
#[derive(Debug)]
pub(super) struct Fault {
    cause: BoxError,
    /// True if the cause is of the program's own client, whose texts may hold anything.
    is_foreign: bool,
}

impl Fault {
    fn ours(cause: BoxError) -> Self {
        Self { cause, is_foreign: false }
    }

    fn given(cause: BoxError) -> Self {
        match cause.downcast::<reqwest::Error>() {
            Ok(error) => (*error).into(),
            Err(cause) => Self { cause, is_foreign: true },
        }
    }

    /// True if the host leads to an address that may not be asked.
    pub(super) fn is_closed(&self) -> bool {
        chain(&*self.cause).any(|one| one.is::<Closed>())
    }

    /// The error of a service that holds a key, in no words of the program's own client.
    pub(super) fn of_service(self, what: &str) -> Error {
        if self.is_foreign {
            return Error::new(ErrorKind::Transport, format!("{what} by the client of this program"));
        }
        Error::new(ErrorKind::Transport, format!("{what}: {self}"))
    }
}

impl From<reqwest::Error> for Fault {
    fn from(error: reqwest::Error) -> Self {
        // The address may hold what was searched for.
        Self::ours(error.without_url().into())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let closed = chain(&*self.cause).find(|one| one.is::<Closed>());
        let said = closed.or_else(|| chain(&*self.cause).last()).map(ToString::to_string).unwrap_or_default();
        let line = said.chars().map(|c| if c.is_control() { ' ' } else { c });
        f.write_str(&line.take(SAID).collect::<String>())
    }
}

fn chain<'a>(first: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(first), |one: &&'a (dyn StdError + 'static)| (*one).source())
}
