//! Services that are known by name, as data: addresses and habits, never a price or a promise.

use crate::dialect::Dialect;

/// A known service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Vendor {
    /// The name in `vendor:model`, and in the catalogue.
    pub name: &'static str,
    /// The base address of its calls; empty if every customer has their own.
    pub base_url: &'static str,
    /// The environment variable with its key; `None` for servers on this machine, which need none.
    pub key_variable: Option<&'static str>,
    /// The model to use when none is named.
    pub default_model: Option<&'static str>,
    /// The wire that it speaks.
    pub wire: Speaks,
}

/// The wire that a service speaks, with its habits there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Speaks {
    /// The chat completions wire.
    OpenAiChat(Dialect),
    /// The responses wire.
    OpenAiResponses,
    /// The messages wire.
    AnthropicMessages,
    /// The generateContent wire.
    Gemini,
    /// Ollama's own chat.
    Ollama,
}

/// OpenAI itself.
pub const OPENAI: Vendor = Vendor {
    name: "openai",
    base_url: "https://api.openai.com/v1",
    key_variable: Some("OPENAI_API_KEY"),
    default_model: Some("gpt-5.4-mini"),
    wire: Speaks::OpenAiChat(Dialect::OPENAI),
};

/// The Anthropic service.
pub const ANTHROPIC: Vendor = Vendor {
    name: "anthropic",
    base_url: "https://api.anthropic.com/v1",
    key_variable: Some("ANTHROPIC_API_KEY"),
    default_model: Some("claude-sonnet-5-5"),
    wire: Speaks::AnthropicMessages,
};

/// Google's Gemini API.
pub const GEMINI: Vendor = Vendor {
    name: "gemini",
    base_url: "https://generativelanguage.googleapis.com/v1beta",
    key_variable: Some("GEMINI_API_KEY"),
    default_model: Some("gemini-flash-latest"),
    wire: Speaks::Gemini,
};

/// OpenAI models in an Azure resource. The address is `https://<resource>.openai.azure.com/openai/v1`, and the model
/// is the name of a deployment.
pub const AZURE: Vendor = Vendor {
    name: "azure",
    base_url: "",
    key_variable: Some("AZURE_OPENAI_API_KEY"),
    default_model: None,
    wire: Speaks::OpenAiChat(Dialect::AZURE),
};

/// The known services, in the order in which their keys are looked up in the environment, and then the local servers.
pub const VENDORS: &[Vendor] = &[
    OPENAI,
    ANTHROPIC,
    GEMINI,
    remote(
        "openrouter",
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        Some("openrouter/auto"),
        Dialect::OPENROUTER,
    ),
    remote(
        "deepseek",
        "https://api.deepseek.com/v1",
        "DEEPSEEK_API_KEY",
        Some("deepseek-flash"),
        Dialect::DEEPSEEK,
    ),
    remote("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", None, Dialect::GROQ),
    remote(
        "mistral",
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
        Some("mistral-medium-latest"),
        Dialect::MISTRAL,
    ),
    remote("xai", "https://api.x.ai/v1", "XAI_API_KEY", None, Dialect::XAI),
    remote("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY", None, Dialect::TOGETHER),
    remote(
        "fireworks",
        "https://api.fireworks.ai/inference/v1",
        "FIREWORKS_API_KEY",
        None,
        Dialect::FIREWORKS,
    ),
    remote(
        "perplexity",
        "https://api.perplexity.ai",
        "PERPLEXITY_API_KEY",
        Some("sonar"),
        Dialect::PERPLEXITY,
    ),
    remote("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", None, Dialect::GROQ),
    Vendor { name: "openai-responses", wire: Speaks::OpenAiResponses, ..OPENAI },
    local("lmstudio", "http://127.0.0.1:1234/v1", Speaks::OpenAiChat(Dialect::LM_STUDIO)),
    local("ollama", "http://127.0.0.1:11434/v1", Speaks::OpenAiChat(Dialect::OLLAMA)),
    local("ollama-native", "http://127.0.0.1:11434", Speaks::Ollama),
    local("llamacpp", "http://127.0.0.1:8080/v1", Speaks::OpenAiChat(Dialect::LLAMA_CPP)),
    local("vllm", "http://127.0.0.1:8000/v1", Speaks::OpenAiChat(Dialect::VLLM)),
];

/// Suffixes of host names that belong to [`AZURE`].
const AZURE_HOSTS: [&str; 3] =
    [".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com"];

const fn remote(
    name: &'static str,
    base_url: &'static str,
    key: &'static str,
    default_model: Option<&'static str>,
    dialect: Dialect,
) -> Vendor {
    let wire = Speaks::OpenAiChat(dialect);
    Vendor { name, base_url, key_variable: Some(key), default_model, wire }
}

const fn local(name: &'static str, base_url: &'static str, wire: Speaks) -> Vendor {
    Vendor { name, base_url, key_variable: None, default_model: None, wire }
}

impl Vendor {
    /// Its dialect of chat completions, if it speaks them.
    #[must_use]
    pub fn dialect(&self) -> Option<Dialect> {
        match self.wire {
            Speaks::OpenAiChat(dialect) => Some(dialect),
            _ => None,
        }
    }
}

/// The known service called `name`.
#[must_use]
pub fn named(name: &str) -> Option<&'static Vendor> {
    VENDORS.iter().find(|vendor| vendor.name == name)
}

/// The known service whose address is `url` or a prefix of it.
pub(crate) fn at_address(url: &str) -> Option<&'static Vendor> {
    let below = |rest: &str| rest.is_empty() || rest.starts_with(['/', '?', '#']);
    let known = VENDORS.iter().find(|vendor| url.strip_prefix(vendor.base_url).is_some_and(below));
    known.or_else(|| {
        let (host, _) = url.strip_prefix("https://")?.split_once('/')?;
        AZURE_HOSTS.iter().any(|end| host.ends_with(end)).then_some(&AZURE)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    #[test]
    fn names_and_addresses_are_told_apart() {
        for vendor in VENDORS {
            assert_eq!(named(vendor.name), Some(vendor));
            let found = at_address(&format!("{}/", vendor.base_url)).unwrap();
            assert_eq!(found.base_url, vendor.base_url);
        }
        assert_eq!(at_address("https://api.openai.com/v1.evil.example"), None);
        assert_eq!(at_address("http://127.0.0.1:80800/v1"), None);
        assert_eq!(at_address("https://mine.openai.azure.com/openai/v1").unwrap().name, "azure");
        assert_eq!(at_address("https://openai.azure.com.evil.example/openai/v1"), None);
        assert_eq!(named("nobody"), None);
    }

    #[test]
    fn models_that_are_taken_unasked_are_in_the_catalogue() {
        let catalog = Catalog::builtin();
        for vendor in VENDORS.iter().filter(|vendor| vendor.name != "openai-responses") {
            let Some(model) = vendor.default_model.filter(|model| *model != "openrouter/auto") else {
                continue;
            };
            let profile = catalog.profile(vendor.name, model);
            assert!(profile.is_some(), "{}:{model} is not listed", vendor.name);
        }
    }
}
