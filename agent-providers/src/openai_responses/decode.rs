//! Bytes of a reply in, deltas out: a pure machine that knows no connection.
//!
//! It reads event streams and whole JSON bodies, since some services answer a request for a stream with one. It must
//! give the same deltas wherever the bytes are cut. What the frames mean is said in `reply`.

use super::reply::Reply;
use crate::stream::decoder;

decoder! {
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
    Decoder(Reply), new
}
