//! A `SKILL.md` and its checks; texts as they may stand in a prompt. Pure.

use crate::front_matter::{Entry, Flaw, Parts};
pub(super) use crate::invisible::{line, shortened};

/// Most bytes of a `SKILL.md`.
pub(super) const LARGEST: usize = 256 << 10;
/// Most characters of a name, and of a description.
const NAME: usize = 64;
const DESCRIPTION: usize = 1_024;
/// Most characters of a text from outside that a problem repeats.
const ECHO: usize = 80;

/// The text of a key, with the line that it begins in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) line: usize,
    pub(super) text: String,
}

impl Field {
    fn of(entry: &Entry<'_>) -> Result<Self, Flaw> {
        Ok(Self { line: entry.line(), text: entry.text()? })
    }
}

/// A `SKILL.md`, read in its parts. Other keys are passed over.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Document<'a> {
    pub(super) name: Field,
    pub(super) description: Field,
    /// The text behind the front matter.
    pub(super) body: &'a str,
}

impl<'a> Document<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, Flaw> {
        let Parts { entries, body } = Parts::parse(text)?;
        let (mut name, mut description) = (None, None);
        for entry in entries {
            let field = match entry.key {
                "name" => &mut name,
                "description" => &mut description,
                _ => continue,
            };
            if field.is_some() {
                return Err(entry.doubled());
            }
            *field = Some(Field::of(&entry)?);
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

/// A skill as its file describes it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Described<'a> {
    pub(super) name: String,
    /// One line without control characters.
    pub(super) description: String,
    pub(super) body: &'a str,
}

/// Reads the `SKILL.md` of the folder with this name. The error says what to do, and in which line.
pub(super) fn read<'a>(folder: &str, content: &'a [u8]) -> Result<Described<'a>, String> {
    if content.len() > LARGEST {
        return Err("the file is larger than 256 KiB; move parts of it to files beside it".to_owned());
    }
    let text = std::str::from_utf8(content).ok().filter(|text| !text.contains('\0'));
    let text = text.ok_or("the file is no UTF-8 text; save it as UTF-8")?;
    let Document { name, description, body } =
        Document::parse(text).map_err(|flaw| format!("line {}: {}", flaw.line, flaw.text))?;
    check_name(&name.text, folder).map_err(|text| format!("line {}: {text}", name.line))?;
    let length = description.text.trim().chars().count();
    let shown = line(&description.text);
    if shown.is_empty() {
        return Err(format!(
            "line {}: the description is empty; say when the skill is of use",
            description.line
        ));
    }
    if length > DESCRIPTION {
        return Err(format!(
            "line {}: the description has {length} characters; at most 1,024 are allowed, so shorten it",
            description.line
        ));
    }
    Ok(Described { name: name.text, description: shown, body })
}

fn check_name(name: &str, folder: &str) -> Result<(), String> {
    let is_word = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric());
    let shown = echo(name);
    if name.len() > NAME || !name.split('-').all(is_word) {
        return Err(format!(
            "`{shown}` is no name for a skill; use at most 64 letters and digits of ASCII, with single hyphens between \
             them"
        ));
    }
    if name != folder {
        return Err(format!(
            "the name is `{shown}` and the folder is `{}`; give both the same",
            echo(folder)
        ));
    }
    Ok(())
}

/// The beginning of [`line`].
pub(super) fn echo(text: &str) -> String {
    shortened(&line(text), ECHO)
}
