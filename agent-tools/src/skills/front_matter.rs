//! The front matter of a `SKILL.md`: a strict reader of the YAML that such files have. Pure.
//!
//! It knows `key: value` lines at the left edge. Values of other keys than the two that are needed are passed over,
//! whatever is in them. A line that it does not understand is refused: a guess could read a description that other
//! programs read in another way.

use super::scalar::{self, Value};

/// A line that cannot be read, by its number from 1, and the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flaw {
    pub(super) line: usize,
    pub(super) text: String,
}

impl Flaw {
    pub(super) fn new(line: usize, text: impl Into<String>) -> Self {
        Self { line, text: text.into() }
    }
}

/// The text of a key, with the line that it begins in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) line: usize,
    pub(super) text: String,
}

/// A file, read in its parts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Document<'a> {
    pub(super) name: Field,
    pub(super) description: Field,
    /// The text behind the front matter.
    pub(super) body: &'a str,
}

impl<'a> Document<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, Flaw> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let (lines, body) = split(text)?;
        let (mut name, mut description) = (None, None);
        for entry in entries(&lines)? {
            let field = match entry.key {
                "name" => &mut name,
                "description" => &mut description,
                _ => continue,
            };
            if field.is_some() {
                let text = format!("`{}` stands there a second time; keep one of them", entry.key);
                return Err(Flaw::new(entry.value.line, text));
            }
            *field = Some(Field { line: entry.value.line, text: scalar::read(&entry.value)? });
        }
        let missing =
            |key: &str| Flaw::new(1, format!("the front matter has no `{key}`; add a line `{key}: …`"));
        Ok(Self {
            name: name.ok_or_else(|| missing("name"))?,
            description: description.ok_or_else(|| missing("description"))?,
            body,
        })
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

struct Entry<'a> {
    key: &'a str,
    value: Value<'a>,
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
