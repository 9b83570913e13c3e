//! Tables of requests as this wire encodes them, and of decoded replies.

mod call;
mod decode;
mod encode;
mod replay;

use entourage_core::{
    Error,
    provider::{Delta, FinishReason},
};
use entourage_runtime::reply::{Assembled, Assembler};

use super::GeminiDecoder;

/// All deltas and errors of a reply that comes in `pieces`.
fn deltas<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Result<Delta, Error>> {
    let mut decoder = GeminiDecoder::new();
    let mut all = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        all.extend(std::iter::from_fn(|| decoder.pop()));
    }
    decoder.finish();
    all.extend(std::iter::from_fn(|| decoder.pop()));
    all
}

/// The assembled reply. Checks that it is the same wherever the body is cut.
fn reply(body: &str) -> (Assembled, Vec<String>) {
    let whole = format!("{:?}", deltas([body.as_bytes()]));
    for at in 0..body.len() {
        let (one, two) = body.as_bytes().split_at(at);
        assert_eq!(format!("{:?}", deltas([one, two])), whole, "cut at {at}");
    }
    let mut assembler = Assembler::default();
    let mut errors = Vec::new();
    for item in deltas([body.as_bytes()]) {
        match item {
            Ok(delta) => assembler.push(&delta).unwrap(),
            Err(error) => errors.push(error.message().to_owned()),
        }
    }
    let finished = assembler.is_finished();
    let reply = if finished { assembler.finish().unwrap() } else { assembler.abort(FinishReason::Cancelled) };
    (reply, errors)
}

/// An event stream of chunks whose first candidate has these fields.
fn stream(candidates: &[&str]) -> String {
    candidates.iter().map(|fields| format!("data: {{\"candidates\":[{{{fields}}}]}}\r\n\r\n")).collect()
}

/// The fields of a candidate with these parts.
fn parts(parts: &str) -> String {
    format!(r#""content":{{"role":"model","parts":[{parts}]}}"#)
}
