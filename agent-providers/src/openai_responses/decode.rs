//! Decodes the bytes of a reply into deltas: a pure machine without a connection.
//!
//! It reads event streams and whole JSON bodies, since some services answer a streaming request with one. The deltas
//! must be the same wherever the bytes are cut. `reply` interprets the frames.

use super::reply::Reply;
use crate::stream::decoder;

decoder! {
    /// Decodes one reply.
    ///
    /// Memory: the event being read (at most 16 MiB), the deltas not yet taken, and a few words for each item of the
    /// reply (at most 10,000). Decoding continues after an error, so that a reader can still get the usage of a failed
    /// reply.
    ///
    /// ```
    /// use entourage_core::provider::Delta;
    /// use entourage_providers::openai_responses::OpenAiResponsesDecoder;
    ///
    /// let mut decoder = OpenAiResponsesDecoder::new();
    /// decoder.push(b"data: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"delta\":\"Hel");
    /// decoder.push(b"lo\"}\n\n");
    /// assert_eq!(decoder.pop().unwrap().unwrap(), Delta::Text("Hello".into()));
    /// ```
    OpenAiResponsesDecoder(Reply), new
}
