//! The levels of autonomy, by name.

use std::{fmt, str::FromStr};

use entourage_core::{Error, ErrorKind, Result};
use entourage_runtime::Mode;
use serde::{Deserialize, Serialize};

/// Level of autonomy: who decides that a task is complete. Each level checks more than the one before, and they are
/// ordered so.
///
/// ```
/// use entourage_runners::AutonomyLevel;
///
/// let level: AutonomyLevel = "judge".parse().unwrap();
/// assert_eq!((level, level.number()), (AutonomyLevel::Judge, 3));
/// assert!(AutonomyLevel::React < level && level < AutonomyLevel::Dual);
/// assert!("trust_me".parse::<AutonomyLevel>().unwrap_err().message().contains("`verified`"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AutonomyLevel {
    /// L1: the task is complete after a step without a tool call.
    #[default]
    React,
    /// L2: the task is complete when the agent, asked once more, says so. Otherwise it continues.
    Prompted,
    /// L3: another model compares the request with a report of the work and accepts or rejects it. After a rejection
    /// the agent continues with the reasons.
    Judge,
    /// L4: an agent that only reads inspects the work and accepts or rejects it.
    Verified,
    /// L5: an agent with tools of its own tries the work and accepts or rejects it.
    Dual,
}

impl AutonomyLevel {
    /// All levels, in order.
    pub const ALL: [Self; 5] = [Self::React, Self::Prompted, Self::Judge, Self::Verified, Self::Dual];

    /// Returns the stable name, which is also the id of the level's mode.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::React => "react",
            Self::Prompted => "prompted",
            Self::Judge => "judge",
            Self::Verified => "verified",
            Self::Dual => "dual",
        }
    }

    /// Returns the level's number, 1 to 5.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::React => 1,
            Self::Prompted => 2,
            Self::Judge => 3,
            Self::Verified => 4,
            Self::Dual => 5,
        }
    }

    /// Returns the level as a mode that a user may pick.
    #[must_use]
    pub fn mode(self) -> Mode {
        let (name, description) = match self {
            Self::React => ("React", "Works until it has nothing more to do"),
            Self::Prompted => ("Prompted", "Is asked once more whether it is done"),
            Self::Judge => ("Judge", "Goes on until another model finds the work complete"),
            Self::Verified => {
                ("Verified", "Goes on until a verifier that only reads has seen that it is complete")
            }
            Self::Dual => ("Dual", "Goes on until a second agent with tools of its own calls it complete"),
        };
        Mode::new(self.as_str(), name).with_description(description)
    }
}

impl fmt::Display for AutonomyLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for AutonomyLevel {
    type Err = Error;

    /// Parses a level's name.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for any other text.
    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|level| format!("`{level}`")).collect();
            let shown: String = text.chars().take(60).collect();
            let text = format!("`{shown}` is not a level of autonomy; the levels are {}", names.join(", "));
            Error::new(ErrorKind::InvalidInput, text)
        })
    }
}
