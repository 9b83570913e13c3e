//! The levels of autonomy, by name: how far an agent's own word goes that its task is done.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::Mode;
use crate::{Error, ErrorKind, Result};

/// How far an agent's own word goes. Each level adds to the one before; the order is that of the checks.
///
/// ```
/// use entourage_core::agent::AutonomyLevel;
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
    /// L1: done is a step without a tool call.
    #[default]
    React,
    /// L2: done is what the agent itself says when it is asked once more. Otherwise it goes on.
    Prompted,
    /// L3: done is what another model says that reads what was asked and what was done. Otherwise the agent goes on with
    /// its reasons.
    Judge,
    /// L4: done is what an agent says that looks for itself, and changes nothing.
    Verified,
    /// L5: done is what an agent says that has tools of its own to try the work with.
    Dual,
}

impl AutonomyLevel {
    /// All of them, in order.
    pub const ALL: [Self; 5] = [Self::React, Self::Prompted, Self::Judge, Self::Verified, Self::Dual];

    /// The stable name: also the id of the level's mode.
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

    /// 1 to 5.
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

    /// The level as a mode that a user may pick.
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
        Mode::new(self.as_str(), name).describe(description)
    }
}

impl fmt::Display for AutonomyLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for AutonomyLevel {
    type Err = Error;

    /// Reads a level's name.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for any other text.
    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|level| format!("`{level}`")).collect();
            let shown: String = text.chars().take(60).collect();
            let text = format!("`{shown}` is no level of autonomy; the levels are {}", names.join(", "));
            Error::new(ErrorKind::InvalidInput, text)
        })
    }
}
