//! Server-sent events: bytes in, events out, at any cut.
//!
//! The parser of the `sse-stream` crate does not fit: it is private behind a `Stream`, so it cannot be driven by
//! pushing bytes; it buffers an event of any size, drops an event that the end of the stream cuts before its blank
//! line, refuses a whole stream for one broken UTF-8 sequence, and allocates strings for each event. This parser
//! follows the specification's line and field rules otherwise. It must not interpret the data.

use entourage_core::{Error, ErrorKind, Result};
use memchr::memchr2;

/// Largest event, in bytes of its lines.
const MAX_EVENT: usize = 16 << 20;

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// One event, valid while its bytes are in the parser's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event<'a> {
    /// The `event` field; empty if there was none.
    pub(crate) name: &'a [u8],
    /// The `data` lines, joined by line feeds.
    pub(crate) data: &'a [u8],
}

/// The parser's state between two pieces of a stream. Memory: the event being read, at most 16 MiB.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// The start of an incomplete line.
    line: Vec<u8>,
    data: Vec<u8>,
    name: Vec<u8>,
    has_data: bool,
    /// True if the last byte was a CR, so that a following LF belongs to it.
    after_cr: bool,
    /// True once the first line has been read, so that no byte order mark can come.
    begun: bool,
}

impl Parser {
    /// Takes in `bytes` and passes every completed event to `on_event`.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] if an event exceeds 16 MiB; nothing useful follows.
    pub(crate) fn push(&mut self, bytes: &[u8], mut on_event: impl FnMut(Event<'_>)) -> Result<()> {
        let mut rest = bytes;
        if std::mem::take(&mut self.after_cr) {
            match rest.split_first() {
                Some((b'\n', tail)) => rest = tail,
                Some(_) => {}
                None => self.after_cr = true,
            }
        }
        while let Some((line, tail)) = memchr2(b'\n', b'\r', rest).and_then(|at| rest.split_at_checked(at)) {
            rest = match tail {
                [b'\r', b'\n', after @ ..] => after,
                [b'\r'] => {
                    self.after_cr = true;
                    &[]
                }
                [_, after @ ..] => after,
                [] => &[],
            };
            if self.line.is_empty() {
                self.take_line(line, &mut on_event)?;
            } else {
                self.line.extend_from_slice(line);
                let whole = std::mem::take(&mut self.line);
                let taken = self.take_line(&whole, &mut on_event);
                self.line = whole;
                self.line.clear();
                taken?;
            }
        }
        self.line.extend_from_slice(rest);
        self.check_size(self.line.len())
    }

    /// Ends the stream: passes on an event that no blank line terminated.
    ///
    /// # Errors
    /// Those of [`Parser::push`].
    pub(crate) fn finish(&mut self, mut on_event: impl FnMut(Event<'_>)) -> Result<()> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.take_line(&line, &mut on_event)?;
        }
        self.dispatch(&mut on_event);
        Ok(())
    }

    fn take_line(&mut self, mut line: &[u8], on_event: &mut impl FnMut(Event<'_>)) -> Result<()> {
        if !self.begun {
            self.begun = true;
            line = line.strip_prefix(BOM).unwrap_or(line);
        }
        if line.is_empty() {
            self.dispatch(on_event);
            return Ok(());
        }
        let colon = memchr::memchr(b':', line);
        let (field, value) = colon.and_then(|at| line.split_at_checked(at)).unwrap_or((line, b""));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                self.check_size(value.len())?;
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"event" => {
                self.check_size(value.len())?;
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            // Comments have an empty field name; `id` and `retry` serve reconnects, which model calls do not use.
            _ => {}
        }
        Ok(())
    }

    fn dispatch(&mut self, on_event: &mut impl FnMut(Event<'_>)) {
        if std::mem::take(&mut self.has_data) {
            on_event(Event { name: &self.name, data: &self.data });
            self.data.clear();
        }
        self.name.clear();
    }

    fn check_size(&self, more: usize) -> Result<()> {
        if self.data.len().saturating_add(more) <= MAX_EVENT {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::TooLarge,
            format!(
                "the model's service sent an event of more than {} MiB; is this address a model service?",
                MAX_EVENT >> 20
            ),
        )
        .during("model.stream"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<(String, String)> {
        let mut parser = Parser::default();
        let mut events = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut keep = |event: Event<'_>| events.push((text(event.name), text(event.data)));
        for piece in pieces {
            parser.push(piece, &mut keep).unwrap();
        }
        parser.finish(keep).unwrap();
        events
    }

    fn datas(body: &str) -> Vec<String> {
        parse([body.as_bytes()]).into_iter().map(|(_, data)| data).collect()
    }

    #[test]
    fn lines_fields_and_ends_follow_the_specification() {
        assert_eq!(datas("data: a\n\ndata:b\n\n"), ["a", "b"]);
        assert_eq!(datas("data: a\r\rdata: b\r\r"), ["a", "b"]);
        assert_eq!(datas("data: a\r\n\r\ndata:  b\r\n\r\n"), ["a", " b"]);
        assert_eq!(datas("\u{feff}data: a\n\n"), ["a"]);
        assert_eq!(datas("data: a\n\u{feff}data: b\n\n"), ["a"]);
        assert_eq!(datas(": note\n\n:\n\ndata: a\n: note\ndata: b\n\n"), ["a\nb"]);
        assert_eq!(datas("data\ndata\n\n"), ["\n"]);
        assert_eq!(datas("event: x\n\ndata: a\n\n"), ["a"]);
        assert_eq!(datas("id: 1\nretry: 5\nfoo: b\ndata: a"), ["a"]);
        assert_eq!(
            parse([&b"event: e\ndata: 1\n\ndata: 2\n\n"[..]]),
            [("e".to_owned(), "1".to_owned()), (String::new(), "2".to_owned())]
        );
        assert!(datas("").is_empty());
    }

    #[test]
    fn an_event_without_end_is_refused_at_the_bound() {
        let mut parser = Parser::default();
        let piece = vec![b'x'; 1 << 20];
        let mut pushed = 0;
        let error = loop {
            match parser.push(&piece, |_| {}) {
                Ok(()) => pushed += 1,
                Err(error) => break error,
            }
            assert!(pushed <= 16);
        };
        assert_eq!((error.kind(), pushed), (ErrorKind::TooLarge, 16));

        let mut parser = Parser::default();
        let line = [b"data: ".as_slice(), &piece, b"\n"].concat();
        let error = (0..20).find_map(|_| parser.push(&line, |_| {}).err()).unwrap();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
    }

    proptest! {
        #[test]
        fn cuts_never_change_the_events(
            body in "(data: ?[a-c:]{0,3}|event: x|: c|[\\r\\n]|\r\n|\u{feff}|\u{e9}){0,24}",
            cuts in prop::collection::vec(0usize..64, 0..6),
        ) {
            let whole = parse([body.as_bytes()]);
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(body.len())).collect();
            cuts.extend([0, body.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|pair| &body.as_bytes()[pair[0]..pair[1]]);
            prop_assert_eq!(parse(pieces), whole);
        }
    }
}
