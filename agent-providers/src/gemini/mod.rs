//! The generateContent wire: Google's Gemini API, and the same models in Google's cloud.
//!
//! [`encode()`] and [`GeminiDecoder`] are pure; [`Gemini`] puts them on a connection. There is only streaming. Results
//! of Google's own tools (code, searches) stay in the messages as opaque parts; reports about its sources do not.

mod builder;
mod content;
mod decode;
mod encode;
mod media;
mod params;
mod parts;
mod profile;
mod wire;

#[cfg(test)]
mod tests;

pub use builder::GeminiBuilder;
pub use decode::GeminiDecoder;
pub use encode::encode;

use entourage_core::{
    provider::{Profile, Request},
    tool::ToolSpec,
};

use crate::{
    http::Failing,
    service::{Address, Encoded, Wire, provider},
};

/// The wire's name: in opaque parts, in signatures, and as a key of the bytes that messages keep.
const WIRE: &str = "gemini";

/// Prefix of the ids that we give to calls that come without one.
const MADE_ID: &str = "gemini-call-";

provider! {
    /// A service that speaks generateContent. Clones share its connections.
    ///
    /// A model's name may be a path, such as `tunedModels/mine`; a bare name stands for `models/name`.
    ///
    /// ```no_run
    /// use entourage_providers::gemini::Gemini;
    ///
    /// # fn example() -> entourage_core::Result<()> {
    /// let model = Gemini::builder().api_key("…").build()?.model("gemini-flash-latest");
    /// # Ok(())
    /// # }
    /// ```
    Gemini(Generate), GeminiBuilder
}

/// The wire, at one of its two services.
#[derive(Debug)]
struct Generate {
    cloud: bool,
}

impl Wire for Generate {
    const NAME: &'static str = WIRE;
    // Its list begins with the oldest models, and holds models that do not chat.
    const COUNTS_APART: (bool, bool) = (false, true);
    const MODELS: Option<&'static [&'static str]> = None;
    type Decoder = GeminiDecoder;

    fn address(&self, request: &Request) -> Address {
        let mut path: Vec<String> = request
            .model
            .split('/')
            .filter(|part| !matches!(*part, "" | "." | ".."))
            .map(str::to_owned)
            .collect();
        if path.len() < 2 {
            path.insert(0, "models".to_owned());
        }
        if let Some(last) = path.last_mut() {
            last.push_str(":streamGenerateContent");
        }
        Address { path, query: vec![("alt", "sse".to_owned())], ..Address::default() }
    }

    fn encode_tools(&self, tools: &[ToolSpec], _strict: bool) -> Vec<u8> {
        encode::encode_tools(tools)
    }

    fn encode(&self, request: &Request, tools: &[u8], _vendor: &str) -> Encoded {
        encode::encode_with_tools(request, tools, self.cloud)
    }

    fn decoder(&self, _: &Request, failing: Failing) -> GeminiDecoder {
        GeminiDecoder::reporting(failing)
    }

    fn profile(&self, _: &str, model: &str) -> Profile {
        profile::Name::read(model).profile()
    }
}
