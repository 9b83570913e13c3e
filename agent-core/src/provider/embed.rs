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

/// Returns the cosine of the angle between two vectors: 1 for the same direction, about 0 for unrelated texts. `None`
/// for vectors of different lengths, for a zero vector, and if a number is not finite.
///
/// ```
/// use entourage_core::provider::cosine;
///
/// assert_eq!(cosine(&[3.0, 4.0], &[6.0, 8.0]), Some(1.0));
/// ```
#[must_use]
pub fn cosine(a: &[f32], b: &[f32]) -> Option<f64> {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let cosine = dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    (a.len() == b.len() && cosine.is_finite()).then(|| cosine.clamp(-1.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::cosine;

    #[test]
    fn the_cosine_of_vectors_without_a_direction_is_none() {
        let (most, least) = (f32::MAX, f32::from_bits(1));
        for (a, b, expected) in [
            (&[1.0, 0.0][..], &[0.0, 7.0][..], Some(0.0)),
            (&[1.0, 1.0], &[-2.0, -2.0], Some(-1.0)),
            (&[most, most], &[most, most], Some(1.0)),
            (&[least], &[most], Some(1.0)),
            (&[0.0], &[1.0], None),
            (&[-0.0, 0.0], &[0.0, 0.0], None),
            (&[1.0, 2.0], &[1.0], None),
            (&[], &[], None),
            (&[f32::NAN, 1.0], &[1.0, 1.0], None),
            (&[f32::INFINITY, 1.0], &[1.0, 1.0], None),
            (&[f32::INFINITY], &[f32::INFINITY], None),
        ] {
            assert_eq!((cosine(a, b), cosine(b, a)), (expected, expected), "{a:?} {b:?}");
        }
    }
}
