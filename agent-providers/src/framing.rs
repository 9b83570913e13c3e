//! Framing: cuts the bytes of a reply into frames, which a decoder reads one JSON text at a time.
//!
//! Services answer a streaming request with event streams, JSON lines, one whole JSON body, or a web page; the first
//! bytes tell which. White space before them (some services keep a connection alive with it) and a byte order mark are
//! skipped. The frames are the same wherever the bytes are cut. Nothing here reads the JSON or knows a wire.

use entourage_core::{Error, ErrorKind, Result};
use memchr::memchr;
use serde::de::IgnoredAny;

use crate::http::sse;

/// Largest body that is not a stream, and largest line.
const MAX_BODY: usize = 16 << 20;

/// First byte of gzip, which no text begins with.
const GZIP: u8 = 0x1f;

/// One part of a reply that can be read on its own, valid while the framing holds its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// Name of the event; empty if it has none.
    pub(crate) name: &'a [u8],
    /// The content, usually one JSON text; never empty, without white space around it.
    pub(crate) data: &'a [u8],
    /// True if it is the whole reply, not a part of a stream.
    pub(crate) whole: bool,
}

/// The state between two pieces of a reply. Memory: the frame being read, at most 16 MiB.
#[derive(Debug)]
pub(crate) struct Framing {
    form: Form,
    /// True if JSON that is not an event stream comes in lines.
    lines: bool,
    sse: sse::Parser,
    /// The body, or the start of a line.
    kept: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Unknown,
    Events,
    /// The first line, which may also be the first of a body printed over many lines.
    FirstLine,
    Lines,
    Body,
    /// Nothing more is read: the reply has ended, broke a bound, or is not a reply at all.
    Ended,
}

impl Framing {
    /// Framing for a wire that streams server-sent events, or answers with one JSON body.
    pub(crate) fn events_or_body() -> Self {
        Self { form: Form::Unknown, lines: false, sse: sse::Parser::default(), kept: Vec::new() }
    }

    /// Framing for a wire that streams JSON lines: each is a frame. A body of one line is a frame like any other; a
    /// body printed over several lines is one frame.
    pub(crate) fn lines_or_body() -> Self {
        Self { lines: true, ..Self::events_or_body() }
    }

    /// Takes in the next bytes, cut anywhere, and passes every completed frame to `on_frame`.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] if a frame exceeds 16 MiB, [`ErrorKind::Protocol`] for a web page. Nothing more is read
    /// after an error. The error lacks the details of the call: see `Failing::sign`.
    pub(crate) fn push(&mut self, bytes: &[u8], mut on_frame: impl FnMut(Frame<'_>)) -> Result<()> {
        let taken = self.take(bytes, &mut on_frame);
        if taken.is_err() {
            *self = Self { form: Form::Ended, ..Self::events_or_body() };
        }
        taken
    }

    /// Ends the input: passes on the unterminated rest, except a part of a stream that is an incomplete JSON text.
    /// Later calls do nothing.
    ///
    /// # Errors
    /// Those of [`Framing::push`].
    pub(crate) fn finish(&mut self, mut on_frame: impl FnMut(Frame<'_>)) -> Result<()> {
        let kept = std::mem::take(&mut self.kept);
        match std::mem::replace(&mut self.form, Form::Ended) {
            // An unterminated rest may be cut: an incomplete JSON text is not a frame.
            Form::Events => {
                let mut on_frame = |event: sse::Event<'_>| {
                    if !is_opened(event.data) {
                        hand_out(event.name, event.data, false, &mut on_frame);
                    }
                };
                self.sse.finish(&mut on_frame)?;
            }
            Form::FirstLine | Form::Lines if is_opened(&kept) => {}
            Form::FirstLine | Form::Lines => hand_out(b"", &kept, false, &mut on_frame),
            Form::Body => hand_out(b"", &kept, true, &mut on_frame),
            Form::Unknown | Form::Ended => {}
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8], on_frame: &mut impl FnMut(Frame<'_>)) -> Result<()> {
        let mut bytes = bytes;
        if self.form == Form::Unknown {
            let blank = |byte: &u8| byte.is_ascii_whitespace() || b"\xEF\xBB\xBF".contains(byte);
            let Some(start) = bytes.iter().position(|byte| !blank(byte)) else { return Ok(()) };
            bytes = bytes.get(start..).unwrap_or_default();
            self.form = match bytes.first() {
                Some(b'<') => return Err(web_page()),
                Some(&GZIP) => return Err(compressed()),
                Some(_) if self.lines => Form::FirstLine,
                Some(b'{' | b'[') => Form::Body,
                _ => Form::Events,
            };
        }
        match self.form {
            Form::Events => {
                self.sse.push(bytes, |event| hand_out(event.name, event.data, false, &mut *on_frame))
            }
            Form::FirstLine | Form::Lines => self.take_lines(bytes, on_frame),
            Form::Body => self.keep(bytes),
            Form::Unknown | Form::Ended => Ok(()),
        }
    }

    fn take_lines(&mut self, bytes: &[u8], on_frame: &mut impl FnMut(Frame<'_>)) -> Result<()> {
        let mut rest = bytes;
        while let Some((line, tail)) = memchr(b'\n', rest).and_then(|at| rest.split_at_checked(at)) {
            let after = tail.strip_prefix(b"\n").unwrap_or(tail);
            if self.form == Form::FirstLine {
                self.keep(line)?;
                if is_opened(&self.kept) {
                    self.form = Form::Body;
                    return self.keep(tail);
                }
                self.form = Form::Lines;
            } else if !self.kept.is_empty() {
                self.keep(line)?;
            }
            if self.kept.is_empty() {
                check_size(line.len())?;
                hand_out(b"", line, false, on_frame);
            } else {
                hand_out(b"", &self.kept, false, on_frame);
                self.kept.clear();
            }
            rest = after;
        }
        self.keep(rest)
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<()> {
        check_size(self.kept.len().saturating_add(bytes.len()))?;
        self.kept.extend_from_slice(bytes);
        Ok(())
    }
}

/// True if `line` opens JSON that it does not close.
fn is_opened(line: &[u8]) -> bool {
    matches!(line.trim_ascii_start().first(), Some(b'{' | b'['))
        && serde_json::from_slice::<IgnoredAny>(line).is_err_and(|error| error.is_eof())
}

fn hand_out(name: &[u8], data: &[u8], whole: bool, on_frame: &mut impl FnMut(Frame<'_>)) {
    let data = data.trim_ascii();
    if !data.is_empty() {
        on_frame(Frame { name, data, whole });
    }
}

fn check_size(bytes: usize) -> Result<()> {
    if bytes <= MAX_BODY {
        return Ok(());
    }
    Err(Error::new(ErrorKind::TooLarge, "the reply is larger than 16 MiB").during("model.stream"))
}

fn web_page() -> Error {
    let text = "the model's service answered with a web page; check the base URL, it often ends in /v1";
    Error::new(ErrorKind::Protocol, text).during("model.stream")
}

fn compressed() -> Error {
    let text = "the model's service answered with compressed bytes that were not asked for; turn compression off in the proxy or gateway between";
    Error::new(ErrorKind::Protocol, text).during("model.stream")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Owned = (String, String, bool);

    fn frames<'a>(
        mut framing: Framing,
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> (Vec<Owned>, Option<ErrorKind>) {
        let mut all = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut error = None;
        let mut keep = |frame: Frame<'_>| {
            assert!(!frame.data.is_empty());
            all.push((text(frame.name), text(frame.data), frame.whole));
        };
        for piece in pieces {
            error = error.or(framing.push(piece, &mut keep).err());
        }
        error = error.or(framing.finish(&mut keep).err());
        assert_eq!(
            (framing.push(b"{}\n{}\n", &mut keep).is_ok(), framing.finish(keep).is_ok()),
            (true, true)
        );
        (all, error.map(|error| error.kind()))
    }

    fn events(body: &str) -> Vec<Owned> {
        let (frames, error) = frames(Framing::events_or_body(), [body.as_bytes()]);
        assert_eq!(error, None);
        frames
    }

    fn lines(body: &str) -> Vec<Owned> {
        let (frames, error) = frames(Framing::lines_or_body(), [body.as_bytes()]);
        assert_eq!(error, None);
        frames
    }

    fn part(data: &str) -> Owned {
        (String::new(), data.to_owned(), false)
    }

    fn whole(data: &str) -> Owned {
        (String::new(), data.to_owned(), true)
    }

    #[test]
    fn the_first_bytes_tell_streams_from_bodies() {
        assert_eq!(
            events("\u{feff} \r\ndata: {\"a\":1} \n\n: note\n\ndata: \n\nevent: e\ndata: x"),
            [part("{\"a\":1}"), ("e".to_owned(), "x".to_owned(), false)]
        );
        assert_eq!(events("\n \u{feff}{\"a\":\n1}\n"), [whole("{\"a\":\n1}")]);
        assert_eq!(events("[{},\n{}]"), [whole("[{},\n{}]")]);
        assert_eq!(events("  \n"), []);
        assert_eq!(
            lines("\u{feff}\n{\"a\":1}\r\n\n  {\"b\":2}\n{\"c\":3}"),
            [part("{\"a\":1}"), part("{\"b\":2}"), part("{\"c\":3}")]
        );
        assert_eq!(lines("{\n  \"a\": [\n1]\n}\n"), [whole("{\n  \"a\": [\n1]\n}")]);
        assert_eq!(lines("{\"a\":1}"), [part("{\"a\":1}")]);
        assert_eq!(lines("upstream broke\n{}"), [part("upstream broke"), part("{}")]);
        assert_eq!(lines("{broken}\n{}"), [part("{broken}"), part("{}")]);
    }

    #[test]
    fn half_of_a_json_text_at_the_end_of_a_stream_is_no_frame() {
        let body = "data: {\"a\":1}\n\ndata: {\"b\":\"\u{e9}\"}";
        let cut = &body.as_bytes()[..body.len() - 3];
        assert_eq!(frames(Framing::events_or_body(), [cut]), (vec![part("{\"a\":1}")], None));
        assert_eq!(events(body).len(), 2);
        let body = "{\"a\":1}\n{\"b\":\"\u{e9}\"}";
        for (end, count) in [(body.len(), 2), (body.len() - 3, 1), (4, 0)] {
            let (all, error) = frames(Framing::lines_or_body(), [&body.as_bytes()[..end]]);
            assert_eq!((all.len(), error), (count, None));
        }
        // For a body that is not a stream, this is the only trace of the failure.
        assert_eq!(events("{\"a\":"), [whole("{\"a\":")]);
    }

    #[test]
    fn web_pages_and_what_never_ends_are_refused_once() {
        for framing in [Framing::events_or_body, Framing::lines_or_body] {
            assert_eq!(
                frames(framing(), [&b"\x1f\x8b\x08"[..], b"{}"]),
                (Vec::new(), Some(ErrorKind::Protocol))
            );
            assert_eq!(
                frames(framing(), [&b" <html>\n"[..], b"{}"]),
                (Vec::new(), Some(ErrorKind::Protocol))
            );
            let piece = vec![b'['; 1 << 20];
            let pieces = std::iter::repeat_n(&*piece, 20);
            assert_eq!(frames(framing(), pieces.clone()), (Vec::new(), Some(ErrorKind::TooLarge)));
            let late = [&b"{}\n"[..]].into_iter().chain(pieces);
            assert_eq!(frames(framing(), late).1, Some(ErrorKind::TooLarge));
        }
        let long = format!("{{}}\n\"{}\"\n", "x".repeat(MAX_BODY));
        assert_eq!(frames(Framing::lines_or_body(), [long.as_bytes()]).1, Some(ErrorKind::TooLarge));
    }

    proptest! {
        #[test]
        fn cuts_never_change_the_frames(
            body in "(data: ?|event: e|[\\[\\]{}\" \t]|\\{\\}|\\[1,|[\\r\\n]|\r\n|\u{feff}|\u{e9}|<){0,24}",
            cuts in prop::collection::vec(0usize..64, 0..6),
        ) {
            for framing in [Framing::events_or_body, Framing::lines_or_body] {
                let at_once = frames(framing(), [body.as_bytes()]);
                let mut cuts: Vec<_> = cuts.iter().map(|cut| *cut.min(&body.len())).collect();
                cuts.extend([0, body.len()]);
                cuts.sort_unstable();
                let pieces = cuts.windows(2).map(|pair| &body.as_bytes()[pair[0]..pair[1]]);
                prop_assert_eq!(frames(framing(), pieces), at_once.clone());
                prop_assert_eq!(frames(framing(), body.as_bytes().chunks(1)), at_once);
            }
        }
    }
}
