//! Typed output for hand-written agents.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::{Generate, Generated, Generation};
use crate::{Result, provider::Model, run::RunContext};

impl RunContext {
    /// Asks a model for a value of type `T`, like [`ModelExt::generate`](crate::provider::ModelExt::generate): at most
    /// two model calls, each recorded.
    ///
    /// # Errors
    /// Those of [`RunContext::call_model`] and of [`Generation::read`].
    pub async fn generate<T>(&self, model: &Model, ask: impl Into<Generate> + Send) -> Result<Generated<T>>
    where
        T: DeserializeOwned + JsonSchema,
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
