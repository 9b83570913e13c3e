//! Typed output for hand-written agents.

use entourage_core::{Result, provider::Model, run::RunContext};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::typed::{Generate, Generated, Generation};

/// Typed output within a run, implemented for [`RunContext`]. Sealed: not meant to be implemented elsewhere.
pub trait RunExt: sealed::Sealed {
    /// Asks a model for a value of type `T`, like [`ModelExt::generate`](crate::typed::ModelExt::generate): at most
    /// two model calls, each recorded.
    ///
    /// # Errors
    /// Those of [`RunContext::call_model`] and of [`Generation::read`].
    fn generate<T>(
        &self,
        model: &Model,
        ask: impl Into<Generate> + Send,
    ) -> impl Future<Output = Result<Generated<T>>> + Send
    where
        T: DeserializeOwned + JsonSchema + Send;
}

impl RunExt for RunContext {
    async fn generate<T>(&self, model: &Model, ask: impl Into<Generate> + Send) -> Result<Generated<T>>
    where
        T: DeserializeOwned + JsonSchema + Send,
    {
        let mut generation = Generation::new(model, ask)?;
        loop {
            let tools = generation.tools().clone();
            let reply = self.call_model_with(model, generation.request(), tools).await?;
            let (usage, cost) = (reply.usage + reply.wasted, reply.cost);
            if let Some(generated) = generation.read(&reply.message, reply.finish.reason, usage, cost)? {
                return Ok(generated);
            }
        }
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for entourage_core::run::RunContext {}
}
