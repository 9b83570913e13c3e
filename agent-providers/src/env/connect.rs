//! Makes a model from a wire, an address and a key, if the wire is compiled in.

use entourage_core::Result;

use super::Found;
use crate::vendor::Speaks;

/// `$make` for the wire of this feature, or an error that names the feature.
macro_rules! if_compiled {
    ($feature:literal, $provider:expr, $url:ident, $key:ident, $name:ident, $origin:ident) => {{
        #[cfg(feature = $feature)]
        {
            let builder = $provider.base_url($url);
            let builder = match $key {
                Some(key) => builder.api_key(key.trim()),
                None => builder,
            };
            let provider = builder.build().map_err(|error| error.with("from", $origin))?;
            let model = provider.model($name);
            Ok(Found { address: provider.base_url(), model, origin: $origin.to_owned() })
        }
        #[cfg(not(feature = $feature))]
        {
            let _ = ($key, $name);
            Err(super::config(format!(
                "{} is asked through a wire that is not compiled in; turn on the feature `{}`",
                $url, $feature
            ))
            .with("from", $origin))
        }
    }};
}

/// True if the wire's feature is enabled.
pub(super) fn is_compiled(wire: Speaks) -> bool {
    match wire {
        Speaks::OpenAiChat(_) => cfg!(feature = "openai-chat"),
        Speaks::OpenAiResponses => cfg!(feature = "openai-responses"),
        Speaks::AnthropicMessages => cfg!(feature = "anthropic-messages"),
        Speaks::Gemini => cfg!(feature = "gemini"),
        Speaks::Ollama => cfg!(feature = "ollama"),
    }
}

pub(super) fn connect(
    wire: Speaks,
    url: &str,
    key: Option<String>,
    name: &str,
    origin: &str,
) -> Result<Found> {
    match wire {
        Speaks::OpenAiChat(_) => {
            if_compiled!("openai-chat", crate::openai_chat::OpenAiChat::builder(), url, key, name, origin)
        }
        Speaks::OpenAiResponses => {
            if_compiled!(
                "openai-responses",
                crate::openai_responses::OpenAiResponses::builder(),
                url,
                key,
                name,
                origin
            )
        }
        Speaks::AnthropicMessages => {
            if_compiled!(
                "anthropic-messages",
                crate::anthropic_messages::AnthropicMessages::builder(),
                url,
                key,
                name,
                origin
            )
        }
        Speaks::Gemini => if_compiled!("gemini", crate::gemini::Gemini::builder(), url, key, name, origin),
        Speaks::Ollama => if_compiled!("ollama", crate::ollama::Ollama::builder(), url, key, name, origin),
    }
}
