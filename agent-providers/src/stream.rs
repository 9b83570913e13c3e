//! A reply in progress: the connection's bytes through a wire's decoder.
//!
//! The decoder knows the meaning of the bytes. This module decides only when to read, when to stop, and what a broken
//! connection means.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use entourage_core::{Error, Result, provider::Delta};
use futures_util::Stream;
use tokio::time::{Sleep, sleep};

use crate::{
    framing::{Frame, Framing},
    http::{Redactor, Reply},
};

/// Most bytes that are read after the finish reason of a reply: usage and an end mark follow it there, on some services
/// with a list of sources. Then the reply ends as if its last byte had come.
pub(crate) const MAX_AFTER_FINISH: usize = 256 << 10;

/// Longest wait for what follows the finish reason of a reply. It begins anew with each delta.
const LINGER: Duration = Duration::from_secs(30);

/// Turns the bytes of one reply into deltas. The deltas must be the same wherever the bytes are cut.
pub(crate) trait Decode {
    /// Takes in the next bytes, cut anywhere.
    fn push(&mut self, bytes: &[u8]);

    /// Ends the input. A reply that was cut off gets no finish.
    fn finish(&mut self);

    /// Ends a reply that has given its finish reason; what follows it stays unread.
    fn leave(&mut self);

    /// The next delta, or the next error; `None` until more bytes come.
    fn pop(&mut self) -> Option<Result<Delta>>;

    /// True once the reply has given its finish reason, so that a connection that breaks now loses nothing.
    fn has_finish(&self) -> bool;

    /// True once the reply is complete; later bytes are not read.
    fn is_done(&self) -> bool;
}

/// A stream of deltas that ends after the first error, or after the finish. Dropping it closes the connection.
///
/// A reply is over with its finish reason, although usage or an end mark may follow it. So the reader leaves soon after
/// it: see [`MAX_AFTER_FINISH`] and [`LINGER`].
#[derive(Debug)]
pub(crate) struct Deltas<D> {
    /// `None` once nothing more is read.
    reply: Option<Reply>,
    decoder: D,
    redactor: Redactor,
    first: VecDeque<Delta>,
    failed: bool,
    after: AfterFinish,
}

/// The reading since the finish reason, or since the last delta after it.
#[derive(Debug, Default)]
struct AfterFinish {
    bytes: usize,
    timer: Option<Pin<Box<Sleep>>>,
}

impl AfterFinish {
    /// Waits for more. Ready once it took too long.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.get_or_insert_with(|| Box::pin(sleep(LINGER))).as_mut().poll(cx)
    }
}

impl<D> Deltas<D> {
    /// Yields `first`, such as warnings and facts from the headers, before anything of the reply.
    pub(crate) fn new(reply: Reply, decoder: D, first: impl IntoIterator<Item = Delta>) -> Self {
        let (redactor, first) = (reply.failing.redactor.clone(), first.into_iter().collect());
        Self { reply: Some(reply), decoder, redactor, first, failed: false, after: AfterFinish::default() }
    }

    fn fail(&mut self, error: Error) -> Poll<Option<Result<Delta>>> {
        self.failed = true;
        self.reply = None;
        Poll::Ready(Some(Err(error)))
    }
}

impl<D: Decode> Deltas<D> {
    /// Closes the connection of a reply that has given its finish reason.
    fn leave(&mut self) {
        self.reply = None;
        self.decoder.leave();
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
                Some(Ok(delta)) => {
                    this.after = AfterFinish::default();
                    return Poll::Ready(Some(Ok(this.redactor.delta(delta))));
                }
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
                Poll::Pending if !this.decoder.has_finish() || this.after.poll(cx).is_pending() => {
                    return Poll::Pending;
                }
                Poll::Pending => this.leave(),
                Poll::Ready(Some(Ok(_))) if this.after.bytes > MAX_AFTER_FINISH => this.leave(),
                Poll::Ready(Some(Ok(bytes))) => {
                    let had_finish = this.decoder.has_finish();
                    this.decoder.push(&bytes);
                    if had_finish {
                        // A piece of nothing counts too: there may be any number.
                        this.after.bytes = this.after.bytes.saturating_add(bytes.len().max(1));
                    }
                }
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

    /// True if the last frame named a finish reason, and false when it is asked again. A wire on which that ends the
    /// reply needs no answer.
    fn takes_named_finish(&mut self) -> bool {
        false
    }

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

            fn leave(&mut self) {
                let Self { intake, reply, .. } = self;
                intake.end(reply);
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

#[cfg(test)]
#[cfg(all(feature = "openai-chat", feature = "gemini", feature = "anthropic-messages"))]
mod tests {
    use bytes::Bytes;
    use entourage_core::provider::FinishReason;
    use futures_util::{StreamExt, stream};
    use tokio::time::Instant;

    use super::*;
    use crate::{anthropic_messages, gemini, openai_chat};

    /// Reads a reply of `pieces`, after each of which the service waits so long, and which it never closes.
    async fn read(decoder: impl Decode + Unpin, pieces: &[&'static str], wait: Duration) -> Vec<Delta> {
        let pieces: Vec<_> = pieces.iter().map(|piece| Bytes::from_static(piece.as_bytes())).collect();
        let body = stream::iter(pieces).then(move |piece| async move {
            sleep(wait).await;
            Ok(piece)
        });
        let deltas = Deltas::new(Reply::of(body.chain(stream::pending())), decoder, []);
        deltas.map(|delta| delta.unwrap()).collect().await
    }

    const GEMINI: &str = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hi\"}]},\"finishReason\":\"STOP\"}]}\n\n";
    const CHAT: &str =
        "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\n";
    const USED: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}\n\n";
    const MESSAGE: &str = "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n";

    #[tokio::test(start_paused = true)]
    async fn a_service_that_falls_silent_after_the_finish_is_left_with_the_whole_reply() {
        let begun = Instant::now();
        let chat = || openai_chat::OpenAiChatDecoder::new(openai_chat::Dialect::COMMON);
        let all = [
            read(gemini::GeminiDecoder::new(), &[GEMINI], Duration::ZERO).await,
            read(chat(), &[CHAT], Duration::ZERO).await,
            read(anthropic_messages::AnthropicMessagesDecoder::new(), &[MESSAGE], Duration::ZERO).await,
        ];
        for deltas in all {
            assert_eq!(deltas[0], Delta::text("Hi"), "{deltas:?}");
            let Some(Delta::Finish(finish)) = deltas.last() else { panic!("{deltas:?}") };
            assert_eq!(finish.reason, FinishReason::Stop);
        }
        assert_eq!(begun.elapsed().as_secs(), 3 * LINGER.as_secs());

        // Usage that comes late is waited for, and a reply may go on after a finish reason.
        let nearly = LINGER.saturating_sub(Duration::from_secs(1));
        let deltas = read(chat(), &[CHAT, USED], nearly).await;
        assert!(matches!(deltas[..], [_, Delta::Usage(_), Delta::Finish(_)]), "{deltas:?}");
        let deltas = read(gemini::GeminiDecoder::new(), &[GEMINI; 5], nearly).await;
        assert_eq!(deltas.iter().filter(|delta| **delta == Delta::text("Hi")).count(), 5);
    }
}
