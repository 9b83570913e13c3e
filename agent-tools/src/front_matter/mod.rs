//! Front matter of Markdown files: a strict reader of the YAML that such files have. Pure.
//!
//! It knows `key: value` lines at the left edge. A value is read only when it is asked for, so keys that nobody needs
//! may have any. A line that it does not understand is refused: a guess could read a text that other programs read in
//! another way.

#[cfg(feature = "agents")]
mod list;
mod scalar;

use scalar::Value;

use crate::invisible::shortened;

/// Most characters of a key that a flaw repeats.
const ECHO: usize = 80;

/// A line that cannot be read, by its number from 1, and the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub(crate) line: usize,
    pub(crate) text: String,
}

impl Flaw {
    pub(crate) fn new(line: usize, text: impl Into<String>) -> Self {
        Self { line, text: text.into() }
    }
}

/// A file, read in its parts.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    /// Its keys in their order; one may stand there several times.
    pub(crate) entries: Vec<Entry<'a>>,
    /// The text behind the front matter.
    pub(crate) body: &'a str,
}

impl<'a> Parts<'a> {
    /// Reads a file. A byte order mark before it is passed over.
    pub(crate) fn parse(text: &'a str) -> Result<Self, Flaw> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let (lines, body) = split(text)?;
        Ok(Self { entries: entries(&lines)?, body })
    }
}

/// A key with its value.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) key: &'a str,
    value: Value<'a>,
}

impl Entry<'_> {
    /// The number of its line.
    pub(crate) fn line(&self) -> usize {
        self.value.line
    }

    /// Its value as a text; empty where there is none.
    pub(crate) fn text(&self) -> Result<String, Flaw> {
        scalar::read(&self.value)
    }

    /// Its value as a list, `[a, b]` or lines `- a` below the key; `None` if it is written as a text.
    #[cfg(feature = "agents")]
    pub(crate) fn list(&self) -> Option<Result<Vec<String>, Flaw>> {
        list::read(&self.value)
    }

    /// The flaw of a second entry of the same key.
    pub(crate) fn doubled(&self) -> Flaw {
        let key = shortened(self.key, ECHO);
        Flaw::new(self.line(), format!("`{key}` stands there a second time; keep one of them"))
    }
}

/// Lines with their numbers.
type Lines<'a> = Vec<(usize, &'a str)>;

/// The lines between the two marks, without the space at their ends, and the text behind the second mark.
fn split(text: &str) -> Result<(Lines<'_>, &str), Flaw> {
    let (first, mut rest) = text.split_once('\n').unwrap_or((text, ""));
    if first.trim_end() != "---" {
        return Err(Flaw::new(1, "the file does not begin with front matter; begin it with a line `---`"));
    }
    let mut lines = Lines::new();
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        rest = after;
        match line.trim_end() {
            "---" | "..." => return Ok((lines, rest)),
            line => lines.push((lines.len().saturating_add(2), line)),
        }
    }
    Err(Flaw::new(1, "the front matter has no end; put a line `---` behind it"))
}

fn entries<'a>(lines: &[(usize, &'a str)]) -> Result<Vec<Entry<'a>>, Flaw> {
    let mut entries: Vec<Entry<'a>> = Vec::new();
    for &(number, line) in lines {
        let is_inner =
            line.is_empty() || line.starts_with([' ', '#']) || line == "-" || line.starts_with("- ");
        if !is_inner {
            let (key, first) = key(line).map_err(|text| Flaw::new(number, text))?;
            entries.push(Entry { key, value: Value { line: number, first, below: Vec::new() } });
            continue;
        }
        match entries.last_mut() {
            Some(entry) => entry.value.below.push((number, line)),
            None if line.is_empty() || line.trim_start().starts_with('#') => {}
            None => {
                return Err(Flaw::new(number, "a key must come first; write `key: value` at the left edge"));
            }
        }
    }
    Ok(entries)
}

/// A key and the text behind its colon.
fn key(line: &str) -> Result<(&str, &str), &'static str> {
    const OTHER: &str =
        "this is no line `key: value`; write one, or indent it below the key that it belongs to";
    if line.starts_with('\t') {
        return Err("the line begins with a tab; indent with spaces");
    }
    let (key, value) = line.split_once(':').ok_or(OTHER)?;
    let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if key.is_empty() || !key.chars().all(is_key) || !(value.is_empty() || value.starts_with([' ', '\t'])) {
        return Err(OTHER);
    }
    Ok((key, value.trim_start_matches([' ', '\t'])))
}
