//! The chat-completions wire, defined by OpenAI and spoken by most services and local servers.
//!
//! [`encode()`] and [`OpenAiChatDecoder`] are pure; [`OpenAiChat`] puts them on a connection. There is only streaming.

mod builder;
mod calls;
mod decode;
mod embeddings;
mod encode;
mod media;
mod message;
mod params;
mod reasoning;
mod usage;
mod wire;

#[cfg(test)]
mod dialect_tests;
#[cfg(test)]
mod tests;

pub use builder::OpenAiChatBuilder;

pub use crate::dialect::{CacheStyle, Dialect, ReasoningStyle, SchemaSupport};
pub use decode::OpenAiChatDecoder;
pub use embeddings::OpenAiEmbedder;
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

provider! {
    /// A service that speaks chat completions. Clones share its connections.
    ///
    /// ```no_run
    /// use entourage_providers::openai_chat::OpenAiChat;
    ///
    /// # fn example() -> entourage_core::Result<()> {
    /// let model = OpenAiChat::builder().base_url("http://127.0.0.1:8080/v1").build()?.model("qwen3");
    /// # Ok(())
    /// # }
    /// ```
    OpenAiChat(Chat), OpenAiChatBuilder
}

/// The wire, with the habits of one service.
#[derive(Debug)]
struct Chat(Dialect);

impl Wire for Chat {
    const NAME: &'static str = encode::WIRE;
    const MODELS: Option<&'static [&'static str]> = Some(&["models"]);
    type Decoder = OpenAiChatDecoder;

    fn address(&self, _: &Request) -> Address {
        Address::path(&["chat", "completions"])
    }

    fn encode_tools(&self, tools: &[ToolSpec], strict: bool) -> Vec<u8> {
        encode::encode_tools(tools, strict && self.0.strict_tools)
    }

    fn encode(&self, request: &Request, tools: &[u8], vendor: &str) -> Encoded {
        encode::encode_with_tools(request, self.0, tools, vendor)
    }

    fn decoder(&self, _: &Request, failing: Failing) -> OpenAiChatDecoder {
        OpenAiChatDecoder::reporting(self.0, failing)
    }

    fn profile(&self, _: &str, _: &str) -> Profile {
        let mut profile = Profile::default();
        profile.structured_output = match self.0.schema {
            // A guarantee of JSON is not a guarantee of a schema.
            SchemaSupport::JsonOnly => Some(false),
            SchemaSupport::Always => Some(true),
            SchemaSupport::Strict | SchemaSupport::Any => None,
        };
        profile.structured_beside_tools = self.0.schema_beside_tools.then_some(true);
        profile
    }
}
