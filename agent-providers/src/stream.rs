//! A reply in progress: the connection's bytes through a wire's decoder.
//!
//! The decoder knows the meaning of the bytes. This module decides only when to read, when to stop, and what a broken
//! connection means.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll},
};

use entourage_core::{Error, Result, provider::Delta};
use futures_util::Stream;

use crate::{
    framing::{Frame, Framing},
    http::{Redactor, Reply},
};

/// Turns the bytes of one reply into deltas. The deltas must be the same wherever the bytes are cut.
pub(crate) trait Decode {
    /// Takes in the next bytes, cut anywhere.
    fn push(&mut self, bytes: &[u8]);

    /// Ends the input. A reply that was cut off gets no finish.
    fn finish(&mut self);

    /// The next delta, or the next error; `None` until more bytes come.
    fn pop(&mut self) -> Option<Result<Delta>>;

    /// True once the reply has given its finish reason, so that a connection that breaks now loses nothing.
    fn has_finish(&self) -> bool;

    /// True once the reply is complete; later bytes are not read.
    fn is_done(&self) -> bool;
}

/// A stream of deltas that ends after the first error, or after the finish. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Deltas<D> {
    /// `None` once nothing more is read.
    reply: Option<Reply>,
    decoder: D,
    redactor: Redactor,
    first: VecDeque<Delta>,
    failed: bool,
}

impl<D> Deltas<D> {
    /// Yields `first`, such as warnings and facts from the headers, before anything of the reply.
    pub(crate) fn new(reply: Reply, decoder: D, first: impl IntoIterator<Item = Delta>) -> Self {
        let (redactor, first) = (reply.failing.redactor.clone(), first.into_iter().collect());
        Self { reply: Some(reply), decoder, redactor, first, failed: false }
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
                Some(Ok(delta)) => return Poll::Ready(Some(Ok(this.redactor.delta(delta)))),
                Some(Err(error)) => return this.fail(error),
                None => {}
            }
            let Some(reply) = &mut this.reply else { return Poll::Ready(None) };
            let polled = Pin::new(reply).poll_next(cx);
            if this.decoder.is_done() {
                // One poll for the end of the body lets the connection be used again; more is not waited for.
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

/// A wire's reading of the frames of one reply. [`decoder!`] turns it into the wire's decoder.
pub(crate) trait Reading {
    /// The framing of this wire's replies.
    fn framing() -> Framing;

    /// Takes in the next frame.
    fn frame(&mut self, frame: Frame<'_>);

    /// Ends the reply with an error of the framing.
    fn broken(&mut self, error: Error);

    /// Ends the input. Without the wire's own end mark, no [`Delta::Finish`] is made up.
    fn end(&mut self);

    /// Deltas that were made and not yet taken.
    fn out(&mut self) -> &mut VecDeque<Result<Delta>>;

    /// As in [`Decode`].
    fn has_finish(&self) -> bool;

    /// As in [`Decode`].
    fn is_done(&self) -> bool;
}

/// Makes the public decoder of a wire from its [`Reading`]. With `new`, a reading that starts from nothing but a
/// `Failing` gets the constructors too; otherwise the wire provides them.
#[allow(unused_macros, reason = "no wire may be compiled in")]
macro_rules! decoder {
    ($(#[$doc:meta])* $name:ident($reply:ty), new) => {
        $crate::stream::decoder! { $(#[$doc])* $name($reply) }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl $name {
            /// A decoder for one reply.
            #[must_use]
            pub fn new() -> Self {
                Self::reporting($crate::http::Failing::default())
            }

            pub(crate) fn reporting(failing: $crate::http::Failing) -> Self {
                Self::reading(<$reply>::new(failing))
            }
        }
    };
    ($(#[$doc:meta])* $name:ident($reply:ty)) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name {
            framing: $crate::framing::Framing,
            intake: $crate::intake::Intake,
            reply: $reply,
        }

        impl $name {
            fn reading(reply: $reply) -> Self {
                let framing = <$reply as $crate::stream::Reading>::framing();
                Self { framing, intake: $crate::intake::Intake::default(), reply }
            }

            /// Takes in the next bytes, cut anywhere.
            pub fn push(&mut self, bytes: &[u8]) {
                let Self { framing, intake, reply } = self;
                if let Err(error) = framing.push(bytes, |frame| intake.frame(frame, &mut *reply)) {
                    intake.broken(error, reply);
                }
            }

            /// Ends the input. Without the wire's own end mark, no
            /// [`Delta::Finish`](entourage_core::provider::Delta::Finish) is made up: the reply was cut off.
            pub fn finish(&mut self) {
                let Self { framing, intake, reply } = self;
                if let Err(error) = framing.finish(|frame| intake.frame(frame, &mut *reply)) {
                    intake.broken(error, reply);
                }
                intake.end(reply);
            }

            /// The next delta, or the next error; `None` until more bytes come.
            pub fn pop(&mut self) -> Option<entourage_core::Result<entourage_core::provider::Delta>> {
                use $crate::stream::Reading as _;
                self.reply.out().pop_front()
            }

            /// The error for a request that was refused with an HTTP `status` and `body`: that of the provider,
            /// without the details that only the connection knows.
            #[must_use]
            pub fn refusal(status: u16, body: &[u8]) -> entourage_core::Error {
                $crate::http::Failing::default().refused(&$crate::http::Failure::from_body(body), Some(status))
            }

            /// True once the reply has given its finish reason, so that a connection that breaks now loses nothing.
            #[must_use]
            pub fn has_finish(&self) -> bool {
                $crate::stream::Reading::has_finish(&self.reply)
            }

            /// True once the reply is complete; later bytes are not read.
            #[must_use]
            pub fn is_done(&self) -> bool {
                $crate::stream::Reading::is_done(&self.reply)
            }
        }

        impl $crate::stream::Decode for $name {
            fn push(&mut self, bytes: &[u8]) {
                self.push(bytes);
            }

            fn finish(&mut self) {
                self.finish();
            }

            fn pop(&mut self) -> Option<entourage_core::Result<entourage_core::provider::Delta>> {
                self.pop()
            }

            fn has_finish(&self) -> bool {
                self.has_finish()
            }

            fn is_done(&self) -> bool {
                self.is_done()
            }
        }
    };
}

pub(crate) use decoder;
