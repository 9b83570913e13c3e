//! Places in a text, as the protocol counts them and as people do. Pure.

use serde_json::{Value, json};

/// The unit in which a server counts along a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Utf8,
    Utf16,
    Utf32,
}

impl Encoding {
    /// The unit of this name; that of a server which names none.
    pub(super) fn named(name: Option<&str>) -> Option<Self> {
        match name {
            None | Some("utf-16") => Some(Self::Utf16),
            Some("utf-8") => Some(Self::Utf8),
            Some("utf-32") => Some(Self::Utf32),
            Some(_) => None,
        }
    }

    fn units(self, c: char) -> usize {
        match self {
            Self::Utf8 => c.len_utf8(),
            Self::Utf16 => c.len_utf16(),
            Self::Utf32 => 1,
        }
    }
}

/// A place as the protocol has it: line and unit of it, both from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) character: usize,
}

impl Position {
    pub(super) fn read(value: &Value) -> Option<Self> {
        let number =
            |key| value.get(key).and_then(Value::as_u64).map(|it| usize::try_from(it).unwrap_or(usize::MAX));
        Some(Self { line: number("line")?, character: number("character")? })
    }

    pub(super) fn json(self) -> Value {
        json!({ "line": self.line, "character": self.character })
    }
}

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Range {
    pub(super) start: Position,
    pub(super) end: Position,
}

impl Range {
    pub(super) fn read(value: &Value) -> Option<Self> {
        Some(Self { start: Position::read(value.get("start")?)?, end: Position::read(value.get("end")?)? })
    }
}

/// A text by its lines, which end with LF, CRLF or CR.
#[derive(Debug)]
pub(super) struct Lines<'t> {
    text: &'t str,
    /// Begin and end of each line, without its line end.
    lines: Vec<(usize, usize)>,
}

impl<'t> Lines<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        let (mut lines, mut start) = (Vec::new(), 0);
        let mut bytes = text.bytes().enumerate().peekable();
        while let Some((at, byte)) = bytes.next() {
            let after = at.saturating_add(1);
            let next = match byte {
                b'\r' if bytes.next_if(|(_, next)| *next == b'\n').is_some() => after.saturating_add(1),
                b'\n' | b'\r' => after,
                _ => continue,
            };
            lines.push((start, at));
            start = next;
        }
        lines.push((start, text.len()));
        Self { text, lines }
    }

    /// The line of this number from 0, without its end.
    pub(super) fn line(&self, number: usize) -> Option<&'t str> {
        let (start, end) = self.lines.get(number)?;
        self.text.get(*start..*end)
    }

    /// The place in bytes. One beyond a line is its end. `None` if there is no such line, or a character lies across.
    pub(super) fn offset(&self, at: Position, encoding: Encoding) -> Option<usize> {
        let (start, _) = self.lines.get(at.line)?;
        let (mut units, mut bytes) = (0_usize, 0_usize);
        for c in self.line(at.line)?.chars() {
            if units >= at.character {
                break;
            }
            units = units.saturating_add(encoding.units(c));
            bytes = bytes.saturating_add(c.len_utf8());
        }
        // A character that begins before the place and ends behind it.
        (units <= at.character).then(|| start.saturating_add(bytes))
    }

    /// The number of the character at a place, from 1.
    pub(super) fn column(&self, at: Position, encoding: Encoding) -> usize {
        let mut units = 0_usize;
        let before = self.line(at.line).unwrap_or_default().chars().take_while(|c| {
            let is_before = units < at.character;
            units = units.saturating_add(encoding.units(*c));
            is_before
        });
        before.count().saturating_add(1)
    }

    /// The place of a byte in a line.
    pub(super) fn position(&self, line: usize, byte: usize, encoding: Encoding) -> Option<Position> {
        let before = self.line(line)?.get(..byte)?;
        Some(Position { line, character: before.chars().map(|c| encoding.units(c)).sum() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use Encoding::{Utf8, Utf16, Utf32};

    fn at(line: usize, character: usize) -> Position {
        Position { line, character }
    }

    #[test]
    fn ce02_places_count_in_the_units_that_were_agreed_on() {
        // One, two, three and four bytes; of UTF-16 the last has two units.
        let lines = Lines::of("aé€😀z\r\nb\rc\n");
        for (encoding, character) in [(Utf8, 10), (Utf16, 5), (Utf32, 4)] {
            assert_eq!(lines.offset(at(0, character), encoding), Some(10), "{encoding:?}");
            assert_eq!(lines.column(at(0, character), encoding), 5);
            assert_eq!(lines.position(0, 10, encoding), Some(at(0, character)));
            assert_eq!(lines.offset(at(0, 99), encoding), Some(11), "beyond a line is its end");
            assert_eq!(lines.offset(at(1, 1), encoding), Some(14));
            assert_eq!(lines.offset(at(3, 0), encoding), Some(17), "after the last line end");
            assert_eq!(lines.offset(at(4, 0), encoding), None);
        }
        // Within a character.
        assert_eq!((lines.offset(at(0, 2), Utf8), lines.offset(at(0, 4), Utf16)), (None, None));
        assert_eq!(lines.line(0), Some("aé€😀z"));
        assert_eq!((lines.line(2), lines.line(3), lines.line(4)), (Some("c"), Some(""), None));
        assert_eq!(lines.position(0, 2, Utf8), None);
    }

    proptest! {
        #[test]
        fn ce02_each_place_is_found_again(text in "[aé😀\r\n]{0,30}") {
            let lines = Lines::of(&text);
            for (number, (start, end)) in lines.lines.iter().enumerate() {
                let bounds = text.char_indices().map(|(at, _)| at).chain([text.len()]);
                for byte in bounds.filter(|at| (start..=end).contains(&at)) {
                    for encoding in [Utf8, Utf16, Utf32] {
                        let found = lines.position(number, byte - start, encoding).unwrap();
                        prop_assert_eq!(lines.offset(found, encoding), Some(byte));
                    }
                }
            }
        }
    }
}
