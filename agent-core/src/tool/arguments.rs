//! Checks of a model's tool calls against the tools that were offered. Pure; never runs anything.

use std::fmt;

use serde_json::Value;

use super::{ToolSpec, Tools};
use crate::message::{Arguments, RawCall, ToolCall, parsed_call};

/// Repair hook of a program, for calls that cannot be run as they came.
pub trait Repair: Send + Sync + fmt::Debug {
    /// The repaired call, or `None` to leave it invalid. `problem` describes the error. The result is checked again.
    fn repair(&self, call: &RawCall, problem: &str, offered: &Tools) -> Option<RawCall>;
}

/// Turns a raw call into one that can be stored and replayed.
///
/// Arguments that are not a JSON object are repaired by the hook, else by [`repair_json`](super::repair_json). If that
/// fails, the call keeps `{}` and `malformed` holds an excerpt of the text. A name that services would refuse on replay
/// is made acceptable. A call with a name longer than a tool's may be is malformed, since the first characters of its
/// name may be another tool's.
#[must_use]
pub fn check_call(raw: RawCall, hook: Option<(&dyn Repair, &Tools)>) -> ToolCall {
    let raw = match hook {
        Some((hook, offered)) => mend(raw, hook, offered),
        None => raw,
    };
    parsed_call(raw)
}

fn mend(raw: RawCall, hook: &dyn Repair, offered: &Tools) -> RawCall {
    let problem = match Arguments::parse(raw.arguments.clone()) {
        Ok(arguments) => validate(offered, &raw.name, &arguments.to_value()).err(),
        Err(error) => Some(error.message().to_owned()),
    };
    match problem {
        Some(problem) => hook.repair(&raw, &problem, offered).unwrap_or(raw),
        None => raw,
    }
}

/// Checks that `name` is offered and every required key is present.
///
/// # Errors
/// The text for the model; for an unknown tool it lists the offered ones.
pub fn validate<'a>(offered: &'a Tools, name: &str, arguments: &Value) -> Result<&'a ToolSpec, String> {
    let Some(tool) = offered.get(name) else {
        let names: Vec<_> = offered.specs().iter().map(ToolSpec::name).collect();
        return Err(if names.is_empty() {
            format!("there is no tool `{name}`, and no other tool is offered here")
        } else {
            format!("there is no tool `{name}`; the tools are: {}", names.join(", "))
        });
    };
    let spec = tool.spec();
    let required = spec.schema().get("required").and_then(Value::as_array);
    let missing: Vec<_> = required
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .filter(|key| arguments.get(key).is_none())
        .collect();
    if missing.is_empty() {
        Ok(spec)
    } else {
        Err(format!("the call of `{name}` lacks the required argument `{}`", missing.join("`, `")))
    }
}
