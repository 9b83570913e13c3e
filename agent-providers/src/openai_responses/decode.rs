//! Bytes of a reply in, deltas out: a pure machine that knows no connection.
//!
//! It reads event streams and whole JSON bodies, since some services answer a request for a stream with one. It must
//! give the same deltas wherever the bytes are cut. What the frames mean is said in `reply`.

use entourage_core::{Error, Result, provider::Delta};

use super::reply::Reply;
use crate::{
    framing::Framing,
    http::{Failing, Failure},
    stream::Decode,
};

/// Decodes one reply.
///
/// Memory: the event being read (at most 16 MiB), the deltas not yet taken, and a few words for each item of the reply
/// (at most 10,000). After an error, what else comes is still decoded, so that a reader who wants the usage of a failed
/// reply finds it.
///
/// ```
/// use entourage_core::provider::Delta;
/// use entourage_providers::openai_responses::Decoder;
///
/// let mut decoder = Decoder::new();
/// decoder.push(b"data: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"delta\":\"Hel");
/// decoder.push(b"lo\"}\n\n");
/// assert_eq!(decoder.pop().unwrap().unwrap(), Delta::Text("Hello".into()));
/// ```
#[derive(Debug)]
pub struct Decoder {
    framing: Framing,
    reply: Reply,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A decoder for one reply.
    #[must_use]
    pub fn new() -> Self {
        Self::reporting(Failing::default())
    }

    pub(crate) fn reporting(failing: Failing) -> Self {
        Self { framing: Framing::events_or_body(), reply: Reply::new(failing) }
    }

    /// Takes in the next bytes, cut anywhere.
    pub fn push(&mut self, bytes: &[u8]) {
        let reply = &mut self.reply;
        if let Err(error) = self.framing.push(bytes, |frame| reply.frame(frame)) {
            self.reply.broken(error);
        }
    }

    /// The bytes have ended. Without the event that ends a reply, no [`Delta::Finish`] is made up: the reply was cut
    /// off.
    pub fn finish(&mut self) {
        let reply = &mut self.reply;
        if let Err(error) = self.framing.finish(|frame| reply.frame(frame)) {
            self.reply.broken(error);
        }
        self.reply.cut_off();
    }

    /// The next delta, or the next error; `None` until more bytes come.
    pub fn pop(&mut self) -> Option<Result<Delta>> {
        self.reply.pop()
    }

    /// The error for a request that was refused with an HTTP `status` and `body`: what the provider reports, without
    /// what only the connection knows.
    #[must_use]
    pub fn refusal(status: u16, body: &[u8]) -> Error {
        Failing::default().refused(&Failure::from_body(body), Some(status))
    }

    /// Whether the reply has said why it ends, so that a connection that breaks now loses nothing.
    #[must_use]
    pub fn has_finish(&self) -> bool {
        self.reply.has_ended()
    }

    /// Whether the reply is complete; what comes after is not read.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.reply.has_ended()
    }
}

impl Decode for Decoder {
    fn push(&mut self, bytes: &[u8]) {
        self.push(bytes);
    }

    fn finish(&mut self) {
        self.finish();
    }

    fn pop(&mut self) -> Option<Result<Delta>> {
        self.pop()
    }

    fn has_finish(&self) -> bool {
        self.has_finish()
    }

    fn is_done(&self) -> bool {
        self.is_done()
    }
}
