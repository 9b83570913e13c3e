//! Characters that a service splits into two halves.
//!
//! JSON may write a character beyond U+FFFF as two `\u` escapes. A service that cuts its text by UTF-16 units sends
//! the first one at the end of a delta and the second one at the start of the next. A parser refuses each of them.
//! [`mend`] replaces a lone half by a stand-in that any parser takes, and [`Halves`] finds the stand-ins again in the
//! deltas: two halves that meet become the character, a lone one becomes U+FFFD.

use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
};

use entourage_core::{Result, provider::Delta};
use memchr::memchr;
use serde_json::Value;

/// Start of a stand-in; three [`DIGITS`] follow. They are noncharacters: Unicode reserves them for use inside a
/// program, so a service does not send them.
const MARK: char = '\u{fdd0}';

/// The noncharacter for the digit 0 of 16.
const DIGITS: u32 = 0xfde0;

/// `json` with a stand-in for each escaped half of a character; borrowed if there is none.
pub(crate) fn mend(json: &[u8]) -> Cow<'_, [u8]> {
    let mut mended = Vec::new();
    let mut rest = json;
    // Outside of strings, JSON has no backslash.
    let (mut from, mut kept) = (0_usize, 0_usize);
    while let Some(at) = memchr(b'\\', rest) {
        let here = rest.get(at..).unwrap_or_default();
        let start = from.saturating_add(at);
        let length = match (escaped(here), here.get(6..).and_then(escaped)) {
            (None, _) => 2,
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(half), _) => {
                mended.extend_from_slice(json.get(kept..start).unwrap_or_default());
                mended.extend_from_slice(stand_in(half).as_bytes());
                kept = start.saturating_add(6);
                6
            }
        };
        from = start.saturating_add(length);
        rest = json.get(from..).unwrap_or_default();
    }
    if mended.is_empty() {
        return Cow::Borrowed(json);
    }
    mended.extend_from_slice(json.get(kept..).unwrap_or_default());
    Cow::Owned(mended)
}

/// The half that a `\u` escape at the start of `json` encodes.
fn escaped(json: &[u8]) -> Option<u16> {
    let digits = json.strip_prefix(b"\\u")?.get(..4)?;
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    u16::from_str_radix(digits, 16).ok().filter(|unit| matches!(unit, 0xd800..=0xdfff))
}

fn stand_in(half: u16) -> String {
    let digit = |shift: u32| char::from_u32(DIGITS | (u32::from(half) >> shift) & 0xf);
    [Some(MARK), digit(8), digit(4), digit(0)].into_iter().flatten().collect()
}

/// The half whose stand-in `text` begins with, and the rest of the text.
fn half(text: &str) -> Option<(u16, &str)> {
    let mut chars = text.strip_prefix(MARK)?.chars();
    let mut unit = 0xd_u16;
    for _ in 0..3 {
        let digit = u32::from(chars.next()?).checked_sub(DIGITS).filter(|digit| *digit < 16)?;
        unit = (unit << 4) | u16::try_from(digit).ok()?;
    }
    matches!(unit, 0xd800..=0xdfff).then(|| (unit, chars.as_str()))
}

/// `text` without stand-ins, for uses outside of deltas.
pub(crate) fn whole(text: &str) -> Cow<'_, str> {
    if !text.contains(MARK) {
        return Cow::Borrowed(text);
    }
    let mut held = None;
    let mut joined = join(text, &mut held);
    put(&mut joined, "", held.take());
    Cow::Owned(joined)
}

/// `text` with its halves joined. `held` is the half before the text, and afterwards the one at its end.
fn join(text: &str, held: &mut Option<u16>) -> String {
    let mut joined = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, here)) = rest.find(MARK).and_then(|at| rest.split_at_checked(at)) {
        if !before.is_empty() {
            put(&mut joined, before, held.take());
        }
        if let Some((unit, after)) = half(here) {
            match (held.take(), unit) {
                (first, 0xd800..=0xdbff) => {
                    put(&mut joined, "", first);
                    *held = Some(unit);
                }
                (Some(first), second) => {
                    joined.extend(char::decode_utf16([first, second]).map(|c| c.unwrap_or(LONE)));
                }
                (None, _) => joined.push(LONE),
            }
            rest = after;
        } else {
            put(&mut joined, MARK.encode_utf8(&mut [0; 4]), held.take());
            rest = here.strip_prefix(MARK).unwrap_or_default();
        }
    }
    if !rest.is_empty() {
        put(&mut joined, rest, held.take());
    }
    joined
}

const LONE: char = char::REPLACEMENT_CHARACTER;

/// Appends the replacement of a lone half, and `text`.
fn put(joined: &mut String, text: &str, alone: Option<u16>) {
    joined.extend(alone.map(|_| LONE));
    joined.push_str(text);
}

/// The texts of a reply that come in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Text,
    Reasoning,
    Refusal,
    Arguments(u32),
}

impl Place {
    fn of(delta: &Delta) -> Option<(Self, &str)> {
        match delta {
            Delta::Text(text) => Some((Self::Text, text)),
            Delta::Reasoning(text) => Some((Self::Reasoning, text)),
            Delta::Refusal(text) => Some((Self::Refusal, text)),
            Delta::ToolCallArguments { index, text } => Some((Self::Arguments(*index), text)),
            _ => None,
        }
    }

    fn delta(self, text: impl Into<Box<str>>) -> Delta {
        let text = text.into();
        match self {
            Self::Text => Delta::Text(text),
            Self::Reasoning => Delta::Reasoning(text),
            Self::Refusal => Delta::Refusal(text),
            Self::Arguments(index) => Delta::ToolCallArguments { index, text },
        }
    }
}

/// Joins the halves of one reply. Costs nothing until one occurs.
#[derive(Debug, Default)]
pub(crate) struct Halves {
    /// True once a stand-in was written.
    met: bool,
    /// First halves whose second halves have not come.
    held: BTreeMap<Place, u16>,
}

impl Halves {
    /// [`mend`] for the next frame of the reply.
    pub(crate) fn mend<'a>(&mut self, json: &'a [u8]) -> Cow<'a, [u8]> {
        let mended = mend(json);
        self.met |= matches!(mended, Cow::Owned(_));
        mended
    }

    /// Joins the halves in the deltas of `out` from `new` on.
    pub(crate) fn join(&mut self, out: &mut VecDeque<Result<Delta>>, new: usize) {
        if !self.met {
            return;
        }
        for item in out.split_off(new.min(out.len())) {
            match item {
                Ok(delta) => self.delta(delta, out),
                Err(error) => {
                    self.end(out);
                    out.push_back(Err(error));
                }
            }
        }
    }

    /// Ends the reply: held halves stay alone.
    pub(crate) fn end(&mut self, out: &mut VecDeque<Result<Delta>>) {
        self.give_up(out, |_| true);
    }

    fn delta(&mut self, delta: Delta, out: &mut VecDeque<Result<Delta>>) {
        if let Some((place, text)) = Place::of(&delta) {
            self.give_up(out, |held| held != place && !matches!(held, Place::Arguments(_)));
            let mut half = self.held.remove(&place);
            let text = join(text, &mut half);
            self.held.extend(half.map(|half| (place, half)));
            if !text.is_empty() {
                out.push_back(Ok(place.delta(text)));
            }
            return;
        }
        match delta {
            // These do not end a text.
            Delta::Usage(_) | Delta::Response(_) | Delta::Warning(_) => {}
            Delta::Finish(_) | Delta::Restart(_) => self.end(out),
            _ => self.give_up(out, |held| !matches!(held, Place::Arguments(_))),
        }
        out.push_back(Ok(cleaned(delta)));
    }

    fn give_up(&mut self, out: &mut VecDeque<Result<Delta>>, which: impl Fn(Place) -> bool) {
        self.held.retain(|place, _| {
            let ends = which(*place);
            if ends {
                out.push_back(Ok(place.delta(LONE.to_string())));
            }
            !ends
        });
    }
}

/// A delta that is not a piece of a text, without stand-ins in any of its texts.
fn cleaned(delta: Delta) -> Delta {
    let Ok(mut value) = serde_json::to_value(&delta) else { return delta };
    if !clean(&mut value) {
        return delta;
    }
    serde_json::from_value(value).unwrap_or(delta)
}

/// Removes stand-ins. Returns true if there was one.
fn clean(value: &mut Value) -> bool {
    match value {
        Value::String(text) => match whole(text) {
            Cow::Owned(clean) => {
                *text = clean;
                true
            }
            Cow::Borrowed(_) => false,
        },
        Value::Array(items) => items.iter_mut().fold(false, |any, item| clean(item) | any),
        Value::Object(fields) => {
            let mut any = fields.values_mut().fold(false, |any, value| clean(value) | any);
            if fields.keys().any(|name| name.contains(MARK)) {
                any = true;
                let old = std::mem::take(fields);
                fields.extend(old.into_iter().map(|(name, value)| (whole(&name).into_owned(), value)));
            }
            any
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
