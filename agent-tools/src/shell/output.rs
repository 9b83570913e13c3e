//! The output of a command, in bounded memory: its beginning and its end.

use std::collections::VecDeque;

/// Most characters that are kept of each end.
const END: usize = 15_000;

/// A text of which the middle is left out once it is too long.
#[derive(Debug, Clone, Default)]
pub(super) struct Cut {
    head: String,
    head_chars: usize,
    tail: VecDeque<char>,
    lost_bytes: u64,
    lost_lines: u64,
}

impl Cut {
    /// Adds one character.
    fn push(&mut self, c: char) {
        if self.lost_bytes == 0 && self.head_chars < END {
            self.head.push(c);
            self.head_chars += 1;
            return;
        }
        self.tail.push_back(c);
        if self.tail.len() > END
            && let Some(lost) = self.tail.pop_front()
        {
            self.lose(lost);
        }
    }

    fn lose(&mut self, c: char) {
        self.lost_bytes = self.lost_bytes.saturating_add(c.len_utf8() as u64);
        self.lost_lines = self.lost_lines.saturating_add(u64::from(c == '\n'));
    }

    /// Adds a text.
    pub(super) fn push_str(&mut self, text: &str) {
        text.chars().for_each(|c| self.push(c));
    }

    /// Adds another text with what it has left out.
    pub(super) fn append(&mut self, other: &Self) {
        self.push_str(&other.head);
        if other.lost_bytes > 0 {
            // What is before a gap is no longer part of the end.
            while let Some(c) = self.tail.pop_front() {
                self.lose(c);
            }
            self.lost_bytes = self.lost_bytes.saturating_add(other.lost_bytes);
            self.lost_lines = self.lost_lines.saturating_add(other.lost_lines);
        }
        other.tail.iter().for_each(|c| self.push(*c));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head_chars == 0
    }

    pub(super) fn ends_line(&self) -> bool {
        self.tail.back().map_or_else(|| self.head.ends_with('\n'), |c| *c == '\n')
    }

    /// Bytes that were left out.
    pub(super) fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }

    /// The text, with a line where something was left out.
    pub(super) fn show(&self) -> String {
        let mut text = self.head.clone();
        if self.lost_bytes > 0 {
            let lines = self.lost_lines.max(1);
            let word = if lines == 1 { "line" } else { "lines" };
            text.push_str(&format!("\n\n[{lines} {word} left out, {} bytes]\n\n", self.lost_bytes));
        }
        text.extend(&self.tail);
        text
    }

    /// The last line that is not blank, of at most 200 characters.
    pub(super) fn last_line(&self) -> String {
        let tail: String = self.tail.iter().rev().take(400).collect::<Vec<_>>().into_iter().rev().collect();
        let text = if self.tail.is_empty() { &self.head } else { &tail };
        let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        line.chars().take(200).collect()
    }
}

/// Bytes that become a [`Cut`] text as they come. Invalid ones are replaced.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) text: Cut,
    /// The beginning of a character whose end is still to come.
    open: Vec<u8>,
}

impl Stream {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let joined;
        let mut rest = if self.open.is_empty() {
            bytes
        } else {
            joined = [std::mem::take(&mut self.open).as_slice(), bytes].concat();
            joined.as_slice()
        };
        loop {
            let error = match std::str::from_utf8(rest) {
                Ok(text) => return self.text.push_str(text),
                Err(error) => error,
            };
            let (valid, after) = rest.split_at(error.valid_up_to());
            self.text.push_str(std::str::from_utf8(valid).unwrap_or_default());
            let Some(length) = error.error_len() else {
                self.open = after.to_vec();
                return;
            };
            self.text.push('\u{fffd}');
            rest = after.get(length..).unwrap_or_default();
        }
    }

    /// Ends the text: a character without its end is invalid.
    pub(super) fn end(&mut self) {
        if !std::mem::take(&mut self.open).is_empty() {
            self.text.push('\u{fffd}');
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(text: &str) -> Cut {
        let mut cut = Cut::default();
        cut.push_str(text);
        cut
    }

    #[test]
    fn cx04_a_long_text_keeps_both_ends_and_counts_the_lines_between() {
        let whole = "é".repeat(30_000);
        assert_eq!(cut(&whole).show(), whole);
        let one_more = format!("{whole}x");
        let shown = cut(&one_more).show();
        assert_eq!(
            shown,
            format!("{}\n\n[1 line left out, 2 bytes]\n\n{}x", "é".repeat(15_000), "é".repeat(14_999))
        );
        let lines = "1234567\n".repeat(1_000_000);
        let long = cut(&lines);
        assert!(
            long.show().contains("\n\n[996250 lines left out, 7970000 bytes]\n\n"),
            "{}",
            long.lost_bytes()
        );
        assert!(long.show().len() < 31_000);
    }

    #[test]
    fn cx04_two_texts_are_cut_as_one() {
        let (mut one, other) = (cut(&"a".repeat(40_000)), cut(&"b".repeat(10)));
        one.append(&other);
        assert!(one.show().ends_with(&format!("{}{}", "a".repeat(20), "b".repeat(10))));
        let mut one = cut("short\n");
        one.append(&cut(&"b".repeat(40_000)));
        assert_eq!(one.lost_bytes(), 10_006);
        assert!(one.show().starts_with("short\nbbb"));
    }

    proptest! {
        #[test]
        fn cx04_bytes_become_the_same_text_wherever_they_are_cut(
            bytes in prop::collection::vec(
                prop_oneof![Just(b'a'), Just(0xc3), Just(0xa9), Just(0xf0), Just(0x9f), any::<u8>()],
                0..60,
            ),
            at in 0_usize..60,
        ) {
            let mut stream = Stream::default();
            let (one, other) = bytes.split_at(at.min(bytes.len()));
            stream.feed(one);
            stream.feed(other);
            stream.end();
            prop_assert_eq!(stream.text.show(), String::from_utf8_lossy(&bytes).into_owned());
        }
    }
}
