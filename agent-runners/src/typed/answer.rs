//! Typed answers of agents: the schema goes into the prompt, and the value is read from the text of the answer.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::typed::{Strategy, shape::Shape, text};

/// Returns the instruction to an agent to answer with a value that follows `schema`.
#[must_use]
pub fn answer_rule(schema: &Value) -> String {
    format!(
        "Answer with one JSON value that follows this JSON Schema, and with nothing else: no explanation, no code \
         fence.\n\n{schema}"
    )
}

/// Reads the value in the text of an agent's answer.
///
/// # Errors
/// The problem, in words for the model.
pub fn answer_as<T: DeserializeOwned + JsonSchema>(answer: &str) -> Result<T, String> {
    let shape = Shape::of::<T>(Strategy::Prompt);
    let read = shape.read(text::values(answer));
    read.map_err(|problem| problem.unwrap_or_else(|| "there is no complete JSON value in it".to_owned()))
}
