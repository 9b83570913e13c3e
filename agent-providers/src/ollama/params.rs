//! Settings of a call: sampling, limits, the form of the reply, and thinking.
//!
//! A setting that the server does not take is left out with a warning; nothing here fails.

use std::borrow::Cow;

use entourage_core::provider::{
    Effort, OutputFormat, Params, ReasoningParams, Request, ToolChoice, Warning, WarningKind,
};
use serde_json::{Value, json};

use super::profile::thinks_in_degrees;
use crate::{
    body::{Body, finite},
    limit::max_output,
    schema,
};

/// The `options`; `None` if they would be empty. The `options` in [`Params::extra`] are merged into them.
pub(super) fn options(request: &Request, warnings: &mut Vec<Warning>) -> Option<Vec<u8>> {
    let params = &*request.params;
    let extra = params.extra.as_ref().and_then(|extra| extra.get("options"));
    if extra.is_some_and(Value::is_null) {
        return None;
    }
    let mut body = Body::new(128, extra, &[]);
    body.optional("num_predict", max_output(request, warnings));
    let numbers = [
        ("temperature", finite(params.temperature)),
        ("top_p", finite(params.top_p)),
        ("presence_penalty", finite(params.presence_penalty)),
        ("frequency_penalty", finite(params.frequency_penalty)),
    ];
    let allowed = request.profile.sampling != Some(false);
    let mut sampling = |name: &str, value: Option<Value>| match value {
        Some(value) if allowed => body.field(name, &value),
        Some(_) => warnings.push(setting(name, "this model takes no sampling settings; it was left out")),
        None => {}
    };
    for (name, value) in numbers {
        sampling(name, value.map(Value::from));
    }
    sampling("top_k", params.top_k.map(Value::from));
    body.optional("seed", params.seed);
    body.optional("stop", (!params.stop.is_empty()).then_some(&params.stop));
    body.extra();
    (!body.is_empty()).then(|| body.finish())
}

/// The instructions, with the schema of the reply where the `format` is left out.
pub(super) fn instructions(request: &Request, offers_tools: bool) -> Cow<'_, str> {
    match &request.output {
        OutputFormat::Schema(wanted) if offers_tools => {
            Cow::Owned(schema::told(&request.instructions, wanted))
        }
        _ => Cow::Borrowed(&request.instructions),
    }
}

/// The `format`. The server makes the whole reply follow it, so that no tool could be called: while tools are offered,
/// it is left out.
pub(super) fn format(request: &Request, offers_tools: bool, warnings: &mut Vec<Warning>) -> Option<Value> {
    let format = match &request.output {
        OutputFormat::Json => json!("json"),
        OutputFormat::Schema(wanted) => {
            let mut schema = schema::loose(&wanted.schema);
            if let Some(fields) = schema.as_object_mut() {
                fields.remove("$schema");
            }
            schema
        }
        _ => return None,
    };
    if offers_tools {
        let text =
            "the server cannot hold a reply to its form and let the model call tools; the form was left out";
        warnings.push(Warning::new(WarningKind::Schema, "output", text));
        return None;
    }
    Some(format)
}

/// The field `think`: a degree in words for the models that know degrees, else yes or no.
///
/// | effort | in degrees | else |
/// |---|---|---|
/// | none | `false` | `false` |
/// | minimal, low | `low` | `true` |
/// | medium | `medium` | `true` |
/// | high, max | `high` | `true` |
///
/// A budget is no bound here: 0 is no thinking, and without an effort 4,096 tokens count as low and 16,384 as medium.
pub(super) fn think(request: &Request, warnings: &mut Vec<Warning>) -> Option<Value> {
    let ReasoningParams { effort, budget, show, .. } = request.params.reasoning?;
    let effort = effort.or(budget.map(from_budget));
    let thinks = effort.is_some_and(|effort| effort != Effort::None);
    if request.profile.reasoning == Some(false) {
        if thinks {
            warnings.push(setting("reasoning", "this model does not reason; the setting was left out"));
        }
        return None;
    }
    if budget.is_some_and(|most| most > 0) {
        warnings.push(setting(
            "reasoning.budget",
            "the server does not bound reasoning; the budget counts as an effort",
        ));
    }
    if show == Some(false) && effort != Some(Effort::None) {
        warnings.push(setting("reasoning.show", "the server sends reasoning whenever the model reasons"));
    }
    let degrees = thinks_in_degrees(&request.model);
    if thinks && !degrees && effort != Some(Effort::Medium) && budget.is_none() {
        warnings.push(setting("reasoning.effort", "this model reasons or does not; it knows no degrees"));
    }
    Some(match effort? {
        Effort::None => json!(false),
        _ if !degrees => json!(true),
        Effort::Minimal | Effort::Low => json!("low"),
        Effort::Medium => json!("medium"),
        _ => json!("high"),
    })
}

fn from_budget(budget: u64) -> Effort {
    match budget {
        0 => Effort::None,
        1..=4_096 => Effort::Low,
        4_097..=16_384 => Effort::Medium,
        _ => Effort::High,
    }
}

/// Warns of settings without a field on this wire. A key for the prompt cache is not among them: the server keeps the
/// last prompt anyway.
pub(super) fn not_taken(request: &Request, offers_tools: bool, warnings: &mut Vec<Warning>) {
    let params: &Params = &request.params;
    if !params.metadata.is_empty() {
        warnings.push(setting("metadata", "the server keeps no metadata; it was left out"));
    }
    if !offers_tools {
        return;
    }
    if matches!(request.tool_choice, ToolChoice::Required | ToolChoice::Tool(_)) {
        let text = "the server cannot make a model call a tool; the model decides";
        warnings.push(Warning::new(WarningKind::Tool, "tool_choice", text));
    }
    if params.parallel_tool_calls == Some(false) {
        let text = "the server cannot be held to one call at a time; the setting was left out";
        warnings.push(setting("parallel_tool_calls", text));
    }
    if params.strict_tools == Some(true) {
        let text = "the server does not enforce the schemas of tools";
        warnings.push(Warning::new(WarningKind::Schema, "strict_tools", text));
    }
}

fn setting(subject: &str, text: &str) -> Warning {
    Warning::new(WarningKind::Setting, subject, text)
}
