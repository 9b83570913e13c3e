//! A connection over pipes: each line of the server is a message.
//!
//! The library below reads lines as well, but tells nobody of those that it cannot read.

use std::{
    collections::{HashSet, VecDeque},
    future::Future,
    io,
};

use futures_util::{FutureExt, future::BoxFuture};
use rmcp::{
    RoleClient,
    model::{
        ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorData, RequestId, ServerJsonRpcMessage,
    },
    transport::{Transport, async_rw::AsyncRwTransport},
};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader, Empty};

use super::{
    long::Lines,
    unread::{self, Unread},
};

/// The pipes of a server.
pub(super) struct Pipes<R, W: AsyncWrite> {
    server: String,
    lines: BufReader<Lines<R>>,
    line: Vec<u8>,
    /// Most bytes of a line, its end included.
    most: usize,
    /// True within a line that is too long.
    is_long: bool,
    /// Writes the messages of this side.
    out: AsyncRwTransport<RoleClient, Empty, W>,
    /// Requests that wait for their answer.
    open: HashSet<RequestId>,
    /// Errors in place of answers that cannot be read.
    next: VecDeque<ServerJsonRpcMessage>,
    /// The refusals of requests that cannot be read.
    refusing: VecDeque<BoxFuture<'static, io::Result<()>>>,
}

impl<R, W> Pipes<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub(super) fn new(server: &str, output: R, input: W, most: usize) -> Self {
        Self {
            server: server.to_owned(),
            lines: BufReader::new(Lines::new(output, most)),
            line: Vec::new(),
            most,
            is_long: false,
            out: AsyncRwTransport::new(tokio::io::empty(), input),
            open: HashSet::new(),
            next: VecDeque::new(),
            refusing: VecDeque::new(),
        }
    }

    /// Notes what waits for an answer once this message is sent.
    fn note(&mut self, message: &ClientJsonRpcMessage) {
        match message {
            ClientJsonRpcMessage::Request(asked) => match &asked.request {
                // It is answered for as long as it is wanted, and is in nobody's way.
                ClientRequest::SubscriptionsListenRequest(_) => {}
                // What was asked before was in vain.
                ClientRequest::InitializeRequest(_) => self.open = HashSet::from([asked.id.clone()]),
                _ => drop(self.open.insert(asked.id.clone())),
            },
            ClientJsonRpcMessage::Notification(notice) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notice.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.open.remove(id);
                }
            }
            ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => {}
        }
    }

    /// Returns the request that an answer is for which names none: the only one that waits.
    fn only(&self) -> Option<RequestId> {
        let mut open = self.open.iter();
        let only = open.next().filter(|_| open.next().is_none()).cloned();
        if only.is_none() && !self.open.is_empty() {
            let (server, open) = (&self.server, self.open.len());
            tracing::warn!(
                server,
                "an answer of the MCP server names no request, and {open} wait for one, so nobody gets it"
            );
        }
        only
    }

    /// Reads on to the end of a line. Returns false at the end of the output. Dropped, it goes on with the same line.
    async fn read_line(&mut self) -> bool {
        loop {
            let Ok(read) = self.lines.fill_buf().await else { return false };
            let end = read.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(read.len(), |end| end.saturating_add(1));
            if taken == 0 {
                return false;
            }
            self.is_long |= self.line.len().saturating_add(taken) > self.most;
            match self.is_long {
                // What stands in its place comes next.
                true => self.line.clear(),
                false => self.line.extend(read.iter().take(taken)),
            }
            self.lines.consume(taken);
            if end.is_some() && !std::mem::take(&mut self.is_long) {
                return true;
            }
        }
    }

    /// Takes the message in the line, or what is to be said in its place.
    fn take(&mut self) {
        let line = self.line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&self.line).trim_ascii();
        if line.is_empty() {
            return;
        }
        let message = serde_json::from_slice(line);
        let parts = message.as_ref().err().map(|error| unread::parts(line, error)).unwrap_or_default();
        if let Ok(mut message) = message {
            if let ServerJsonRpcMessage::Error(error) = &mut message
                && error.id.is_none()
            {
                // The server could not read a request.
                error.id = self.only();
            }
            if let Some(id) = unread::answers(&message) {
                self.open.remove(&id);
            }
            self.next.push_back(message);
        }
        for part in parts {
            match part {
                Unread::Answer(mut error) => {
                    error.id = error.id.or_else(|| self.only());
                    if let Some(id) = &error.id {
                        self.open.remove(id);
                        self.next.push_back(ServerJsonRpcMessage::Error(error));
                    }
                }
                Unread::Asks(id) => {
                    let error = ErrorData::invalid_request("the request cannot be read", None);
                    let refusal = ClientJsonRpcMessage::error(error, Some(id));
                    self.refusing.push_back(self.out.send(refusal).boxed());
                }
            }
        }
    }
}

impl<R, W> Transport<RoleClient> for Pipes<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.note(&message);
        self.out.send(message)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            while let Some(refusing) = self.refusing.front_mut() {
                // A server that takes nothing more is found out by what is asked next.
                drop(refusing.await);
                self.refusing.pop_front();
            }
            if let Some(message) = self.next.pop_front() {
                return Some(message);
            }
            if !self.read_line().await {
                return None;
            }
            self.take();
            self.line.clear();
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.out.close().await
    }
}
