//! Settings of a call: sampling, limits, the form of the reply, and thinking.
//!
//! A setting that the service or the model does not take is left out with a warning; nothing here fails.

use std::borrow::Cow;

use entourage_core::provider::{
    Effort, OutputFormat, Params, ReasoningParams, Request, Warning, WarningKind,
};
use serde_json::{Value, json};

use super::profile::{Name, Thinking};
use crate::{
    body::{Body, finite},
    limit::max_output,
    schema::{self, gemini},
};

/// Most stop sequences that the service takes.
const MAX_STOPS: usize = 5;

/// The `generationConfig`; `None` if it would be empty. A `generationConfig` in [`Params::extra`] is merged into it.
pub(super) fn generation(request: &Request, warnings: &mut Vec<Warning>) -> Option<Vec<u8>> {
    let params = &*request.params;
    let extra = params.extra.as_ref().and_then(|extra| extra.get("generationConfig"));
    if extra.is_some_and(Value::is_null) {
        return None;
    }
    let mut body = Body::new(256, extra, &[]);
    sampling(&mut body, request, warnings);
    body.optional("maxOutputTokens", max_output(request, warnings));
    let stops: Vec<_> = params.stop.iter().filter(|stop| !stop.is_empty()).take(MAX_STOPS).collect();
    if params.stop.len() > MAX_STOPS {
        warnings.push(setting("stop", "the service takes 5 stop sequences; the others were left out"));
    }
    body.optional("stopSequences", (!stops.is_empty()).then_some(stops));
    let seed = params.seed.and_then(|seed| i32::try_from(seed).ok());
    if params.seed.is_some() && seed.is_none() {
        warnings.push(setting("seed", "the service takes seeds of 32 bits; it was left out"));
    }
    body.optional("seed", seed);
    output(&mut body, request, warnings);
    if let Some(reasoning) = params.reasoning {
        thinking(&mut body, request, reasoning, warnings);
    }
    body.extra();
    (!body.is_empty()).then(|| body.finish())
}

fn sampling(body: &mut Body<'_>, request: &Request, warnings: &mut Vec<Warning>) {
    let params = &*request.params;
    let numbers = [
        ("temperature", "temperature", finite(params.temperature)),
        ("topP", "top_p", finite(params.top_p)),
        ("presencePenalty", "presence_penalty", finite(params.presence_penalty)),
        ("frequencyPenalty", "frequency_penalty", finite(params.frequency_penalty)),
    ];
    let allowed = request.profile.sampling != Some(false);
    for (key, name, value) in numbers {
        match value {
            Some(value) if allowed => body.field(key, &value),
            Some(_) => warnings.push(setting(name, "this model takes no sampling settings; it was left out")),
            None => {}
        }
    }
    match params.top_k {
        Some(top_k) if allowed => body.field("topK", &top_k),
        Some(_) => warnings.push(setting("top_k", "this model takes no sampling settings; it was left out")),
        None => {}
    }
}

/// The instructions, with the schema of the reply where the service is not asked to enforce it.
pub(super) fn instructions(request: &Request) -> Cow<'_, str> {
    match &request.output {
        OutputFormat::Schema(wanted) if !types_reply(request) => {
            Cow::Owned(schema::told(&request.instructions, wanted))
        }
        _ => Cow::Borrowed(&request.instructions),
    }
}

fn types_reply(request: &Request) -> bool {
    request.tools.is_empty() || Name::read(&request.model).types_beside_tools()
}

fn output(body: &mut Body<'_>, request: &Request, warnings: &mut Vec<Warning>) {
    if request.output == OutputFormat::Text {
        return;
    }
    if !types_reply(request) {
        let text =
            "this model gives no typed replies while it is offered tools; the reply is not held to its form";
        warnings.push(Warning::new(WarningKind::Schema, "output", text));
        return;
    }
    body.field("responseMimeType", "application/json");
    if let OutputFormat::Schema(wanted) = &request.output {
        let translated = gemini(&wanted.schema);
        if wanted.strict && !translated.lost.is_empty() {
            let text = format!("the service does not enforce {}", translated.lost.join(", "));
            warnings.push(Warning::new(WarningKind::Schema, wanted.name.as_str(), text));
        }
        body.field("responseJsonSchema", &translated.schema);
    }
}

/// Writes the settings for thinking. Effort and budget are both accepted; the service takes one of them, in the form
/// that the model's generation knows:
///
/// | effort | budget (2.5) | level (3 and later) |
/// |---|---|---|
/// | none | 0, or the least | `minimal`, or `low` |
/// | minimal | 512, or the least | `minimal`, or `low` |
/// | low | 1,024 | `low` |
/// | medium | 8,192 | `medium`, or `high` |
/// | high | 24,576 | `high` |
/// | max | the most | `high` |
///
/// A budget takes precedence over an effort where budgets are known, and is limited to the model's bounds. Where
/// levels are known, an effort takes precedence over a budget; a budget of at most 512, 4,096 or 16,384 tokens counts
/// as minimal, low or medium.
fn thinking(body: &mut Body<'_>, request: &Request, wanted: ReasoningParams, warnings: &mut Vec<Warning>) {
    let mut config = serde_json::Map::new();
    match Name::read(&request.model).thinking(&request.profile) {
        Thinking::Unknown => {
            if wanted.effort.is_some_and(|effort| effort != Effort::None)
                || wanted.budget.is_some_and(|most| most > 0)
            {
                warnings.push(setting("reasoning", "this model does not reason; the setting was left out"));
            }
            return;
        }
        Thinking::Budget { least, most, off } => {
            let asked = wanted.budget.or(wanted.effort.map(|effort| budget(effort, most)));
            if let Some(asked) = asked {
                let given = if asked == 0 && off { 0 } else { asked.clamp(least, most) };
                let told = wanted.budget.is_some() || asked == 0;
                if given != asked && told {
                    let text =
                        format!("this model reasons with {least} to {most} tokens; {asked} became {given}");
                    warnings.push(setting("reasoning", &text));
                }
                config.insert("thinkingBudget".to_owned(), json!(given));
            }
        }
        Thinking::Level { minimal, medium } => {
            let effort = wanted.effort.or(wanted.budget.map(effort));
            if let Some(effort) = effort {
                if effort == Effort::None {
                    let text = "this model cannot stop reasoning; it was asked for as little as it can";
                    warnings.push(setting("reasoning", text));
                }
                config.insert("thinkingLevel".to_owned(), json!(level(effort, minimal, medium)));
            }
        }
    }
    if let Some(show) = wanted.show {
        config.insert("includeThoughts".to_owned(), json!(show));
    }
    if !config.is_empty() {
        body.field("thinkingConfig", &config);
    }
}

fn budget(effort: Effort, most: u64) -> u64 {
    match effort {
        Effort::None => 0,
        Effort::Minimal => 512,
        Effort::Low => 1_024,
        Effort::Medium => 8_192,
        Effort::High => 24_576,
        _ => most,
    }
}

fn effort(budget: u64) -> Effort {
    match budget {
        0 => Effort::None,
        1..=512 => Effort::Minimal,
        513..=4_096 => Effort::Low,
        4_097..=16_384 => Effort::Medium,
        _ => Effort::High,
    }
}

fn level(effort: Effort, minimal: bool, medium: bool) -> &'static str {
    match effort {
        Effort::None | Effort::Minimal if minimal => "minimal",
        Effort::None | Effort::Minimal | Effort::Low => "low",
        Effort::Medium if medium => "medium",
        _ => "high",
    }
}

/// Labels for billing, which only Google's cloud keeps, and only in its own alphabet.
pub(super) fn labels(params: &Params, cloud: bool, warnings: &mut Vec<Warning>) -> Option<Value> {
    if params.metadata.is_empty() {
        return None;
    }
    if !cloud {
        warnings.push(setting("metadata", "this service keeps no metadata; it was left out"));
        return None;
    }
    let fits = |text: &str| {
        text.len() <= 63
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_'))
    };
    let (kept, others): (Vec<_>, Vec<_>) = params.metadata.iter().partition(|(key, value)| {
        fits(key) && fits(value) && key.starts_with(|first: char| first.is_ascii_lowercase())
    });
    for (key, _) in others {
        let text =
            format!("labels have lower case letters, digits, `-` and `_`, at most 63; `{key}` was left out");
        warnings.push(setting("metadata", &text));
    }
    let labels: serde_json::Map<_, _> =
        kept.into_iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    (!labels.is_empty()).then_some(Value::Object(labels))
}

pub(super) fn setting(subject: &str, text: &str) -> Warning {
    Warning::new(WarningKind::Setting, subject, text)
}
