//! An agent as a tool of another agent.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Error,
    agent::{Agent, AgentPart, IntoAgent},
    permission::Scope,
    run::{Outcome, Status},
    tool::{Access, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};
use serde::Deserialize;
use serde_json::json;

/// Default time limit of one call: an agent works longer than other tools do.
const TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// An agent as a tool: the model of another agent delegates part of its work and gets the answer.
///
/// Each call has a child session of its own, titled `Sub-agent` and the agent's name. The agent sees the call's prompt
/// and nothing of the calling conversation. Its usage is charged to the budgets above it, and its permissions are
/// narrowed by their scopes. Calls of one step run in parallel, within the limit of
/// [`RuntimeBuilder::sub_agents`](entourage_runtime::RuntimeBuilder::sub_agents); the wait for a slot counts towards
/// the call's timeout.
///
/// # Tool result
/// - The agent's answer, when it completed with one.
/// - An error result with the reason, when the agent failed, was stopped or cancelled, or gave no answer. It includes
///   the text that a stopped agent had by then. The calling run continues.
/// - The calling run ends when the agent's session cannot be opened or written. It pauses when the agent's run pauses,
///   and is resumed with it; it stays open when the agent's run diverged. Cancelling it cancels the agent.
///
/// After a crash the call continues in the session that it began ([`Repeat::Resume`]). The result's metadata names that
/// session and the agent.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_runners::{AgentTool, ReactAgent};
/// use entourage_runtime::AgentExt;
/// use entourage_testkit::ScriptedProvider;
/// use serde_json::json;
///
/// let small = ScriptedProvider::new().text("In src/lexer.rs.");
/// let scout = ReactAgent::builder("scout", small.model()).build().unwrap();
///
/// let large = ScriptedProvider::new()
///     .call("agent", json!({"prompt": "Where are numbers read?"}))
///     .text("Numbers are read in src/lexer.rs.");
/// let lead = ReactAgent::builder("lead", large.model()).tool(AgentTool::new(scout)).build().unwrap();
/// assert_eq!(lead.ask("Where are numbers read?").await.unwrap(), "Numbers are read in src/lexer.rs.");
/// # });
/// ```
#[derive(Clone)]
pub struct AgentTool {
    agent: Arc<dyn Agent>,
    spec: ToolSpec,
    scope: Scope,
}

impl AgentTool {
    /// Tools that [`AgentTool::file_reader`] leaves its agent: they find and show text, and change nothing.
    pub const FILE_READING_TOOLS: [&str; 4] = ["glob", "grep", "ls", "view"];

    /// Creates the tool `agent`, which delegates to `agent` with all permissions of the caller. The model is told
    /// [what the agent is for](Agent::description), and how to delegate.
    pub fn new<Form>(agent: impl IntoAgent<Form>) -> Self {
        let description = "Hands a task to another agent, which works on it alone and answers once. It sees nothing of \
                           this conversation: the prompt must say all that it needs to know, and what it should answer \
                           with. Several calls at once run side by side.";
        Self::described_as(agent.into_agent(), description)
    }

    /// Creates the tool `agent`, which delegates to `agent` with [`Scope::read_only`], as
    /// [`DualBuilder::read_only`](crate::DualBuilder::read_only) gives it to a checker: the agent keeps all of its
    /// tools that only read, whatever their names, and cannot delegate in turn.
    pub fn read_only<Form>(agent: impl IntoAgent<Form>) -> Self {
        let description = "Hands a question to another agent, which looks things up, changes nothing, and answers once. \
                           It sees nothing of this conversation: the prompt must say all that it needs to know, and \
                           what it should answer with. Several calls at once run side by side.";
        Self::described_as(agent.into_agent(), description).with_scope(Scope::read_only())
    }

    /// Creates the tool `agent` like [`AgentTool::read_only`], with [`AgentTool::FILE_READING_TOOLS`] alone.
    pub fn file_reader<Form>(agent: impl IntoAgent<Form>) -> Self {
        let description = "Hands a question to another agent, which searches and reads files, changes nothing, and \
                           answers once. It sees nothing of this conversation: the prompt must say all that it needs to \
                           know, and what it should answer with. Several calls at once run side by side.";
        Self::described_as(agent.into_agent(), description)
            .with_scope(Scope::read_only().with_tools(Self::FILE_READING_TOOLS))
    }

    fn described_as(agent: Arc<dyn Agent>, delegation: &str) -> Self {
        let description = match agent.description().trim_end() {
            "" => delegation.to_owned(),
            description => format!("{description}\n\n{delegation}"),
        };
        let prompt = "The whole task, with all that the agent needs to know, and what it should answer with.";
        let schema = json!({
            "type": "object",
            "properties": { "prompt": { "type": "string", "description": prompt } },
            "required": ["prompt"],
        });
        let spec = ToolSpec::new("agent", description, schema)
            .with_access(Access::DELEGATE)
            .with_repeat(Repeat::Resume)
            .with_timeout(TIMEOUT);
        Self { agent, spec, scope: Scope::all() }
    }

    /// Renames the tool: several agents in one toolset need different names.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.spec = self.spec.with_name(name);
        self
    }

    /// Replaces the description that tells the model what the agent is for.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.spec = self.spec.with_description(description);
        self
    }

    /// Narrows the agent's permissions further, to `scope`.
    #[must_use]
    pub fn with_scope(mut self, scope: Scope) -> Self {
        self.scope = if self.scope.is_all() { scope } else { self.scope.narrow(&scope) };
        self
    }

    /// Limits each call to `limit`; an agent that takes longer is cancelled, and the model is told so. The time of an
    /// approver is not counted. Default: one hour.
    #[must_use]
    pub fn with_timeout(mut self, limit: Duration) -> Self {
        self.spec = self.spec.with_timeout(limit);
        self
    }
}

#[derive(Deserialize)]
struct Arguments {
    prompt: String,
}

#[async_trait]
impl Tool for AgentTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn parts(&self) -> Vec<AgentPart> {
        vec![AgentPart::agent(Arc::clone(&self.agent))]
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let Arguments { prompt } = input.parse()?;
        if prompt.trim().is_empty() {
            return Err(ToolError::tell(
                "the prompt is empty; say what the agent should do, and all that it needs to know",
            ));
        }
        let outcome = cx.run_agent(Arc::clone(&self.agent), prompt, self.scope.clone()).await?;
        let output = result(self.agent.name(), &outcome, cx)?;
        let session = cx.child_session().map_err(ToolError::Fatal)?;
        Ok(output.with_metadata(json!({ "agent": self.agent.name(), "session": session })))
    }
}

impl fmt::Debug for AgentTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentTool")
            .field("agent", &self.agent.name())
            .field("tool", &self.spec.name())
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

/// Returns the tool result for the outcome of the run of the agent `name`.
pub(crate) fn result(name: &str, outcome: &Outcome, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
    let answer = outcome.text.trim();
    let problem = match &outcome.status {
        Status::Completed if answer.is_empty() => {
            return Ok(ToolOutput::error(format!("the agent `{name}` ended without an answer")));
        }
        Status::Completed => return Ok(ToolOutput::text(outcome.text.clone())),
        Status::Cancelled if cx.cancellation().is_cancelled() => {
            return Err(ToolError::Fatal(Error::cancelled()));
        }
        Status::Cancelled => "was cancelled before it was finished".to_owned(),
        Status::Stopped(reason) => format!("was stopped before it was finished: {reason}"),
        Status::Failed(error) => format!("failed: {}", error.message),
        Status::Paused(pause) => return Err(ToolError::Fatal(Error::paused(pause.clone()))),
        other => format!("ended without an answer: {other}"),
    };
    let said =
        if answer.is_empty() { String::new() } else { format!("\nWhat it had to say by then:\n{answer}") };
    Ok(ToolOutput::error(format!("the agent `{name}` {problem}{said}")))
}
