//! `write`, `edit` and `multiedit`: change one file of the workspace.

use std::time::Duration;

use entourage_core::tool::{Access, ToolError, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    diff::Diff,
    document::Document,
    replace::{Change, find},
    save::{Current, Target},
    sight::Sight,
    stop::Stop,
    text,
    tool::Operation,
};

/// Most edits of one call.
const EDITS: usize = 100;

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct WriteArguments {
    /// The file, relative to the workspace's root. Missing directories are made.
    path: String,
    /// The whole content.
    content: String,
}

/// Writes a whole file.
#[derive(Debug)]
pub(super) struct Write;

impl Operation for Write {
    type Arguments = WriteArguments;
    const NAME: &'static str = "write";
    const DESCRIPTION: &'static str = "Writes a whole text file. A file that exists must have been viewed in this \
        session; to change parts of it use `edit`. Line ends and byte order mark of a file that exists are kept.";
    const ACCESS: Access = Access::WRITE;
    const TIME: Duration = Duration::from_secs(20);
    const WITHOUT_PATH: Option<&'static str> = None;

    fn run(sight: &Sight<'_>, arguments: WriteArguments, stop: &Stop) -> Result<ToolOutput, ToolError> {
        let target = Target::of(sight, &arguments.path, stop)?;
        let _one_at_a_time = sight.workspace().writing();
        whole(&target, arguments.content)?.save(&target)
    }

    fn preview(
        sight: &Sight<'_>,
        arguments: WriteArguments,
        stop: &Stop,
    ) -> Result<Option<String>, ToolError> {
        let target = Target::of(sight, &arguments.path, stop)?;
        Ok(Some(whole(&target, arguments.content)?.shown(&target)))
    }
}

/// Makes the whole content of a file. Writes nothing.
fn whole(target: &Target<'_>, content: String) -> Result<Prepared, ToolError> {
    let note = String::new();
    let Some(current) = target.read()? else {
        return Ok(Prepared { current: None, after: content, note });
    };
    target.check_seen(&current)?;
    let before = decoded(target, &current)?;
    let mut document = Document::read(before);
    let all = 0..document.text().len();
    let content = content.strip_prefix('\u{feff}').unwrap_or(&content);
    document.replace(&[(all, content.to_owned())]);
    let after = document.written();
    if after == before {
        return Err(ToolError::tell(format!("`{}` has this content already", target.name)));
    }
    Ok(Prepared { current: Some(current), after, note })
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct EditArguments {
    /// The file, relative to the workspace's root.
    path: String,
    /// The text to replace, exactly as it is in the file, without line numbers. Empty to create a file.
    old: String,
    /// The text that comes instead. Empty to delete the old one.
    new: String,
    /// True to replace each place; otherwise the text must be found in one place alone. Default: false.
    #[serde(default)]
    replace_all: Option<bool>,
}

/// Replaces one text in a file.
#[derive(Debug)]
pub(super) struct Edit;

impl Operation for Edit {
    type Arguments = EditArguments;
    const NAME: &'static str = "edit";
    const DESCRIPTION: &'static str = "Replaces a text in a file that was viewed in this session. Give so many lines of \
        it that it is found in one place alone. With an empty `old` it creates a file. For several changes of one file \
        use `multiedit`.";
    const ACCESS: Access = Access::WRITE;
    const TIME: Duration = Duration::from_secs(20);
    const WITHOUT_PATH: Option<&'static str> = None;

    fn run(sight: &Sight<'_>, arguments: EditArguments, stop: &Stop) -> Result<ToolOutput, ToolError> {
        let EditArguments { path, old, new, replace_all } = arguments;
        let edits = [OneEdit { old, new, replace_all }];
        let target = Target::of(sight, &path, stop)?;
        let _one_at_a_time = sight.workspace().writing();
        only(edit(&target, &edits)?)?.save(&target)
    }

    fn preview(
        sight: &Sight<'_>,
        arguments: EditArguments,
        stop: &Stop,
    ) -> Result<Option<String>, ToolError> {
        let EditArguments { path, old, new, replace_all } = arguments;
        let target = Target::of(sight, &path, stop)?;
        Ok(Some(only(edit(&target, &[OneEdit { old, new, replace_all }])?)?.shown(&target)))
    }
}

/// The change of a single edit, unless it failed.
fn only(edited: Edited) -> Result<Prepared, ToolError> {
    match edited.failed.into_iter().next() {
        Some((_, error)) => Err(ToolError::Tell(error)),
        None => Ok(edited.change),
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct OneEdit {
    /// The text to replace, as in `edit`. It may be empty in the first edit alone, which then creates the file.
    old: String,
    /// The text that comes instead.
    new: String,
    /// True to replace each place. Default: false.
    #[serde(default)]
    replace_all: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct MultiArguments {
    /// The file, relative to the workspace's root.
    path: String,
    /// The edits, at least 1 and at most 100. Each is made on the result of those before it.
    #[schemars(length(min = 1, max = 100))]
    edits: Vec<OneEdit>,
}

/// Makes several edits of one file.
#[derive(Debug)]
pub(super) struct MultiEdit;

impl Operation for MultiEdit {
    type Arguments = MultiArguments;
    const NAME: &'static str = "multiedit";
    const DESCRIPTION: &'static str = "Makes several edits of one file, in order, and writes it once. An edit that fails \
        is left out and named in the result; the others are made.";
    const ACCESS: Access = Access::WRITE;
    const TIME: Duration = Duration::from_secs(20);
    const WITHOUT_PATH: Option<&'static str> = None;

    fn run(sight: &Sight<'_>, arguments: MultiArguments, stop: &Stop) -> Result<ToolOutput, ToolError> {
        let target = Target::of(sight, &arguments.path, stop)?;
        let _one_at_a_time = sight.workspace().writing();
        several(&target, &arguments.edits)?.save(&target)
    }

    fn preview(
        sight: &Sight<'_>,
        arguments: MultiArguments,
        stop: &Stop,
    ) -> Result<Option<String>, ToolError> {
        let target = Target::of(sight, &arguments.path, stop)?;
        Ok(Some(several(&target, &arguments.edits)?.shown(&target)))
    }
}

/// The change of several edits, those that failed named in its note. An error if none could be made.
fn several(target: &Target<'_>, edits: &[OneEdit]) -> Result<Prepared, ToolError> {
    if edits.is_empty() || edits.len() > EDITS {
        return Err(ToolError::tell("`edits` has at least 1 and at most 100 edits"));
    }
    let mut edited = edit(target, edits)?;
    let failed = std::mem::take(&mut edited.failed);
    let list = failed.iter().map(|(index, error)| format!("\nedit {index} was left out: {error}"));
    let list: String = list.collect();
    if failed.len() == edits.len() {
        return Err(ToolError::tell(format!("no edit could be made, so nothing was written{list}")));
    }
    edited.change.note.push_str(&list);
    Ok(edited.change)
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct UndoArguments {
    /// The file, relative to the workspace's root.
    path: String,
}

/// Takes back the last change of a file.
#[derive(Debug)]
pub(super) struct Undo;

impl Operation for Undo {
    type Arguments = UndoArguments;
    const NAME: &'static str = "undo";
    const DESCRIPTION: &'static str = "Takes back the last change that you made to a file by `write`, `edit` or \
        `multiedit` in this session. Call it again for the one before. A file that you created is removed.";
    const ACCESS: Access = Access::WRITE;
    const TIME: Duration = Duration::from_secs(20);
    const WITHOUT_PATH: Option<&'static str> = None;

    fn run(sight: &Sight<'_>, arguments: UndoArguments, stop: &Stop) -> Result<ToolOutput, ToolError> {
        let target = Target::of(sight, &arguments.path, stop)?;
        let _one_at_a_time = sight.workspace().writing();
        let gone = target.undo()?;
        let now = if gone { "; it is gone, as it was before" } else { "" };
        let metadata = json!({ "path": target.name, "undone": true, "removed": gone });
        Ok(ToolOutput::text(format!("undid the last change of `{}`{now}", target.name))
            .with_metadata(metadata))
    }
}

/// Edits that were made on a text.
struct Edited {
    change: Prepared,
    /// Edits that were left out, by their number from 1, with the errors for the model.
    failed: Vec<(usize, String)>,
}

/// A content to write.
struct Prepared {
    /// `None` for a file that does not exist.
    current: Option<Current>,
    after: String,
    /// Text for the model beside the numbers.
    note: String,
}

/// Makes the edits on the file's text. Writes nothing.
fn edit(target: &Target<'_>, edits: &[OneEdit]) -> Result<Edited, ToolError> {
    let creates = edits.first().is_some_and(|edit| edit.old.is_empty());
    let current = target.read()?;
    let (before, first) = match &current {
        None if creates => ("", edits.first().map(|edit| edit.new.as_str()).unwrap_or_default()),
        None => {
            let text =
                format!("there is nothing at `{}`; an edit with an empty `old` creates a file", target.name);
            return Err(ToolError::Tell(text));
        }
        Some(_) if creates => {
            let text = format!("`{}` exists; give the text to replace, or use `write`", target.name);
            return Err(ToolError::Tell(text));
        }
        Some(current) => {
            target.check_seen(current)?;
            (decoded(target, current)?, "")
        }
    };
    let mut document = Document::read(if creates { first } else { before });
    let (mut failed, mut note) = (Vec::new(), String::new());
    for (index, edit) in edits.iter().enumerate().skip(usize::from(creates)) {
        let number = index.saturating_add(1);
        if edit.old.is_empty() {
            failed.push((number, "`old` is empty, which creates a file in the first edit alone".to_owned()));
            continue;
        }
        // Each looks at the whole text, and others wait for the workspace meanwhile.
        target.check_time()?;
        let all = edit.replace_all.unwrap_or(false);
        match find(document.text(), Change { old: &edit.old, new: &edit.new, all }) {
            Ok(found) => {
                document.replace(&found.parts);
                if found.loosely {
                    note.push_str(&loosely(number, edits.len()));
                }
            }
            Err(error) => failed.push((number, error)),
        }
    }
    let after = document.written();
    if current.is_some() && after == before && failed.is_empty() {
        return Err(ToolError::tell("after the edits the file would be as it was, so nothing was written"));
    }
    Ok(Edited { change: Prepared { current, after, note }, failed })
}

fn loosely(number: usize, of: usize) -> String {
    let which = if of > 1 { format!("edit {number}: ") } else { String::new() };
    format!(
        "\n{which}the old text was not there exactly; lines that differ in white space alone were replaced, and the new \
         ones indented like them. View the place to verify it"
    )
}

impl Prepared {
    fn before(&self) -> &str {
        self.current.as_ref().and_then(Current::text).unwrap_or_default()
    }

    /// The change as a diff, and what else is to be said of it.
    fn shown(&self, target: &Target<'_>) -> String {
        let Diff { text, .. } = Diff::of(&target.name, self.before(), &self.after);
        format!("{text}{}", self.note)
    }

    fn save(self, target: &Target<'_>) -> Result<ToolOutput, ToolError> {
        match &self.current {
            None => create(target, &self.after).map(|output| noted(output, &self.note)),
            Some(_) if self.after == self.before() => {
                Err(ToolError::tell(format!("after the edits the file would be as it was{}", self.note)))
            }
            Some(current) => save(target, current, self.before(), &self.after, &self.note),
        }
    }
}

fn noted(mut output: ToolOutput, note: &str) -> ToolOutput {
    if !note.is_empty() {
        output.content.push(entourage_core::message::Content::Text(note.trim_start().to_owned()));
    }
    output
}

fn create(target: &Target<'_>, content: &str) -> Result<ToolOutput, ToolError> {
    let (_, metadata) = put(target, None, "", content)?;
    let lines = text::count(content.lines().count(), "line", "lines");
    Ok(ToolOutput::text(format!("created `{}` with {lines}", target.name)).with_metadata(metadata))
}

fn save(
    target: &Target<'_>,
    current: &Current,
    before: &str,
    after: &str,
    note: &str,
) -> Result<ToolOutput, ToolError> {
    let (Diff { added, removed, .. }, metadata) = put(target, Some(current), before, after)?;
    let lines = text::count(added, "line", "lines");
    let text = format!("changed `{}`: {lines} added, {removed} removed{note}", target.name);
    Ok(ToolOutput::text(text).with_metadata(metadata))
}

/// Puts a content in the place of what was found, and keeps both. Returns the difference, and the metadata of the
/// result.
fn put(
    target: &Target<'_>,
    found: Option<&Current>,
    before: &str,
    after: &str,
) -> Result<(Diff, Value), ToolError> {
    let name = &target.name;
    let compare = || Diff::of(name, before, after);
    let (digest, version, diff) = target.put_meanwhile(found, after.as_bytes(), compare)?;
    let mut metadata = json!({
        "path": target.name,
        "created": found.is_none(),
        "added": diff.added,
        "removed": diff.removed,
        "diff": diff.text,
        "after": digest.to_string(),
        "version": version,
    });
    if let (Some(found), Some(fields)) = (found, metadata.as_object_mut()) {
        fields.insert("before".to_owned(), found.digest.to_string().into());
    }
    Ok((diff, metadata))
}

/// The content as text. The error is for the model.
pub(super) fn decoded<'a>(target: &Target<'_>, current: &'a Current) -> Result<&'a str, ToolError> {
    let text = current.text();
    text.ok_or_else(|| {
        ToolError::tell(format!("`{}` is no UTF-8 text, so it cannot be changed", target.name))
    })
}
