//! Sampling and limits of a model call.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{PromptCache, ReasoningParams};
use crate::base::{json, setters, take_absent};

/// Sampling and limits of a call. An absent value is left out of the request.
///
/// ```
/// use entourage_core::provider::{Effort, Params};
///
/// let params = Params::default().with_max_output(2_000).with_temperature(0.2).with_reasoning(Effort::Low);
/// assert_eq!(params.max_output, Some(2_000));
/// ```
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
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "json::option")]
    pub extra: Option<Value>,
}

impl Params {
    setters! {
        /// Sets the randomness, from 0.
        with_temperature(temperature: f64) => Some(temperature);
        /// Sets nucleus sampling.
        with_top_p(top_p: f64) => Some(top_p);
        /// Samples among the `top_k` likeliest tokens.
        with_top_k(top_k: u32) => Some(top_k);
        /// Sets the penalty for tokens that already occurred.
        with_presence_penalty(presence_penalty: f64) => Some(presence_penalty);
        /// Sets the penalty by how often a token occurred.
        with_frequency_penalty(frequency_penalty: f64) => Some(frequency_penalty);
        /// Limits the reply to this many tokens.
        with_max_output(max_output: u64) => Some(max_output);
        /// Sets the seed for repeatable sampling.
        with_seed(seed: i64) => Some(seed);
        /// Allows, or forbids, several tool calls in one reply.
        with_parallel_tool_calls(parallel_tool_calls: bool) => Some(parallel_tool_calls);
        /// Sets the amount of reasoning; an [`Effort`](super::Effort) suffices.
        with_reasoning(reasoning: impl Into<ReasoningParams>) => Some(reasoning.into());
        /// Marks the prompt for the service's cache.
        with_cache(cache: PromptCache) => Some(cache);
        /// Sets the key that routes calls to the same cache.
        with_cache_key(cache_key: impl Into<String>) => Some(cache_key.into());
        /// Asks services to enforce the tools' schemas, or not to.
        with_strict_tools(strict_tools: bool) => Some(strict_tools);
        /// Adds fields to the request body, for settings that only this service knows. An object.
        with_extra(extra: Value) => Some(extra);
    }

    /// Sets the texts that end the reply.
    #[must_use]
    pub fn with_stop<S: Into<String>>(mut self, stop: impl IntoIterator<Item = S>) -> Self {
        self.stop = stop.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a label for the service's own records.
    #[must_use]
    pub fn with_metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// These parameters, with absent ones taken from `defaults`. An output limit of 0 counts as absent.
    #[must_use]
    pub fn or(mut self, defaults: &Self) -> Self {
        let limit = |max: Option<u64>| max.filter(|max| *max > 0);
        take_absent!(self, defaults; temperature top_p top_k presence_penalty frequency_penalty seed extra);
        take_absent!(self, defaults; parallel_tool_calls reasoning cache cache_key strict_tools);
        self.max_output = limit(self.max_output).or(limit(defaults.max_output));
        if self.stop.is_empty() {
            self.stop.clone_from(&defaults.stop);
        }
        for (key, value) in &defaults.metadata {
            self.metadata.entry(key.clone()).or_insert_with(|| value.clone());
        }
        self
    }
}
