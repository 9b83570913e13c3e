//! A connection over pipes that is read no further while the other side reads nothing.
//!
//! Every answer waits in memory until it is read, so a client that only asks could fill it.

use std::future::Future;

use rmcp::{
    service::{RxJsonRpcMessage, ServiceRole, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Messages that may wait to be sent while more are read.
const UNSENT: usize = 256;

/// The transport below, with a bound on what waits for its reader.
pub(crate) struct Bounded<T> {
    inner: T,
    unsent: watch::Sender<usize>,
    /// Cancelled once nothing more is sent.
    closed: CancellationToken,
}

impl<T> Bounded<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner, unsent: watch::Sender::new(0), closed: CancellationToken::new() }
    }
}

/// A message that was not sent yet.
struct Unsent(watch::Sender<usize>);

impl Drop for Unsent {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl<R: ServiceRole, T: Transport<R>> Transport<R> for Bounded<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<R>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        self.unsent.send_modify(|count| *count = count.saturating_add(1));
        let unsent = Unsent(self.unsent.clone());
        let (sending, closed) = (self.inner.send(message), self.closed.clone());
        async move {
            let _unsent = unsent;
            // Nobody asks what became of a message of a closed connection.
            closed.run_until_cancelled_owned(sending).await.unwrap_or(Ok(()))
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<R>> {
        // It fails once nobody counts any more, and this one does.
        drop(self.unsent.subscribe().wait_for(|count| *count < UNSENT).await);
        self.inner.receive().await
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        // A message that its reader does not take would keep the connection open.
        self.closed.cancel();
        self.inner.close().await
    }
}
