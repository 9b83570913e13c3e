//! The modes that an agent offers, and the configuration option that they make. Plain values that know no protocol;
//! their JSON is what editors that drive agents exchange.

use std::sync::Arc;

use entourage_runtime::Mode;
use serde::{Deserialize, Serialize};

/// The modes of a session, and the one of its next run.
///
/// ```
/// use entourage_runtime::Mode;
/// use entourage_runners::ModeState;
///
/// let state = ModeState::new("ask", [Mode::new("ask", "Ask"), Mode::new("code", "Code")]);
/// assert_eq!(
///     serde_json::to_string(&state).unwrap(),
///     r#"{"currentModeId":"ask","availableModes":[{"id":"ask","name":"Ask"},{"id":"code","name":"Code"}]}"#
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ModeState {
    /// Id of the next run's mode.
    pub current_mode_id: Arc<str>,
    /// Modes to pick from, in display order.
    pub available_modes: Vec<Mode>,
}

impl ModeState {
    /// Creates a state with these modes, of which `current` is picked.
    pub fn new(current: impl Into<Arc<str>>, available: impl IntoIterator<Item = Mode>) -> Self {
        Self { current_mode_id: current.into(), available_modes: available.into_iter().collect() }
    }

    /// Returns the state as a configuration option, for clients that prefer a single list of options.
    #[must_use]
    pub fn to_option(&self) -> ConfigOption {
        let choice = |mode: &Mode| ConfigChoice {
            value: Arc::clone(&mode.id),
            name: Arc::clone(&mode.name),
            description: mode.description.clone(),
        };
        ConfigOption {
            id: "mode".into(),
            name: "Mode".into(),
            category: Some("mode".into()),
            kind: ConfigKind::Select,
            current_value: Arc::clone(&self.current_mode_id),
            options: self.available_modes.iter().map(choice).collect(),
        }
    }
}

/// One setting of a session with a fixed set of values.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ConfigOption {
    /// Id for programs.
    pub id: Arc<str>,
    /// Name for people.
    pub name: Arc<str>,
    /// Category of the setting, such as `mode` or `model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<Arc<str>>,
    /// Kind of the setting.
    #[serde(rename = "type")]
    pub kind: ConfigKind,
    /// Value for the next run.
    pub current_value: Arc<str>,
    /// Values to pick from.
    pub options: Vec<ConfigChoice>,
}

/// The way in which a setting is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ConfigKind {
    /// One of several values is picked.
    Select,
}

/// One value of a setting.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ConfigChoice {
    /// Value for programs.
    pub value: Arc<str>,
    /// Name for people.
    pub name: Arc<str>,
    /// Description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<Arc<str>>,
}
