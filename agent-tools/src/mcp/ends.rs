//! The end of a connection, which both of its sides bring about and see.
//!
//! The library below keeps tasks of its own. They are not reached by dropping what it returns, so the requests that
//! they wait for are cut here.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use futures_util::FutureExt;
use rmcp::{
    model::{GetExtensions, JsonRpcMessage},
    service::{RxJsonRpcMessage, ServiceError, ServiceRole, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::sync::watch;

/// This program's hold on a connection. All requests of the connection are cut when it is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    cut: watch::Sender<bool>,
    gone: Gone,
    ended: Ended,
    deaf: Deaf,
}

/// One part of what makes up a connection.
#[derive(Debug, Clone)]
pub(super) struct Part {
    cut: watch::Receiver<bool>,
    _gone: watch::Sender<()>,
    ended: watch::Sender<bool>,
    pub(super) deaf: Deaf,
}

/// Tells that the server takes nothing more on a connection. What runs on it may end well.
#[derive(Debug, Clone, Default)]
pub(super) struct Deaf(Arc<AtomicBool>);

impl Deaf {
    pub(super) fn note(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(super) fn is_noted(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Tells when no part of a connection is left.
#[derive(Debug, Clone)]
pub(super) struct Gone(watch::Receiver<()>);

/// Tells when messages are taken and given no more, so that no answer comes.
#[derive(Debug, Clone)]
pub(super) struct Ended(watch::Receiver<bool>);

/// Tells of a call whether a request of it was given to the connection, so that the server may have got it. It goes
/// along with the requests.
#[derive(Debug, Clone, Default)]
pub(super) struct Sent(Arc<AtomicUsize>);

impl Sent {
    /// Takes back the request that could not be written: the server got no whole line.
    pub(super) fn take_back(&self) {
        let less = |count: usize| count.checked_sub(1);
        // There is nothing to take back where the connection ended first.
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }

    /// True if the server may have got a request.
    pub(super) fn is_any(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }
}

/// Makes a hold, and the first part. The others are clones of it.
pub(super) fn hold() -> (Hold, Part) {
    let ((cut, is_cut), (tell, gone)) = (watch::channel(false), watch::channel(()));
    let (end, ended) = watch::channel(false);
    let deaf = Deaf::default();
    let part = Part { cut: is_cut, _gone: tell, ended: end, deaf: deaf.clone() };
    (Hold { cut, gone: Gone(gone), ended: Ended(ended), deaf }, part)
}

impl Hold {
    /// Cuts all requests.
    pub(super) fn cut(&self) {
        self.cut.send_replace(true);
    }

    pub(super) fn gone(&self) -> Gone {
        self.gone.clone()
    }

    pub(super) fn ended(&self) -> Ended {
        self.ended.clone()
    }

    pub(super) fn deaf(&self) -> &Deaf {
        &self.deaf
    }
}

impl Ended {
    /// True if no answer can come any more.
    pub(super) fn is_over(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for an answer until none can come. The library below loses a request that is sent just as it ends, and
    /// never answers it. The work is pinned by the caller: a function keeps a future that it is given twice.
    ///
    /// # Errors
    /// Those of the work; [`ServiceError::TransportClosed`] when no answer came.
    pub(super) async fn or_done<T>(
        mut self,
        mut work: Pin<&mut impl Future<Output = Result<T, ServiceError>>>,
    ) -> Result<T, ServiceError> {
        tokio::select! {
            biased;
            done = &mut work => return done,
            // An error means that nothing is left of the connection.
            _ = self.0.wait_for(|ended| *ended) => {}
        }
        // It may have come at the last moment.
        work.now_or_never().unwrap_or(Err(ServiceError::TransportClosed))
    }
}

impl Gone {
    /// Waits until no part is left.
    pub(super) async fn wait(mut self) {
        // Nothing is sent: an error says that the last part was dropped.
        while self.0.changed().await.is_ok() {}
    }
}

impl Part {
    /// Waits until the connection is cut.
    pub(super) fn cut(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut cut = self.cut.clone();
        async move {
            // An error means that nobody holds it any more, which is the same.
            drop(cut.wait_for(|cut| *cut).await);
        }
    }

    /// Performs work until the connection is cut; `None` if it is.
    pub(super) async fn perform<T>(&self, work: impl Future<Output = T> + Send) -> Option<T> {
        tokio::select! {
            biased;
            () = self.cut() => None,
            done = work => Some(done),
        }
    }
}

/// A transport that is a part of a connection.
pub(super) struct Ending<T> {
    inner: T,
    part: Part,
}

impl<T> Ending<T> {
    pub(super) fn new(inner: T, part: Part) -> Self {
        Self { inner, part }
    }
}

impl<T> Drop for Ending<T> {
    fn drop(&mut self) {
        self.part.ended.send_replace(true);
    }
}

impl<R: ServiceRole, T: Transport<R>> Transport<R> for Ending<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<R>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        if let JsonRpcMessage::Request(asked) = &message
            && let Some(sent) = asked.request.extensions().get::<Sent>()
        {
            sent.0.fetch_add(1, Ordering::AcqRel);
        }
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<R>> {
        self.inner.receive().await
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        // It ends when it is dropped, which is next. The transport over HTTP would wait for its task here, and that for
        // somebody who takes what a server that never pauses has sent.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        pin::pin,
    };

    use super::*;

    #[tokio::test]
    async fn who_waits_for_an_answer_is_told_that_none_can_come() {
        let (hold, part) = hold();
        let other = part.clone();
        let transport = Ending::new((), part);
        let never = || pending::<Result<(), ServiceError>>();
        let work = pin!(never());
        let mut waiting = pin!(hold.ended().or_done(work));
        assert!((&mut waiting).now_or_never().is_none());
        drop(transport);
        assert!(matches!(waiting.await, Err(ServiceError::TransportClosed)));
        // One that came before counts, and one that is asked for later comes to nothing at once.
        assert!(matches!(hold.ended().or_done(pin!(ready(Ok(7)))).await, Ok(7)));
        assert!(matches!(hold.ended().or_done(pin!(never())).await, Err(ServiceError::TransportClosed)));
        drop(other);
    }

    #[tokio::test]
    async fn an_answer_of_the_last_moment_is_taken() {
        let (hold, part) = hold();
        let transport = Ending::new((), part);
        let (tell, told) = tokio::sync::oneshot::channel();
        let answer = pin!(async { told.await.map_err(|_| ServiceError::TransportClosed) });
        let mut waiting = pin!(hold.ended().or_done(answer));
        assert!((&mut waiting).now_or_never().is_none());
        drop(transport);
        tell.send(7).unwrap();
        assert!(matches!(waiting.await, Ok(7)));
    }
}
