//! Requests to a model, in provider-neutral terms.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Profile;
use crate::{message::History, spec::ToolSpec};

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

    /// The same request with system instructions.
    #[must_use]
    pub fn with_instructions(mut self, instructions: impl Into<Arc<str>>) -> Self {
        self.instructions = instructions.into();
        self
    }

    /// The same request offering `tools`.
    #[must_use]
    pub fn with_tools(mut self, tools: impl Into<Arc<[ToolSpec]>>) -> Self {
        self.tools = tools.into();
        self
    }

    /// The same request with a tool choice.
    #[must_use]
    pub fn with_tool_choice(mut self, choice: ToolChoice) -> Self {
        self.tool_choice = choice;
        self
    }

    /// The same request for a reply in this form.
    #[must_use]
    pub fn with_output(mut self, output: impl Into<OutputFormat>) -> Self {
        self.output = output.into();
        self
    }

    /// The same request with facts about its model.
    #[must_use]
    pub fn with_profile(mut self, profile: impl Into<Arc<Profile>>) -> Self {
        self.profile = profile.into();
        self
    }

    /// The same request with parameters.
    #[must_use]
    pub fn with_params(mut self, params: impl Into<Arc<Params>>) -> Self {
        self.params = params.into();
        self
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

/// Sampling and limits of a call. An absent value is left out of the request.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Params {
    /// Randomness, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Sampling among the k likeliest tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u32>,
    /// Penalty for tokens that already occurred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<f64>,
    /// Penalty by how often a token occurred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<f64>,
    /// Largest reply in tokens. 0 counts as absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// Texts that end the reply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Seed for repeatable sampling, where the service offers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// True if one reply may hold several tool calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// Amount of reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<ReasoningParams>,
    /// Marks tools, instructions and conversation for the service's prompt cache, where it wants marks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<PromptCache>,
    /// Key that routes calls to the same cache, where the service takes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_key: Option<String>,
    /// True if services should enforce the tools' schemas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict_tools: Option<bool>,
    /// Labels for the service's own records. `user_id` is the end user, in a form that identifies nobody.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Fields added to the request body unchanged, for settings that only this service knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Value>,
}

impl Params {
    /// These parameters, with absent ones taken from `defaults`. An output limit of 0 counts as absent.
    #[must_use]
    pub fn or(mut self, defaults: &Self) -> Self {
        let limit = |max: Option<u64>| max.filter(|max| *max > 0);
        self.temperature = self.temperature.or(defaults.temperature);
        self.top_p = self.top_p.or(defaults.top_p);
        self.top_k = self.top_k.or(defaults.top_k);
        self.presence_penalty = self.presence_penalty.or(defaults.presence_penalty);
        self.frequency_penalty = self.frequency_penalty.or(defaults.frequency_penalty);
        self.max_output = limit(self.max_output).or(limit(defaults.max_output));
        if self.stop.is_empty() {
            self.stop.clone_from(&defaults.stop);
        }
        self.seed = self.seed.or(defaults.seed);
        self.parallel_tool_calls = self.parallel_tool_calls.or(defaults.parallel_tool_calls);
        self.reasoning = self.reasoning.or(defaults.reasoning);
        self.cache = self.cache.or(defaults.cache);
        self.cache_key = self.cache_key.or_else(|| defaults.cache_key.clone());
        self.strict_tools = self.strict_tools.or(defaults.strict_tools);
        for (key, value) in &defaults.metadata {
            self.metadata.entry(key.clone()).or_insert_with(|| value.clone());
        }
        self.extra = self.extra.or_else(|| defaults.extra.clone());
        self
    }
}
