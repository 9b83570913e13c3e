//! The tasks of a question, by a planner's plan or by the words of the question. Pure.

use entourage_core::{Error, ErrorKind, Result, context::Instructions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Researcher;

/// Most tasks of one plan.
pub(super) const MOST_TASKS: usize = 50;

/// Version of the planner's instructions; raised whenever their words change.
const VERSION: u32 = 1;

const INSTRUCTIONS: &str = "\
You plan research. You get a question about a project or the world, and divide it into tasks that agents work on side by \
side. They see neither the question nor each other: each prompt stands alone and says what to find and what to answer with.

Give one task where one agent can answer, and more only where they look at different things. Kinds: `file_searcher` finds \
files and places in them, `pattern_finder` what places have in common, `dependency_mapper` what depends on what, \
`doc_reader` reads documents, `web_searcher` searches the web.

These agents only look. Set `changes` to true, with no tasks, if you are asked to write, mend or change something instead \
of finding it out.";

/// Words by which a request asks for a change, at the beginning of a sentence or after `then`.
const CHANGES: &[&str] = &[
    "add",
    "build",
    "change",
    "commit",
    "create",
    "delete",
    "edit",
    "fix",
    "implement",
    "install",
    "migrate",
    "modify",
    "patch",
    "refactor",
    "remove",
    "rename",
    "replace",
    "rewrite",
    "update",
    "write",
];

/// Words before the verb of a request.
const POLITE: &[&str] =
    &["also", "can", "could", "first", "just", "kindly", "now", "please", "then", "would", "you"];

/// Objects by which `write` asks for code, and for no report.
const CODE: &[&str] =
    &["class", "code", "file", "files", "function", "method", "module", "program", "script", "test", "tests"];

/// A task of a research, for one agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ResearchTask {
    /// The kind of agent that works on it.
    pub kind: Researcher,
    /// The prompt of that agent, which sees nothing else.
    pub prompt: String,
}

impl ResearchTask {
    /// Creates a task.
    #[must_use]
    pub fn new(kind: Researcher, prompt: impl Into<String>) -> Self {
        Self { kind, prompt: prompt.into() }
    }
}

/// The answer of the planner.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub(super) struct Plan {
    /// True if something is to be changed, and not only found out.
    #[serde(default)]
    pub(super) changes: bool,
    /// The tasks, in the order of the report.
    #[serde(default)]
    pub(super) tasks: Vec<ResearchTask>,
}

impl Plan {
    /// Checks the plan, with the problem in words for the planner.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.tasks.len() {
            _ if self.changes => Ok(()),
            0 => Err("the plan has no task; give at least one".to_owned()),
            count if count > MOST_TASKS => {
                Err(format!("the plan has {count} tasks; give at most {MOST_TASKS}"))
            }
            _ => match self.tasks.iter().position(|task| task.prompt.trim().is_empty()) {
                Some(index) => Err(format!("task {} has no prompt", index + 1)),
                None => Ok(()),
            },
        }
    }
}

/// Returns the planner's built-in instructions.
pub(super) fn instructions() -> Instructions {
    Instructions::built_in("entourage/research-plan", VERSION, INSTRUCTIONS)
}

/// Checks that a prompt asks for research.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for an empty prompt, and for one whose words ask for a change.
pub(super) fn check_prompt(prompt: &str) -> Result<()> {
    if prompt.trim().is_empty() {
        return Err(Error::new(ErrorKind::InvalidInput, "the prompt is empty; say what to find out"));
    }
    if asks_for_a_change(prompt) { Err(no_coding()) } else { Ok(()) }
}

/// Returns the error for a task that is no research.
pub(super) fn no_coding() -> Error {
    let text = "research only looks, and this asks for a change; give it to an agent that may write, or ask what you \
                want to know";
    Error::new(ErrorKind::InvalidInput, text)
}

/// Returns the tasks that the words of a question suggest, for research without a planner or without its plan.
///
/// A search has three: the source, the tests, the documents. Any other question has one, whose kind is that of its
/// words.
pub(super) fn by_words(prompt: &str) -> Vec<ResearchTask> {
    let words = words(prompt);
    let has = |starts: &[&str]| words.iter().any(|word| starts.iter().any(|start| word.starts_with(start)));
    let is = |wanted: &[&str]| words.iter().any(|word| wanted.contains(&word.as_str()));
    if is(&["find", "finds", "search", "searches", "locate"]) {
        let part = |kind, place: &str| ResearchTask::new(kind, format!("{prompt}\n\nLook only at {place}."));
        return vec![
            part(Researcher::FileSearcher, "the source code, without its tests"),
            part(Researcher::FileSearcher, "the tests"),
            part(Researcher::DocReader, "the documents, the changelog and the comments"),
        ];
    }
    let kind = if has(&["depend", "import"]) {
        Researcher::DependencyMapper
    } else if has(&["pattern", "convention", "idiom"]) {
        Researcher::PatternFinder
    } else if is(&["web", "internet", "online", "http", "https"]) {
        Researcher::WebSearcher
    } else if is(&["doc", "docs", "documentation", "manual", "readme", "changelog"]) {
        Researcher::DocReader
    } else {
        Researcher::FileSearcher
    };
    vec![ResearchTask::new(kind, prompt)]
}

/// True if a sentence of the prompt, or a clause after `then`, begins with a verb that asks for a change. It errs on
/// the side of research: the scope of the agents is what keeps them from changing anything.
fn asks_for_a_change(prompt: &str) -> bool {
    let sentences = prompt.split(['.', '!', '?', ';', '\n']).map(words);
    sentences.into_iter().any(|sentence| sentence.split(|word| word == "then").any(begins_with_a_change))
}

fn begins_with_a_change(clause: &[String]) -> bool {
    let mut clause = clause.iter().map(String::as_str).skip_while(|word| POLITE.contains(word));
    match clause.next() {
        Some("write") => clause.any(|word| CODE.contains(&word)),
        Some(verb) => CHANGES.contains(&verb),
        None => false,
    }
}

/// Returns the words of a text in small letters.
fn words(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::{MOST_TASKS, Plan, ResearchTask, by_words, check_prompt};
    use crate::research::Researcher::{
        self, DependencyMapper, DocReader, FileSearcher, PatternFinder, WebSearcher,
    };

    #[test]
    fn ai08_the_words_of_a_question_make_its_tasks() {
        let search: &[Researcher] = &[FileSearcher, FileSearcher, DocReader];
        for (prompt, kinds) in [
            ("Find the retry logic", search),
            ("SEARCH for uses of the clock", search),
            ("Where do we search, and on what does it depend?", search),
            ("What does the store depend on?", &[DependencyMapper]),
            ("Which modules import serde?", &[DependencyMapper]),
            ("What patterns do the tests follow?", &[PatternFinder]),
            ("Is there a convention for errors?", &[PatternFinder]),
            ("What is new on the web about Rust?", &[WebSearcher]),
            ("What does the README promise?", &[DocReader]),
            ("How does the lease work?", &[FileSearcher]),
            // Words, and no parts of words.
            ("What are the findings of the researchers?", &[FileSearcher]),
            ("Was heißt ‘Größe’?", &[FileSearcher]),
        ] {
            let tasks = by_words(prompt);
            assert_eq!(tasks.iter().map(|task| task.kind).collect::<Vec<_>>(), kinds, "{prompt}");
            assert!(tasks.iter().all(|task| task.prompt.starts_with(prompt)), "{prompt}");
            let places: std::collections::BTreeSet<_> = tasks.iter().map(|task| &task.prompt).collect();
            assert_eq!(places.len(), tasks.len(), "each has a place of its own: {tasks:?}");
        }
    }

    #[test]
    fn ai08_coding_tasks_are_refused_and_questions_about_code_are_not() {
        for (prompt, is_research) in [
            ("Fix the parser", false),
            ("please implement a cache", false),
            ("Could you rename it?", false),
            ("Find the bug, then fix it", false),
            ("Where is it? Delete it.", false),
            ("Write tests for the parser", false),
            ("Now, write a function", false),
            (" \n", false),
            ("", false),
            ("Where was the parser fixed?", true),
            ("Who would rename it, and why?", true),
            ("Write a summary of how leases work", true),
            ("How do I add a provider?", true),
            ("Which functions read and write files?", true),
            ("What does `fix` do? And then?", true),
        ] {
            assert_eq!(check_prompt(prompt).is_ok(), is_research, "{prompt}");
        }
    }

    #[test]
    fn ai08_a_plan_that_cannot_be_worked_on_is_told_to_the_planner() {
        let task = |prompt: &str| ResearchTask::new(FileSearcher, prompt);
        for (changes, tasks, problem) in [
            (false, vec![task("a")], None),
            (false, vec![task("a"); MOST_TASKS], None),
            (true, vec![], None),
            (false, vec![], Some("no task")),
            (false, vec![task("a"); MOST_TASKS + 1], Some("51 tasks")),
            (false, vec![task("a"), task(" ")], Some("task 2 has no prompt")),
        ] {
            let checked = Plan { changes, tasks }.check().err();
            let fits = match (&checked, problem) {
                (Some(told), Some(problem)) => told.contains(problem),
                (None, None) => true,
                _ => false,
            };
            assert!(fits, "{checked:?} {problem:?}");
        }
    }
}
