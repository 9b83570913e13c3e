//! Messages of servers, read tolerantly: one item that is none costs that item alone. Pure.
//!
//! Texts are cleaned and cut here, so nothing else sees them as they came.

use std::path::PathBuf;

use entourage_core::bound;
use serde_json::Value;

use super::{position::Range, uri};
use crate::invisible::{line, shortened};

/// Most diagnostics of one file that are kept.
const DIAGNOSTICS: usize = 200;
/// Most places and symbols of one answer that are read.
pub(super) const PLACES: usize = 5_000;
/// Most characters of a message, and of a name or code.
const MESSAGE: usize = 500;
const WORD: usize = 80;
/// Most files and edits of one rename.
const FILES: usize = 200;
const EDITS: usize = 10_000;
/// Most levels of symbols within symbols.
const DEPTH: usize = 20;

/// A text as one harmless line of so many characters.
pub(super) fn plain(text: &str, most: usize) -> String {
    shortened(&line(&bound::shortened(text, most.saturating_mul(8))), most)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    Error,
    Warning,
    Information,
}

impl Severity {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Information => "information",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Diagnostic {
    pub(super) severity: Severity,
    pub(super) range: Range,
    pub(super) message: String,
    /// The program that says it and the code, in parentheses, or nothing.
    pub(super) origin: String,
}

/// The diagnostics of a file: the first of them, errors first, and how many there are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Found {
    pub(super) kept: Vec<Diagnostic>,
    pub(super) counts: Counts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    pub(super) errors: usize,
    pub(super) warnings: usize,
    pub(super) others: usize,
}

impl Counts {
    pub(super) fn of(&mut self, severity: Severity) -> &mut usize {
        match severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
            Severity::Information => &mut self.others,
        }
    }

    pub(super) fn all(self) -> usize {
        self.errors.saturating_add(self.warnings).saturating_add(self.others)
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self {
            errors: self.errors.saturating_add(other.errors),
            warnings: self.warnings.saturating_add(other.warnings),
            others: self.others.saturating_add(other.others),
        }
    }
}

impl Found {
    /// Reads the diagnostics of a file. Hints, which editors show as colours, are left out.
    pub(super) fn read(list: &Value) -> Self {
        let mut found = Self::default();
        let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
        let mut each: Vec<_> = list.iter().filter_map(|it| Some((severity(it)?, it))).collect();
        each.sort_by_key(|(severity, _)| *severity);
        for (severity, it) in each {
            let Some(range) = it.get("range").and_then(Range::read) else { continue };
            let count = found.counts.of(severity);
            *count = count.saturating_add(1);
            if found.kept.len() < DIAGNOSTICS {
                found.kept.push(Diagnostic { severity, range, message: message(it), origin: origin(it) });
            }
        }
        found.kept.sort_by_key(|it| (it.severity, it.range));
        found
    }

    /// Both together, of which some may say the same.
    pub(super) fn with(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.counts = both.counts.and(other.counts);
        for it in &other.kept {
            if self.kept.contains(it) {
                let count = both.counts.of(it.severity);
                *count = count.saturating_sub(1);
            } else {
                both.kept.push(it.clone());
            }
        }
        both.kept.sort_by_key(|it| (it.severity, it.range));
        both
    }
}

/// `None` for a hint.
fn severity(diagnostic: &Value) -> Option<Severity> {
    match diagnostic.get("severity").and_then(Value::as_u64) {
        Some(4) => None,
        Some(3) => Some(Severity::Information),
        Some(2) => Some(Severity::Warning),
        _ => Some(Severity::Error),
    }
}

fn message(diagnostic: &Value) -> String {
    let message = diagnostic.get("message");
    let text = message.and_then(|it| it.as_str().or_else(|| it.get("value").and_then(Value::as_str)));
    plain(text.unwrap_or_default(), MESSAGE)
}

fn origin(diagnostic: &Value) -> String {
    let code = diagnostic.get("code").map(|code| match code {
        Value::String(code) => plain(code, WORD),
        Value::Number(code) => code.to_string(),
        _ => String::new(),
    });
    let source = diagnostic.get("source").and_then(Value::as_str).map(|source| plain(source, WORD));
    let words: Vec<_> = source.into_iter().chain(code).filter(|word| !word.is_empty()).collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(" ")) }
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) range: Range,
}

/// Reads places: one, a list, or links to targets. Each once, in the order of their files.
pub(super) fn places(answer: &Value) -> Vec<Place> {
    let mut places: Vec<_> = match answer {
        Value::Array(list) => list.iter().take(PLACES).filter_map(place).collect(),
        one => place(one).into_iter().collect(),
    };
    places.sort();
    places.dedup();
    places
}

fn place(value: &Value) -> Option<Place> {
    let link = value.get("targetUri").map(|uri| (uri, value.get("targetSelectionRange")));
    let (uri, range) = link.or_else(|| Some((value.get("uri")?, value.get("range"))))?;
    Some(Place { path: uri::path(uri.as_str()?)?, range: Range::read(range?)? })
}

/// A symbol of a file or of the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) name: String,
    pub(super) kind: &'static str,
    /// `None` for a symbol of the file that was asked about.
    pub(super) path: Option<PathBuf>,
    /// Line from 0.
    pub(super) line: usize,
    /// Symbols around it.
    pub(super) depth: usize,
    pub(super) container: String,
}

/// Reads symbols in their order, those within others after them.
pub(super) fn symbols(answer: &Value) -> Vec<Symbol> {
    let mut found = Vec::new();
    collect(answer, 0, &mut found);
    found
}

fn collect(list: &Value, depth: usize, into: &mut Vec<Symbol>) {
    for it in list.as_array().map(Vec::as_slice).unwrap_or_default() {
        if into.len() >= PLACES || depth > DEPTH {
            return;
        }
        let text =
            |key| it.get(key).and_then(Value::as_str).map(|text| plain(text, WORD)).unwrap_or_default();
        let location = it.get("location");
        let uri = location.and_then(|it| it.get("uri")).and_then(Value::as_str);
        let range = location.and_then(|it| it.get("range")).or_else(|| it.get("selectionRange"));
        let range = range.or_else(|| it.get("range")).and_then(Range::read).unwrap_or_default();
        into.push(Symbol {
            name: text("name"),
            kind: kind(it.get("kind").and_then(Value::as_u64)),
            path: uri.and_then(uri::path),
            line: range.start.line,
            depth,
            container: text("containerName"),
        });
        if let Some(children) = it.get("children") {
            collect(children, depth.saturating_add(1), into);
        }
    }
}

fn kind(number: Option<u64>) -> &'static str {
    const KINDS: [&str; 26] = [
        "file",
        "module",
        "namespace",
        "package",
        "class",
        "method",
        "property",
        "field",
        "constructor",
        "enum",
        "interface",
        "function",
        "variable",
        "constant",
        "string",
        "number",
        "boolean",
        "array",
        "object",
        "key",
        "null",
        "enum member",
        "struct",
        "event",
        "operator",
        "type parameter",
    ];
    let index = number.and_then(|it| usize::try_from(it).ok()).and_then(|it| it.checked_sub(1));
    index.and_then(|index| KINDS.get(index)).copied().unwrap_or("symbol")
}

/// A text to put in the place of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TextEdit {
    pub(super) range: Range,
    pub(super) new: String,
}

/// The edits of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileEdits {
    pub(super) path: PathBuf,
    /// The version that they are for, if the server says so.
    pub(super) version: Option<i64>,
    pub(super) edits: Vec<TextEdit>,
}

/// Reads the edits of several files. Strictly: of a change that is not understood no part is made.
///
/// # Errors
/// The reason that they cannot be made.
pub(super) fn workspace_edit(answer: &Value) -> Result<Vec<FileEdits>, String> {
    let mut files: Vec<FileEdits> = Vec::new();
    let mut add = |uri: &str, version, edits: &Value| -> Result<(), String> {
        let path = uri::path(uri)
            .ok_or_else(|| format!("the server would change `{}`, which is no file", plain(uri, 200)))?;
        let edits = text_edits(edits)?;
        match files.iter_mut().find(|file| file.path == path) {
            Some(file) if file.version != version => {
                return Err(
                    "the server would change two versions of one file; call the tool again".to_owned()
                );
            }
            Some(file) => file.edits.extend(edits),
            None => files.push(FileEdits { path, version, edits }),
        }
        let all: usize = files.iter().map(|file| file.edits.len()).sum();
        if files.len() > FILES || all > EDITS {
            return Err("the server would change more than 200 files or 10,000 places; that is left to you"
                .to_owned());
        }
        Ok(())
    };
    if let Some(changes) = answer.get("documentChanges").and_then(Value::as_array) {
        for change in changes {
            if let Some(kind) = change.get("kind").and_then(Value::as_str) {
                let kind = plain(kind, 40);
                return Err(format!("the server would {kind} a file as well, which this tool does not do"));
            }
            let document = change.get("textDocument").unwrap_or(&Value::Null);
            let version = document.get("version").and_then(Value::as_i64);
            add(text_of(document, "uri"), version, change.get("edits").unwrap_or(&Value::Null))?;
        }
    } else if let Some(changes) = answer.get("changes").and_then(Value::as_object) {
        for (uri, edits) in changes {
            add(uri, None, edits)?;
        }
    }
    files.retain(|file| !file.edits.is_empty());
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn text_of<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn text_edits(list: &Value) -> Result<Vec<TextEdit>, String> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    let edit = |it: &Value| {
        let range = it.get("range").and_then(Range::read)?;
        Some(TextEdit { range, new: it.get("newText")?.as_str()?.to_owned() })
    };
    let unclear = || "the server's answer has an edit that cannot be read".to_owned();
    list.iter().map(|it| edit(it).ok_or_else(unclear)).collect()
}
