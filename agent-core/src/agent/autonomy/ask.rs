//! A value from a model within a check: each call recorded, with the template of its instructions.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::{
    Error, ErrorKind, Result,
    context::Instructions,
    provider::{Generate, Generation, Model},
    run::{Effect, Limits, ModelCall, Observation, RunContext},
};

/// Like [`RunContext::generate`], under `instructions` whose template is recorded (CW17).
///
/// # Errors
/// Those of [`RunContext::generate`].
pub(super) async fn generate<T>(
    cx: &RunContext,
    model: &Model,
    ask: Generate,
    instructions: &Instructions,
) -> Result<T>
where
    T: DeserializeOwned + JsonSchema,
{
    let (text, template) = instructions.clone().into_parts();
    let mut generation = Generation::new(model, ask.with_instructions(text))?;
    loop {
        let offered = generation.tools().clone();
        let call = ModelCall {
            model: model.clone(),
            request: generation.request(),
            offered,
            repair: None,
            step: 0,
            silence: Limits::default().model_silence,
            template: template.clone(),
        };
        let Observation::Model(reply) = cx.perform(Effect::Model(Box::new(call))).await? else {
            return Err(Error::new(ErrorKind::Internal, "a model call gave no reply"));
        };
        let (usage, cost) = (reply.usage + reply.wasted, reply.cost);
        if let Some(made) = generation.read(&reply.message, reply.finish.reason, usage, cost)? {
            return Ok(made.value);
        }
    }
}
