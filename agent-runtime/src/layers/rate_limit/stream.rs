//! A call in flight: it holds its slot until it ends, times out, or is superseded.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use entourage_core::{
    Error, ErrorKind, Result,
    provider::{CallContext, Delta, DeltaStream, Provider, Request},
};
use futures_util::Stream;
use tokio::time::{Sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::shared::{End, Pass, superseded, too_long, until};
use crate::layers::tally::Tally;

const RUNNING: &str = "running";

/// Makes the call that `pass` admitted.
pub(super) async fn open(
    inner: &dyn Provider,
    request: Request,
    cx: &CallContext,
    mut pass: Pass,
    end: End,
) -> Result<DeltaStream> {
    let newer = pass.superseded();
    let replaced = async {
        match &newer {
            Some(newer) => newer.cancelled().await,
            None => std::future::pending().await,
        }
    };
    let started = tokio::select! {
        biased;
        () = replaced => Err(superseded()),
        started = inner.stream(request, cx) => started,
        () = until(end.map(|(end, _)| end)) => {
            pass.outcome.timed = true;
            Err(too_long(end, RUNNING))
        }
    };
    match started {
        Ok(stream) => Ok(Box::pin(Reply {
            timer: end.map(|(end, _)| Box::pin(sleep_until(end))),
            newer: newer.map(|newer| Box::pin(newer.cancelled_owned())),
            running: Some(Running { stream, pass, tally: Tally::default() }),
            end,
        })),
        Err(error) => {
            refused(&pass, &error);
            Err(error)
        }
    }
}

/// Holds back all calls if the service asked this one to wait.
fn refused(pass: &Pass, error: &Error) {
    if let Some(delay) = error.retry_after() {
        pass.hold(delay);
    }
}

struct Reply {
    running: Option<Running>,
    timer: Option<Pin<Box<Sleep>>>,
    newer: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    end: End,
}

/// A reply in flight. Field order matters: the connection is dropped before the slot is released.
struct Running {
    stream: DeltaStream,
    tally: Tally,
    pass: Pass,
}

impl Running {
    fn take(&mut self, delta: &Delta) {
        self.tally.push(delta);
        match delta {
            Delta::Response(info) => {
                if let Some(limits) = &info.limits {
                    self.pass.note(limits);
                }
            }
            Delta::Finish(_) => self.pass.outcome.timed = true,
            Delta::Usage(_) => self.pass.outcome.tokens = self.tally.total().reported().total(),
            _ => {}
        }
    }
}

impl Reply {
    /// Ends the reply from outside. A complete reply ends without an error.
    fn interrupt(&mut self, error: Error) -> Poll<Option<Result<Delta>>> {
        let Some(mut running) = self.running.take() else { return Poll::Ready(None) };
        if running.tally.finished {
            return Poll::Ready(None);
        }
        running.pass.outcome.timed = error.kind() == ErrorKind::Timeout;
        Poll::Ready(Some(Err(error)))
    }
}

impl Stream for Reply {
    type Item = Result<Delta>;

    fn poll_next(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Delta>>> {
        let this = self.get_mut();
        if this.newer.as_mut().is_some_and(|newer| newer.as_mut().poll(task).is_ready()) {
            return this.interrupt(superseded());
        }
        let Some(running) = &mut this.running else { return Poll::Ready(None) };
        match running.stream.as_mut().poll_next(task) {
            Poll::Ready(Some(Ok(delta))) => {
                running.take(&delta);
                return Poll::Ready(Some(Ok(delta)));
            }
            Poll::Ready(Some(Err(error))) => {
                refused(&running.pass, &error);
                this.running = None;
                return Poll::Ready(Some(Err(error)));
            }
            Poll::Ready(None) => {
                this.running = None;
                return Poll::Ready(None);
            }
            Poll::Pending => {}
        }
        if this.timer.as_mut().is_some_and(|timer| timer.as_mut().poll(task).is_ready()) {
            return this.interrupt(too_long(this.end, RUNNING));
        }
        Poll::Pending
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("pass", &self.running.as_ref().map(|it| &it.pass))
            .finish_non_exhaustive()
    }
}
