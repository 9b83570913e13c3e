//! Agents that files describe.
//!
//! [`in_folders`] reads them from folders; another place is a source of your own. The page `docs/agent-files.md` has
//! the form of the files.

use async_trait::async_trait;
use entourage_core::Result;
pub use entourage_runners::agent_files::{
    AgentDefinition, AgentFiles, AgentList, AgentMode, AgentRead, AgentSource, AgentText, AgentTexts,
    Catalogue, FileAgent, TeamDefinition, TeamMember,
};
use entourage_tools::agents::AgentFile;
pub use entourage_tools::agents::AgentFolders;

/// Returns the agents of the files in `folders`, with what `catalogue` has.
#[must_use]
pub fn in_folders(catalogue: Catalogue, folders: AgentFolders) -> AgentFiles {
    AgentFiles::new(catalogue, Folders(folders))
}

/// Folders as a source of definitions.
struct Folders(AgentFolders);

#[async_trait]
impl AgentSource for Folders {
    async fn read(&self) -> Result<AgentTexts> {
        let found = self.0.read().await?;
        let mut texts = AgentTexts::default();
        for (name, file) in found.agents {
            match file {
                Ok(file) => {
                    texts.agents.insert(name, Ok(text_of(file)));
                }
                Err(problem) => texts = texts.with_flawed(name, problem),
            }
        }
        Ok(found.problems.into_iter().fold(texts, AgentTexts::with_problem))
    }

    async fn complete(&self, text: &AgentText) -> Result<String> {
        let mut file = AgentFile::new(&*text.name, &*text.path, &*text.instructions);
        (file.from_project, file.settings) = (text.from_project, text.settings.clone());
        self.0.complete(&file).await
    }
}

fn text_of(file: AgentFile) -> AgentText {
    AgentText::new(file.name, file.instructions)
        .with_project(file.from_project)
        .with_path(file.path)
        .with_settings(file.settings)
}
