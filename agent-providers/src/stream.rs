//! A reply on its way: the connection's bytes through a wire's decoder.
//!
//! Which bytes mean what is the decoder's business; here is only when to read, when to stop, and what a break means.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll},
};

use entourage_core::{Error, Result, provider::Delta};
use futures_util::Stream;

use crate::http::Reply;

/// Bytes of one reply in, deltas out. It must give the same deltas wherever the bytes are cut.
pub(crate) trait Decode {
    /// Takes in the next bytes, cut anywhere.
    fn push(&mut self, bytes: &[u8]);

    /// The bytes have ended. A reply that was cut off gets no finish.
    fn finish(&mut self);

    /// The next delta, or the next error; `None` until more bytes come.
    fn pop(&mut self) -> Option<Result<Delta>>;

    /// Whether the reply has said why it ends, so that a connection that breaks now loses nothing.
    fn has_finish(&self) -> bool;

    /// Whether the reply is complete; what comes after is not read.
    fn is_done(&self) -> bool;
}

/// Ends after the first error, or after the finish. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Deltas<D> {
    /// `None` once nothing more is read.
    reply: Option<Reply>,
    decoder: D,
    first: VecDeque<Delta>,
    failed: bool,
}

impl<D> Deltas<D> {
    /// `first` is handed out before anything of the reply: warnings, and what the headers said.
    pub(crate) fn new(reply: Reply, decoder: D, first: impl IntoIterator<Item = Delta>) -> Self {
        Self { reply: Some(reply), decoder, first: first.into_iter().collect(), failed: false }
    }

    fn fail(&mut self, error: Error) -> Poll<Option<Result<Delta>>> {
        self.failed = true;
        self.reply = None;
        Poll::Ready(Some(Err(error)))
    }
}

impl<D: Decode + Unpin> Stream for Deltas<D> {
    type Item = Result<Delta>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.failed {
            return Poll::Ready(None);
        }
        if let Some(delta) = this.first.pop_front() {
            return Poll::Ready(Some(Ok(delta)));
        }
        loop {
            match this.decoder.pop() {
                Some(Ok(delta)) => return Poll::Ready(Some(Ok(delta))),
                Some(Err(error)) => return this.fail(error),
                None => {}
            }
            let Some(reply) = &mut this.reply else { return Poll::Ready(None) };
            let polled = Pin::new(reply).poll_next(cx);
            if this.decoder.is_done() {
                // One look for the end of the body lets the connection be used again; more is not waited for.
                this.reply = None;
                return Poll::Ready(None);
            }
            match polled {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(bytes))) => this.decoder.push(&bytes),
                Poll::Ready(Some(Err(error))) if !this.decoder.has_finish() => return this.fail(error),
                Poll::Ready(Some(Err(_)) | None) => {
                    this.reply = None;
                    this.decoder.finish();
                }
            }
        }
    }
}
