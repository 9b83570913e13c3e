//! Facts about a model, as one struct.

use serde::{Deserialize, Serialize};

use super::Size;
use crate::Prices;

/// Known facts about a model. `None` means unknown, and nothing is derived from an unknown figure.
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
