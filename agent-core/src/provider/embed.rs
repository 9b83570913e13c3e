//! Texts as vectors, for search by meaning.

use std::{fmt, sync::Arc};

use async_trait::async_trait;

use super::CallContext;
use crate::{Result, Usage};

/// A model that turns texts into vectors.
///
/// # Contract
/// - [`Embedder::embed`] gives one vector for each text, in the order of the texts. All have the same length, which
///   is above 0, and hold finite numbers. Otherwise the call fails; no vector is left out, and no text is cut.
/// - No texts give no vectors, without a call and at no cost. A text that is too long is refused, and more texts than
///   the service takes at once are split.
/// - An error has its kind and retry status set. What the service has counted before it is lost.
/// - [`CallContext::cancel`] ends the call with [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled), and
///   [`CallContext::timeout`] bounds the whole of it. Dropping the future frees the connection.
/// - No secret is in an error or in `Debug` output, and [`CallContext::check_host`] is asked before each connection.
#[async_trait]
pub trait Embedder: Send + Sync + fmt::Debug {
    /// The model's name at its service. Vectors of different models have nothing in common.
    fn model(&self) -> &str;

    /// Turns texts into vectors.
    async fn embed(&self, texts: &[String], cx: &CallContext) -> Result<Embeddings>;
}

#[async_trait]
impl<E: Embedder + ?Sized> Embedder for Arc<E> {
    fn model(&self) -> &str {
        (**self).model()
    }

    async fn embed(&self, texts: &[String], cx: &CallContext) -> Result<Embeddings> {
        (**self).embed(texts, cx).await
    }
}

/// The vectors of some texts.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Embeddings {
    /// One vector for each text, in the order of the texts.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens of the texts. `output` is 0 where `input` is known.
    pub usage: Usage,
}

impl Embeddings {
    /// Creates the answer of an embedder.
    #[must_use]
    pub fn new(vectors: Vec<Vec<f32>>, usage: Usage) -> Self {
        Self { vectors, usage }
    }
}
