//! Model services in provider-neutral terms: a request goes in, a stream of deltas comes out.
//!
//! Streaming is the only call there is; "not streaming" is a fold over the stream.

mod delta;
mod embed;
mod model;
mod params;
mod profile;
mod request;
mod size;
mod wiretap;

pub use crate::{base::FinishReason, message::raw_call::RawCall};
pub use delta::{
    CallStart, Delta, Finish, RateLimits, RateWindow, ResponseInfo, Restart, Warning, WarningKind,
};
pub use embed::{Embedder, Embeddings};
pub use model::{Model, ModelSlot, ModelSource};
pub use params::Params;
pub use profile::Profile;
pub use request::{Effort, OutputFormat, OutputSchema, PromptCache, ReasoningParams, Request, ToolChoice};
pub use size::Size;
pub use wiretap::{WireExchange, WireRequest, Wiretap};

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::Stream;
use tokio_util::sync::CancellationToken;

use crate::{Error, ErrorKind, RequestId, Result, RunId, SessionId, base::setters};

/// A reply on its way: deltas, or the error that ends it.
pub type DeltaStream = Pin<Box<dyn Stream<Item = Result<Delta>> + Send>>;

/// A model service.
///
/// # Contract
/// - [`Provider::stream`] returns once the service has accepted the request or refused it; a refusal is an `Err`
///   whose kind and retry status are set. A layer that tries again may return earlier and give the last refusal as
///   the stream's error.
/// - Deltas before a [`Delta::Restart`] are void. The stream ends after one [`Delta::Finish`]. A stream that ends
///   without one was cut off: the caller reports it.
/// - A delta says something. A call with more than a million deltas that add no content, or more than a thousand
///   restarts, is ended with [`ErrorKind::Protocol`].
/// - Dropping the stream or the future aborts the call and frees the connection.
/// - Secrets never appear in errors, `Debug` output or deltas.
/// - Before connecting, an implementation asks [`CallContext::check_host`].
#[async_trait]
pub trait Provider: Send + Sync + fmt::Debug {
    /// The service's name, such as `"acme"`. Stored with each call.
    fn name(&self) -> &str;

    /// Starts one model call.
    async fn stream(&self, request: Request, cx: &CallContext) -> Result<DeltaStream>;
}

/// Wrapper that adds behaviour to a provider. A closure from provider to provider is a layer.
pub trait Layer {
    /// Wraps `inner` in this behaviour.
    fn layer(self, inner: Arc<dyn Provider>) -> Arc<dyn Provider>;
}

impl<F: FnOnce(Arc<dyn Provider>) -> Arc<dyn Provider>> Layer for F {
    fn layer(self, inner: Arc<dyn Provider>) -> Arc<dyn Provider> {
        self(inner)
    }
}

/// Facts about a call beyond its request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CallContext {
    /// Cancelled together with the run.
    pub cancel: CancellationToken,
    /// The session that asks, if any.
    pub session: Option<SessionId>,
    /// The run that asks, if any.
    pub run: Option<RunId>,
    /// Hosts that the call may connect to.
    pub egress: Egress,
    /// Time after which the call is of no use, measured from its start.
    pub timeout: Option<Duration>,
    /// Id of the call in events and logs; all its attempts share it.
    pub request: RequestId,
    /// Number of this attempt, from 1.
    pub attempt: u32,
    /// Observer that is shown the traffic on the wire.
    pub wiretap: Option<Arc<dyn Wiretap>>,
}

impl CallContext {
    /// A context outside any run.
    #[must_use]
    pub fn new() -> Self {
        Self::within(CancellationToken::new(), RequestId::generate())
    }

    /// Creates the context of one call with this id, which ends with `cancel`.
    #[must_use]
    pub fn within(cancel: CancellationToken, request: RequestId) -> Self {
        Self {
            cancel,
            session: None,
            run: None,
            egress: Egress::Any,
            timeout: None,
            request,
            attempt: 1,
            wiretap: None,
        }
    }

    setters! {
        /// The same context, for attempt number `attempt` of the call.
        with_attempt(attempt: u32) => attempt;
        /// The same context, with `wiretap` shown the traffic on the wire.
        with_wiretap(wiretap: Arc<dyn Wiretap>) => Some(wiretap);
        /// The same context, narrowed to hosts that `egress` admits.
        with_egress(egress: Egress) => egress;
    }

    /// Refuses a host that [`CallContext::egress`] does not admit. Providers call this before they connect.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`], naming the host.
    pub fn check_host(&self, host: &str) -> Result<()> {
        if self.egress.admits(host) {
            return Ok(());
        }
        let rule = match self.egress {
            Egress::Loopback => "loopback only",
            Egress::Any | Egress::Forbidden => "forbidden",
        };
        let text = format!(
            "calls to {host} are not allowed here: egress is {rule}; use a scripted provider or widen the runtime's egress"
        );
        Err(Error::new(ErrorKind::PermissionDenied, text).during("model.stream").unsent())
    }
}

impl Default for CallContext {
    fn default() -> Self {
        Self::new()
    }
}

/// Hosts that network calls may reach. A test runtime forbids every host but loopback ones, so no test can reach a paid
/// service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Egress {
    /// Any host.
    #[default]
    Any,
    /// This machine only.
    Loopback,
    /// No host.
    Forbidden,
}

impl Egress {
    /// True if a call to `host` (a name or an address literal, without port) may go out.
    #[must_use]
    pub fn admits(self, host: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Forbidden => false,
            Self::Loopback => {
                let host = host.trim_start_matches('[').trim_end_matches(']');
                host.eq_ignore_ascii_case("localhost")
                    || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
            }
        }
    }
}

#[async_trait]
impl<P: Provider + ?Sized> Provider for Arc<P> {
    fn name(&self) -> &str {
        (**self).name()
    }

    async fn stream(&self, request: Request, cx: &CallContext) -> Result<DeltaStream> {
        (**self).stream(request, cx).await
    }
}
