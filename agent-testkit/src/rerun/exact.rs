//! JSON as it was written, each number with all of its digits: compared, and changed text by text. Pure.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

/// Deepest nesting that is read; readers of sessions take no more.
const DEPTH: usize = 128;

/// Values of a recorded session with keys and numbers that users, tools and models chose. All other keys and numbers
/// are those of the format.
const FREE: [&str; 4] = ["arguments", "metadata", "data", "item"];

/// A JSON value.
pub(super) enum Exact {
    /// A number, `true`, `false` or `null`, as it was written.
    Atom(String),
    Text(String),
    List(Vec<Exact>),
    Object(Vec<(String, Exact)>),
}

/// Returns a text that two JSON texts share if they say the same: objects in any order, numbers in any spelling, but
/// each digit counts.
pub(super) fn canonical(text: &str) -> String {
    let mut out = String::new();
    match Exact::parse(text) {
        Some(value) => value.write_canonical(&mut out),
        None => out.push_str(text),
    }
    out
}

impl Exact {
    /// Parses a JSON text; `None` for one that is none, or too deep.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut reader = Reader { rest: text };
        let value = reader.value(DEPTH)?;
        reader.rest.trim_start().is_empty().then_some(value)
    }

    /// Writes the JSON text.
    pub(super) fn write(&self, out: &mut String) {
        match self {
            Self::Atom(atom) => out.push_str(atom),
            Self::Text(text) => write_text(text, out),
            Self::List(items) => write_all(('[', ']'), items, out, Self::write),
            Self::Object(entries) => write_all(('{', '}'), entries, out, |(key, value), out| {
                write_text(key, out);
                out.push(':');
                value.write(out);
            }),
        }
    }

    fn write_canonical(&self, out: &mut String) {
        match self {
            Self::Atom(atom) => out.push_str(&plain(atom)),
            Self::Text(text) => write_text(text, out),
            Self::List(items) => write_all(('[', ']'), items, out, Self::write_canonical),
            Self::Object(entries) => {
                // The last one of a key counts, as for readers of arguments.
                let sorted: BTreeMap<_, _> = entries.iter().map(|(key, value)| (key, value)).collect();
                write_all(('{', '}'), sorted, out, |(key, value), out| {
                    write_text(key, out);
                    out.push(':');
                    value.write_canonical(out);
                });
            }
        }
    }

    /// Changes each text of a line of a recorded session, and each key and number that is none of the format. A number
    /// that changes becomes a text. `stands` gets the first place of what should change and cannot, as keys of the
    /// format joined by dots.
    pub(super) fn change(self, change: &dyn Fn(&str) -> String, stands: &mut Option<String>) -> Self {
        self.change_at("", false, change, stands)
    }

    fn change_at(
        self,
        place: &str,
        is_free: bool,
        change: &dyn Fn(&str) -> String,
        stands: &mut Option<String>,
    ) -> Self {
        match self {
            Self::Text(text) => Self::Text(change(&text)),
            Self::Atom(atom) => {
                let changed = change(&atom);
                match (changed == atom, is_free) {
                    (true, _) => Self::Atom(atom),
                    (false, true) => Self::Text(changed),
                    (false, false) => {
                        stands.get_or_insert_with(|| place.to_owned());
                        Self::Atom(atom)
                    }
                }
            }
            Self::List(items) => {
                let items = items.into_iter().map(|item| item.change_at(place, is_free, change, stands));
                Self::List(items.collect())
            }
            Self::Object(entries) if is_free => {
                let keys = changed_keys(entries.iter().map(|(key, _)| key.as_str()), change);
                let values =
                    entries.into_iter().map(|(_, value)| value.change_at(place, true, change, stands));
                Self::Object(keys.into_iter().zip(values).collect())
            }
            Self::Object(entries) => {
                let mut changed = Vec::with_capacity(entries.len());
                for (key, value) in entries {
                    let place = if place.is_empty() { key.clone() } else { format!("{place}.{key}") };
                    if change(&key) != key {
                        stands.get_or_insert_with(|| place.clone());
                    }
                    let value = value.change_at(&place, FREE.contains(&key.as_str()), change, stands);
                    changed.push((key, value));
                }
                Self::Object(changed)
            }
        }
    }
}

/// Changes the keys of an object. Those that become the same get numbers, so that no value is lost.
fn changed_keys<'a>(
    keys: impl Iterator<Item = &'a str> + Clone,
    change: &dyn Fn(&str) -> String,
) -> Vec<String> {
    let pairs: Vec<(&str, String)> = keys.map(|key| (key, change(key))).collect();
    let mut taken: HashSet<String> =
        pairs.iter().filter(|(key, changed)| key == changed).map(|(_, changed)| changed.clone()).collect();
    let unique = pairs.into_iter().map(|(key, changed)| {
        if key == changed || taken.insert(changed.clone()) {
            return changed;
        }
        let mut numbered = (2_u64..).map(|number| format!("{changed} ({number})"));
        numbered.find(|it| taken.insert(it.clone())).unwrap_or(changed)
    });
    unique.collect()
}

fn write_all<T>(
    (begin, end): (char, char),
    items: impl IntoIterator<Item = T>,
    out: &mut String,
    write: impl Fn(T, &mut String),
) {
    out.push(begin);
    for (place, item) in items.into_iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        write(item, out);
    }
    out.push(end);
}

fn write_text(text: &str, out: &mut String) {
    out.push_str(&Value::from(text).to_string());
}

/// Returns a number's value as text, the same for `1`, `1.0`, `10e-1`, and for no other number.
fn plain(number: &str) -> String {
    let spelled = || number.to_owned();
    let (sign, size) = number.strip_prefix('-').map_or(("", number), |size| ("-", size));
    if !size.starts_with(|c: char| c.is_ascii_digit()) {
        return spelled();
    }
    let (mantissa, exponent) = size.split_once(['e', 'E']).unwrap_or((size, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let short = digits.trim_end_matches('0');
    if short.is_empty() {
        return "0".to_owned();
    }
    let moved = |count: usize| i64::try_from(count).ok();
    let exponent = || {
        let zeros = moved(digits.len().checked_sub(short.len())?)?;
        exponent.parse::<i64>().ok()?.checked_sub(moved(fraction.len())?)?.checked_add(zeros)
    };
    exponent().map_or_else(spelled, |exponent| format!("{sign}{short}e{exponent}"))
}

/// Reads a text that a parser of JSON took before: it does not look for every mistake.
struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Option<Exact> {
        let below = depth.checked_sub(1)?;
        self.rest = self.rest.trim_start();
        if self.takes('{') {
            let mut entries = Vec::new();
            while !self.ends('}') {
                let key = self.text()?;
                self.rest = self.rest.trim_start();
                if !self.takes(':') {
                    return None;
                }
                entries.push((key, self.value(below)?));
            }
            return Some(Exact::Object(entries));
        }
        if self.takes('[') {
            let mut items = Vec::new();
            while !self.ends(']') {
                items.push(self.value(below)?);
            }
            return Some(Exact::List(items));
        }
        if self.rest.starts_with('"') {
            return self.text().map(Exact::Text);
        }
        let is_end = |c: char| matches!(c, ',' | ':' | ']' | '}' | '"') || c.is_ascii_whitespace();
        let atom = self.taken(self.rest.find(is_end).unwrap_or(self.rest.len()))?;
        (!atom.is_empty()).then(|| Exact::Atom(atom.to_owned()))
    }

    /// Reads a string with its quotes.
    fn text(&mut self) -> Option<String> {
        let mut is_escaped = false;
        let end = self.rest.char_indices().skip(1).find(|(_, c)| {
            let is_end = *c == '"' && !is_escaped;
            is_escaped = *c == '\\' && !is_escaped;
            is_end
        });
        let (end, _) = end?;
        serde_json::from_str(self.taken(end.checked_add(1)?)?).ok()
    }

    fn taken(&mut self, bytes: usize) -> Option<&'a str> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    fn takes(&mut self, c: char) -> bool {
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Takes the end of a list, or what stands before its next item.
    fn ends(&mut self, end: char) -> bool {
        self.rest = self.rest.trim_start();
        if self.takes(end) {
            return true;
        }
        self.takes(',');
        self.rest = self.rest.trim_start();
        false
    }
}
