//! A text file as it is edited: with plain line ends, and written back with those that it had. Pure.

use std::borrow::Cow;

use memchr::memmem;

/// The mark that some programs put before UTF-8.
const MARK: &str = "\u{feff}";

/// A text with LF alone between its lines, and what is needed to write it as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Document<'t> {
    /// True if a byte order mark comes first.
    marked: bool,
    /// The text with each CRLF as LF.
    text: Cow<'t, str>,
    /// Positions in `text` of the line ends that are CRLF, in their order.
    returns: Vec<usize>,
    /// True if new lines end with CRLF, as most do.
    crlf: bool,
}

impl<'t> Document<'t> {
    /// Reads a text.
    pub(super) fn read(original: &'t str) -> Self {
        let (marked, body) = match original.strip_prefix(MARK) {
            Some(body) => (true, body),
            None => (false, original),
        };
        let (text, returns) = plain_with_returns(body);
        let ends = memchr::memchr_iter(b'\n', text.as_bytes()).count();
        let crlf = returns.len() > ends.saturating_sub(returns.len());
        Self { marked, text, returns, crlf }
    }

    /// The text, with LF alone between its lines.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Replaces parts of the text, given as ranges that follow each other, and their new texts. A range that is not
    /// within the text, or begins before the last one ended, is left out.
    pub(super) fn replace(&mut self, parts: &[(std::ops::Range<usize>, String)]) {
        let mut made = Self { text: Cow::Owned(String::new()), returns: Vec::new(), ..*self };
        let more = parts.iter().map(|(_, new)| new.len()).fold(0, usize::saturating_add);
        made.text.to_mut().reserve(self.text.len().saturating_add(more));
        let mut from = 0;
        for (range, new) in parts {
            let Some(kept) = self.text.get(from..range.start) else { continue };
            if self.text.get(range.clone()).is_none() {
                continue;
            }
            made.keep(self, from, kept);
            made.add(new);
            from = range.end;
        }
        let rest = self.text.get(from..).unwrap_or_default();
        made.keep(self, from, rest);
        *self = made;
    }

    /// Adds a part of another document, with its line ends.
    fn keep(&mut self, of: &Self, from: usize, part: &str) {
        let first = of.returns.partition_point(|at| *at < from);
        let end = from.saturating_add(part.len());
        let held = of.returns.iter().skip(first).take_while(|at| **at < end);
        let base = self.text.len();
        self.returns.extend(held.map(|at| at.saturating_sub(from).saturating_add(base)));
        self.text.to_mut().push_str(part);
    }

    /// Adds a new text, with the line ends of the document.
    fn add(&mut self, new: &str) {
        let new = plain(new);
        if self.crlf {
            let base = self.text.len();
            let ends = new.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
            self.returns.extend(ends.map(|(at, _)| base.saturating_add(at)));
        }
        self.text.to_mut().push_str(&new);
    }

    /// The text as it is written.
    pub(super) fn written(self) -> String {
        if !self.marked && self.returns.is_empty() {
            return self.text.into_owned();
        }
        let mut out =
            String::with_capacity(self.text.len().saturating_add(self.returns.len()).saturating_add(3));
        if self.marked {
            out.push_str(MARK);
        }
        let mut from = 0;
        for at in &self.returns {
            out.push_str(self.text.get(from..*at).unwrap_or_default());
            out.push('\r');
            from = *at;
        }
        out.push_str(self.text.get(from..).unwrap_or_default());
        out
    }
}

/// A text with each CRLF as LF.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    plain_with_returns(text).0
}

/// A text with each CRLF as LF, and the positions of these.
fn plain_with_returns(text: &str) -> (Cow<'_, str>, Vec<usize>) {
    let mut places = memmem::find_iter(text.as_bytes(), b"\r\n").peekable();
    if places.peek().is_none() {
        return (Cow::Borrowed(text), Vec::new());
    }
    let (mut plain, mut returns, mut from) = (String::with_capacity(text.len()), Vec::new(), 0);
    for at in places {
        plain.push_str(text.get(from..at).unwrap_or_default());
        returns.push(plain.len());
        from = at.saturating_add(1);
    }
    plain.push_str(text.get(from..).unwrap_or_default());
    (Cow::Owned(plain), returns)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cx06_line_ends_and_marks_are_kept_and_new_lines_end_as_most_do() {
        for (original, at, new, expected) in [
            ("a\r\nb\r\nc\r\n", 2..3, "x\ny", "a\r\nx\r\ny\r\nc\r\n"),
            ("\u{feff}a\nb\n", 2..3, "x\r\ny", "\u{feff}a\nx\ny\n"),
            ("a\r\nb\nc\n", 4..5, "x\ny", "a\r\nb\nx\ny\n"),
            ("a\r\nb", 1..2, "", "ab"),
            ("a\r\nb", 1..2, "\n\n", "a\r\n\r\nb"),
            ("", 0..0, "a\r\nb", "a\nb"),
            ("a\rb\r\n", 1..2, "-", "a-b\r\n"),
        ] {
            let mut document = Document::read(original);
            document.replace(&[(at, new.to_owned())]);
            assert_eq!(document.written(), expected, "{original:?}");
        }
    }

    proptest! {
        #[test]
        fn a_document_is_written_as_it_was_read(text in "(\u{feff})?[ab\r\n]{0,40}") {
            prop_assert_eq!(Document::read(&text).written(), text);
        }

        #[test]
        fn what_is_not_replaced_stays_byte_for_byte(
            before in "[ab\r\n]{0,20}a", after in "b[ab\r\n]{0,20}", new in "[xy\n]{0,9}",
        ) {
            let original = format!("{before}old{after}");
            let mut document = Document::read(&original);
            let at = document.text().find("old").unwrap();
            document.replace(&[(at..at + 3, new.clone())]);
            let written = document.written();
            let between = written.strip_prefix(&before).and_then(|rest| rest.strip_suffix(&after));
            prop_assert_eq!(between.map(|text| text.replace("\r\n", "\n")), Some(new));
        }
    }
}
