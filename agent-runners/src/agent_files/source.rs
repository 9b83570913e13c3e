//! Definitions as they were written, and the place that they are read from.

use std::collections::BTreeMap;

use async_trait::async_trait;
use entourage_core::{Digest, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The place that definitions of agents are read from.
#[async_trait]
pub trait AgentSource: Send + Sync {
    /// Reads all definitions, as they are now. A definition of a project has replaced one of the user by then, and
    /// texts hold no characters that a person does not see: models and people are shown them as they are.
    ///
    /// # Errors
    /// An error where nothing can be read at all. Whatever else is wrong is a problem of a definition.
    async fn read(&self) -> Result<AgentTexts>;

    /// Returns the instructions of `text` with the text of its context files. By default there are none.
    ///
    /// # Errors
    /// An error for a context file that may not be read.
    async fn complete(&self, text: &AgentText) -> Result<String> {
        Ok(text.instructions.clone())
    }
}

/// One definition as it was written. Runs record it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AgentText {
    /// The agent's name.
    pub name: String,
    /// The path of the file, as one line; empty for none.
    #[serde(default)]
    pub path: String,
    /// True for one that comes with a project, whose author the user need not know.
    #[serde(default)]
    pub from_project: bool,
    /// The keys of the file, but its name and its instructions.
    #[serde(default)]
    pub settings: Map<String, Value>,
    /// The agent's instructions.
    #[serde(default)]
    pub instructions: String,
}

impl AgentText {
    /// Creates a definition without settings.
    #[must_use]
    pub fn new(name: impl Into<String>, instructions: impl Into<String>) -> Self {
        let (name, instructions) = (name.into(), instructions.into());
        Self { name, path: String::new(), from_project: false, settings: Map::new(), instructions }
    }

    /// The same with all these settings, in place of others.
    #[must_use]
    pub fn with_settings(mut self, settings: Map<String, Value>) -> Self {
        self.settings = settings;
        self
    }

    /// The same with one more setting.
    #[must_use]
    pub fn with_setting(mut self, key: impl Into<String>, value: Value) -> Self {
        self.settings.insert(key.into(), value);
        self
    }

    /// The same from a file at `path`.
    #[must_use]
    pub fn with_path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// The same as one that comes with a project, if it does.
    #[must_use]
    pub fn with_project(mut self, from_project: bool) -> Self {
        self.from_project = from_project;
        self
    }

    /// Returns the digest of all that it says. Its path does not count.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let settings = Value::Object(self.settings.clone()).to_string();
        let level: &[u8] = if self.from_project { b"project" } else { b"user" };
        Digest::of([self.name.as_bytes(), level, settings.as_bytes(), self.instructions.as_bytes()])
    }

    /// The path for errors, or the name where there is none.
    pub(super) fn place(&self) -> &str {
        if self.path.is_empty() { &self.name } else { &self.path }
    }
}

/// Definitions by name. It is a source of its own, which never changes.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct AgentTexts {
    /// The definitions; or the problem of one that cannot be read, for the user, with the next step.
    pub agents: BTreeMap<String, std::result::Result<AgentText, String>>,
    /// Other problems.
    pub problems: Vec<String>,
}

impl AgentTexts {
    /// Creates a set of definitions. A later one replaces one of the same name.
    pub fn new(texts: impl IntoIterator<Item = AgentText>) -> Self {
        let agents = texts.into_iter().map(|text| (text.name.clone(), Ok(text))).collect();
        Self { agents, problems: Vec::new() }
    }

    /// The same with the agent `name` being a problem.
    #[must_use]
    pub fn with_flawed(mut self, name: impl Into<String>, problem: impl Into<String>) -> Self {
        self.agents.insert(name.into(), Err(problem.into()));
        self
    }

    /// The same with one more problem.
    #[must_use]
    pub fn with_problem(mut self, problem: impl Into<String>) -> Self {
        self.problems.push(problem.into());
        self
    }
}

#[async_trait]
impl AgentSource for AgentTexts {
    async fn read(&self) -> Result<AgentTexts> {
        Ok(self.clone())
    }
}
