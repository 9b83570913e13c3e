//! The variables of a prompt template. The caller gathers the facts; nothing here looks at the machine.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::base::setters;

/// Most lines of a short status that a prompt shows.
const STATUS_LINES: usize = 20;

/// Most commits that a prompt shows.
const COMMITS: usize = 3;

/// Most characters of one line of git output that a prompt shows.
const LINE: usize = 200;

/// The values for a template's variables.
///
/// | variable | type |
/// |---|---|
/// | `provider`, `model`, `working_dir`, `platform`, `date`, `skills` | text; absent until it is set |
/// | `git` | `branch`, `status`, `commits` (a list of lines); none outside a repository, so `{% if git %}` works |
/// | `context_files`, `global_context_files` | lists of `path` and `content`; empty until they are set |
/// | `config` | any JSON; absent until it is set |
/// | what was added with [`with_variable`](Self::with_variable) | any JSON |
///
/// A template that uses an absent variable fails to render; it never yields empty text.
///
/// ```
/// use entourage_core::context::PromptFacts;
///
/// let facts = PromptFacts::new().with_working_dir(r"C:\work\site").with_model("large-1").with_variable("tone", "dry");
/// let json = serde_json::to_value(&facts).unwrap();
/// assert_eq!(json["working_dir"], "C:/work/site");
/// assert_eq!((&json["git"], &json["tone"]), (&serde_json::Value::Null, &"dry".into()));
/// assert!(json.get("provider").is_none());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PromptFacts {
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    working_dir: Option<String>,
    git: Option<GitFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    platform: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    date: Option<String>,
    context_files: Vec<ContextFile>,
    global_context_files: Vec<ContextFile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skills: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<Value>,
    #[serde(flatten)]
    variables: BTreeMap<String, Value>,
}

impl PromptFacts {
    /// No facts.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// The model service's name.
        with_provider(provider: impl Into<String>) => Some(provider.into());
        /// The model's name.
        with_model(model: impl Into<String>) => Some(model.into());
        /// The directory that the agent works in. A path that begins with a drive or with `\\` is shown with forward
        /// slashes, without `\\?\`; in any other, `\` is a part of a name.
        with_working_dir(working_dir: impl Into<String>) => Some(forward_slashes(working_dir.into()));
        /// The repository's state; `None` outside of one.
        with_git(git: impl Into<Option<GitFacts>>) => git.into();
        /// The operating system.
        with_platform(platform: impl Into<String>) => Some(platform.into());
        /// The date, as the prompt shall show it. A prompt with the day alone stays the same for a day, and so do the
        /// services' caches.
        with_date(date: impl Into<String>) => Some(date.into());
        /// The project's context files, in this order.
        with_context_files(context_files: impl IntoIterator<Item = ContextFile>) => context_files.into_iter().collect();
        /// The user's own context files, in this order.
        with_global_context_files(global_context_files: impl IntoIterator<Item = ContextFile>) => global_context_files.into_iter().collect();
        /// The block of text that lists the skills; may be empty.
        with_skills(skills: impl Into<String>) => Some(skills.into());
        /// The program's configuration, as far as templates may see it. Never a secret.
        with_config(config: impl Into<Value>) => Some(config.into());
    }

    /// Another variable. A name of the table above is refused when a template is rendered.
    #[must_use]
    pub fn with_variable(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// Returns the added variables.
    #[must_use]
    pub fn variables(&self) -> &BTreeMap<String, Value> {
        &self.variables
    }
}

fn forward_slashes(path: String) -> String {
    let mut start = path.chars();
    let drive = start.next().is_some_and(|first| first.is_ascii_alphabetic()) && start.next() == Some(':');
    let verbatim = path.strip_prefix(r"\\?\").filter(|rest| !rest.starts_with("UNC"));
    match verbatim {
        Some(plain) => plain.replace('\\', "/"),
        None if drive || path.starts_with(r"\\") => path.replace('\\', "/"),
        None => path,
    }
}

/// The state of a repository, cut to what a prompt shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GitFacts {
    /// The branch, or a text for a detached head, such as a commit.
    pub branch: String,
    /// `clean`, or the lines of the short status: 20 at most, with `...` below them when there are more.
    pub status: String,
    /// The last commits, newest first, 3 at most, one line each.
    pub commits: Vec<String>,
}

impl GitFacts {
    /// Facts from git's output: the branch, the short status (empty for none), the newest commits. Lines are cut to
    /// 200 characters and control characters become spaces, since names and messages in a repository are untrusted.
    #[must_use]
    pub fn new<'a>(
        branch: &str,
        status: impl IntoIterator<Item = &'a str>,
        commits: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let mut lines = status.into_iter().filter(|line| !line.trim().is_empty());
        let mut shown: Vec<_> = lines.by_ref().take(STATUS_LINES).map(plain_line).collect();
        if lines.next().is_some() {
            shown.push("...".to_owned());
        }
        let status = if shown.is_empty() { "clean".to_owned() } else { shown.join("\n") };
        let commits = commits.into_iter().filter(|line| !line.trim().is_empty());
        Self { branch: plain_line(branch), status, commits: commits.take(COMMITS).map(plain_line).collect() }
    }
}

fn plain_line(line: &str) -> String {
    let line = line.trim_end();
    let mut shown: String = line.chars().take(LINE).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.chars().nth(LINE).is_some() {
        shown.push_str("...");
    }
    shown
}

/// A file whose text goes into the prompt.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub struct ContextFile {
    /// The path, as the prompt shall show it.
    pub path: String,
    /// Text of the file.
    pub content: String,
}

impl ContextFile {
    /// A file's path and text. The path gets forward slashes, as in [`PromptFacts::with_working_dir`].
    pub fn new(path: impl Into<String>, content: impl Into<String>) -> Self {
        Self { path: forward_slashes(path.into()), content: content.into() }
    }
}
