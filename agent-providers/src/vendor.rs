//! Services that are known by name, as data. What is here is an address and habits, never a price or a promise.

use crate::openai_chat::Dialect;

/// A known service that speaks chat completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Vendor {
    /// The name in `vendor:model`.
    pub name: &'static str,
    /// The address below which its calls go.
    pub base_url: &'static str,
    /// The environment variable with its key; `None` for servers on this machine, which want none.
    pub key_variable: Option<&'static str>,
    /// A model to take when none is named: only where the service keeps one name for its general model.
    pub default_model: Option<&'static str>,
    /// What it does differently on this wire.
    pub dialect: Dialect,
}

/// OpenAI itself.
pub const OPENAI: Vendor = Vendor {
    name: "openai",
    base_url: "https://api.openai.com/v1",
    key_variable: Some("OPENAI_API_KEY"),
    default_model: Some("gpt-5-mini"),
    dialect: Dialect { max_completion_tokens: true, top_k: false, ..Dialect::COMMON },
};

/// The known services, in the order in which the environment is searched for their keys, and then the local servers.
pub const VENDORS: &[Vendor] = &[
    OPENAI,
    remote(
        "openrouter",
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        Some("openrouter/auto"),
        Dialect::COMMON,
    ),
    remote("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", Some("deepseek-chat"), NO_TOP_K),
    remote("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", None, NO_TOP_K),
    remote(
        "mistral",
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
        Some("mistral-medium-latest"),
        // It reports usage unasked, and refuses fields that it does not know.
        Dialect { stream_options: false, ..NO_TOP_K },
    ),
    remote("xai", "https://api.x.ai/v1", "XAI_API_KEY", None, NO_TOP_K),
    remote("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY", None, Dialect::COMMON),
    remote("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY", None, Dialect::COMMON),
    remote("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", None, NO_TOP_K),
    local("lmstudio", "http://127.0.0.1:1234/v1"),
    local("ollama", "http://127.0.0.1:11434/v1"),
    local("llamacpp", "http://127.0.0.1:8080/v1"),
];

const NO_TOP_K: Dialect = Dialect { top_k: false, ..Dialect::COMMON };

const fn remote(
    name: &'static str,
    base_url: &'static str,
    key: &'static str,
    default_model: Option<&'static str>,
    dialect: Dialect,
) -> Vendor {
    Vendor { name, base_url, key_variable: Some(key), default_model, dialect }
}

const fn local(name: &'static str, base_url: &'static str) -> Vendor {
    Vendor { name, base_url, key_variable: None, default_model: None, dialect: Dialect::COMMON }
}

/// The known service called `name`.
#[must_use]
pub fn named(name: &str) -> Option<&'static Vendor> {
    VENDORS.iter().find(|vendor| vendor.name == name)
}

/// The known service whose address `url` is, or lies below.
pub(crate) fn at_address(url: &str) -> Option<&'static Vendor> {
    VENDORS.iter().find(|vendor| {
        let rest = url.strip_prefix(vendor.base_url);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_told_apart() {
        for vendor in VENDORS {
            assert_eq!(named(vendor.name), Some(vendor));
            assert_eq!(at_address(&format!("{}/", vendor.base_url)), Some(vendor));
        }
        assert_eq!(at_address("https://api.openai.com/v1.evil.example"), None);
        assert_eq!(at_address("http://127.0.0.1:80800/v1"), None);
        assert_eq!(named("nobody"), None);
    }
}
