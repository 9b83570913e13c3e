//! `lsp_rename`: the server says what a rename changes, the tool changes it by the rules of the file tools.
//!
//! The rules judge a call by its arguments, before the server is asked. So the files are an argument: a first call
//! shows them, and a second one names them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use entourage_core::{
    Digest,
    message::is_harmful,
    permission::RuleEffect,
    tool::{ToolContext, ToolError, ToolOutput},
};
use serde_json::{Value, json};

use super::{
    LanguageServers,
    ask::Asked,
    feedback::{SPARE, shown, with_report},
    live::{Ability, Change, deadline},
    position::{Encoding, Lines},
    report::counted,
    tool::{RenameArguments, TIME},
    wire::{FileEdits, TextEdit, plain, workspace_edit},
};
use crate::{
    fs::{Changed, Limits, Parts},
    invisible::is_invisible,
};

/// Most bytes of differences that are shown.
const DIFFS: usize = 48 << 10;
/// Most characters of a new name, and most files that a call names.
const NAME: usize = 200;
const FILES: usize = 200;

/// The edits of a rename, by the files' paths below the root.
#[derive(Debug, Clone)]
struct Plan {
    edits: Arc<BTreeMap<String, Vec<TextEdit>>>,
    encoding: Encoding,
}

impl Plan {
    fn paths(&self) -> Vec<String> {
        self.edits.keys().cloned().collect()
    }

    fn places(&self) -> usize {
        self.edits.values().map(Vec::len).sum()
    }

    /// The parts of a file that change. The errors are for the model.
    fn parts(&self) -> impl Fn(&str, &str) -> Result<Parts, ToolError> + Send + 'static {
        let Self { edits, encoding } = self.clone();
        move |path, text| {
            let edits = edits.get(path).map(Vec::as_slice).unwrap_or_default();
            let name = plain(path, NAME);
            let parts = parts(edits, text, encoding).ok_or_else(|| {
                ToolError::tell(format!(
                    "the server's changes of `{name}` do not fit its text; view it, and call the tool again"
                ))
            })?;
            if parts.iter().any(|(range, new)| hides(text.get(range.clone()).unwrap_or_default(), new)) {
                return Err(ToolError::tell(format!(
                    "what the server would write to `{name}` has characters that nobody sees; so nothing can be \
                     renamed here"
                )));
            }
            Ok(parts)
        }
    }
}

/// True if a new text has characters that nobody sees, and that the old one has not. A difference that is shown leaves
/// out what controls a terminal, such as the CR that ends a comment in some languages.
fn hides(old: &str, new: &str) -> bool {
    new.chars().any(|c| is_unseen(c) && !matches!(c, '\n' | '\t') && !old.contains(c))
}

fn is_unseen(c: char) -> bool {
    is_invisible(c) || is_harmful(c)
}

/// True if a name goes on across a place. A server that counts otherwise than agreed on names such places.
fn is_within_word(text: &str, at: usize) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let before = text.get(..at).and_then(|it| it.chars().next_back());
    let after = text.get(at..).and_then(|it| it.chars().next());
    before.is_some_and(is_word) && after.is_some_and(is_word)
}

/// Parts of a text, in their order. `None` if one is not in it or ends within a word, or two touch the same text.
fn parts(edits: &[TextEdit], text: &str, encoding: Encoding) -> Option<Parts> {
    let lines = Lines::of(text);
    let part = |edit: &TextEdit| {
        let (start, end) =
            (lines.offset(edit.range.start, encoding)?, lines.offset(edit.range.end, encoding)?);
        let is_whole = start == end || !is_within_word(text, start) && !is_within_word(text, end);
        (start <= end && is_whole).then(|| (start..end, edit.new.replace("\r\n", "\n")))
    };
    let mut parts = edits.iter().map(part).collect::<Option<Parts>>()?;
    parts.sort_by_key(|(range, _)| (range.start, range.end));
    parts.dedup();
    let is_apart = parts.windows(2).all(|pair| match pair {
        [(one, _), (two, _)] => one.end <= two.start && (one.start < two.start || one.end < two.end),
        _ => true,
    });
    is_apart.then_some(parts)
}

impl LanguageServers {
    pub(super) async fn rename(
        &self,
        arguments: RenameArguments,
        cx: &ToolContext<'_>,
    ) -> Result<ToolOutput, ToolError> {
        let latest = deadline(TIME.saturating_sub(SPARE));
        let (asked, plan) = self.plan(&arguments, cx).await?;
        let files = arguments.files.as_deref().filter(|files| !files.is_empty());
        let Some(files) = files else { return self.show(&arguments, &plan, cx).await };
        self.check_named(&plan, files)?;
        let call = call(&arguments, cx)?;
        let limits = Limits { shown: self.0.offered.of(call), approved: self.0.approved.taken(call) };
        let changed = self.workspace().change_all(plan.paths(), limits, cx, plan.parts()).await?;
        let until = latest.min(deadline(self.0.after_change));
        let admission = Arc::new(cx.admission());
        let mut said = Vec::new();
        for path in plan.edits.keys() {
            let at = PathBuf::from(path);
            if let Ok(source) = self.workspace().named_source(path, cx).await {
                let told = self.tell(&at, Some(&source), Some(Change::Changed), until).await;
                if at == asked.source.at {
                    said = vec![(source, told)];
                }
            }
        }
        let places = counted(plan.places(), "place", "places");
        let files: Vec<_> = changed.iter().map(|file| format!("`{}`", file.name)).collect();
        let (old, new) = (plain(&arguments.symbol, NAME), plain(&arguments.new_name, NAME));
        let text = format!("renamed `{old}` to `{new}` in {places}: {}", files.join(", "));
        let output = ToolOutput::text(text).with_metadata(metadata(&changed));
        Ok(match said.first() {
            Some((source, told)) => {
                with_report(output, &self.report(&source.at, Some(source), told, &admission).await)
            }
            None => output,
        })
    }

    /// The differences, for an approver.
    pub(super) async fn rename_preview(
        &self,
        arguments: RenameArguments,
        cx: &ToolContext<'_>,
    ) -> Option<String> {
        let shown = async {
            let (_, plan) = self.plan(&arguments, cx).await?;
            self.check_named(&plan, arguments.files.as_deref().unwrap_or_default())?;
            let changed = self.workspace().compare_all(plan.paths(), 0, cx, plan.parts()).await?;
            let (call, digest) = (call(&arguments, cx)?, Changed::digest(&changed));
            match self.0.offered.of(call).is_none_or(|shown| shown == digest) {
                true => {
                    self.0.approved.note(call, digest);
                    Ok(changed)
                }
                false => Err(ToolError::tell("this would be another change than it showed")),
            }
        };
        match shown.await {
            Ok(changed) => Some(diffs(&changed)),
            Err(ToolError::Tell(text)) => Some(format!("the call would fail: {text}")),
            Err(_) => None,
        }
    }

    /// Shows what would change, so that another call can make this change.
    async fn show(
        &self,
        arguments: &RenameArguments,
        plan: &Plan,
        cx: &ToolContext<'_>,
    ) -> Result<ToolOutput, ToolError> {
        let changed = self.workspace().compare_all(plan.paths(), DIFFS, cx, plan.parts()).await?;
        self.0.offered.note(call(arguments, cx)?, Changed::digest(&changed));
        let (old, new) = (plain(&arguments.symbol, NAME), plain(&arguments.new_name, NAME));
        let files = serde_json::to_string(&plan.paths())?;
        let text = format!(
            "nothing is changed yet. Renaming `{old}` to `{new}` changes {} in {}. To make these changes, call \
             `lsp_rename` again with the same arguments and \"files\": {files}\n\n{}",
            counted(plan.places(), "place", "places"),
            counted(changed.len(), "file", "files"),
            diffs(&changed)
        );
        Ok(ToolOutput::text(text).with_metadata(json!({ "files": plan.paths(), "places": plan.places() })))
    }

    /// Asks the server what a rename changes. Changes nothing. The errors are for the model.
    async fn plan(
        &self,
        arguments: &RenameArguments,
        cx: &ToolContext<'_>,
    ) -> Result<(Asked, Plan), ToolError> {
        let new = &arguments.new_name;
        if new.is_empty() || new.chars().count() > NAME || new.chars().any(is_unseen) {
            return Err(ToolError::tell(
                "`new_name` has to be a name of at most 200 characters that can be seen, on one line",
            ));
        }
        let asked = self.asked(&arguments.path, Ability::Rename, cx).await?;
        let position = asked.place(arguments.line, &arguments.symbol)?;
        let params = json!({ "textDocument": asked.uri(self), "position": position.json(), "newName": new });
        let answer = asked.ask("textDocument/rename", params).await?;
        let files = workspace_edit(&answer).map_err(ToolError::Tell)?;
        if files.is_empty() {
            let old = plain(&arguments.symbol, NAME);
            return Err(ToolError::tell(format!("the language server finds nothing to rename at `{old}`")));
        }
        let paths = files.iter().map(|file| file.path.clone()).collect();
        let effects = self.workspace().effects_on(paths, &Arc::new(cx.admission())).await;
        let mut edits = BTreeMap::new();
        for file in files {
            let path = self.judged(&file, &asked, effects.get(&file.path))?;
            let path: &mut Vec<TextEdit> = edits.entry(path).or_default();
            path.extend(file.edits);
        }
        let encoding = asked.live.encoding;
        Ok((asked, Plan { edits: Arc::new(edits), encoding }))
    }

    /// The path below the root of a file that the server would change, if the call may read it.
    fn judged(
        &self,
        file: &FileEdits,
        asked: &Asked,
        effect: Option<&RuleEffect>,
    ) -> Result<String, ToolError> {
        let (workspace, name) = (self.workspace(), shown(self.workspace(), &file.path));
        let outside = || {
            ToolError::tell(format!(
                "the rename would change `{name}`, which is outside of the workspace; so nothing can be renamed here"
            ))
        };
        let inside = workspace.inside(&file.path).ok_or_else(outside)?;
        let inside = inside.to_str().and_then(|path| workspace.resolved_place(path)).ok_or_else(outside)?;
        if effect != Some(&RuleEffect::Allow) {
            return Err(ToolError::tell(
                "the rename would change files that this call may not read; so nothing can be renamed here",
            ));
        }
        let known = asked.live.version(&file.path);
        if let (Some(version), Some(known)) = (file.version, known)
            && version != known
        {
            return Err(ToolError::tell(format!(
                "the server answered for an older text of `{name}`; call the tool again"
            )));
        }
        inside.to_str().map(str::to_owned).ok_or_else(outside)
    }

    /// Checks that a call named each file of a plan.
    fn check_named(&self, plan: &Plan, files: &[String]) -> Result<(), ToolError> {
        if files.len() > FILES {
            return Err(ToolError::tell("`files` has more than 200 files; rename what has fewer uses"));
        }
        let named: BTreeSet<_> =
            files.iter().filter_map(|file| self.workspace().resolved_place(file)).collect();
        if plan.edits.keys().all(|path| named.contains(&PathBuf::from(path))) {
            return Ok(());
        }
        let all = serde_json::to_string(&plan.paths())?;
        Err(ToolError::tell(format!(
            "nothing was changed, since the rename changes other files than `files` names; these are: {all}"
        )))
    }
}

/// The call that shows a change, and the one that makes it.
fn call(arguments: &RenameArguments, cx: &ToolContext<'_>) -> Result<Digest, ToolError> {
    let RenameArguments { path, line, symbol, new_name, .. } = arguments;
    let call = serde_json::to_vec(&(cx.session().as_str(), path, line, symbol, new_name))?;
    Ok(Digest::of([call.as_slice()]))
}

fn diffs(changed: &[Changed]) -> String {
    let shown = Changed::shown(changed, DIFFS);
    let mut text: String = shown.iter().map(|file| file.diff.as_str()).collect();
    let left = changed.len().saturating_sub(shown.len());
    if left > 0 {
        text.push_str(&format!("({} not shown)", counted(left, "file is", "files are")));
    }
    text
}

fn metadata(changed: &[Changed]) -> Value {
    let shown = Changed::shown(changed, DIFFS).len();
    let files = changed.iter().enumerate().map(|(number, file)| {
        let diff = (number < shown).then_some(&file.diff);
        json!({ "path": file.name, "added": file.added, "removed": file.removed, "diff": diff })
    });
    json!({ "files": files.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsp::position::{Position, Range};

    fn edit(line: usize, from: usize, to: usize, new: &str) -> TextEdit {
        let at = |character| Position { line, character };
        TextEdit { range: Range { start: at(from), end: at(to) }, new: new.to_owned() }
    }

    #[test]
    fn ce02_edits_are_made_where_they_fit_alone() {
        let text = "😀 old old\nold\n";
        let made = |edits: &[TextEdit]| parts(edits, text, Encoding::Utf16);
        let fine = made(&[edit(1, 0, 3, "new"), edit(0, 7, 10, "new"), edit(0, 3, 6, "new")]);
        assert_eq!(
            fine.map(|parts| parts.into_iter().map(|(range, _)| range).collect::<Vec<_>>()),
            Some(vec![5..8, 9..12, 13..16])
        );
        // The same twice, as of two servers' views, is made once.
        assert_eq!(made(&[edit(1, 0, 3, "new"), edit(1, 0, 3, "new")]).map(|parts| parts.len()), Some(1));
        for wrong in [
            vec![edit(1, 0, 3, "a"), edit(1, 2, 3, "b")],
            vec![edit(1, 0, 3, "a"), edit(1, 0, 3, "b")],
            vec![edit(1, 0, 0, "a"), edit(1, 0, 0, "b")],
            vec![edit(9, 0, 3, "a")],
            vec![edit(0, 1, 3, "within a character")],
            vec![edit(1, 3, 0, "backwards")],
            vec![edit(1, 0, 2, "within a word")],
        ] {
            assert_eq!(made(&wrong), None, "{wrong:?}");
        }
    }
}
