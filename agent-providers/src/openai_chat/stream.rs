//! A reply on its way: the connection's bytes through the decoder.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use entourage_core::{Result, provider::Delta};
use futures_util::Stream;

use super::Decoder;
use crate::http::Reply;

/// Ends after the first error, or after the finish. Dropping it closes the connection.
#[derive(Debug)]
pub(super) struct Deltas {
    /// `None` once nothing more is read.
    reply: Option<Reply>,
    decoder: Decoder,
    first: Option<Delta>,
    failed: bool,
}

impl Deltas {
    pub(super) fn new(reply: Reply, decoder: Decoder, first: Option<Delta>) -> Self {
        Self { reply: Some(reply), decoder, first, failed: false }
    }

    fn fail(&mut self, error: entourage_core::Error) -> Poll<Option<Result<Delta>>> {
        self.failed = true;
        self.reply = None;
        Poll::Ready(Some(Err(error)))
    }
}

impl Stream for Deltas {
    type Item = Result<Delta>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.failed {
            return Poll::Ready(None);
        }
        if let Some(delta) = this.first.take() {
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
