//! Facts about a model, as one struct.

use serde::{Deserialize, Serialize};

use super::Size;
use crate::Prices;

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
    /// True if the model sees images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vision: Option<bool>,
    /// True if the model reads documents such as PDF.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub documents: Option<bool>,
    /// True if the service makes the reply follow a schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_output: Option<bool>,
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
    /// Sets the context window, in tokens.
    #[must_use]
    pub fn with_context_window(mut self, context_window: u64) -> Self {
        self.context_window = Some(context_window);
        self
    }

    /// Sets the largest reply, in tokens.
    #[must_use]
    pub fn with_max_output(mut self, max_output: u64) -> Self {
        self.max_output = Some(max_output);
        self
    }

    /// Says whether the model can call tools.
    #[must_use]
    pub fn with_tools(mut self, tools: bool) -> Self {
        self.tools = Some(tools);
        self
    }

    /// Says whether the model sees images.
    #[must_use]
    pub fn with_vision(mut self, vision: bool) -> Self {
        self.vision = Some(vision);
        self
    }

    /// Says whether the model reads documents.
    #[must_use]
    pub fn with_documents(mut self, documents: bool) -> Self {
        self.documents = Some(documents);
        self
    }

    /// Says whether the service makes the reply follow a schema.
    #[must_use]
    pub fn with_structured_output(mut self, structured_output: bool) -> Self {
        self.structured_output = Some(structured_output);
        self
    }

    /// Says whether the model reasons before it answers.
    #[must_use]
    pub fn with_reasoning(mut self, reasoning: bool) -> Self {
        self.reasoning = Some(reasoning);
        self
    }

    /// Says whether the model accepts sampling parameters.
    #[must_use]
    pub fn with_sampling(mut self, sampling: bool) -> Self {
        self.sampling = Some(sampling);
        self
    }

    /// Sets the prices.
    #[must_use]
    pub fn with_prices(mut self, prices: Prices) -> Self {
        self.prices = Some(prices);
        self
    }

    /// Sets the size class.
    #[must_use]
    pub fn with_size(mut self, size: Size) -> Self {
        self.size = Some(size);
        self
    }

    /// These facts, with unknown ones taken from `others`.
    #[must_use]
    pub fn or(self, others: &Self) -> Self {
        Self {
            context_window: self.context_window.or(others.context_window),
            max_output: self.max_output.or(others.max_output),
            tools: self.tools.or(others.tools),
            vision: self.vision.or(others.vision),
            documents: self.documents.or(others.documents),
            structured_output: self.structured_output.or(others.structured_output),
            reasoning: self.reasoning.or(others.reasoning),
            sampling: self.sampling.or(others.sampling),
            prices: self.prices.or_else(|| others.prices.clone()),
            size: self.size.or(others.size),
        }
    }
}
