//! Places in a text, as the protocol counts them and as people do. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Bytes of a line, such as that of a program without line ends, after which a place in it is counted from a mark.
const STEP: usize = 1_024;

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
    /// Places in long lines, by their numbers.
    marks: BTreeMap<usize, Vec<Mark>>,
}

/// A place in a line, between two characters, in each unit from the line's begin.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    bytes: usize,
    utf16: usize,
    chars: usize,
}

impl Mark {
    fn units(self, encoding: Encoding) -> usize {
        match encoding {
            Encoding::Utf8 => self.bytes,
            Encoding::Utf16 => self.utf16,
            Encoding::Utf32 => self.chars,
        }
    }

    fn after(self, c: char) -> Self {
        Self {
            bytes: self.bytes.saturating_add(c.len_utf8()),
            utf16: self.utf16.saturating_add(c.len_utf16()),
            chars: self.chars.saturating_add(1),
        }
    }

    fn all(line: &str) -> Vec<Self> {
        let (mut marks, mut now) = (Vec::new(), Self::default());
        for c in line.chars() {
            if now.bytes.saturating_sub(marks.last().map_or(0, |mark: &Self| mark.bytes)) >= STEP {
                marks.push(now);
            }
            now = now.after(c);
        }
        marks
    }
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
        let long = lines.iter().enumerate().filter(|(_, (start, end))| end.saturating_sub(*start) > STEP);
        let marks =
            long.filter_map(|(number, (start, end))| Some((number, Mark::all(text.get(*start..*end)?))));
        let marks = marks.collect();
        Self { text, lines, marks }
    }

    /// The last mark that is not behind a place, and the text of the line from there on.
    fn near(&self, at: Position, encoding: Encoding) -> Option<(Mark, &'t str)> {
        let marks = self.marks.get(&at.line).map(Vec::as_slice).unwrap_or_default();
        let behind = marks.partition_point(|mark| mark.units(encoding) <= at.character);
        let mark = behind.checked_sub(1).and_then(|last| marks.get(last)).copied().unwrap_or_default();
        Some((mark, self.line(at.line)?.get(mark.bytes..)?))
    }

    /// The line of this number from 0, without its end.
    pub(super) fn line(&self, number: usize) -> Option<&'t str> {
        let (start, end) = self.lines.get(number)?;
        self.text.get(*start..*end)
    }

    /// The place in bytes. One beyond a line is its end. `None` if there is no such line, or a character lies across.
    pub(super) fn offset(&self, at: Position, encoding: Encoding) -> Option<usize> {
        let (start, _) = self.lines.get(at.line)?;
        let (mut now, rest) = self.near(at, encoding)?;
        for c in rest.chars() {
            if now.units(encoding) >= at.character {
                break;
            }
            now = now.after(c);
        }
        // A character that begins before the place and ends behind it.
        (now.units(encoding) <= at.character).then(|| start.saturating_add(now.bytes))
    }

    /// The number of the character at a place, from 1.
    pub(super) fn column(&self, at: Position, encoding: Encoding) -> usize {
        let (mut now, rest) = self.near(at, encoding).unwrap_or_default();
        for c in rest.chars() {
            if now.units(encoding) >= at.character {
                break;
            }
            now = now.after(c);
        }
        now.chars.saturating_add(1)
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

    #[test]
    fn attack_46_places_in_one_long_line_are_found_from_near_by() {
        let text = "aé😀".repeat(600_000);
        let lines = Lines::of(&text);
        // From the line's begin it would be half of its characters for each.
        for number in 0..10_000 {
            let (times, encodings) = (number * 60, [(Utf8, 7), (Utf16, 4), (Utf32, 3)]);
            for (encoding, units) in encodings {
                let place = at(0, times * units);
                assert_eq!(lines.offset(place, encoding), Some(times * 7));
                assert_eq!(lines.column(place, encoding), times * 3 + 1);
            }
        }
    }

    proptest! {
        #[test]
        fn ce02_each_place_is_found_again(
            text in prop_oneof!["[aé😀\r\n]{0,30}", "[aé😀]{520,560}\nx"],
        ) {
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
