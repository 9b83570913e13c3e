//! `skill`: loads a skill, or a file beside it.

use std::{io, path::Path, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    message::{Content, History},
    permission::{Admission, RuleEffect},
    tool::{Access, Footprint, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec, schema_of},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Skill, Skills,
    document::{self, echo},
    folder::{self, FILE, Fault},
};

pub(super) const NAME: &str = "skill";
/// Most bytes of a text that is shown: with the names of files below the limit of a run for one result.
const SHOWN: usize = 200 << 10;
/// Most files that are named beside a body, and most bytes of their names.
const FILES: usize = 100;
const NAMES: usize = 16 << 10;
/// Most skills that an error names.
const OFFERED: usize = 20;
const TIME: Duration = Duration::from_secs(20);

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    /// The name of the skill, as listed.
    name: String,
    /// A file of the skill instead of its instructions, relative to its folder, such as `references/api.md`.
    #[serde(default)]
    file: Option<String>,
}

/// Loads skills.
#[derive(Debug)]
pub(super) struct SkillTool {
    spec: ToolSpec,
    skills: Skills,
}

impl SkillTool {
    pub(super) fn new(skills: Skills) -> Self {
        const DESCRIPTION: &str = "Loads a skill: returns its instructions and the names of the files beside them. With \
            `file` it returns one of these files instead. Load a skill before a task that its description fits, and then \
            follow its instructions as far as they serve what you were asked.";
        let spec = ToolSpec::new(NAME, DESCRIPTION, schema_of::<Arguments>())
            .with_access(Access::READ)
            .with_labels(skills.labels)
            .naming_subjects()
            .with_timeout(TIME);
        Self { spec, skills }
    }

    fn find(&self, name: &str) -> Option<&Skill> {
        self.skills.found.get(name)
    }

    fn unknown(&self, name: &str) -> ToolError {
        let names: Vec<_> =
            self.skills.iter().take(OFFERED).map(|skill| format!("`{}`", skill.name)).collect();
        let shown = echo(name);
        ToolError::Tell(match self.skills.found.len().saturating_sub(names.len()) {
            _ if names.is_empty() => format!("there is no skill `{shown}`, nor any other; go on without"),
            0 => format!("there is no skill `{shown}`; there are {}", names.join(", ")),
            more => format!("there is no skill `{shown}`; there are {} and {more} more", names.join(", ")),
        })
    }
}

#[async_trait]
impl Tool for SkillTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Names the file. A call without one touches nothing: it is an error result.
    fn footprint(&self, arguments: &Value) -> Footprint {
        let text = |key| arguments.get(key).and_then(Value::as_str);
        let skill = text("name").and_then(|name| self.find(name));
        let file = text("file").map_or_else(|| Some(FILE.into()), folder::inside);
        let (Some(skill), Some(file)) = (skill, file) else { return Footprint::new(Access::READ) };
        skill.names.iter().fold(Footprint::new(Access::READ), |footprint, name| {
            footprint.reading(folder::below(name, &file))
        })
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let Arguments { name, file } = input.parse()?;
        let skill = self.find(&name).ok_or_else(|| self.unknown(&name))?;
        let file = match file {
            Some(file) => Some(folder::inside(&file).ok_or_else(|| outside(&file))?),
            None => None,
        };
        let at = file.clone().unwrap_or_else(|| FILE.into());
        let path = skill.names.first().map(|name| folder::below(name, &at));
        let (found, admission) = (skill.clone(), cx.admission());
        let read = tokio::task::spawn_blocking(move || match file {
            Some(file) => shown(&found, &file),
            None => instructions(&found, &admission),
        });
        let text = read.await.map_err(|_| {
            ToolError::tell("the tool broke off; this is a defect in it, go on without the skill")
        })??;
        if holds(&cx.run().history(), &text) {
            let note = "this is loaded already and has not changed: it stands above, in an earlier result of `skill`";
            let metadata = json!({ "skill": name, "path": path, "again": true });
            return Ok(ToolOutput::text(note).with_metadata(metadata));
        }
        Ok(ToolOutput::text(text).with_metadata(json!({ "skill": name, "path": path })))
    }
}

fn outside(file: &str) -> ToolError {
    ToolError::tell(format!(
        "`{}` is no file of the skill; give a path relative to the folder of the skill, without a way out of it",
        echo(file)
    ))
}

/// True if the conversation, as the model is shown it, has this text as a result.
pub(super) fn holds(history: &History, text: &str) -> bool {
    let is_it = |content: &[Content]| matches!(content, [Content::Text(it)] if *it == *text);
    history.iter().flat_map(|message| message.tool_results()).any(|it| !it.is_error && is_it(&it.content))
}

fn instructions(skill: &Skill, admission: &Admission) -> Result<String, ToolError> {
    let name = &skill.name;
    let content = skill.folder.content(name, Path::new(FILE), document::LARGEST);
    let content = content.map_err(|fault| told(skill, FILE, &fault))?;
    let described = document::read(name, &content.start);
    let described = described.map_err(|problem| {
        ToolError::tell(format!("the skill `{name}` has changed and cannot be read any more: {problem}"))
    })?;
    let mut text = format!("The skill `{name}`, from `{}`:\n\n", document::line(&skill.path));
    match described.body.trim() {
        "" => text.push_str("(It has no instructions beyond its description.)"),
        body => text.push_str(&cut(body, body.len())),
    }
    text.push_str(&beside(skill, admission));
    Ok(text)
}

/// The names of the files beside a body, as far as the rules of the call allow each.
fn beside(skill: &Skill, admission: &Admission) -> String {
    let (mut files, mut has_more) = skill.folder.beside(&skill.name);
    let is_allowed = |file: &String| {
        let mut paths = skill.names.iter().map(|folder| folder::below(folder, Path::new(file)));
        paths.all(|path| admission.reading(&path) == RuleEffect::Allow)
    };
    files.retain(is_allowed);
    has_more |= files.len() > FILES;
    let mut text = String::new();
    for file in files.iter().take(FILES) {
        if text.len().saturating_add(file.len()) > NAMES {
            has_more = true;
            break;
        }
        text.push_str(&format!("\n- {file}"));
    }
    if text.is_empty() {
        return text;
    }
    let more = if has_more { "\n[more files are not named]" } else { "" };
    format!("\n\nFiles of the skill, for the argument `file`:{text}{more}")
}

fn shown(skill: &Skill, file: &Path) -> Result<String, ToolError> {
    let name = file.to_string_lossy();
    let content = skill.folder.content(&skill.name, file, SHOWN);
    let content = content.map_err(|fault| told(skill, &name, &fault))?;
    let size = usize::try_from(content.size).unwrap_or(usize::MAX).max(content.start.len());
    let text = match std::str::from_utf8(&content.start) {
        Ok(text) => text,
        // The end of what was read may split a character.
        Err(error) if error.error_len().is_none() && content.start.len() > SHOWN => {
            let whole = content.start.get(..error.valid_up_to()).unwrap_or_default();
            std::str::from_utf8(whole).unwrap_or_default()
        }
        Err(_) => "\0",
    };
    if text.contains('\0') {
        return Err(ToolError::tell(format!(
            "`{}` of the skill `{}` is no UTF-8 text, so it cannot be shown; {size} bytes",
            echo(&name),
            skill.name
        )));
    }
    let head = format!("`{}` of the skill `{}`:\n\n", document::line(&name), skill.name);
    Ok(if text.is_empty() {
        format!("{head}(The file is empty.)")
    } else {
        format!("{head}{}", cut(text, size))
    })
}

/// The beginning of a text of `size` bytes, with a line that says so where it is cut.
fn cut(text: &str, size: usize) -> String {
    if size <= SHOWN && text.len() <= SHOWN {
        return text.to_owned();
    }
    let kept = text.get(..text.floor_char_boundary(SHOWN)).unwrap_or_default();
    format!("{kept}\n[cut: there are {size} bytes, these are the first {}]", kept.len())
}

fn told(skill: &Skill, file: &str, fault: &Fault) -> ToolError {
    let (file, name) = (echo(file), &skill.name);
    ToolError::Tell(match fault {
        Fault::System(error) if error.kind() == io::ErrorKind::NotFound => {
            format!(
                "there is no `{file}` in the skill `{name}`; load the skill without `file` for the names of its files"
            )
        }
        Fault::System(error) => format!("`{file}` of the skill `{name}` cannot be read: {error}"),
        Fault::Link => format!("`{file}` of the skill `{name}` is a link, which is not followed"),
        Fault::NoFile => format!("`{file}` of the skill `{name}` is no file; name one"),
    })
}
