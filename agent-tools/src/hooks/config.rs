//! Hooks as TOML.

use std::time::Duration;

use entourage_core::{Error, ErrorKind, Result, bound::shortened};
use regex::{Regex, RegexBuilder};
use serde::Deserialize;

use crate::nesting::too_deep;

/// Most bytes of a text of hooks.
const TEXT: usize = 256 << 10;
/// Most hooks.
const MOST: usize = 64;
/// Most bytes of a command.
const COMMAND: usize = 8 << 10;
/// Most bytes of a pattern, and of what it is compiled to.
const PATTERN: usize = 1_000;
const COMPILED: usize = 1 << 20;
/// Most bytes of a name, and of a command that stands for one.
const NAME: usize = 80;
/// Seconds that a hook may take, by default and at most.
const TIMEOUT: u64 = 30;
const LONGEST: u64 = 600;

/// One hook.
#[derive(Debug, Clone)]
pub(super) struct Hook {
    /// `None` for all tools.
    tools: Option<Regex>,
    /// For records and warnings.
    pub(super) name: String,
    pub(super) command: String,
    pub(super) timeout: Duration,
}

impl Hook {
    /// True if it is asked about calls of this tool.
    pub(super) fn is_for(&self, tool: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.is_match(tool))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    hooks: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Option<String>,
    tools: Option<String>,
    command: String,
    timeout: Option<u64>,
}

/// Reads a text of hooks.
pub(super) fn read(text: &str) -> Result<Vec<Hook>> {
    if text.len() > TEXT {
        let error = format!("hooks are a text of at most {TEXT} bytes; put long commands into files");
        return Err(Error::new(ErrorKind::TooLarge, error));
    }
    if let Some(line) = too_deep(text) {
        return Err(invalid(format!(
            "these are no hooks: line {line} is nested deeper than any key; write it flat"
        )));
    }
    let File { hooks } =
        toml::from_str(text).map_err(|error| invalid(format!("these are no hooks: {error}")))?;
    if hooks.len() > MOST {
        return Err(invalid(format!("{} hooks are more than {MOST}; join some of them", hooks.len())));
    }
    hooks.into_iter().enumerate().map(|(index, entry)| hook(index + 1, entry)).collect()
}

fn hook(number: usize, Entry { name, tools, command, timeout }: Entry) -> Result<Hook> {
    let wrong = |what: String| invalid(format!("hook {number}: {what}"));
    if command.trim().is_empty() || command.len() > COMMAND || command.contains('\0') {
        return Err(wrong(format!(
            "`command` is a command line of 1 to {COMMAND} bytes without NUL; write a longer one to a file"
        )));
    }
    if name.as_ref().is_some_and(|name| name.trim().is_empty() || name.len() > NAME) {
        return Err(wrong(format!("`name` is a text of 1 to {NAME} bytes")));
    }
    let name = name.unwrap_or_else(|| shortened(&command, NAME).into_owned());
    let timeout = timeout.unwrap_or(TIMEOUT);
    if !(1..=LONGEST).contains(&timeout) {
        return Err(wrong(format!("`timeout` is a number of seconds from 1 to {LONGEST}")));
    }
    let tools = tools.map(|pattern| {
        if pattern.len() > PATTERN {
            return Err(wrong(format!("`tools` is a regular expression of at most {PATTERN} bytes")));
        }
        // By itself first: what closes the group that is put around it is no pattern.
        let by_itself = RegexBuilder::new(&pattern).size_limit(COMPILED).build();
        let whole = RegexBuilder::new(&format!("^(?:{pattern})$")).size_limit(COMPILED).build();
        by_itself.and(whole).map_err(|error| wrong(format!("`tools` is no regular expression: {error}")))
    });
    Ok(Hook { tools: tools.transpose()?, name, command, timeout: Duration::from_secs(timeout) })
}

fn invalid(text: String) -> Error {
    Error::new(ErrorKind::InvalidInput, text)
}
