//! The wire of Ollama's own chat: models on this machine, or behind a compatible server.
//!
//! [`encode()`] and [`OllamaDecoder`] are pure; [`Ollama`] puts them on a connection. There is only streaming. The
//! server's other interface, chat completions, hides options of the model, above all the size of its context
//! (`num_ctx`).

mod builder;
mod decode;
mod encode;
mod message;
mod params;
mod profile;
mod wire;

#[cfg(test)]
mod tests;

pub use builder::OllamaBuilder;
pub use decode::OllamaDecoder;
pub use encode::encode;

pub use crate::models::DEFAULT_MODEL;

use entourage_core::{
    provider::{Profile, Request},
    tool::ToolSpec,
};

use crate::{
    http::Failing,
    service::{Address, Encoded, Wire, provider},
};

/// The wire's name: in opaque parts, in signatures, and as a key of the bytes that messages keep.
const WIRE: &str = "ollama";

/// Prefix of the ids that we give to calls that come without one.
const MADE_ID: &str = "ollama-call-";

provider! {
    /// A server that speaks Ollama's own chat. Clones share its connections.
    ///
    /// The server's default context is small; `options` in the request's extra parameters enlarge it, as in
    /// `{"options": {"num_ctx": 32768}}`. A prompt that does not fit is refused, never cut.
    ///
    /// ```no_run
    /// use entourage_providers::ollama::Ollama;
    ///
    /// # fn example() -> entourage_core::Result<()> {
    /// let model = Ollama::builder().build()?.model("qwen3:8b");
    /// # Ok(())
    /// # }
    /// ```
    Ollama(Chat), OllamaBuilder
}

/// The wire itself; it has no settings.
#[derive(Debug)]
struct Chat;

impl Wire for Chat {
    const NAME: &'static str = WIRE;
    const MODELS: Option<&'static [&'static str]> = Some(&["api", "tags"]);
    type Decoder = OllamaDecoder;

    fn address(&self, _: &Request) -> Address {
        Address::path(&["api", "chat"])
    }

    fn encode_tools(&self, tools: &[ToolSpec], _strict: bool) -> Vec<u8> {
        encode::encode_tools(tools)
    }

    fn encode(&self, request: &Request, tools: &[u8], _vendor: &str) -> Encoded {
        encode::encode_with_tools(request, tools)
    }

    fn decoder(&self, _: &Request, failing: Failing) -> OllamaDecoder {
        OllamaDecoder::reporting(failing)
    }

    fn profile(&self, _: &str, _: &str) -> Profile {
        profile::profile()
    }
}
