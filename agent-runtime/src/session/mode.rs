//! Modes: ways to work that a user picks for a session by name, even while a run is in progress. Plain values that know
//! no protocol; their JSON is what editors that drive agents exchange.

use std::sync::Arc;

use entourage_core::{Error, ErrorKind, Result, event::Event};
use serde::{Deserialize, Serialize};

/// A way to work that a user may pick.
///
/// ```
/// use entourage_runtime::Mode;
///
/// let mode = Mode::new("plan", "Plan").with_description("Looks and plans, and changes nothing");
/// assert_eq!(
///     serde_json::to_string(&mode).unwrap(),
///     r#"{"id":"plan","name":"Plan","description":"Looks and plans, and changes nothing"}"#
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Mode {
    /// Id for programs; stored with the session.
    pub id: Arc<str>,
    /// Name for people.
    pub name: Arc<str>,
    /// Description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<Arc<str>>,
}

impl Mode {
    /// Creates a mode without a description.
    pub fn new(id: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { id: id.into(), name: name.into(), description: None }
    }

    /// Returns the same mode with a description.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<Arc<str>>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Returns the mode of `offered` with this id.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when there is none; the message names the modes that there are.
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

/// Notice that a session's mode changed; it applies to the next run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CurrentModeUpdate {
    /// Id of the next run's mode.
    pub current_mode_id: Arc<str>,
}

impl CurrentModeUpdate {
    /// Creates the notice for this mode.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self { current_mode_id: id.into() }
    }

    /// Returns the notice in an event, if the event is a change of mode.
    #[must_use]
    pub fn of(event: &Event) -> Option<Self> {
        match event {
            Event::ModeChanged(changed) => Some(Self::new(Arc::clone(&changed.mode))),
            _ => None,
        }
    }
}
