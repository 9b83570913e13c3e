//! Modes: ways to work that a user picks for a session by name, while a run is under way too. Plain values that know no
//! protocol; their JSON is what editors that drive agents exchange.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Result, event::Event};

/// A way to work that a user may pick.
///
/// ```
/// use entourage_core::agent::Mode;
///
/// let mode = Mode::new("plan", "Plan").describe("Looks and plans, and changes nothing");
/// assert_eq!(
///     serde_json::to_string(&mode).unwrap(),
///     r#"{"id":"plan","name":"Plan","description":"Looks and plans, and changes nothing"}"#
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Mode {
    /// What programs call it; stored with the session.
    pub id: Arc<str>,
    /// What people call it.
    pub name: Arc<str>,
    /// What it does, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<Arc<str>>,
}

impl Mode {
    /// A mode without a description.
    pub fn new(id: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { id: id.into(), name: name.into(), description: None }
    }

    /// The same with words about what it does.
    #[must_use]
    pub fn describe(mut self, description: impl Into<Arc<str>>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// The one of `offered` that has this id.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when there is none; it names those that there are.
    pub fn find<'a>(offered: &'a [Self], id: &str) -> Result<&'a Self> {
        offered.iter().find(|mode| *mode.id == *id).ok_or_else(|| {
            let ids: Vec<_> = offered.iter().map(|mode| format!("`{}`", mode.id)).collect();
            let shown: String = id.chars().take(60).collect();
            let text = match ids.as_slice() {
                [] => format!("there is no mode `{shown}`, and none to pick from here"),
                ids => format!("there is no mode `{shown}` here; pick one of {}", ids.join(", ")),
            };
            Error::new(ErrorKind::InvalidInput, text)
        })
    }
}

/// The modes of a session and the one that its next run works in.
///
/// ```
/// use entourage_core::agent::{Mode, ModeState};
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
    /// The mode that the next run works in.
    pub current_mode_id: Arc<str>,
    /// Those to pick from, in the order in which they are shown.
    pub available_modes: Vec<Mode>,
}

impl ModeState {
    /// These modes, of which `current` is picked.
    pub fn new(current: impl Into<Arc<str>>, available: impl IntoIterator<Item = Mode>) -> Self {
        Self { current_mode_id: current.into(), available_modes: available.into_iter().collect() }
    }

    /// The same as one option among others that a session may have, for those who prefer a single list of options.
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

/// The news that a session's mode changed; its next run works in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CurrentModeUpdate {
    /// The mode that the next run works in.
    pub current_mode_id: Arc<str>,
}

impl CurrentModeUpdate {
    /// The news of this mode.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self { current_mode_id: id.into() }
    }

    /// The news in an event, if it is about a change of mode.
    #[must_use]
    pub fn of(event: &Event) -> Option<Self> {
        match event {
            Event::ModeChanged(changed) => Some(Self::new(Arc::clone(&changed.mode))),
            _ => None,
        }
    }
}

/// One setting of a session with a fixed set of values.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ConfigOption {
    /// What programs call it.
    pub id: Arc<str>,
    /// What people call it.
    pub name: Arc<str>,
    /// What it is about, such as `mode` or `model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<Arc<str>>,
    /// How it is set.
    #[serde(rename = "type")]
    pub kind: ConfigKind,
    /// The value that the next run works with.
    pub current_value: Arc<str>,
    /// Those to pick from.
    pub options: Vec<ConfigChoice>,
}

/// How a setting is set.
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
    /// What programs call it.
    pub value: Arc<str>,
    /// What people call it.
    pub name: Arc<str>,
    /// What it means, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<Arc<str>>,
}
