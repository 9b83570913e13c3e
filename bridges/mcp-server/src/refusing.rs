//! A connection over pipes that answers by itself what cannot be served.

use std::future::Future;

use rmcp::{
    RoleServer,
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::{io::AsyncRead, task::JoinSet};

use crate::{
    in_flight::InFlight,
    lines::{self, Lines},
};

/// Refusals that may wait to be sent while more is read.
const UNSENT: usize = 64;

/// The messages of an input that are admitted, and the transport below for the answers.
pub(crate) struct Refusing<R, T> {
    lines: Lines<R>,
    inner: T,
    in_flight: InFlight,
    /// Answers that are being sent. `receive` may be dropped at any time, so it cannot send them.
    refusals: JoinSet<()>,
}

impl<R, T> Refusing<R, T> {
    pub(crate) fn new(lines: Lines<R>, inner: T, in_flight: InFlight) -> Self {
        Self { lines, inner, in_flight, refusals: JoinSet::new() }
    }
}

impl<R, T: Transport<RoleServer>> Refusing<R, T> {
    fn refuse(&mut self, answer: TxJsonRpcMessage<RoleServer>) {
        let sending = self.inner.send(answer);
        // What cannot be sent any more has no reader.
        self.refusals.spawn(async move { sending.await.unwrap_or_default() });
    }
}

impl<R, T> Transport<RoleServer> for Refusing<R, T>
where
    R: AsyncRead + Send + Unpin,
    T: Transport<RoleServer>,
{
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
            let Some(line) = self.lines.next().await else {
                while self.refusals.join_next().await.is_some() {}
                return None;
            };
            let Some(message) = lines::message(&line) else { continue };
            match message.and_then(|message| self.in_flight.admit(message)) {
                Ok(message) => return Some(message),
                Err(answer) => self.refuse(*answer),
            }
        }
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.refusals.shutdown().await;
        self.inner.close().await
    }
}
