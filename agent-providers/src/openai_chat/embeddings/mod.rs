//! Embeddings: the wire `/v1/embeddings`, which most services that speak chat completions have beside them.

mod wire;

#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, Usage,
    provider::{CallContext, Embedder, Embeddings},
};
use tokio::time::Instant;

use super::{Chat, OpenAiChat};
use crate::{
    http::{Endpoint, Protocol, Target},
    service::Service,
};

/// The name of the wire in recordings.
const WIRE: &str = "openai-embeddings";

/// Texts of one request unless set otherwise.
const BATCH: usize = 96;

/// Most texts of one request. No known service takes more.
const MAX_BATCH: usize = 2_048;

/// Most bytes of texts in one request, unless one text has more. A token has at least a byte, and OpenAI takes 300,000
/// tokens.
const MAX_BYTES: usize = 256 << 10;

/// Most bytes of a reply's body that are read for each text, and beside the vectors. A vector of 16,000 numbers has
/// 400,000 bytes at most.
const MAX_VECTOR: usize = 512 << 10;
const MAX_BESIDE: usize = 1 << 20;

/// Time within which each request must be answered if the call has no timeout. Silence is not told from work here,
/// since a reply comes in one piece.
const PATIENCE: Duration = Duration::from_secs(600);

/// A model that turns texts into vectors, at a service that speaks `/v1/embeddings`. Clones share its connections.
///
/// Texts are sent in batches, one after another. The first batch that fails ends the call.
///
/// ```no_run
/// use entourage_core::provider::{CallContext, Embedder};
/// use entourage_providers::openai_chat::OpenAiChat;
///
/// # async fn example() -> entourage_core::Result<()> {
/// let service = OpenAiChat::builder().base_url("http://127.0.0.1:8080/v1").build()?;
/// let embedder = service.embedder("nomic-embed-text-v1.5").with_dimensions(256);
/// let found = embedder.embed(&["a cat".to_owned(), "a dog".to_owned()], &CallContext::new()).await?;
/// assert_eq!(found.vectors.len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct OpenAiEmbedder {
    service: Arc<Service<Chat>>,
    endpoint: Endpoint,
    model: Arc<str>,
    batch: usize,
    form: wire::Form,
}

impl OpenAiChat {
    /// A handle on the embedding model that the service knows as `name`. [`DEFAULT_MODEL`](super::DEFAULT_MODEL) stands
    /// for the server's own choice.
    #[must_use]
    pub fn embedder(&self, name: impl Into<Arc<str>>) -> OpenAiEmbedder {
        let protocol = Protocol { name: WIRE, ..Protocol::default() };
        OpenAiEmbedder {
            service: Arc::clone(&self.0),
            endpoint: self.0.endpoint().speaking(protocol),
            model: name.into(),
            batch: BATCH,
            form: wire::Form::default(),
        }
    }
}

impl OpenAiEmbedder {
    /// The same embedder, which asks for vectors of this length. 0 asks for none. Few models can shorten their vectors;
    /// a reply of another length is refused with [`ErrorKind::Unsupported`].
    #[must_use]
    pub fn with_dimensions(mut self, dimensions: usize) -> Self {
        self.form.dimensions = Some(dimensions).filter(|dimensions| *dimensions > 0);
        self
    }

    /// The same embedder, which sends at most so many texts at once, from 1 to 2,048. Default: 96. A request holds
    /// less if its texts exceed 256 KiB.
    #[must_use]
    pub fn with_batch(mut self, texts: usize) -> Self {
        self.batch = texts.clamp(1, MAX_BATCH);
        self
    }

    /// The same embedder, which asks for vectors in base64. They are a third as long on the wire, and some services do
    /// not know them. Base64 that comes unasked is read in any case.
    #[must_use]
    pub fn with_base64(mut self) -> Self {
        self.form.base64 = true;
        self
    }

    async fn embed_all(&self, texts: &[String], cx: &CallContext) -> Result<Embeddings> {
        let begun = Instant::now();
        let within = |cx: &CallContext| left(cx, begun.elapsed());
        let model = self.service.chosen(&self.model, &within(cx)?).await?;
        let mut all = Vec::new();
        for batch in wire::batches(texts, self.batch, MAX_BYTES) {
            let one = self.embed_batch(&model, batch, &within(cx)?).await?;
            wire::check_lengths(self.endpoint.vendor(), all.first().into_iter().chain([&one]))?;
            all.push(one);
        }
        let usage = wire::sum(all.iter().map(|one| one.usage));
        Ok(Embeddings::new(all.into_iter().flat_map(|one| one.vectors).collect(), usage))
    }

    async fn embed_batch(&self, model: &str, texts: &[String], cx: &CallContext) -> Result<Embeddings> {
        let body = wire::encode(model, texts, self.form);
        let mut reply = self.endpoint.post(Target::path(&["embeddings"]), body, cx).await?;
        let limit = texts.len().saturating_mul(MAX_VECTOR).saturating_add(MAX_BESIDE);
        let body = reply.whole(limit).await?;
        wire::decode(&body, texts.len(), self.form, &reply.failing)
    }
}

/// The context of the next request, with what is left of the call's time.
fn left(cx: &CallContext, passed: Duration) -> Result<CallContext> {
    let mut next = cx.clone();
    next.timeout = match cx.timeout.map(|all| all.saturating_sub(passed)) {
        Some(Duration::ZERO) => {
            let text = "the texts were not all embedded in time; send fewer at once, or allow more time";
            return Err(Error::new(ErrorKind::Timeout, text));
        }
        left => left.or(Some(PATIENCE)),
    };
    Ok(next)
}

#[async_trait]
impl Embedder for OpenAiEmbedder {
    fn model(&self) -> &str {
        &self.model
    }

    async fn embed(&self, texts: &[String], cx: &CallContext) -> Result<Embeddings> {
        if texts.is_empty() {
            return Ok(Embeddings::new(Vec::new(), Usage::new(0, 0)));
        }
        let ended = cx.cancel.run_until_cancelled(self.embed_all(texts, cx)).await;
        ended.unwrap_or_else(|| Err(Error::cancelled())).map_err(|error| error.during("model.embed"))
    }
}

impl fmt::Debug for OpenAiEmbedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiEmbedder")
            .field("endpoint", &self.endpoint)
            .field("model", &self.model)
            .field("batch", &self.batch)
            .field("form", &self.form)
            .finish_non_exhaustive()
    }
}
