//! Renewal of a refused credential.
//!
//! The layer knows no credentials: a hook replaces the provider that holds them. It refreshes once for each call, so a
//! service that refuses every key is not asked for ever.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    provider::{CallContext, Delta, DeltaStream, Layer, Provider, Request, Restart},
};
use futures_util::{
    FutureExt, Stream,
    future::{self, BoxFuture, WeakShared},
};

use super::attempt::{Call, Opening, is_output};
use crate::Caught;

/// Source of a renewed provider for a [`CredentialRefresh`].
#[async_trait]
pub trait Refresh: Send + Sync + fmt::Debug {
    /// The provider with a credential that should be good, after `current` was refused with `error`.
    ///
    /// `current` is the provider inside the layer, with the layers inside it. Return a clone of it if it reads its
    /// credential anew for each call, else build it again, **layers included**. Only one refresh runs at a time. Every
    /// call that waits for it polls it, so one that is kept and not polled delays no other. The future is dropped once
    /// no call waits for it.
    ///
    /// # Errors
    /// Any failure to get a credential, a panic included. The caller is shown the service's own refusal instead, so log
    /// the details here.
    async fn refresh(&self, error: &Error, current: &Arc<dyn Provider>) -> Result<Arc<dyn Provider>>;
}

/// Layer that refreshes the credential once if a call fails with [`ErrorKind::Authentication`] before any output, and
/// makes the call again.
///
/// It belongs **outside** [`Retry`](super::Retry): the second pass then begins with all its retries, and an outage
/// while the credential is renewed does not count as a refused one.
///
/// # Contract
/// - The refresh is awaited where the refusal came: in [`Provider::stream`] or in the stream. If it succeeds, a
///   [`Delta::Restart`] without delay follows, and then the second pass; if it fails, the call fails with the service's
///   refusal.
/// - One refresh for each call. A second refusal is passed on, and so is one after output.
/// - Calls that fail while a refresh is in flight wait for it and share its result. Later calls begin with the renewed
///   provider.
/// - The request stays as it is: a hook that wants another model changes the agent's
///   [`ModelSource`](entourage_core::provider::ModelSource), which is asked before the next step. The layer keeps the
///   name of the provider that it was built around; a restart names a renewed one if it differs.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use std::sync::Arc;
/// use entourage_core::{Error, ErrorKind, Result, provider::{Layer, Provider}};
/// use entourage_runners::ReactAgent;
/// use entourage_runtime::{AgentExt, layers::{CredentialRefresh, Refresh, Retry}};
/// use entourage_testkit::ScriptedProvider;
///
/// #[derive(Debug)]
/// struct SignIn(Arc<dyn Provider>);
///
/// #[async_trait::async_trait]
/// impl Refresh for SignIn {
///     async fn refresh(&self, _: &Error, _: &Arc<dyn Provider>) -> Result<Arc<dyn Provider>> {
///         Ok(Retry::new().layer(Arc::clone(&self.0)))
///     }
/// }
///
/// let old = ScriptedProvider::new().fail(ErrorKind::Authentication, "the key has run out; sign in again");
/// let new = ScriptedProvider::new().text("Hello!");
/// let model = old.model().layer(Retry::new()).layer(CredentialRefresh::new(SignIn(new.provider())));
/// let agent = ReactAgent::builder("a", model).build().unwrap();
/// assert_eq!(agent.ask("Hello?").await.unwrap(), "Hello!");
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct CredentialRefresh {
    hook: Arc<dyn Refresh>,
}

impl CredentialRefresh {
    /// A layer with this hook. Each provider that it is put around refreshes on its own.
    #[must_use]
    pub fn new(hook: impl Refresh + 'static) -> Self {
        Self { hook: Arc::new(hook) }
    }
}

impl Layer for CredentialRefresh {
    fn layer(self, inner: Arc<dyn Provider>) -> Arc<dyn Provider> {
        let current = Mutex::new(Seat { provider: Arc::clone(&inner), generation: 0, flight: None });
        Arc::new(Refreshed { shared: Arc::new(Shared { hook: self.hook, current }), inner })
    }
}

struct Refreshed {
    shared: Arc<Shared>,
    /// The first provider, whose name the layer keeps.
    inner: Arc<dyn Provider>,
}

impl fmt::Debug for Refreshed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seat = self.shared.seat();
        f.debug_struct("CredentialRefresh")
            .field("hook", &self.shared.hook)
            .field("refreshed", &seat.generation)
            .field("inner", &seat.provider)
            .finish()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Provider for Refreshed {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn stream(&self, request: Request, cx: &CallContext) -> Result<DeltaStream> {
        let seat = self.shared.seat();
        let mut pass = Pass {
            shared: Arc::clone(&self.shared),
            call: Call::new(request.clone(), cx),
            name: seat.provider.name().into(),
            generation: Some(seat.generation),
            shown: false,
            restart: None,
            state: State::Ended,
        };
        match seat.provider.stream(request, cx).await {
            Ok(stream) => pass.state = State::Streaming(stream),
            Err(error) => {
                let refreshing = pass.refresh(error)?;
                pass.restart = Some(pass.go_on(refreshing.await?));
            }
        }
        Ok(Box::pin(pass))
    }
}

/// State shared by all calls through one layer.
struct Shared {
    hook: Arc<dyn Refresh>,
    current: Mutex<Seat>,
}

/// The current provider, and the number of those before it.
#[derive(Clone)]
struct Seat {
    provider: Arc<dyn Provider>,
    generation: u64,
    /// The refresh of this provider that is in flight, as long as a call waits for it.
    flight: Option<WeakShared<Renewal>>,
}

/// A refresh in flight. It gives the renewed provider, if there is one.
type Renewal = BoxFuture<'static, Option<Arc<dyn Provider>>>;

/// A renewed provider, and the refusal that made it necessary.
struct Renewed {
    provider: Arc<dyn Provider>,
    refusal: Error,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Seat> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seat(&self) -> Seat {
        self.lock().clone()
    }

    /// The renewed provider after that of `generation` was refused, or else the refusal.
    async fn renew(self: Arc<Self>, generation: u64, refusal: Error) -> Result<Renewed> {
        let refusal = Arc::new(refusal);
        let renewed = match self.flight(generation, &refusal) {
            Ok(flight) => flight.await,
            Err(provider) => Some(provider),
        };
        // The refresh is over, so it has dropped its share.
        let refusal = Arc::try_unwrap(refusal).unwrap_or_else(|refusal| refusal.record().to_error());
        match renewed {
            Some(provider) => Ok(Renewed { provider, refusal }),
            None => Err(refusal),
        }
    }

    /// The refresh of the provider of `generation`: the one in flight, or else a new one. `Err` holds the provider that
    /// has replaced it already.
    fn flight(
        self: &Arc<Self>,
        generation: u64,
        refusal: &Arc<Error>,
    ) -> std::result::Result<future::Shared<Renewal>, Arc<dyn Provider>> {
        let mut seat = self.lock();
        if seat.generation != generation {
            return Err(Arc::clone(&seat.provider));
        }
        if let Some(flight) = seat.flight.as_ref().and_then(WeakShared::upgrade) {
            return Ok(flight);
        }
        let (shared, refusal) = (Arc::clone(self), Arc::clone(refusal));
        let provider = Arc::clone(&seat.provider);
        let renewal = async move {
            let renewed = Caught::new(|| shared.hook.refresh(&refusal, &provider)).await;
            shared.land(renewed.ok().and_then(Result::ok))
        };
        let flight = renewal.boxed().shared();
        seat.flight = flight.downgrade();
        Ok(flight)
    }

    /// Ends the refresh in flight, with the renewed provider if there is one.
    fn land(&self, renewed: Option<Arc<dyn Provider>>) -> Option<Arc<dyn Provider>> {
        let mut seat = self.lock();
        seat.flight = None;
        if let Some(provider) = &renewed {
            seat.provider = Arc::clone(provider);
            seat.generation = seat.generation.wrapping_add(1);
        }
        renewed
    }
}

type Refreshing = BoxFuture<'static, Result<Renewed>>;

/// One call, before and after the refresh.
struct Pass {
    shared: Arc<Shared>,
    call: Call,
    /// Name of the provider that was asked first.
    name: Arc<str>,
    /// Generation of the provider that was asked; `None` once this call has had its refresh.
    generation: Option<u64>,
    shown: bool,
    /// Restart to send first, if the first attempt was refused.
    restart: Option<Box<Restart>>,
    state: State,
}

enum State {
    Streaming(DeltaStream),
    Refreshing(Refreshing),
    Opening(Opening),
    Ended,
}

impl Stream for Pass {
    type Item = Result<Delta>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Delta>>> {
        if let Some(restart) = self.restart.take() {
            return Poll::Ready(Some(Ok(Delta::Restart(restart))));
        }
        loop {
            let error = match &mut self.state {
                State::Ended => return Poll::Ready(None),
                State::Streaming(stream) => match ready!(stream.as_mut().poll_next(task)) {
                    Some(Ok(delta)) => {
                        self.note(&delta);
                        return Poll::Ready(Some(Ok(delta)));
                    }
                    Some(Err(error)) => error,
                    None => {
                        self.state = State::Ended;
                        continue;
                    }
                },
                State::Refreshing(refreshing) => match ready!(refreshing.as_mut().poll(task)) {
                    Ok(renewed) => {
                        let restart = self.go_on(renewed);
                        return Poll::Ready(Some(Ok(Delta::Restart(restart))));
                    }
                    Err(error) => error,
                },
                State::Opening(opening) => match ready!(opening.as_mut().poll(task)) {
                    Ok(stream) => {
                        self.state = State::Streaming(stream);
                        continue;
                    }
                    Err(error) => error,
                },
            };
            match self.refresh(error) {
                Ok(refreshing) => self.state = State::Refreshing(refreshing),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}

impl Pass {
    #[inline]
    fn note(&mut self, delta: &Delta) {
        match delta {
            // An inner layer retried: earlier output is void, and numbers go on from its.
            Delta::Restart(restart) => {
                self.call.attempt = self.call.attempt.max(restart.attempt);
                self.shown = false;
            }
            _ => self.shown = self.shown || is_output(delta),
        }
    }

    /// Drops the refused attempt and begins the call's one refresh, or returns the error to end with.
    fn refresh(&mut self, error: Error) -> Result<Refreshing> {
        self.state = State::Ended;
        if error.kind() != ErrorKind::Authentication || self.shown {
            return Err(error);
        }
        let Some(generation) = self.generation.take() else { return Err(error) };
        let (shared, cancel) = (Arc::clone(&self.shared), self.call.cx().cancel.clone());
        Ok(Box::pin(async move {
            tokio::select! {
                biased;
                () = cancel.cancelled() => Err(Error::cancelled()),
                renewed = shared.renew(generation, error) => renewed,
            }
        }))
    }

    /// Prepares the second pass.
    fn go_on(&mut self, renewed: Renewed) -> Box<Restart> {
        let Renewed { provider, refusal } = renewed;
        self.call.attempt = self.call.attempt.saturating_add(1);
        let mut restart = Restart::new(self.call.attempt, refusal.record(), Duration::ZERO);
        restart.provider = (provider.name() != &*self.name).then(|| provider.name().into());
        self.state = State::Opening(self.call.open(provider, Duration::ZERO));
        Box::new(restart)
    }
}
