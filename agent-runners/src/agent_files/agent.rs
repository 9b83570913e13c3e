//! An agent that reads its definition at the start of each run.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use entourage_core::{
    Digest, Error, ErrorKind, Result,
    agent::{Agent, AgentPart},
    event::Record,
    run::{Outcome, RunContext, Task},
    tool::Access,
};
use serde::{Deserialize, Serialize};

use super::{
    AgentDefinition, AgentFiles, AgentText,
    build::{Below, Build, Known, ceiling, make},
};

/// The record of the definition that a run uses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AgentRead {
    /// The digest of the definition, with the text of its context files.
    pub digest: Digest,
    /// The definition, with the text of its context files.
    pub text: AgentText,
    /// The descriptions of the agents of files below it, by name.
    #[serde(default)]
    pub below: Below,
}

impl Record for AgentRead {
    const KIND: &'static str = "agent.read";

    fn summary(&self) -> String {
        let digest: String = self.digest.to_string().chars().take(12).collect();
        format!("`{}` as described in `{}` ({digest})", self.text.name, self.text.place())
    }
}

/// An agent that a file describes. Cloning shares it.
///
/// # Contract
/// - A run reads the definition when it begins, so a change on disk counts from the next run on. It records an
///   [`AgentRead`] with the whole text.
/// - A run that is resumed or replayed uses the text that it recorded, whatever the files say by then. Where the
///   catalogue lacks something that this text names, it gets [`ErrorKind::Diverged`] and stays open.
/// - The agents below it are agents of files too, and read their own definitions when they begin.
/// - A definition that cannot be read, or that names what there is not, fails the run before its first model call.
#[derive(Clone)]
pub struct FileAgent(Arc<Inner>);

struct Inner {
    files: AgentFiles,
    name: String,
    description: String,
    /// The definitions at the time when it was made, by which its parts are found.
    known: Option<Arc<Known>>,
    /// True for an agent that a person picked.
    is_picked: bool,
}

impl FileAgent {
    pub(super) fn new(
        files: AgentFiles,
        name: String,
        description: &str,
        known: Option<Arc<Known>>,
        is_picked: bool,
    ) -> Self {
        Self(Arc::new(Inner { files, name, description: description.to_owned(), known, is_picked }))
    }

    /// Returns the record of this run's definition, if the run has been here before.
    async fn recorded(&self, cx: &RunContext) -> Result<Option<Arc<AgentRead>>> {
        if let Some(read) = cx.recorded::<AgentRead>()?.into_iter().find(|it| it.text.name == self.0.name) {
            return Ok(Some(read));
        }
        let replayed = cx.effects().replayed(cx).await?;
        let read = replayed.iter().find_map(|value| value.get::<AgentRead>().transpose()).transpose()?;
        Ok(read)
    }

    /// Reads the definition as it is now.
    async fn read(&self) -> Result<AgentRead> {
        let Inner { files, name, is_picked, .. } = &*self.0;
        let known = Known::new(files.source.read().await?);
        let below = {
            let build = Build::new(files, &known);
            let definition = if *is_picked { build.selected(name)? } else { build.called(name)? };
            build.below(&definition)?
        };
        let Some(Ok(text)) = known.texts().agents.get(name) else {
            return Err(Error::new(ErrorKind::Internal, "a definition that was read is not there"));
        };
        let mut text = text.clone();
        text.instructions = files.source.complete(&text).await?;
        Ok(AgentRead { digest: text.digest(), text, below })
    }

    /// The agent of the definition as it was when this one was made, if that is known and fit.
    fn known(&self) -> Option<Arc<dyn Agent>> {
        let Inner { files, known, name, .. } = &*self.0;
        let known = known.as_ref()?;
        let definition = known.definition(name)?.ok()?;
        let below = Build::new(files, known).below(&definition).ok()?;
        make(files, &definition, &below, Some(known)).ok()
    }

    /// Makes the agent of a definition that was recorded.
    fn made(&self, read: &AgentRead) -> Result<(Arc<dyn Agent>, AgentDefinition)> {
        let definition = AgentDefinition::read(&read.text)?;
        Ok((make(&self.0.files, &definition, &read.below, self.0.known.as_ref())?, definition))
    }
}

#[async_trait]
impl Agent for FileAgent {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn description(&self) -> &str {
        &self.0.description
    }

    fn parts(&self) -> Vec<AgentPart> {
        let mut parts = self.0.files.catalogue.parts();
        parts.extend(self.known().iter().flat_map(|agent| agent.parts()));
        parts
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        let (agent, definition) = match self.recorded(cx).await? {
            Some(read) => self.made(&read).map_err(|error| diverged(&self.0.name, &error))?,
            None => {
                let read = self.read().await?;
                let made = self.made(&read)?;
                cx.append(read)?;
                made
            }
        };
        let scope = ceiling(&self.0.files.catalogue, &definition);
        let cx = cx.narrowed(&scope);
        // A file is somebody's word: its team is no wider than a tool that starts an agent.
        if definition.team.is_some() && !cx.scope().access().contains(Access::DELEGATE) {
            let text = "it leads a team, and may start no agents here; give it the access `delegate`";
            return Err(Error::new(ErrorKind::PermissionDenied, format!("`{}`: {text}", definition.place())));
        }
        agent.run(task, &cx).await
    }
}

/// The error of a run whose recorded definition fits no more.
fn diverged(name: &str, error: &Error) -> Error {
    let text = format!(
        "the run of `{name}` began with a definition that the program has no agent for now: {}; resume it with what it \
         had",
        error.message()
    );
    Error::new(ErrorKind::Diverged, text)
}

impl fmt::Debug for FileAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileAgent").field("name", &self.0.name).finish_non_exhaustive()
    }
}
