//! Layer that charges model calls to a budget.

use std::{
    error::Error as StdError,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Prices, Result,
    budget::{Budget, BudgetLimits, Charge, Exhausted, Failure, Reservation},
    provider::{CallContext, Delta, DeltaStream, Egress, Layer, Provider, Request},
};
use futures_util::Stream;
use tokio::time::Sleep;

use super::tally::Tally;
use crate::layers::{Forecast, estimate::tokens};

/// Layer that charges model calls to a [`Budget`].
///
/// Before a call, its estimate is reserved: the prompt at (bytes + 3) / 4 tokens (1,500 for each file), the reply at
/// [`Params::max_output`](entourage_core::provider::Params::max_output) or the profile's, the smaller of those that are
/// known, both parts at the prices of the request's profile. A call with neither needs room for a reply of 4,096 tokens
/// and reserves all that is left; see [`BudgetLimits`]. A call that is not covered is refused before anything is sent.
/// After it:
///
/// | end of the call | charge |
/// |---|---|
/// | a finished reply | the reported figures; a missing one is estimated from the prompt and the output |
/// | a reply that broke off, was cancelled or dropped | the reported figures, the output at least as it came; a missing one as reserved |
/// | refused by the service | one call, no tokens, no money |
/// | never sent: invalid, refused here, no connection | nothing |
/// | unknown: timeout, broken connection, dropped before an answer | as reserved |
///
/// When the budget's time is up, running replies end with [`ErrorKind::BudgetExceeded`].
///
/// # Order
/// Next to the provider, inside every other layer: then each attempt of a retry has its own reservation, a call that
/// waits for a rate limit holds none, and a cached reply costs none. With the wrong order, `model.layer(retry)
/// .layer(BudgetLayer::new(&budget, "scout"))`, one reservation serves several attempts.
#[derive(Debug, Clone)]
pub struct BudgetLayer {
    budget: Budget,
    expected: Option<u64>,
}

impl BudgetLayer {
    /// Creates a layer that charges model calls to `budget`, under `label`.
    #[must_use]
    pub fn new(budget: &Budget, label: impl Into<Arc<str>>) -> Self {
        Self { budget: budget.labelled(label), expected: None }
    }

    /// Reserves this many tokens for a reply instead of its upper bound, which is unknown or far above most replies.
    /// Longer replies are charged in full, so calls in flight may together exceed the budget.
    #[must_use]
    pub fn expecting_output(mut self, tokens: u64) -> Self {
        self.expected = Some(tokens);
        self
    }
}

impl Layer for BudgetLayer {
    fn layer(self, inner: Arc<dyn Provider>) -> Arc<dyn Provider> {
        Arc::new(Budgeted { inner, layer: self })
    }
}

#[derive(Debug)]
struct Budgeted {
    inner: Arc<dyn Provider>,
    layer: BudgetLayer,
}

#[async_trait]
impl Provider for Budgeted {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn stream(&self, request: Request, cx: &CallContext) -> Result<DeltaStream> {
        if cx.cancel.is_cancelled() {
            return Err(Error::cancelled());
        }
        let forecast = Forecast::new(&request, self.layer.expected);
        let reservation = self.layer.budget.reserve(forecast.charge())?;
        let account = Account {
            reservation: Some(reservation),
            tally: Tally::default(),
            forecast,
            prices: request.profile.prices.clone(),
            egress: cx.egress,
        };
        let Some(left) = self.layer.budget.time_left() else {
            let started = self.inner.stream(request, cx).await;
            return account.open(started, None);
        };
        let mut clock = Box::pin(tokio::time::sleep(left));
        let mut cx = cx.clone();
        cx.timeout = Some(cx.timeout.map_or(left, |limit| limit.min(left)));
        let started = tokio::select! {
            biased;
            started = self.inner.stream(request, &cx) => started,
            () = &mut clock => {
                // The account settles when it is dropped: the call's progress is unknown.
                return Err(out_of_time(left, self.layer.budget.remaining()));
            }
        };
        account.open(started, Some((clock, left)))
    }
}

fn out_of_time(left: Duration, remaining: BudgetLimits) -> Error {
    let text = format!("the budget's time was used up after {left:?} of this call; raise the limit");
    Error::new(ErrorKind::BudgetExceeded, text)
        .with_exhausted(Exhausted::new("time", remaining))
        .caused_by(CutOff)
        .during("model.stream")
}

/// Marks a call that ran out of time, as opposed to one that was never made.
#[derive(Debug, thiserror::Error)]
#[error("the call was under way")]
struct CutOff;

/// Account of one call. Dropping it settles.
#[derive(Debug)]
struct Account {
    reservation: Option<Reservation>,
    tally: Tally,
    forecast: Forecast,
    prices: Option<Prices>,
    egress: Egress,
}

impl Account {
    fn open(
        mut self,
        started: Result<DeltaStream>,
        clock: Option<(Pin<Box<Sleep>>, Duration)>,
    ) -> Result<DeltaStream> {
        match started {
            Ok(inner) => Ok(Box::pin(Charged { inner: Some(inner), account: self, clock })),
            Err(error) => {
                self.failed(&error);
                Err(error)
            }
        }
    }

    /// Remaining amounts of the budget that the call is charged to.
    fn remaining(&self) -> BudgetLimits {
        self.reservation.as_ref().map(|reservation| reservation.budget().remaining()).unwrap_or_default()
    }

    /// Settles a call that failed with `error`.
    fn failed(&mut self, error: &Error) {
        if self.tally.bytes > 0 || !self.tally.total().is_unknown() {
            return self.settle();
        }
        let Some(reservation) = self.reservation.take() else { return };
        match failure(error, self.egress) {
            Failure::NotSent => reservation.cancel(),
            Failure::Refused => reservation.settle(Charge::refused_call()),
            Failure::Unknown => drop(reservation),
        }
    }

    /// Settles at the reported figures; see [`BudgetLayer`] for missing ones.
    fn settle(&mut self) {
        let Some(reservation) = self.reservation.take() else { return };
        let usage = self.tally.total().reported();
        let came = tokens(self.tally.bytes);
        if !self.tally.finished && usage.is_unknown() && came == 0 {
            return drop(reservation);
        }
        let input = usage.input.unwrap_or(self.forecast.input);
        let output = match (usage.output, self.tally.finished) {
            (Some(output), true) => output,
            (Some(output), false) => output.max(came),
            (None, true) => came,
            (None, false) => came.max(self.forecast.output),
        };
        let cache_write = match usage.input {
            Some(_) => usage.cache_write,
            None => self.forecast.usage.cache_write,
        };
        let mut filled = usage;
        (filled.input, filled.output, filled.cache_write) = (Some(input), Some(output), cache_write);
        let money = self.prices.as_ref().map_or(usage.cost, |prices| prices.cost(&filled));
        reservation.settle(Charge::model_call(input.saturating_add(output), money));
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.settle();
    }
}

/// Progress of a call that failed with `error`.
fn failure(error: &Error, egress: Egress) -> Failure {
    match error.kind() {
        ErrorKind::BudgetExceeded if error.source().is_some_and(<dyn StdError>::is::<CutOff>) => {
            Failure::Unknown
        }
        ErrorKind::PermissionDenied if egress != Egress::Any => Failure::NotSent,
        _ if error.is_unsent() => Failure::NotSent,
        kind => Failure::of_kind(kind),
    }
}

/// A reply that is charged to a budget.
struct Charged {
    inner: Option<DeltaStream>,
    account: Account,
    clock: Option<(Pin<Box<Sleep>>, Duration)>,
}

impl Charged {
    fn end(&mut self, error: Option<&Error>) {
        match error {
            Some(error) => self.account.failed(error),
            None => self.account.settle(),
        }
        self.inner = None;
    }
}

impl Stream for Charged {
    type Item = Result<Delta>;

    fn poll_next(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Delta>>> {
        let this = self.get_mut();
        let Some(inner) = &mut this.inner else { return Poll::Ready(None) };
        match inner.as_mut().poll_next(task) {
            Poll::Ready(Some(Ok(delta))) => {
                this.account.tally.push(&delta);
                Poll::Ready(Some(Ok(delta)))
            }
            Poll::Ready(Some(Err(error))) => {
                this.end(Some(&error));
                Poll::Ready(Some(Err(error)))
            }
            Poll::Ready(None) => {
                this.end(None);
                Poll::Ready(None)
            }
            Poll::Pending => {
                let Some((clock, left)) = &mut this.clock else { return Poll::Pending };
                if clock.as_mut().poll(task).is_pending() {
                    return Poll::Pending;
                }
                let error = out_of_time(*left, this.account.remaining());
                let finished = this.account.tally.finished;
                this.end(None);
                // A complete reply is never failed.
                Poll::Ready((!finished).then_some(Err(error)))
            }
        }
    }
}

impl fmt::Debug for Charged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charged").field("account", &self.account).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn design_7_only_what_surely_never_left_is_free() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        let transport = || Error::new(ErrorKind::Transport, "no connection");
        for (error, egress, expected) in [
            (transport().caused_by(refused), Egress::Any, Failure::NotSent),
            (transport().caused_by(reset), Egress::Any, Failure::Unknown),
            (transport(), Egress::Any, Failure::Unknown),
            (transport().unsent(), Egress::Any, Failure::NotSent),
            (transport().unsent().record().to_error(), Egress::Any, Failure::NotSent),
            (
                Error::new(ErrorKind::Timeout, "").caused_by(transport().unsent()),
                Egress::Any,
                Failure::NotSent,
            ),
            (Error::new(ErrorKind::Timeout, "slow"), Egress::Any, Failure::Unknown),
            (Error::cancelled(), Egress::Any, Failure::Unknown),
            (Error::new(ErrorKind::PermissionDenied, "no"), Egress::Any, Failure::Refused),
            (Error::new(ErrorKind::PermissionDenied, "no"), Egress::Loopback, Failure::NotSent),
            (Error::new(ErrorKind::RateLimited, "slow down"), Egress::Any, Failure::Refused),
            (Error::new(ErrorKind::BudgetExceeded, "another budget"), Egress::Any, Failure::NotSent),
            (out_of_time(Duration::ZERO, BudgetLimits::none()), Egress::Any, Failure::Unknown),
        ] {
            assert_eq!(failure(&error, egress), expected, "{error:?}");
        }
    }
}
