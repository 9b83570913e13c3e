//! Facts from a model's name, used where nothing better is known.
//!
//! Only names of Claude models with a version carry facts; of other models nothing is known. A model of a later
//! version than these rules cover is treated like the last known one.

use entourage_core::provider::Profile;

use crate::vendor;

/// Facts from the name of a Claude model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claude {
    version: (u32, u32),
    /// True for a family whose thinking cannot be turned off.
    always_thinks: bool,
}

impl Claude {
    /// Reads names such as `claude-opus-4-6`, `claude-3-7-sonnet-20250219`, `claude-sonnet-4-5@20250929` and
    /// `us.anthropic.claude-haiku-4.5-v1:0`.
    pub(super) fn named(model: &str) -> Option<Self> {
        let name = model.to_ascii_lowercase();
        let (_, name) = name.split_once("claude-")?;
        let always_thinks = ["fable", "mythos"].iter().any(|family| name.starts_with(family));
        let mut words = name.split(['-', '.', '@', ':', '_']).peekable();
        // Longer numbers are dates.
        let number = |word: &str| word.parse::<u32>().ok().filter(|_| word.len() <= 2);
        let major = words.by_ref().find_map(number);
        let minor = words.peek().copied().and_then(number).unwrap_or(0);
        let version = match major {
            Some(major) => (major, minor),
            // The preview of this family has no number.
            None if always_thinks => (5, 0),
            None => return None,
        };
        Some(Self { version, always_thinks })
    }

    /// True if it can think at all.
    pub(super) fn thinks(self) -> bool {
        self.version >= (3, 7)
    }

    /// True if it can think adaptively.
    pub(super) fn adapts(self) -> bool {
        self.version >= (4, 6)
    }

    /// True if it refuses a budget for its thinking.
    pub(super) fn refuses_budget(self) -> bool {
        self.version >= (4, 7)
    }

    pub(super) fn always_thinks(self) -> bool {
        self.always_thinks
    }

    /// True if it refuses `temperature` and `top_p` together.
    pub(super) fn samples_one_way(self) -> bool {
        self.version >= (4, 1)
    }
}

pub(super) fn profile(vendor: &str, model: &str) -> Profile {
    let mut profile = Profile::default();
    if let Some(claude) = Claude::named(model) {
        profile.tools = Some(true);
        // Other services that speak this wire need not have the search.
        profile.tool_search = (vendor == vendor::ANTHROPIC.name && claude.version >= (4, 5)).then_some(true);
        profile.structured_beside_tools = Some(true);
        profile.vision = Some(claude.version >= (3, 0));
        profile.reasoning = Some(claude.thinks());
        profile.sampling = claude.refuses_budget().then_some(false);
        profile.max_output = Some(match claude.version {
            (..3, _) | (3, ..5) => 4_096,
            (3, 5..7) => 8_192,
            (3, _) => 64_000,
            (4, ..5) => 32_000,
            (4, 5) => 64_000,
            _ => 128_000,
        });
    }
    profile
}
