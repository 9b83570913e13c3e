//! A connection over pipes that answers by itself what cannot be served.

use std::future::Future;

use rmcp::{
    RoleServer,
    model::JsonRpcMessage,
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::task::JoinSet;

use crate::in_flight::InFlight;

/// Refusals that may wait to be sent while more is read.
const UNSENT: usize = 64;

/// The transport below, which passes on what is admitted.
pub(crate) struct Refusing<T> {
    inner: T,
    in_flight: InFlight,
    /// Answers that are being sent. `receive` may be dropped at any time, so it cannot send them.
    refusals: JoinSet<()>,
}

impl<T> Refusing<T> {
    pub(crate) fn new(inner: T, in_flight: InFlight) -> Self {
        Self { inner, in_flight, refusals: JoinSet::new() }
    }
}

impl<T: Transport<RoleServer>> Refusing<T> {
    fn refuse(&mut self, answer: TxJsonRpcMessage<RoleServer>) {
        let sending = self.inner.send(answer);
        // What cannot be sent any more has no reader.
        self.refusals.spawn(async move { sending.await.unwrap_or_default() });
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Refusing<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            while self.refusals.try_join_next().is_some() {}
            if self.refusals.len() >= UNSENT {
                self.refusals.join_next().await;
            }
            let Some(message) = self.inner.receive().await else {
                while self.refusals.join_next().await.is_some() {}
                return None;
            };
            let refused = match &message {
                JsonRpcMessage::Request(request) => self.in_flight.admit(&request.id).err(),
                _ => None,
            };
            match refused {
                Some(answer) => self.refuse(answer),
                None => return Some(message),
            }
        }
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.refusals.shutdown().await;
        self.inner.close().await
    }
}
