//! What is asked of a model, in provider-neutral terms.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{message::History, tool::ToolSpec};

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
    /// Whether it may, must or must not call one.
    pub tool_choice: ToolChoice,
    /// Sampling and limits.
    pub params: Arc<Params>,
}

impl Request {
    /// A request of `messages` to `model`, with nothing else set.
    #[must_use]
    pub fn new(model: impl Into<Arc<str>>, messages: History) -> Self {
        Self::with_shared(model.into(), messages, Arc::default())
    }

    pub(crate) fn with_shared(model: Arc<str>, messages: History, params: Arc<Params>) -> Self {
        Self {
            model,
            instructions: Arc::default(),
            messages,
            tools: Arc::default(),
            tool_choice: ToolChoice::Auto,
            params,
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

    /// The same request with parameters.
    #[must_use]
    pub fn with_params(mut self, params: impl Into<Arc<Params>>) -> Self {
        self.params = params.into();
        self
    }
}

/// Whether the model may, must or must not call a tool.
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

/// Sampling and limits of a call. An absent value is left out of the request (CM18).
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
    /// Penalty for tokens that occurred.
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
    /// For repeatable sampling where the service offers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Whether several tool calls may come in one reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// Added to the request body as it is, for what only this service knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Value>,
}

impl Params {
    /// These parameters, with what is absent taken from `defaults`; 0 as output limit counts as absent.
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
        self.extra = self.extra.or_else(|| defaults.extra.clone());
        self
    }
}
