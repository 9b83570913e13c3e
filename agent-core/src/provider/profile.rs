//! Facts about a model, as one struct.

use serde::{Deserialize, Serialize};

use crate::Prices;

/// What is known about a model. `None` means unknown, and nothing is derived from an unknown figure.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Profile {
    /// Context window in tokens.
    pub context_window: Option<u64>,
    /// Largest reply in tokens.
    pub max_output: Option<u64>,
    /// Whether the model can call tools.
    pub tools: Option<bool>,
    /// Whether the model sees images.
    pub vision: Option<bool>,
    /// What it costs; `None` makes every cost unknown, never zero.
    pub prices: Option<Prices>,
}
