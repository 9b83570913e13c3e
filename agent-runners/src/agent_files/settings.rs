//! The keys of a definition, read strictly. Pure.

use entourage_core::{Error, ErrorKind, Result};
use serde_json::{Map, Value};

/// Most entries of a list, and most bytes of one.
const ENTRIES: usize = 200;
const ENTRY: usize = 512;
/// Most characters of a word from outside that an error repeats.
const ECHO: usize = 80;

/// Keys and values, with the place that errors name.
#[derive(Clone, Copy)]
pub(super) struct Settings<'a> {
    pub(super) place: &'a str,
    pub(super) map: &'a Map<String, Value>,
}

impl<'a> Settings<'a> {
    pub(super) fn wrong(&self, text: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::InvalidInput, format!("`{}`: {text}", self.place))
    }

    /// Refuses keys that there are not.
    pub(super) fn check_keys(&self, known: &[&str]) -> Result<()> {
        let Some(key) = self.map.keys().find(|key| !known.contains(&key.as_str())) else { return Ok(()) };
        let shown: String = key.chars().take(ECHO).collect();
        let distance = |one: &&&str| strsim::osa_distance(&shown.to_lowercase().replace('-', "_"), one);
        let nearest = known.iter().min_by_key(distance).filter(|one| distance(one) <= 3);
        let next = match nearest {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => format!("the keys are {}", known.join(", ")),
        };
        Err(self.wrong(format!("there is no key `{shown}`; {next}")))
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>> {
        match self.map.get(key) {
            None => Ok(None),
            Some(Value::String(text)) if !text.trim().is_empty() => Ok(Some(text.trim())),
            Some(_) => Err(self.wrong(format!("`{key}` is no text; write one, or remove the key"))),
        }
    }

    /// A list of texts. A text alone is its entries, with commas between them.
    pub(super) fn list(&self, key: &str) -> Result<Option<Vec<String>>> {
        let entries: Vec<Option<&str>> = match self.map.get(key) {
            None => return Ok(None),
            Some(Value::String(text)) => text.split(',').map(Some).collect(),
            Some(Value::Array(values)) => values.iter().map(Value::as_str).collect(),
            Some(_) => vec![None],
        };
        let entries = entries.into_iter().map(|it| it.map(str::trim).filter(|it| !it.is_empty()));
        let entries: Option<Vec<_>> = entries.map(|it| it.map(str::to_owned)).collect();
        let entries = entries.ok_or_else(|| {
            self.wrong(format!("`{key}` is no list of texts; write one, such as `[\"a\", \"b\"]`"))
        })?;
        if entries.len() > ENTRIES || entries.iter().any(|it| it.len() > ENTRY) {
            let text = format!(
                "`{key}` has more than {ENTRIES} entries, or one of more than {ENTRY} bytes; shorten it"
            );
            return Err(self.wrong(text));
        }
        Ok(Some(entries))
    }

    /// A whole number from 1 to `most`.
    pub(super) fn number(&self, key: &str, most: u32) -> Result<Option<u32>> {
        let number = match self.map.get(key) {
            None => return Ok(None),
            Some(Value::Number(number)) => number.as_u64(),
            // Front matter has texts alone.
            Some(Value::String(text)) if text.chars().all(|c| c.is_ascii_digit()) => text.parse().ok(),
            Some(_) => None,
        };
        let number = number.and_then(|it| u32::try_from(it).ok()).filter(|it| (1..=most).contains(it));
        let wrong = || self.wrong(format!("`{key}` is no whole number from 1 to {most}; write one"));
        number.ok_or_else(wrong).map(Some)
    }
}
