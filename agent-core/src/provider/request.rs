//! Requests to a model, in provider-neutral terms.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Params, Profile};
use crate::{
    base::setters,
    message::{History, deserialize_value},
    spec::ToolSpec,
};

/// One model call. Cheap to clone: history and tools are shared.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Request {
    /// The model's name at its service.
    pub model: Arc<str>,
    /// System instructions; empty means none.
    pub instructions: Arc<str>,
    /// The conversation so far.
    pub messages: History,
    /// The tools that the model is offered, sorted by name.
    pub tools: Arc<[ToolSpec]>,
    /// Rule for tool calls in the reply.
    pub tool_choice: ToolChoice,
    /// Form of the reply.
    pub output: OutputFormat,
    /// Sampling and limits.
    pub params: Arc<Params>,
    /// Known facts about the model, for wires that encode differently for different models. Not part of the request's
    /// content.
    #[serde(skip)]
    pub profile: Arc<Profile>,
}

impl Request {
    /// A request of `messages` to `model`, with nothing else set.
    #[must_use]
    pub fn new(model: impl Into<Arc<str>>, messages: History) -> Self {
        Self::with_shared(model.into(), messages, Arc::default(), Arc::default())
    }

    pub(crate) fn with_shared(
        model: Arc<str>,
        messages: History,
        params: Arc<Params>,
        profile: Arc<Profile>,
    ) -> Self {
        Self {
            model,
            instructions: Arc::default(),
            messages,
            tools: Arc::default(),
            tool_choice: ToolChoice::Auto,
            output: OutputFormat::Text,
            params,
            profile,
        }
    }

    /// The same request without what its service gets unread: that may be a secret, and another one in a later process.
    pub(crate) fn told(&self) -> Self {
        let mut told = self.clone();
        if self.params.extra.is_some() || !self.params.metadata.is_empty() {
            let params = Arc::make_mut(&mut told.params);
            (params.metadata, params.extra) = Default::default();
        }
        told
    }

    setters! {
        /// The same request with system instructions.
        with_instructions(instructions: impl Into<Arc<str>>) => instructions.into();
        /// The same request offering `tools`.
        with_tools(tools: impl Into<Arc<[ToolSpec]>>) => tools.into();
        /// The same request with a tool choice.
        with_tool_choice(tool_choice: ToolChoice) => tool_choice;
        /// The same request for a reply in this form.
        with_output(output: impl Into<OutputFormat>) => output.into();
        /// The same request with facts about its model.
        with_profile(profile: impl Into<Arc<Profile>>) => profile.into();
        /// The same request with parameters.
        with_params(params: impl Into<Arc<Params>>) => params.into();
    }
}

/// Rule for tool calls in a reply: allowed, forbidden or required.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// No calls in this reply.
    None,
    /// At least one call.
    Required,
    /// A call of this tool.
    Tool(String),
}

/// Form of a reply.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OutputFormat {
    /// Text in any form.
    #[default]
    Text,
    /// Any JSON value.
    Json,
    /// JSON that follows a schema.
    Schema(Arc<OutputSchema>),
}

impl From<OutputSchema> for OutputFormat {
    fn from(schema: OutputSchema) -> Self {
        Self::Schema(Arc::new(schema))
    }
}

/// Schema that a reply should follow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OutputSchema {
    /// Name of the schema: letters, digits, `_` and `-`, at most 64.
    pub name: String,
    /// Description of the value, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema, draft 2020-12. A wire translates it into its service's dialect.
    #[serde(deserialize_with = "deserialize_value")]
    pub schema: Value,
    /// True if the service should enforce the schema.
    pub strict: bool,
}

impl OutputSchema {
    /// An enforced schema.
    #[must_use]
    pub fn new(name: impl Into<String>, schema: Value) -> Self {
        Self { name: name.into(), description: None, schema, strict: true }
    }

    setters! {
        /// Tells the model what the value is.
        with_description(description: impl Into<String>) => Some(description.into());
        /// Sets whether the service enforces the schema.
        with_strict(strict: bool) => strict;
    }
}

/// Amount of reasoning before an answer. A wire translates between effort and budget where its service knows only one
/// of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReasoningParams {
    /// Effort in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// Maximum of reasoning tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<u64>,
    /// True if the reasoning, or its summary, should come with the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub show: Option<bool>,
}

impl ReasoningParams {
    setters! {
        /// Sets the effort in words.
        with_effort(effort: Effort) => Some(effort);
        /// Sets the number of reasoning tokens, at most.
        with_budget(budget: u64) => Some(budget);
        /// Sets whether the reasoning, or its summary, comes with the reply.
        with_show(show: bool) => Some(show);
    }
}

impl From<Effort> for ReasoningParams {
    fn from(effort: Effort) -> Self {
        Self { effort: Some(effort), ..Self::default() }
    }
}

/// Amount of reasoning, in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Effort {
    /// No reasoning.
    None,
    /// As little as the model can.
    Minimal,
    /// A little.
    Low,
    /// As much as the task needs.
    Medium,
    /// A lot.
    High,
    /// As much as the model can.
    Max,
}

/// Time that the service should keep the prompt cached for the next call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PromptCache {
    /// Some minutes: the service's shortest.
    Short,
    /// An hour or more: the service's longest.
    Long,
}
