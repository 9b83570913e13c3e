//! Vectors without a model.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use entourage_core::{
    Error, Result, Usage,
    provider::{CallContext, Embedder, Embeddings},
};

/// An embedder that counts words: texts that share words have vectors of similar directions. Clones share the calls.
///
/// The same text has the same vector in every process and version. The vectors have length 1 and no negative numbers.
///
/// ```
/// use entourage_core::provider::{CallContext, Embedder};
/// use entourage_runtime::cosine;
/// use entourage_testkit::HashEmbedder;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let texts = ["the cat sleeps", "A cat sleeps.", "stocks fell"].map(str::to_owned);
/// let found = HashEmbedder::new().embed(&texts, &CallContext::new()).await.unwrap().vectors;
/// assert!(cosine(&found[0], &found[1]) > cosine(&found[0], &found[2]));
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct HashEmbedder {
    dimensions: usize,
    calls: Arc<Mutex<Vec<Vec<String>>>>,
}

impl HashEmbedder {
    /// An embedder whose vectors have 256 numbers.
    #[must_use]
    pub fn new() -> Self {
        Self { dimensions: 256, calls: Arc::default() }
    }

    /// The same embedder, whose vectors have so many numbers, at least 1. Fewer numbers make chance likenesses.
    #[must_use]
    pub fn with_dimensions(mut self, dimensions: usize) -> Self {
        self.dimensions = dimensions.max(1);
        self
    }

    /// The texts of each call so far.
    #[must_use]
    pub fn calls(&self) -> Vec<Vec<String>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn vector(&self, text: &str) -> Vec<f32> {
        let mut vector = vec![0.0_f32; self.dimensions];
        // A text without words has a direction too.
        let lone = words(text).next().is_none().then(String::new);
        for word in words(text).chain(lone) {
            let place = hash(&word) % u64::try_from(self.dimensions).unwrap_or(u64::MAX);
            if let Some(number) = usize::try_from(place).ok().and_then(|place| vector.get_mut(place)) {
                *number += 1.0;
            }
        }
        let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
        vector.iter().map(|number| number / length).collect()
    }
}

impl Default for HashEmbedder {
    fn default() -> Self {
        Self::new()
    }
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// FNV-1a, which is the same everywhere.
fn hash(word: &str) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325;
    word.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[async_trait]
impl Embedder for HashEmbedder {
    fn model(&self) -> &str {
        "hash"
    }

    async fn embed(&self, texts: &[String], cx: &CallContext) -> Result<Embeddings> {
        if cx.cancel.is_cancelled() {
            return Err(Error::cancelled());
        }
        if !texts.is_empty() {
            self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(texts.to_vec());
        }
        let tokens = texts.iter().map(|text| words(text).count()).sum::<usize>();
        let usage = Usage::new(u64::try_from(tokens).unwrap_or(u64::MAX), 0);
        Ok(Embeddings::new(texts.iter().map(|text| self.vector(text)).collect(), usage))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use entourage_core::ErrorKind;
    use entourage_runtime::cosine;

    use super::*;

    #[tokio::test]
    async fn vectors_come_from_the_words_alone() {
        let embedder = HashEmbedder::new();
        let shared: Arc<dyn Embedder> = Arc::new(embedder.clone());
        let texts = ["Red, red roses", "roses red RED", "", "!?", "é"].map(str::to_owned);
        let found = shared.embed(&texts, &CallContext::new()).await.unwrap();
        let v = &found.vectors;
        assert_eq!((&v[0], &v[2]), (&v[1], &v[3]));
        // Pinned: vectors that a program has stored stay comparable.
        assert_eq!((hash(""), hash("a")), (0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c));
        assert!(v.iter().all(|one| one.len() == 256 && cosine(one, one).is_some()));
        assert_eq!(found.usage, Usage::new(7, 0));
        assert_eq!((embedder.calls(), shared.model()), (vec![texts.to_vec()], "hash"));
        let least = HashEmbedder::new().with_dimensions(0).embed(&texts, &CallContext::new()).await.unwrap();
        assert_eq!(least.vectors, [[1.0]; 5]);
        let cx = CallContext::new();
        cx.cancel.cancel();
        assert_eq!(shared.embed(&texts, &cx).await.unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!(embedder.calls().len(), 1);
    }
}
