//! Bounds on values from outside. A value that passes them can be stored and read again. Pure.
//!
//! One machine reads JSON text, or the text that a value serializes to, and finds what readers refuse: nesting deeper
//! than parsers go, numbers out of range, and sizes to which a small text grows in memory.

use std::{borrow::Cow, fmt, io};

use serde::Serialize;
use serde_json::Value;

use crate::{Error, ErrorKind, Result, base::json};

/// Deepest nesting of a value. Readers go 127 levels deep, and an event wraps a value in some levels of its own.
pub(crate) const DEPTH: usize = 96;
/// Deepest nesting that a stored event is read back from.
const STORED_DEPTH: usize = 127;
/// Memory of one value, estimated in bytes.
pub const VALUE: usize = 32 << 20;
/// Bytes of the stored form of one event.
pub const EVENT: usize = 192 << 20;
/// Bytes of an id that a service assigned. Some gateways put a signature into theirs.
pub const ID: usize = 4 << 10;
/// Bytes of a short text beside a reply: a model's name, a finish word, a header.
pub const WORD: usize = 512;
/// Bytes of an error's or a warning's text.
pub const TEXT: usize = 16 << 10;

/// Maximum of bytes in a number's text, and of its exponent either way. The largest float has 309 digits.
const NUMBER: usize = 400;

/// Memory of one item of an array, with the room that an array has to spare.
const ITEM: usize = 64;
/// Memory of an object that is not empty, and of each of its entries.
const OBJECT: usize = 640;
const ENTRY: usize = 64;

/// Checks a name that is stored. `what` says whose it is, in words for the error.
///
/// # Errors
/// [`ErrorKind::TooLarge`] for more than 512 bytes.
pub fn check_name(name: &str, what: &str) -> Result<()> {
    if name.len() > WORD {
        return Err(Flaw::Large(WORD).refused(what));
    }
    Ok(())
}

/// Reason to refuse a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// It nests too deep.
    Deep,
    /// It holds a number that no store can keep.
    Number,
    /// It has more than this many bytes.
    Large(usize),
    /// The value does not serialize.
    Broken,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deep => write!(f, "it nests deeper than {DEPTH} levels"),
            Self::Number => {
                write!(f, "it holds a number of more than {NUMBER} digits, or an exponent beyond that")
            }
            Self::Large(most) => write!(f, "it takes more than {most} bytes"),
            Self::Broken => f.write_str("it does not serialize as JSON"),
        }
    }
}

impl Flaw {
    /// The error for a value that the program passed in; nothing has happened yet.
    pub fn refused(self, what: &str) -> Error {
        let kind = if matches!(self, Self::Large(_)) { ErrorKind::TooLarge } else { ErrorKind::InvalidInput };
        let mend = match self {
            Self::Broken => "use text as map keys",
            Self::Number => "send such a number as text",
            Self::Deep | Self::Large(_) => "make it flatter or smaller",
        };
        Error::new(kind, format!("{what} cannot be stored: {self}; {mend}"))
    }

    /// The error for a value that a service sent.
    pub fn sent(self, what: &str) -> Error {
        let kind = if matches!(self, Self::Large(_)) { ErrorKind::TooLarge } else { ErrorKind::Protocol };
        let text = format!("the model's service sent {what} that cannot be kept: {self}");
        Error::new(kind, text).during("model.stream")
    }
}

/// Checks the JSON that `value` serializes to. Returns its estimated memory as a [`Value`], in bytes.
pub fn check(value: &impl Serialize, most: usize) -> Result<usize, Flaw> {
    let mut scan = Scan::new(DEPTH, most);
    let written = write(&mut scan, value);
    scan.ended(written.is_ok())
}

/// Returns the JSON that `value` serializes to, if it passes [`check`].
pub(crate) fn text(value: &impl Serialize, most: usize) -> Result<String, Flaw> {
    let mut scan = Scan { kept: Some(Vec::new()), ..Scan::new(DEPTH, most) };
    let written = write(&mut scan, value);
    let text = scan.kept.take().unwrap_or_default();
    scan.ended(written.is_ok())?;
    String::from_utf8(text).map_err(|_| Flaw::Broken)
}

/// Writes `value` as JSON. The writer is a trait object: each type is compiled once for all of them.
fn write(to: &mut dyn io::Write, value: &impl Serialize) -> serde_json::Result<()> {
    serde_json::to_writer(to, value)
}

/// Checks JSON text. Returns its estimated memory as a [`Value`], in bytes. Syntax is left to the parser.
pub(crate) fn check_text(text: &str, most: usize) -> Result<usize, Flaw> {
    let mut scan = Scan::new(DEPTH, most);
    let flawless = scan.feed(text.as_bytes());
    scan.ended(flawless)
}

/// True if a stored text is within the depth that its reader accepts.
pub(crate) fn is_readable(text: &str) -> bool {
    let opening = text.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count();
    let scan = || Scan { any_number: true, ..Scan::new(STORED_DEPTH, usize::MAX) };
    opening <= STORED_DEPTH || scan().feed(text.as_bytes())
}

/// Checks that `value`, which `what` names, can be stored and read again: see [`parse_value`] for the bounds.
///
/// # Errors
/// [`ErrorKind::InvalidInput`], [`ErrorKind::TooLarge`].
pub fn check_value(value: &impl Serialize, what: &str) -> Result<()> {
    check(value, VALUE).map(drop).map_err(|flaw| flaw.refused(what))
}

/// Parses JSON text from a model, a tool or a service, within the bounds of what can be stored and read again: at most
/// 96 levels deep, about 32 MiB of memory, numbers of at most 400 digits.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for other text, [`ErrorKind::TooLarge`] for a value that takes more memory.
pub fn parse_value(text: &str) -> Result<Value> {
    check_text(text, VALUE).map_err(|flaw| flaw.refused("the value"))?;
    json::parse(text)
        .map_err(|error| Error::new(ErrorKind::InvalidInput, "the text is not valid JSON").caused_by(error))
}

/// Bytes of `value` as JSON; some number above `most` if it takes more.
#[must_use]
pub fn json_bytes(value: &impl Serialize, most: usize) -> usize {
    struct Count(usize, usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.saturating_add(bytes.len());
            if self.0 > self.1 { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes.len()) }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0, most);
    drop(write(&mut count, value));
    count.0
}

/// Estimated bytes of a value that passed a bound.
pub fn value(value: &Value) -> usize {
    json_bytes(value, usize::MAX)
}

/// The first characters of a text, at most `most` bytes, with a mark where it was cut.
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    match text.get(..text.floor_char_boundary(most.saturating_sub('…'.len_utf8()))) {
        Some(kept) if text.len() > most => Cow::Owned([kept, "…"].concat()),
        _ => Cow::Borrowed(text),
    }
}

/// State of a scan of JSON text.
#[derive(Default)]
struct Scan {
    deepest: usize,
    most: usize,
    /// True if numbers are left to the reader.
    any_number: bool,
    depth: usize,
    memory: usize,
    at: At,
    /// Bytes of the current number, and its exponent once there is one.
    digits: usize,
    exponent: Option<usize>,
    flaw: Option<Flaw>,
    /// The bytes that were written, if they are wanted.
    kept: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum At {
    #[default]
    Between,
    /// Just after an opening bracket, with the memory of its array or object if it is not empty.
    Opened(usize),
    Text,
    Escape,
    Number,
}

impl Scan {
    fn new(deepest: usize, most: usize) -> Self {
        Self { deepest, most, memory: ITEM, ..Self::default() }
    }

    fn ended(self, flawless: bool) -> Result<usize, Flaw> {
        self.flaw.map_or_else(|| flawless.then_some(self.memory).ok_or(Flaw::Broken), Err)
    }

    /// Scans the next bytes; false once there is a flaw.
    fn feed(&mut self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while let (Some((first, after)), None) = (rest.split_first(), self.flaw) {
            rest = after;
            if self.at == At::Text {
                // Most of a long text is skipped at once.
                let ends = |byte: &u8| matches!(byte, b'"' | b'\\');
                let plain = if ends(first) { 0 } else { rest.iter().position(ends).unwrap_or(rest.len()) };
                rest = rest.get(plain..).unwrap_or_default();
                self.take(plain);
            }
            self.byte(*first);
        }
        if self.memory > self.most {
            self.flaw.get_or_insert(Flaw::Large(self.most));
        }
        self.flaw.is_none()
    }

    fn take(&mut self, memory: usize) {
        self.memory = self.memory.saturating_add(memory);
    }

    fn byte(&mut self, byte: u8) {
        match (self.at, byte) {
            (At::Text, b'"') => self.at = At::Between,
            (At::Text, b'\\') => self.at = At::Escape,
            (At::Text, _) => self.take(1),
            (At::Escape, _) => {
                self.take(1);
                self.at = At::Text;
            }
            (At::Number, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E') => self.number(byte),
            (_, b' ' | b'\t' | b'\n' | b'\r') => {
                self.at = if self.at == At::Number { At::Between } else { self.at }
            }
            (_, b']' | b'}') => {
                self.depth = self.depth.saturating_sub(1);
                self.at = At::Between;
            }
            _ => self.token(byte),
        }
    }

    /// Begins a token other than a closing bracket.
    fn token(&mut self, byte: u8) {
        if let At::Opened(memory) = self.at {
            self.take(memory);
        }
        self.at = match byte {
            b'"' => At::Text,
            b'[' => self.open(ITEM.saturating_mul(2)),
            b'{' => self.open(OBJECT),
            b',' => {
                self.take(ENTRY);
                At::Between
            }
            b'0'..=b'9' | b'-' => {
                (self.digits, self.exponent) = (1, None);
                At::Number
            }
            _ => At::Between,
        };
    }

    fn open(&mut self, memory: usize) -> At {
        self.depth = self.depth.saturating_add(1);
        if self.depth > self.deepest {
            self.flaw = Some(Flaw::Deep);
        }
        At::Opened(memory)
    }

    fn number(&mut self, byte: u8) {
        self.digits = self.digits.saturating_add(1);
        match (byte, &mut self.exponent) {
            (b'e' | b'E', exponent @ None) => *exponent = Some(0),
            (b'0'..=b'9', Some(exponent)) => {
                *exponent = exponent.saturating_mul(10).saturating_add(usize::from(byte - b'0'));
            }
            _ => {}
        }
        let odd = self.digits > NUMBER || self.exponent.is_some_and(|exponent| exponent > NUMBER);
        if odd && !self.any_number {
            self.flaw = Some(Flaw::Number);
        }
    }
}

impl io::Write for Scan {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.kept.iter_mut().for_each(|kept| kept.extend_from_slice(bytes));
        if self.feed(bytes) { Ok(bytes.len()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}1{}", "[".repeat(levels), "]".repeat(levels))
    }

    #[test]
    fn depth_and_numbers_are_bounded_outside_of_strings() {
        for (text, flaw) in [
            (nested(DEPTH), None),
            (nested(DEPTH + 1), Some(Flaw::Deep)),
            (format!("\"{}\"", "[{".repeat(1_000)), None),
            (format!("\"\\\"{}\"", "[{".repeat(1_000)), None),
            (format!("[\"\\\\\",{}]", nested(DEPTH)), Some(Flaw::Deep)),
            ("[],".repeat(500), None),
            ("1e308".to_owned(), None),
            ("1e-200000".to_owned(), Some(Flaw::Number)),
            ("[1E+200000]".to_owned(), Some(Flaw::Number)),
            ("{\"1e99999\":1.5}".to_owned(), None),
            (format!("0.{}1", "0".repeat(20_000)), Some(Flaw::Number)),
            ("[1 ,\t2\n, 3e1 ,4]".to_owned(), None),
        ] {
            assert_eq!(check_text(&text, VALUE).err(), flaw, "{:.60}", text);
        }
    }

    #[test]
    fn a_bound_on_memory_holds_whatever_the_shape() {
        let small = 1 << 20;
        for text in ["[],", "{\"\":1},", "0,", "\"\",", "{\"a\":{\"b\":{}}},", "\"0123456789\","] {
            let long = format!("[{}0]", text.repeat(small / text.len()));
            assert!(check_text(&long, small).is_err(), "{text}");
            let few = format!("[{}0]", text.repeat(10));
            assert!(check_text(&few, small).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_value_that_no_json_can_hold_is_refused_and_not_stored_later() {
        let keys: std::collections::BTreeMap<(u8, u8), u8> = [((1, 2), 3)].into();
        assert_eq!(check(&keys, VALUE), Err(Flaw::Broken));
        let deep = (0..200).fold(json!(1), |inner, _| json!({ "a": inner }));
        assert_eq!(check(&deep, VALUE), Err(Flaw::Deep));
        assert_eq!(check(&json!("x".repeat(1_000)), 900), Err(Flaw::Large(900)));
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(shortened("short", 5), "short");
        assert_eq!(shortened("ééééé", 6), "é…");
        assert_eq!(shortened("ab", 1), "…");
        assert_eq!(shortened("", 0), "");
    }

    proptest! {
        /// A text that the scan accepts is accepted by the reader: the scan knows its whole nesting.
        #[test]
        fn json_within_the_depth_bound_parses(text in "[\\[\\]{}\":,1e. \\\\-]{0,300}") {
            let read = serde_json::from_str::<Value>(&text);
            if let (Ok(value), Ok(_)) = (&read, check_text(&text, VALUE)) {
                prop_assert!(check(value, VALUE).is_ok());
            }
        }
    }
}
