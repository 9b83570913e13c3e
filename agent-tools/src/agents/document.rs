//! One file: its form, its keys, and its text as a model may read it. Pure.

use serde_json::{Map, Value};

use crate::{
    front_matter::Parts,
    invisible::{is_invisible, line, shortened, visible},
    nesting::too_deep,
};

/// Most bytes of a file.
pub(super) const LARGEST: usize = 64 << 10;
/// Most characters of a name; the tool that runs the agent has a longer one.
const NAME: usize = 48;
/// Most characters of a text from outside that a problem repeats.
const ECHO: usize = 80;
/// The key of instructions in TOML.
const INSTRUCTIONS: &str = "instructions";

/// The form of a file, by the end of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Markdown,
    Toml,
}

impl Form {
    /// The stem and the form of a file of this name; `None` for one that describes no agent.
    pub(super) fn of(file: &str) -> Option<(&str, Self)> {
        let (stem, end) = file.rsplit_once('.')?;
        let form = match end.to_ascii_lowercase().as_str() {
            "md" => Self::Markdown,
            "toml" => Self::Toml,
            _ => return None,
        };
        (!stem.eq_ignore_ascii_case("readme")).then_some((stem, form))
    }
}

/// Checks the name of an agent. The error says what to do.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    if begins && name.len() <= NAME && name.chars().all(is_plain) {
        return Ok(());
    }
    Err(format!(
        "`{}` is no name for an agent; use at most {NAME} small letters, digits, `-` and `_`, a letter first",
        shortened(&line(name), ECHO)
    ))
}

/// Reads a file into its settings and instructions. The error says what to do, with the line where that is known.
pub(super) fn read(name: &str, form: Form, content: &[u8]) -> Result<(Map<String, Value>, String), String> {
    let text = std::str::from_utf8(content).ok().filter(|text| !text.contains('\0'));
    let text = text.ok_or("the file is no UTF-8 text; save it as UTF-8")?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (mut settings, instructions) = match form {
        Form::Markdown => markdown(text)?,
        Form::Toml => toml_text(text)?,
    };
    check_visible(&settings)?;
    match settings.remove("name") {
        None => {}
        Some(Value::String(own)) if own == name => {}
        Some(own) => {
            let own = shortened(&line(own.as_str().unwrap_or("no text")), ECHO);
            return Err(format!(
                "the name is `{own}` and the file is `{name}`; give both the same, or remove `name`"
            ));
        }
    }
    Ok((settings, visible(&instructions).trim().to_owned()))
}

fn markdown(text: &str) -> Result<(Map<String, Value>, String), String> {
    let at_line = |flaw: crate::front_matter::Flaw| format!("line {}: {}", flaw.line, flaw.text);
    let Parts { entries, body } = Parts::parse(text).map_err(at_line)?;
    let mut settings = Map::new();
    for entry in entries {
        if settings.contains_key(entry.key) {
            return Err(at_line(entry.doubled()));
        }
        let value = match entry.list() {
            Some(list) => list.map_err(at_line)?.into(),
            None => Value::String(entry.text().map_err(at_line)?),
        };
        if value.as_str().is_some_and(|text| text.trim().is_empty()) {
            return Err(format!(
                "line {}: `{}` has no value; write one, or remove the line",
                entry.line(),
                shortened(entry.key, ECHO)
            ));
        }
        if entry.key == INSTRUCTIONS {
            return Err(format!(
                "line {}: the text behind the front matter is the instructions; move them there",
                entry.line()
            ));
        }
        settings.insert(entry.key.to_owned(), value);
    }
    Ok((settings, body.to_owned()))
}

fn toml_text(text: &str) -> Result<(Map<String, Value>, String), String> {
    if let Some(line) = too_deep(text) {
        return Err(format!(
            "line {line}: the values are nested deeper than any key has them; write them flat"
        ));
    }
    let table: toml::Table = toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let number = before.matches('\n').count().saturating_add(1);
        format!("line {number}: {}; write TOML", shortened(&line(error.message()), 200))
    })?;
    let mut settings = Map::new();
    for (key, value) in table {
        let value = json(value).ok_or_else(|| {
            format!(
                "`{}` holds a date or a number that is not finite; write a text",
                shortened(&line(&key), ECHO)
            )
        })?;
        settings.insert(key, value);
    }
    match settings.remove(INSTRUCTIONS) {
        None => Ok((settings, String::new())),
        Some(Value::String(text)) => Ok((settings, text)),
        Some(_) => Err(format!("`{INSTRUCTIONS}` is no text; write one between `\"\"\"`")),
    }
}

/// The value as JSON. Its depth is bounded.
fn json(value: toml::Value) -> Option<Value> {
    Some(match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => serde_json::Number::from_f64(number)?.into(),
        toml::Value::Boolean(is) => is.into(),
        toml::Value::Datetime(_) => return None,
        toml::Value::Array(values) => values.into_iter().map(json).collect::<Option<Vec<_>>>()?.into(),
        toml::Value::Table(table) => {
            let entries = table.into_iter().map(|(key, value)| Some((key, json(value)?)));
            Value::Object(entries.collect::<Option<_>>()?)
        }
    })
}

/// Checks that settings hold nothing that nobody sees. A description is made one line of.
fn check_visible(settings: &Map<String, Value>) -> Result<(), String> {
    for (key, value) in settings {
        let is_hidden =
            |c: char| is_invisible(c) || c.is_control() && !(key == "description" && c.is_whitespace());
        if key.chars().any(|c| is_invisible(c) || c.is_control()) || any(value, &is_hidden) {
            let shown = shortened(&line(key), ECHO);
            return Err(format!("`{shown}` holds a character that nobody sees; write it again by hand"));
        }
    }
    Ok(())
}

fn any(value: &Value, is: &impl Fn(char) -> bool) -> bool {
    match value {
        Value::String(text) => text.chars().any(is),
        Value::Array(values) => values.iter().any(|value| any(value, is)),
        Value::Object(map) => map.iter().any(|(key, value)| key.chars().any(is) || any(value, is)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
