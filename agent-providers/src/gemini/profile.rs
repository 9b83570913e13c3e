//! Facts from a model's name: its generation, and the abilities of all models of that generation.
//!
//! Names are the only source: the service's list of models does not say how to request thinking. An unknown name
//! counts as a new model, since old ones do not change.

use entourage_core::provider::Profile;

/// Facts from a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Name {
    /// The version; `None` for a name without one, such as `gemini-flash-latest`: the newest.
    version: Option<(u32, u32)>,
    own: bool,
    pro: bool,
    flash: bool,
    lite: bool,
    /// True if it makes pictures, speech or vectors.
    special: bool,
}

/// The form in which a model takes requests for thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thinking {
    /// Not supported: the service refuses the setting.
    Unknown,
    /// A number of tokens; `off` is true if 0 turns thinking off.
    Budget { least: u64, most: u64, off: bool },
    /// A level in words: low and high always exist.
    Level { minimal: bool, medium: bool },
}

impl Name {
    /// Parses `models/gemini-2.5-flash`, `gemini-3-pro-preview` and the like.
    pub(super) fn read(model: &str) -> Self {
        let name = model.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
        let after = name.strip_prefix("gemini-");
        let has = |word: &str| name.split('-').any(|part| part == word);
        Self {
            version: after.and_then(|rest| version(rest.split('-').next().unwrap_or_default())),
            own: after.is_some(),
            pro: has("pro"),
            flash: has("flash"),
            lite: has("lite"),
            special: ["image", "tts", "embedding", "live", "audio"].iter().any(|word| has(word)),
        }
    }

    /// True for the third generation and later: it thinks in levels, requires its signatures back, and gives typed
    /// replies beside tools.
    pub(super) fn is_recent(self) -> bool {
        self.own && self.version.is_none_or(|version| version >= (3, 0))
    }

    /// True if a reply can be typed while tools are offered. The first generations refuse the call.
    pub(super) fn types_beside_tools(self) -> bool {
        !self.own || self.is_recent()
    }

    pub(super) fn thinking(self, profile: &Profile) -> Thinking {
        let known = profile.reasoning;
        let recent = Thinking::Level {
            minimal: self.lite || (self.flash && self.version.is_some_and(|version| version <= (3, 6))),
            medium: !(self.pro && self.version == Some((3, 0))),
        };
        if known == Some(false) || (self.special && known.is_none()) {
            return Thinking::Unknown;
        }
        match self.version {
            Some((2, 5)) if self.pro => Thinking::Budget { least: 128, most: 32_768, off: false },
            Some((2, 5)) if self.lite => Thinking::Budget { least: 512, most: 24_576, off: true },
            Some((2, 5)) => Thinking::Budget { least: 1, most: 24_576, off: true },
            Some((0..=2, _)) => Thinking::Unknown,
            _ if self.own || known == Some(true) => recent,
            _ => Thinking::Unknown,
        }
    }

    /// The facts that hold for every model of such a name.
    pub(super) fn profile(self) -> Profile {
        let mut profile = Profile::default();
        if self.own && !self.special {
            profile.tools = Some(true);
            profile.vision = Some(true);
            profile.documents = Some(true);
            profile.structured_output = Some(true);
            profile.structured_beside_tools = Some(self.types_beside_tools());
            profile.reasoning = Some(self.thinking(&profile) != Thinking::Unknown);
        }
        profile
    }
}

/// Parses a version such as `2.5` or `3`.
fn version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.').unwrap_or((text, "0"));
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_how_a_model_thinks() {
        let budget = |least, most, off| Thinking::Budget { least, most, off };
        let level = |minimal, medium| Thinking::Level { minimal, medium };
        for (name, thinking) in [
            ("gemini-2.5-pro", budget(128, 32_768, false)),
            ("models/gemini-2.5-flash-preview-05-20", budget(1, 24_576, true)),
            ("gemini-2.5-flash-lite", budget(512, 24_576, true)),
            ("gemini-2.5-flash-image", Thinking::Unknown),
            ("gemini-2.0-flash", Thinking::Unknown),
            ("gemini-1.5-pro-002", Thinking::Unknown),
            ("gemini-3-pro-preview", level(false, false)),
            ("gemini-3.1-pro-preview", level(false, true)),
            ("gemini-3-flash-preview", level(true, true)),
            ("publishers/google/models/gemini-3.7-flash", level(false, true)),
            ("gemini-3.8-flash-lite", level(true, true)),
            ("gemini-flash-latest", level(false, true)),
            ("gemini-4-argon", level(false, true)),
            ("gemma-3-27b-it", Thinking::Unknown),
            ("endpoints/123", Thinking::Unknown),
        ] {
            assert_eq!(Name::read(name).thinking(&Profile::default()), thinking, "{name}");
        }
        let mut profile = Profile::default();
        profile.reasoning = Some(true);
        assert_eq!(Name::read("endpoints/123").thinking(&profile), level(false, true));
        profile.reasoning = Some(false);
        assert_eq!(Name::read("gemini-3-flash").thinking(&profile), Thinking::Unknown);
    }

    #[test]
    fn facts_are_stated_of_chat_models_only() {
        assert_eq!(Name::read("gemini-2.5-flash").profile().documents, Some(true));
        assert_eq!(Name::read("gemini-2.0-flash").profile().reasoning, Some(false));
        for other in ["gemma-3-27b-it", "gemini-2.5-flash-image", ""] {
            assert_eq!(Name::read(other).profile(), Profile::default(), "{other}");
        }
    }
}
