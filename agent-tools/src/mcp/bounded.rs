//! A connection over pipes that is read no further while the other side reads nothing.
//!
//! Servers may ask as well, and each answer waits in memory until it is read: one that only asks could fill it.

use std::future::Future;

use rmcp::{
    service::{RxJsonRpcMessage, ServiceRole, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::sync::watch;

/// Messages that may wait to be sent while more are read.
const UNSENT: usize = 256;

/// The transport below, with a bound on what waits for its reader.
pub(super) struct Bounded<T> {
    inner: T,
    unsent: watch::Sender<usize>,
}

impl<T> Bounded<T> {
    pub(super) fn new(inner: T) -> Self {
        Self { inner, unsent: watch::Sender::new(0) }
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
        let sending = self.inner.send(message);
        async move {
            let _unsent = unsent;
            sending.await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<R>> {
        // It fails once nobody counts any more, and this one does.
        drop(self.unsent.subscribe().wait_for(|count| *count < UNSENT).await);
        self.inner.receive().await
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.inner.close().await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rmcp::{ServiceExt, transport::async_rw::AsyncRwTransport};
    use serde_json::{Value, json};
    use tokio::{
        io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
        time::timeout,
    };

    use super::*;

    /// More than what fits into the pipe and may wait for the server.
    const MANY: u64 = 10_000;

    #[tokio::test(start_paused = true)]
    async fn attack_38_a_server_that_only_asks_is_read_no_further_and_gets_each_answer() {
        let (theirs, read) = tokio::io::duplex(64 << 10);
        let (write, answers) = tokio::io::duplex(2 << 10);
        let (mut ask, mut answers) = (theirs, BufReader::new(answers));
        let connecting = tokio::spawn(().serve(Bounded::new(AsyncRwTransport::new_client(read, write))));
        let mut line = String::new();
        answers.read_line(&mut line).await.unwrap();
        let id = serde_json::from_str::<Value>(&line).unwrap()["id"].take();
        let server = json!({"name": "raw", "version": "1"});
        let begun = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": server});
        let begun = json!({"jsonrpc": "2.0", "id": id, "result": begun});
        ask.write_all(format!("{begun}\n").as_bytes()).await.unwrap();
        let client = connecting.await.unwrap().unwrap();

        let mut sent = 0;
        // The paused clock goes on once nothing else can.
        loop {
            let ping = format!("{}\n", json!({"jsonrpc": "2.0", "id": sent + 1, "method": "ping"}));
            if timeout(Duration::from_secs(60), ask.write_all(ping.as_bytes())).await.is_err() {
                break;
            }
            sent += 1;
            assert!(sent < MANY, "the client reads on");
        }
        let mut answered = 0;
        while answered < sent {
            line.clear();
            assert_ne!(answers.read_line(&mut line).await.unwrap(), 0, "{answered} of {sent}");
            answered += u64::from(serde_json::from_str::<Value>(&line).unwrap().get("result").is_some());
        }
        client.cancel().await.unwrap();
    }
}
