//! Agents that files describe: their definitions, what a program gives them, and the agents made of both.
//!
//! Nothing here reads a file: a [`AgentSource`] does. A definition takes from what its program gives ([`Catalogue`])
//! and can only narrow it.

mod agent;
mod build;
mod catalogue;
mod definition;
mod settings;
mod source;
mod team;

#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use entourage_core::{Error, ErrorKind, Result};

pub use agent::{AgentRead, FileAgent};
pub use catalogue::{Catalogue, CatalogueBuilder};
pub use definition::{AgentDefinition, AgentMode};
pub use source::{AgentSource, AgentText, AgentTexts};
pub use team::{TeamDefinition, TeamMember};

use build::{Build, Known};

/// Agents by name, as files describe them, with what a program gives them. Cloning shares both.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_runners::agent_files::{AgentFiles, AgentText, AgentTexts, Catalogue};
/// use entourage_runtime::AgentExt;
/// use entourage_testkit::ScriptedProvider;
/// use serde_json::json;
///
/// let provider = ScriptedProvider::new().text("Paris.");
/// let text = AgentText::new("geographer", "You answer in one word.")
///     .with_setting("description", json!("Knows places."));
/// let catalogue = Catalogue::builder(provider.model()).build()?;
/// let agents = AgentFiles::new(catalogue, AgentTexts::new([text]));
/// let agent = agents.agent("geographer").await?;
/// assert_eq!(agent.ask("What is the capital of France?").await?, "Paris.");
/// assert!(agents.agent("geolog").await.unwrap_err().message().contains("geographer"));
/// # Ok::<_, entourage_core::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct AgentFiles {
    catalogue: Catalogue,
    source: Arc<dyn AgentSource>,
}

/// The agents that files describe, at one moment.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct AgentList {
    /// The definitions of which agents can be made, by name.
    pub definitions: Vec<AgentDefinition>,
    /// The reasons why others could not be read or made, for the user, each with the next step.
    pub problems: Vec<String>,
}

impl AgentList {
    /// Returns the definitions of the agents that a person may pick: those of [`AgentMode::Primary`] and
    /// [`AgentMode::All`].
    pub fn selectable(&self) -> impl Iterator<Item = &AgentDefinition> {
        self.definitions.iter().filter(|definition| definition.mode.is_selectable())
    }
}

impl AgentFiles {
    /// Creates the agents of `source` with what `catalogue` has.
    #[must_use]
    pub fn new(catalogue: Catalogue, source: impl AgentSource + 'static) -> Self {
        Self { catalogue, source: Arc::new(source) }
    }

    /// Reads all definitions, and checks each against the catalogue.
    ///
    /// # Errors
    /// Those of [`AgentSource::read`]. A bad definition is among the problems.
    pub async fn list(&self) -> Result<AgentList> {
        let known = Known::new(self.source.read().await?);
        let texts = known.texts();
        let mut list = AgentList { problems: texts.problems.clone(), ..AgentList::default() };
        let build = Build::new(self, &known);
        for name in texts.agents.keys() {
            match build.checked(name) {
                Ok(definition) => list.definitions.push(AgentDefinition::clone(&definition)),
                Err(error) => list.problems.push(error.message().to_owned()),
            }
        }
        Ok(list)
    }

    /// Returns the agent of this name, for a person who picked it.
    ///
    /// Its description is that of this moment. Each run reads the definition anew: see [`FileAgent`].
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for a name that no selectable agent has, with those that there are;
    /// [`ErrorKind::InvalidInput`] and [`ErrorKind::Config`] for a definition that cannot be read or made an agent,
    /// those of the agents below it included; the errors of [`AgentSource::read`].
    pub async fn agent(&self, name: &str) -> Result<FileAgent> {
        let known = Arc::new(Known::new(self.source.read().await?));
        let definition = Build::new(self, &known).selected(name)?;
        Ok(FileAgent::new(self.clone(), definition.name.clone(), &definition.description, Some(known), true))
    }

    /// Returns the agent of this name without a look at its file, to continue the runs that a process left: these use
    /// the definition that they recorded, also where the file is gone. A new run of it reads the file. An
    /// [`engine`](entourage_runtime::engine) finds no code of agents below it: give that one of [`AgentFiles::agent`].
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a text that cannot name an agent.
    pub fn unread(&self, name: &str) -> Result<FileAgent> {
        entourage_runtime::check_agent_name(name)?;
        Ok(FileAgent::new(self.clone(), name.to_owned(), "", None, true))
    }
}

impl fmt::Debug for AgentFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentFiles").field("catalogue", &self.catalogue).finish_non_exhaustive()
    }
}

/// Most names that an error lists.
const LISTED: usize = 50;

/// Returns the error of a name that there is not, with those that there are.
fn unknown<'a>(
    kind: ErrorKind,
    what: &str,
    name: &str,
    there_are: impl IntoIterator<Item = &'a str>,
) -> Error {
    let name: String = name.chars().take(80).collect();
    let all: Vec<_> = there_are.into_iter().map(|one| format!("`{one}`")).collect();
    let list = match all.get(LISTED..).map_or(0, <[_]>::len) {
        _ if all.is_empty() => "there is none".to_owned(),
        0 => format!("there are {}", all.join(", ")),
        more => format!("there are {} and {more} more", all.get(..LISTED).unwrap_or_default().join(", ")),
    };
    Error::new(kind, format!("there is no {what} `{name}`; {list}"))
}
