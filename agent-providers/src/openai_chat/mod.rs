//! The chat-completions wire: what OpenAI defined and most services and local servers speak.
//!
//! [`encode()`] and [`Decoder`] are pure; [`OpenAiChat`] puts them on a connection. There is only streaming.

mod builder;
mod calls;
mod decode;
mod dialect;
mod encode;
mod media;
mod models;
mod usage;
mod wire;

#[cfg(test)]
mod tests;

pub use builder::Builder;

pub use decode::Decoder;
pub use dialect::Dialect;
pub use encode::encode;

pub(crate) use models::choose as choose_model;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use entourage_core::{
    Result,
    provider::{CallContext, Delta, DeltaStream, Model, Provider, Request},
};

use crate::{
    body::KeptTools,
    http::{Endpoint, Target},
    stream::Deltas,
};

/// A model name that stands for whatever the server has: it is asked once for its list, and a model of that very
/// name, else the first one, is taken. An empty name does the same.
pub const DEFAULT_MODEL: &str = "default";

/// A service that speaks chat completions. Cloning shares its connections.
///
/// ```no_run
/// use entourage_providers::openai_chat::OpenAiChat;
///
/// # fn example() -> entourage_core::Result<()> {
/// let model = OpenAiChat::builder().base_url("http://127.0.0.1:8080/v1").build()?.model("qwen3");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct OpenAiChat(Arc<Inner>);

struct Inner {
    endpoint: Endpoint,
    dialect: Dialect,
    default_model: models::DefaultModel,
    tools: KeptTools,
}

impl OpenAiChat {
    /// Settings for a service; OpenAI's address unless another is given.
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn new(endpoint: Endpoint, dialect: Dialect) -> Self {
        let default_model = models::DefaultModel::default();
        Self(Arc::new(Inner { endpoint, dialect, default_model, tools: KeptTools::default() }))
    }

    /// A handle on the model that the service knows as `name` (see [`DEFAULT_MODEL`]).
    #[must_use]
    pub fn model(&self, name: impl Into<Arc<str>>) -> Model {
        Model::new(Arc::new(self.clone()), name)
    }

    /// The address below which calls go, without query.
    #[must_use]
    pub fn base_url(&self) -> String {
        let mut base = self.0.endpoint.base().clone();
        base.set_query(None);
        base.to_string()
    }

    fn tools(&self, request: &Request) -> Arc<[u8]> {
        self.0.tools.get(&request.tools, false, encode::encode_tools)
    }
}

#[async_trait]
impl Provider for OpenAiChat {
    fn name(&self) -> &str {
        self.0.endpoint.vendor()
    }

    async fn stream(&self, mut request: Request, cx: &CallContext) -> Result<DeltaStream> {
        let Inner { endpoint, dialect, default_model, .. } = &*self.0;
        if request.model.is_empty() || &*request.model == DEFAULT_MODEL {
            request.model = default_model.resolve(endpoint, cx).await?;
        }
        let body = encode::encode_with_tools(&request, *dialect, &self.tools(&request));
        let warning = encode::warnings(&request, *dialect, endpoint.vendor());
        // The history may be large and shared; nobody needs this snapshot while the reply comes.
        drop(request);
        let reply = endpoint.post(Target::path(&["chat", "completions"]), body, cx).await?;
        let decoder = Decoder::reporting(*dialect, reply.failing.clone());
        let first = warning.map(|warning| Delta::Warning(Box::new(warning))).into_iter().chain(reply.info());
        Ok(Box::pin(Deltas::new(reply, decoder, first)))
    }
}

impl fmt::Debug for OpenAiChat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenAiChat").field(&self.0.endpoint).finish()
    }
}
