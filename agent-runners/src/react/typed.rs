//! An agent whose answer is a value of a Rust type.

use std::{any::Any, fmt, marker::PhantomData, sync::Arc};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    agent::{Agent, AgentPart},
    provider::ModelSlot,
    run::{Outcome, RunContext, Task},
};
use entourage_runtime::AgentExt;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::{
    react::{ReactAgent, ReactBuilder, guard::REPAIRS},
    typed::{FINAL_ANSWER, OutcomeExt, Rule, Strategy, Validator},
};

/// An agent with tools whose answer is a `T`. Cloning shares the agent.
///
/// It is an [`Agent`] like any other, so it runs in sessions, below other agents and in graphs. The text of its
/// outcome is the value as JSON, which [`OutcomeExt::value`] reads.
///
/// The model calls its tools as it likes. Its answer is asked for by the best [`Strategy`] that the model offers
/// beside tools: the service's own form of replies, a tool `final_answer`, or instructions. An answer that does not
/// follow the schema of `T`, or that a validator refuses, is told to the model with the problem, and the model is asked
/// again. Each round is a step under the agent's limits, and is recorded as an
/// [`AnswerRefused`](crate::typed::AnswerRefused).
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_runners::ReactAgent;
/// use entourage_testkit::{FakeTool, ScriptedProvider};
/// use serde_json::json;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Report {
///     /// One line.
///     summary: String,
///     /// From 1 to 5.
///     severity: u8,
/// }
///
/// let provider = ScriptedProvider::new()
///     .call("grep", json!({"text": "panic"}))
///     .call("final_answer", json!({"summary": "It panics", "severity": 9}))
///     .call("final_answer", json!({"summary": "It panics", "severity": 4}));
/// let agent = ReactAgent::builder("triage", provider.model())
///     .tool(FakeTool::new("grep"))
///     .returns::<Report>()
///     .validate(|report, _| match report.severity {
///         1..=5 => Ok(()),
///         _ => Err("`severity` is from 1 to 5".to_owned()),
///     })
///     .build()
///     .unwrap();
/// assert_eq!(agent.ask("It crashes!").await.unwrap().severity, 4);
/// # });
/// ```
pub struct TypedAgent<T> {
    agent: Typed,
    makes: PhantomData<fn() -> T>,
}

/// The agent of a typed one, whatever it answers with.
#[derive(Debug, Clone)]
pub(crate) struct Typed(pub(crate) ReactAgent);

impl<T: DeserializeOwned + JsonSchema + 'static> TypedAgent<T> {
    /// Runs one prompt in a session of its own, in memory, and returns the value. The run begins when the future is
    /// first polled; dropping the future cancels it.
    ///
    /// # Errors
    /// The error that the run failed with, and those of [`OutcomeExt::value`].
    pub fn ask(&self, prompt: impl Into<Task>) -> impl Future<Output = Result<T>> + Send {
        let (agent, task) = (self.clone(), prompt.into());
        async move { agent.start(task).outcome().await?.value() }
    }
}

impl<T> TypedAgent<T> {
    /// Returns the same agent on another model.
    #[must_use]
    pub fn with_model(&self, model: impl Into<ModelSlot>) -> Self {
        Self { agent: Typed(self.agent.0.with_model(model)), makes: PhantomData }
    }

    /// Returns the agent below, whose answers follow the same rule.
    pub(crate) fn into_react(self) -> ReactAgent {
        self.agent.0
    }
}

#[async_trait]
impl<T: 'static> Agent for TypedAgent<T> {
    fn name(&self) -> &str {
        self.agent.0.name()
    }

    fn description(&self) -> &str {
        self.agent.0.description()
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        self.agent.0.run(task, cx).await
    }

    fn parts(&self) -> Vec<AgentPart> {
        self.agent.0.parts()
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(&self.agent)
    }

    fn begins_with_an_effect(&self) -> bool {
        self.agent.0.begins_with_an_effect()
    }
}

impl<T> Clone for TypedAgent<T> {
    fn clone(&self) -> Self {
        Self { agent: self.agent.clone(), makes: PhantomData }
    }
}

impl<T> fmt::Debug for TypedAgent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedAgent").field(&self.agent.0).finish()
    }
}

impl ReactBuilder {
    /// Makes the agent answer with a `T`, once it has called its tools as it liked: see [`TypedAgent`].
    pub fn returns<T: DeserializeOwned + JsonSchema + 'static>(self) -> TypedBuilder<T> {
        TypedBuilder { agent: self, validators: Vec::new(), repairs: REPAIRS, strategy: None }
    }
}

/// Builds a [`TypedAgent`].
#[must_use = "a builder does nothing until `build`"]
pub struct TypedBuilder<T> {
    agent: ReactBuilder,
    validators: Vec<Validator<T>>,
    repairs: u32,
    strategy: Option<Strategy>,
}

impl<T: DeserializeOwned + JsonSchema + 'static> TypedBuilder<T> {
    /// Refuses values for which `validate` returns an error: the reason, in words for the model. All of several must
    /// accept a value, and the model is told the reasons of all that do not.
    ///
    /// It must follow from the value and the context alone, since a resumed run asks it again, and it may be asked more
    /// than once about one answer. It adds nothing to the run by its context. A panic in it refuses the answer, and its
    /// text is the reason.
    pub fn validate(
        mut self,
        validate: impl Fn(&T, &RunContext) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.validators.push(Box::new(validate));
        self
    }

    /// Sets how many refused answers of a run the model may repair. Default 1. After one more the run ends as stopped,
    /// with [`StopReason::Incomplete`](entourage_core::run::StopReason::Incomplete), which holds the problem.
    pub fn repairs(mut self, repairs: u32) -> Self {
        self.repairs = repairs;
        self
    }

    /// Sets the strategy, whatever the model is known to offer. Default: [`Strategy::of_agent`].
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = Some(strategy);
        self
    }

    /// Builds the agent.
    ///
    /// # Errors
    /// Those of [`ReactBuilder::build`]; [`ErrorKind::Config`] for a tool called `final_answer`.
    pub fn build(mut self) -> Result<TypedAgent<T>> {
        let rule = Rule::new(self.validators, self.repairs, self.strategy);
        self.agent.more().rule = Some(Arc::new(rule));
        let agent = self.agent.build()?;
        if agent.fixed_tools().is_some_and(|tools| tools.get(FINAL_ANSWER).is_some()) {
            let text = "the agent has a tool `final_answer`, which takes its typed answer; rename it";
            return Err(Error::new(ErrorKind::Config, text).with("agent", agent.name().to_owned()));
        }
        Ok(TypedAgent { agent: Typed(agent), makes: PhantomData })
    }
}

impl<T> fmt::Debug for TypedBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedBuilder")
            .field("agent", &self.agent)
            .field("validators", &self.validators.len())
            .field("repairs", &self.repairs)
            .finish_non_exhaustive()
    }
}
