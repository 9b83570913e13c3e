//! The end of a connection, which both of its sides bring about and see.
//!
//! The library below keeps tasks of its own. They are not reached by dropping what it returns, so the requests that
//! they wait for are cut here.

use std::future::Future;

use rmcp::{
    service::{RxJsonRpcMessage, ServiceRole, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::sync::watch;

/// This program's hold on a connection. All requests of the connection are cut when it is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    cut: watch::Sender<bool>,
    gone: Gone,
}

/// One part of what makes up a connection.
#[derive(Debug, Clone)]
pub(super) struct Part {
    cut: watch::Receiver<bool>,
    _gone: watch::Sender<()>,
}

/// Tells when no part of a connection is left.
#[derive(Debug, Clone)]
pub(super) struct Gone(watch::Receiver<()>);

/// Makes a hold, and the first part. The others are clones of it.
pub(super) fn hold() -> (Hold, Part) {
    let ((cut, is_cut), (tell, gone)) = (watch::channel(false), watch::channel(()));
    (Hold { cut, gone: Gone(gone) }, Part { cut: is_cut, _gone: tell })
}

impl Hold {
    /// Cuts all requests.
    pub(super) fn cut(&self) {
        self.cut.send_replace(true);
    }

    pub(super) fn gone(&self) -> Gone {
        self.gone.clone()
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
    _part: Part,
}

impl<T> Ending<T> {
    pub(super) fn new(inner: T, part: Part) -> Self {
        Self { inner, _part: part }
    }
}

impl<R: ServiceRole, T: Transport<R>> Transport<R> for Ending<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<R>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
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
