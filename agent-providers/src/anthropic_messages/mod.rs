//! The messages wire, defined by Anthropic and spoken by llama.cpp and several gateways too.
//!
//! [`encode()`] and [`AnthropicMessagesDecoder`] are pure; [`AnthropicMessages`] puts them on a connection. There is
//! only streaming.
//!
//! Particulars of this wire:
//! - **Limit.** The wire demands an output limit: that of the parameters, else the model's largest, else
//!   [`DEFAULT_MAX_OUTPUT`].
//! - **Reasoning.** Models named Claude of version 4.6 or later think as they see fit (`adaptive`), guided by an
//!   effort; earlier ones, and models of other names, get a budget of tokens. A request in the other form is
//!   translated: minimal and low are 1,024 and 2,048 tokens, medium 8,192, high 16,384, the most 32,768 (at most half
//!   of the output limit). `thinking` in `Params::extra` takes precedence over all that.
//! - **System messages** at the start become part of the system prompt; later ones are shown as text of the user.
//! - **Citations** come as an opaque part that holds the cited text block, after the text itself; blocks of the
//!   service's own tools, and its summaries of the conversation, come as opaque parts too. All are replayed.
//! - **Tools of the service** are declared in `Params::extra` under `tools`: they are added to the agent's. Beta
//!   features need a header `anthropic-beta` ([`AnthropicMessagesBuilder::header`]).
//! - **Deferred tools**: the service's own search finds them, from Claude 4.5 on. It loads, shows and bills those that
//!   it found. Its searches and what they found come as opaque parts.
//! - **`pause_turn`**: the service paused a long turn of its own tools. It ends as `FinishReason::Other` with that
//!   word; calling again with the reply in the history continues the turn.

mod blocks;
mod builder;
mod decode;
mod encode;
mod media;
mod message;
mod params;
mod profile;
mod thinking;
mod tools;
mod usage;
mod wire;

#[cfg(test)]
mod tests;

pub use builder::AnthropicMessagesBuilder;
pub use decode::AnthropicMessagesDecoder;
pub use encode::encode;
pub use params::DEFAULT_MAX_OUTPUT;

pub use crate::models::DEFAULT_MODEL;

use entourage_core::{
    provider::{Profile, Request},
    tool::ToolSpec,
};

use crate::{
    http::Failing,
    service::{Address, Encoded, Wire, provider},
};

/// The wire's name: in opaque parts, in signatures and in recordings.
pub const NAME: &str = "anthropic-messages";

/// The protocol version that is spoken here; the service never changes a named version.
const VERSION: &str = "2023-06-01";

provider! {
    /// A service that speaks messages. Clones share its connections.
    ///
    /// ```no_run
    /// use entourage_providers::anthropic_messages::AnthropicMessages;
    ///
    /// # fn example(key: String) -> entourage_core::Result<()> {
    /// let model = AnthropicMessages::builder().api_key(key).build()?.model("claude-sonnet-5");
    /// # Ok(())
    /// # }
    /// ```
    AnthropicMessages(Messages), AnthropicMessagesBuilder
}

#[derive(Debug)]
struct Messages;

impl Wire for Messages {
    const NAME: &'static str = NAME;
    const COUNTS_APART: (bool, bool) = (true, false);
    const MODELS: Option<&'static [&'static str]> = Some(&["models"]);
    type Decoder = AnthropicMessagesDecoder;

    fn address(&self, _: &Request) -> Address {
        Address { headers: vec![("anthropic-version", VERSION.to_owned())], ..Address::path(&["messages"]) }
    }

    fn encode_tools(&self, tools: &[ToolSpec], strict: bool) -> Vec<u8> {
        tools::encode(tools, strict)
    }

    fn encode(&self, request: &Request, tools: &[u8], vendor: &str) -> Encoded {
        encode::encode_with_tools(request, tools, vendor)
    }

    fn decoder(&self, _: &Request, failing: Failing) -> AnthropicMessagesDecoder {
        AnthropicMessagesDecoder::reporting(failing)
    }

    fn profile(&self, vendor: &str, model: &str) -> Profile {
        profile::profile(vendor, model)
    }
}
