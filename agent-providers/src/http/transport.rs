//! A request's way to the service and the answer's way back: by the library's client, or by one that the program gives.

use std::{error::Error as StdError, fmt, io, pin::Pin, time::Duration};

use bytes::Bytes;
use entourage_core::{Error, ErrorKind, Result};
use futures_util::{Stream, TryStreamExt};
use reqwest::{Method, StatusCode, Url, header::HeaderMap};

use super::{connections::Connections, given::Given, tls};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

/// The client of one service. Clones share its connections.
#[derive(Debug, Clone)]
pub(super) enum Transport {
    Own(Connections),
    Given(Given),
}

/// A request with everything that it carries.
pub(super) struct Outgoing {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Vec<u8>>,
    /// Time for the whole call, the body of its answer included.
    pub(super) timeout: Option<Duration>,
}

/// An answer of any status.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Pin<Box<dyn Stream<Item = Result<Bytes, Fault>> + Send>>,
}

impl Transport {
    /// The library's client. One for a service of this machine uses no proxy: that is another machine, which could
    /// neither reach this one nor satisfy a loopback-only run.
    pub(super) fn own(
        is_local: bool,
        adjust: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
    ) -> Result<Self> {
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::config()?)
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .user_agent(concat!("entourage/", env!("CARGO_PKG_VERSION")));
        let client = adjust(if is_local { client.no_proxy() } else { client });
        let client = client.build().map_err(|error| {
            let error = Error::new(ErrorKind::Config, "the HTTP client could not be set up").caused_by(error);
            error.during("provider.build")
        })?;
        Ok(Self::Own(Connections::new(client)))
    }

    pub(super) async fn send(&self, asked: Outgoing) -> Result<Answer, Fault> {
        let connections = match self {
            Self::Own(connections) => connections,
            Self::Given(client) => return client.send(asked).await,
        };
        let mut request = connections.request(asked.method, asked.url).headers(asked.headers);
        if let Some(body) = asked.body {
            request = request.body(body);
        }
        if let Some(timeout) = asked.timeout {
            request = request.timeout(timeout);
        }
        let mut answer = connections.send(request).await?;
        let (status, headers) = (answer.status(), std::mem::take(answer.headers_mut()));
        Ok(Answer { status, headers, body: Box::pin(answer.bytes_stream().map_err(Fault::from)) })
    }
}

/// The reason that there is no answer, or no more of it.
#[derive(Debug)]
pub(crate) struct Fault {
    cause: BoxError,
    pub(super) is_timeout: bool,
    /// True if there was no connection, TLS included: nothing of the request was written.
    pub(super) is_connect: bool,
    /// True if the cause is of the program's own client, whose texts may hold anything.
    pub(super) is_foreign: bool,
}

impl Fault {
    /// A failure of the program's own client.
    pub(super) fn given(cause: BoxError) -> Self {
        let cause = match cause.downcast::<reqwest::Error>() {
            Ok(error) => return Self::from(*error),
            Err(cause) => cause,
        };
        let io = |kind| causes(&*cause).any(|one| io_kind(one) == Some(kind));
        let (is_timeout, is_connect) = (io(io::ErrorKind::TimedOut), io(io::ErrorKind::ConnectionRefused));
        Self { cause, is_timeout, is_connect, is_foreign: true }
    }

    /// The time of a call is up.
    pub(super) fn late() -> Self {
        let cause = io::Error::from(io::ErrorKind::TimedOut).into();
        Self { cause, is_timeout: true, is_connect: false, is_foreign: false }
    }

    /// A request that no client could send.
    pub(super) fn unsent(cause: BoxError) -> Self {
        Self { cause, is_timeout: false, is_connect: true, is_foreign: false }
    }

    /// The failed TLS handshake, if that was it.
    pub(super) fn tls(&self) -> Option<tls::Failure<'_>> {
        tls::failure(&*self.cause)
    }

    /// True if the other machine answered that nothing listens on the port.
    pub(super) fn is_refused(&self) -> bool {
        causes(&*self.cause).any(|one| io_kind(one) == Some(io::ErrorKind::ConnectionRefused))
    }

    /// The error of the core that the program's own client failed with.
    pub(super) fn error(&self) -> Option<&Error> {
        causes(&*self.cause).find_map(|one| one.downcast_ref())
    }

    /// `error`, caused by this, if no text of it can hold a secret.
    pub(super) fn causing(self, error: Error) -> Error {
        if self.is_foreign { error } else { error.caused_by(self.cause) }
    }
}

impl From<reqwest::Error> for Fault {
    fn from(error: reqwest::Error) -> Self {
        let (is_timeout, is_connect) = (error.is_timeout(), error.is_connect());
        Self { cause: error.without_url().into(), is_timeout, is_connect, is_foreign: false }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

/// An error, and what it says that caused it.
fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |cause: &&'a (dyn StdError + 'static)| (*cause).source())
}

fn io_kind(error: &(dyn StdError + 'static)) -> Option<io::ErrorKind> {
    error.downcast_ref::<io::Error>().map(io::Error::kind)
}
