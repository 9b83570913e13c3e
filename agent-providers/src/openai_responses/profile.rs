//! Facts from the wire alone: which of OpenAI's models reason, and with which efforts.

use entourage_core::provider::{Effort, Profile};

use super::NAME;
use crate::vendor;

/// Abilities that follow from a model's name. Nothing is known of names that are not OpenAI's. The search for tools is
/// one of its own service.
pub(super) fn of(vendor: &str, model: &str) -> Profile {
    let mut profile = Profile::default();
    let name = model.rsplit('/').next().unwrap_or(model);
    if name.starts_with("gpt-") || efforts(model).is_some() {
        profile.structured_beside_tools = Some(true);
    }
    let searches = version(name).is_some_and(|version| version >= (5, 4)) && !name.contains("-nano");
    if searches && [vendor::OPENAI.name, NAME].contains(&vendor) {
        profile.tool_search = Some(true);
    }
    if let Some(words) = efforts(model) {
        profile.reasoning = Some(true);
        // Sampling can be set from the generation on that can work without reasoning.
        profile.sampling = Some(words.contains(&Effort::None)).filter(|can| !can);
    }
    profile
}

/// The efforts that a model knows, the least first; `None` for models that do not reason and for unknown ones.
fn efforts(model: &str) -> Option<&'static [Effort]> {
    use Effort::{High, Low, Max, Medium, Minimal, None as Nothing};
    let name = model.rsplit('/').next().unwrap_or(model);
    if ["o1", "o3", "o4"]
        .iter()
        .any(|start| name.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')))
    {
        return Some(&[Low, Medium, High]);
    }
    match version(name)? {
        (5, 0) if name.contains("-codex") => Some(&[Low, Medium, High]),
        (5, 0) => Some(&[Minimal, Low, Medium, High]),
        (5, 1) if !name.contains("-max") => Some(&[Nothing, Low, Medium, High]),
        _ => Some(&[Nothing, Low, Medium, High, Max]),
    }
}

/// The version of a model from GPT-5 on that is no chat model; the argument is its name without a path.
fn version(name: &str) -> Option<(u32, u32)> {
    let rest = name.strip_prefix("gpt-").filter(|rest| !rest.contains("-chat"))?;
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
    let major: u32 = digits(rest).parse().ok().filter(|major| (5..20).contains(major))?;
    let minor = rest.split_once('.').filter(|(before, _)| *before == major.to_string());
    Some((major, minor.and_then(|(_, after)| digits(after).parse().ok()).unwrap_or(0)))
}

/// The wire's word for `effort` at `model`, and true if it means exactly that. A model that does not know the word
/// gets the next stronger one that it knows, or else its strongest.
pub(super) fn effort(model: &str, effort: Effort) -> (&'static str, bool) {
    let known =
        efforts(model).unwrap_or(&[Effort::None, Effort::Minimal, Effort::Low, Effort::Medium, Effort::High]);
    let nearest = known.iter().find(|known| **known >= effort).or(known.last()).copied().unwrap_or(effort);
    let word = match nearest {
        Effort::None => "none",
        Effort::Minimal => "minimal",
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::Max => "xhigh",
        _ => "high",
    };
    (word, nearest == effort || (effort == Effort::Max && efforts(model).is_none()))
}

/// The effort that replaces a budget of reasoning tokens, which this wire does not know.
pub(super) fn effort_for(budget: u64) -> Effort {
    match budget {
        0 => Effort::None,
        1..=1_024 => Effort::Minimal,
        1_025..=4_096 => Effort::Low,
        4_097..=16_384 => Effort::Medium,
        _ => Effort::High,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_which_models_reason_and_how() {
        for (model, reasons, sampling, max, none) in [
            ("o3-mini", Some(true), Some(false), "high", "low"),
            ("o4", Some(true), Some(false), "high", "low"),
            ("gpt-5", Some(true), Some(false), "high", "minimal"),
            ("openai/gpt-5-nano-2025-08-07", Some(true), Some(false), "high", "minimal"),
            ("gpt-5-codex", Some(true), Some(false), "high", "low"),
            ("gpt-5.1", Some(true), None, "high", "none"),
            ("gpt-5.1-codex-max", Some(true), None, "xhigh", "none"),
            ("gpt-5.6-terra", Some(true), None, "xhigh", "none"),
            ("gpt-6", Some(true), None, "xhigh", "none"),
            ("gpt-5-chat-latest", None, None, "high", "none"),
            ("gpt-4o", None, None, "high", "none"),
            ("gpt-4.1-mini", None, None, "high", "none"),
            ("gpt-35-turbo-16k", None, None, "high", "none"),
            ("grok-4.3", None, None, "high", "none"),
            ("o3d", None, None, "high", "none"),
            ("", None, None, "high", "none"),
        ] {
            let profile = of("openai", model);
            assert_eq!((profile.reasoning, profile.sampling), (reasons, sampling), "{model}");
            assert_eq!((effort(model, Effort::Max).0, effort(model, Effort::None).0), (max, none), "{model}");
        }
        for (vendor, model, searches) in [
            ("openai", "gpt-5.4", Some(true)),
            ("openai-responses", "gpt-5.4-mini-2026-03-17", Some(true)),
            ("openai", "gpt-6", Some(true)),
            ("openai", "gpt-5.4-nano", None),
            ("openai", "gpt-5.4-chat-latest", None),
            ("openai", "gpt-5.2", None),
            ("openai", "o4", None),
            ("azure", "gpt-5.4", None),
            ("gateway.example", "gpt-5.4", None),
        ] {
            assert_eq!(of(vendor, model).tool_search, searches, "{vendor}: {model}");
        }
        assert_eq!(effort("gpt-5.2", Effort::Minimal), ("low", false));
        assert_eq!(effort("gpt-5.2", Effort::High), ("high", true));
        let budgets = [0, 1, 1_024, 4_096, 16_384, 16_385].map(effort_for);
        assert_eq!(
            budgets,
            [Effort::None, Effort::Minimal, Effort::Minimal, Effort::Low, Effort::Medium, Effort::High]
        );
    }
}
