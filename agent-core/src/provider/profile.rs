//! Facts about a model, as one struct.

use serde::{Deserialize, Serialize};

use super::Size;
use crate::base::{Prices, setters, take_absent};

/// Known facts about a model. `None` means unknown, and nothing is derived from an unknown figure.
///
/// ```
/// use entourage_core::{Prices, provider::Profile};
///
/// // 3 USD per million tokens in, 15 USD per million out.
/// let prices = Prices::per_million_micros(3_000_000, 15_000_000);
/// let profile = Profile::default().with_context_window(200_000).with_prices(prices);
/// assert_eq!(profile.tools, None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Profile {
    /// Context window in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// Largest reply in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// True if the model can call tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<bool>,
    /// True if the service searches and loads deferred tools itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_search: Option<bool>,
    /// True if the model sees images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vision: Option<bool>,
    /// True if the model reads documents such as PDF.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub documents: Option<bool>,
    /// True if the service makes the reply follow a schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_output: Option<bool>,
    /// True if the service does so while the model may also call tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_beside_tools: Option<bool>,
    /// True if the model reasons before it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<bool>,
    /// True if the model accepts sampling parameters, such as the temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<bool>,
    /// Prices of the model; `None` makes every cost unknown, never zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
    /// Size class of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
}

impl Profile {
    setters! {
        /// Sets the context window, in tokens.
        with_context_window(context_window: u64) => Some(context_window);
        /// Sets the largest reply, in tokens.
        with_max_output(max_output: u64) => Some(max_output);
        /// Says whether the model can call tools.
        with_tools(tools: bool) => Some(tools);
        /// Says whether the service searches and loads [deferred](crate::tool::ToolSpec::deferred) tools itself.
        with_tool_search(tool_search: bool) => Some(tool_search);
        /// Says whether the model sees images.
        with_vision(vision: bool) => Some(vision);
        /// Says whether the model reads documents.
        with_documents(documents: bool) => Some(documents);
        /// Says whether the service makes the reply follow a schema.
        with_structured_output(structured_output: bool) => Some(structured_output);
        /// Says whether the service does so while the model may also call tools.
        with_structured_beside_tools(structured_beside_tools: bool) => Some(structured_beside_tools);
        /// Says whether the model reasons before it answers.
        with_reasoning(reasoning: bool) => Some(reasoning);
        /// Says whether the model accepts sampling parameters.
        with_sampling(sampling: bool) => Some(sampling);
        /// Sets the prices.
        with_prices(prices: Prices) => Some(prices);
        /// Sets the size class.
        with_size(size: Size) => Some(size);
    }

    /// These facts, with unknown ones taken from `others`.
    #[must_use]
    pub fn or(mut self, others: &Self) -> Self {
        take_absent!(self, others; context_window max_output tools tool_search vision documents structured_output);
        take_absent!(self, others; structured_beside_tools reasoning sampling prices size);
        self
    }
}
