//! The responses wire, defined by OpenAI for its newer models and spoken by several services.
//!
//! A conversation is a list of items here: messages, reasoning, calls and their outputs, blocks of the service's own
//! tools, which come as opaque parts. [`encode()`] and [`OpenAiResponsesDecoder`] are pure; [`OpenAiResponses`] puts
//! them on a connection.

mod builder;
mod decode;
mod encode;
mod input;
mod items;
mod media;
mod params;
mod profile;
mod reply;
mod wire;

#[cfg(test)]
mod tests;

pub use crate::models::DEFAULT_MODEL;
pub use builder::OpenAiResponsesBuilder;
pub use decode::OpenAiResponsesDecoder;
pub use encode::encode;

use entourage_core::{
    provider::{Profile, Request},
    tool::ToolSpec,
};

use crate::{
    http::Failing,
    service::{Address, Encoded, Wire, provider},
};

/// The wire's name: in opaque parts and in signatures.
const NAME: &str = "openai-responses";

provider! {
    /// A service that speaks responses. Clones share its connections.
    ///
    /// Nothing is stored at the service (`store` is false): reasoning comes back encrypted and is sent again with the
    /// conversation. `extra` of the parameters can request storing; then reasoning is sent again by its id.
    ///
    /// ```no_run
    /// use entourage_providers::openai_responses::OpenAiResponses;
    ///
    /// # fn example() -> entourage_core::Result<()> {
    /// let model = OpenAiResponses::builder().api_key("…").build()?.model("gpt-5.4");
    /// # Ok(())
    /// # }
    /// ```
    OpenAiResponses(Responses), OpenAiResponsesBuilder
}

/// The wire itself.
#[derive(Debug)]
pub(crate) struct Responses;

impl Wire for Responses {
    const NAME: &'static str = NAME;

    type Decoder = OpenAiResponsesDecoder;

    const MODELS: Option<&'static [&'static str]> = Some(&["models"]);

    fn address(&self, _: &Request) -> Address {
        Address::path(&["responses"])
    }

    fn encode_tools(&self, tools: &[ToolSpec], strict: bool) -> Vec<u8> {
        encode::encode_tools(tools, strict)
    }

    fn encode(&self, request: &Request, tools: &[u8], vendor: &str) -> Encoded {
        encode::encode_with_tools(request, tools, vendor)
    }

    fn decoder(&self, _: &Request, failing: Failing) -> OpenAiResponsesDecoder {
        OpenAiResponsesDecoder::reporting(failing)
    }

    fn profile(&self, vendor: &str, model: &str) -> Profile {
        profile::of(vendor, model)
    }
}
