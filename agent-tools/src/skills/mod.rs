//! Skills: folders with instructions that a model loads when a task needs them.
//!
//! [`Skills`] reads them, lists them for a prompt, and has the tool `skill` that loads one. A skill is the folder
//! `deploy` with a file `SKILL.md`, which begins with front matter:
//!
//! ```text
//! ---
//! name: deploy
//! description: Puts a release on the servers. Use it when asked to deploy or to roll back.
//! ---
//! 1. Run the tests …
//! ```
//!
//! A skill is a text from outside, and its author tells your agent what to do. Scope and rules hold as for any other
//! text that a model reads.

mod document;
mod folder;
mod listing;
mod tool;

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use entourage_core::{
    Error, ErrorKind, Result,
    event::Event,
    tool::{Labels, Tool},
};
use serde_json::Value;

use folder::Folder;

/// The skills in some folders. Clones share what was read.
///
/// # Contract
/// - A skill is a folder with a `SKILL.md` right below one of the given folders. Its front matter has a `name` of at
///   most 64 letters and digits of ASCII with single hyphens between them, which is the folder's name too, and a
///   `description` of at most 1,024 characters. Other keys are passed over.
/// - The front matter is YAML of `key: value` lines; texts are plain, quoted, literal (`|`) or folded (`>`). A line
///   that is anything else where one of the two keys is concerned is a problem, and never a guess.
/// - A skill that cannot be read is a [problem](Skills::problems) that names the file, the line and the next step; all
///   others stay. Hidden folders, and those without a `SKILL.md`, are no skills.
/// - Names and descriptions are those of the moment of reading. The tool reads a body anew at each call.
/// - A given folder may be a link itself. No link below it is followed, and each file is opened through a handle on
///   that folder, which stays open as long as a clone lives.
///
/// ```
/// use entourage_core::Result;
/// use entourage_tools::skills::Skills;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// # let home = tempfile::tempdir().unwrap();
/// # let home = home.path();
/// # std::fs::create_dir_all(home.join("skills/deploy")).unwrap();
/// # let text = "---\nname: deploy\ndescription: Puts a release on the servers.\n---\nRun the tests first.";
/// # std::fs::write(home.join("skills/deploy/SKILL.md"), text).unwrap();
/// let skills = Skills::read([home.join("skills"), ".skills".into()]).await?.without(["rollback"]);
/// for problem in skills.problems() {
///     eprintln!("{problem}");
/// }
/// let instructions = format!("You keep the servers running.\n\n{}", skills.listing());
/// assert!(instructions.contains("Puts a release on the servers."));
/// assert_eq!(skills.tool().spec().name(), "skill");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Skills {
    found: Arc<BTreeMap<String, Skill>>,
    problems: Arc<[String]>,
    labels: Labels,
}

/// One skill, without its body.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Skill {
    /// Its name.
    pub name: String,
    /// Its description as one line, without control characters and invisible ones.
    pub description: String,
    /// The path of its `SKILL.md`, with links resolved: absolute, or relative to the directory of
    /// [`Skills::relative_to`].
    pub path: String,
    /// Paths of its folder, for rules.
    names: Vec<String>,
    folder: Arc<Folder>,
}

impl Skill {
    fn new(name: String, description: String, folder: Arc<Folder>, base: Option<&Path>) -> Self {
        let names = folder.names(&name, base);
        let path = names.iter().map(|folder| file_in(folder)).next().unwrap_or_default();
        Self { name, description, path, names, folder }
    }
}

/// The path of the `SKILL.md` in the folder of a skill.
fn file_in(folder: &str) -> String {
    folder::below(folder, Path::new(folder::FILE))
}

impl Skills {
    /// Reads the skills in these folders. A later one overrides skills of the same name in earlier ones; a bad skill
    /// overrides nothing.
    ///
    /// A folder that does not exist has no skills. One with more than 1,000 entries is a problem. Reading goes on to
    /// its bounds when the future is dropped. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if reading breaks off, which is a defect. All else is among the problems.
    pub async fn read(folders: impl IntoIterator<Item = impl Into<PathBuf>>) -> Result<Self> {
        let paths: Vec<PathBuf> = folders.into_iter().map(Into::into).collect();
        let read = tokio::task::spawn_blocking(move || folder::read(&paths)).await;
        let (found, problems) = read.map_err(|error| {
            Error::new(ErrorKind::Internal, "reading skills broke off; this is a defect")
                .during("skills.read")
                .caused_by(error)
        })?;
        Ok(Self { found: Arc::new(found), problems: problems.into(), labels: Labels::PRIVATE })
    }

    /// The same without the skills of these names, in whatever folder they are: the list of those that a user
    /// disabled. A name that no skill has is passed over.
    #[must_use]
    pub fn without<S: AsRef<str>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        let found = Arc::make_mut(&mut self.found);
        for name in names {
            found.remove(name.as_ref());
        }
        self
    }

    /// The same with paths below `root` relative to it, in the listing and for rules and scopes; give it
    /// `Workspace::root`. The tools of a workspace name files so, and a scope whose roots are paths of the workspace
    /// then admits the skills in it. Paths elsewhere stay absolute. A path has no labels: see
    /// [`with_labels`](Skills::with_labels).
    #[must_use]
    pub fn relative_to(mut self, root: impl AsRef<Path>) -> Self {
        let renamed = self.found.iter().map(|(name, skill)| {
            let Skill { description, folder, .. } = skill.clone();
            (name.clone(), Skill::new(name.clone(), description, folder, Some(root.as_ref())))
        });
        self.found = Arc::new(renamed.collect());
        self
    }

    /// The same with these labels of what its tool shows. Default: [`Labels::PRIVATE`]. Skills that strangers wrote, as
    /// those of a repository that was just cloned, are untrusted as well: give it `Workspace::labels` where they lie in
    /// a workspace. Tools that were made before do not have them, and [`listing`](Skills::listing) has none.
    #[must_use]
    pub fn with_labels(mut self, labels: Labels) -> Self {
        self.labels = labels;
        self
    }

    /// The skills by name.
    pub fn iter(&self) -> impl Iterator<Item = &Skill> {
        self.found.values()
    }

    /// The reasons why folders and skills could not be read, for the user, each with the next step.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The names, descriptions and paths of the skills with the way to load one, for the instructions of an agent or
    /// `PromptFacts::with_skills`. Empty without skills.
    ///
    /// Each skill is one line, by name: the same skills give the same text. There are at most 200, in 32 KiB; where
    /// room is short, descriptions are cut alike, and a last line says how many skills are left out.
    #[must_use]
    pub fn listing(&self) -> String {
        listing::text(self.iter())
    }

    /// The tool `skill`, which loads the skill that its argument `name` names, wherever it lies.
    ///
    /// # Contract
    /// - The result is the body of the `SKILL.md`, and the names of at most 100 files below its folder. With the
    ///   argument `file` it is one of these files. A text is cut at 200 KiB with a line that says so.
    /// - The footprint names the file as read, so rules such as `skill:/home/*/skills/deploy/*` and the roots of a
    ///   scope hold. Where a given folder is reached by a link, the footprint has both paths. Files that the rules of
    ///   the call do not allow are not named beside a body.
    /// - Metadata of the result: `skill`, `path` and, if the conversation still holds the same text, `"again": true`;
    ///   the result is then a short note. A body that a compaction removed, or that changed, is returned once more.
    /// - Nothing is run or changed. A call ends after 20 seconds.
    #[must_use]
    pub fn tool(&self) -> Arc<dyn Tool> {
        Arc::new(tool::SkillTool::new(self.clone()))
    }

    /// The names of the skills that the calls in these events have loaded, in the order of the first load. Counts calls
    /// of `skill`, and those of `view` that show a `SKILL.md`: by the paths of [`relative_to`](Skills::relative_to) its
    /// workspace.
    #[must_use]
    pub fn loaded<'e>(&self, events: impl IntoIterator<Item = &'e Event>) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for event in events {
            let Event::ToolFinished(call) = event else { continue };
            let path = call.metadata.as_ref().and_then(|it| it.get("path")).and_then(Value::as_str);
            if call.result.is_error || !matches!(&*call.result.name, tool::NAME | "view") {
                continue;
            }
            let is_at = |skill: &&Skill| skill.names.iter().any(|it| Some(file_in(it).as_str()) == path);
            if let Some(skill) = self.iter().find(is_at)
                && !names.contains(&skill.name.as_str())
            {
                names.push(&skill.name);
            }
        }
        names
    }
}
