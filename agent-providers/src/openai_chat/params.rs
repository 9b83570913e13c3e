//! Sampling, limits and reasoning in the form of each service of this wire.

use entourage_core::provider::{Effort, Params, PromptCache, ReasoningParams, Request, Warning, WarningKind};
use serde_json::json;

use super::{CacheStyle, Dialect, ReasoningStyle};
use crate::{
    body::{Body, finite},
    limit::max_output,
};

/// The warning for a setting that the service does not know.
pub(super) fn unknown(kind: WarningKind, subject: &str, vendor: &str) -> Warning {
    Warning::new(kind, subject, format!("{vendor} does not know `{subject}`; it was left out"))
}

pub(super) fn write(
    body: &mut Body<'_>,
    request: &Request,
    dialect: Dialect,
    warnings: &mut Vec<Warning>,
    vendor: &str,
) {
    let params = &*request.params;
    sampling(body, request, dialect, warnings, vendor);
    let limit = if dialect.max_completion_tokens { "max_completion_tokens" } else { "max_tokens" };
    body.optional(limit, max_output(request, warnings));
    body.optional("stop", (!params.stop.is_empty()).then_some(&params.stop));
    match dialect.seed {
        Some(name) => body.optional(name, params.seed),
        None if params.seed.is_some() => warnings.push(unknown(WarningKind::Setting, "seed", vendor)),
        None => {}
    }
    if let Some(reasoning) = params.reasoning {
        self::reasoning(body, reasoning, dialect, warnings, vendor);
    }
    records(body, params, dialect, warnings, vendor);
    if dialect.stream_options {
        body.raw("stream_options", br#"{"include_usage":true}"#);
    }
    if dialect.reports_cost {
        body.raw("usage", br#"{"include":true}"#);
    }
}

fn sampling(
    body: &mut Body<'_>,
    request: &Request,
    dialect: Dialect,
    warnings: &mut Vec<Warning>,
    vendor: &str,
) {
    let params = &*request.params;
    let refused = request.profile.sampling == Some(false);
    let top_k = params.top_k.map(f64::from);
    let all = [
        ("temperature", params.temperature, true),
        ("top_p", params.top_p, true),
        ("top_k", top_k, dialect.top_k),
        ("presence_penalty", params.presence_penalty, dialect.penalties),
        ("frequency_penalty", params.frequency_penalty, dialect.penalties),
    ];
    for (name, value, known) in all {
        let Some(value) = finite(value) else { continue };
        if refused {
            let text = format!("{} takes no `{name}`; it was left out", request.model);
            warnings.push(Warning::new(WarningKind::Setting, name, text));
        } else if !known {
            warnings.push(unknown(WarningKind::Setting, name, vendor));
        } else if let ("top_k", Some(k)) = (name, params.top_k) {
            body.field(name, &k);
        } else {
            body.field(name, &value);
        }
    }
}

/// The effort for a request. Where a service knows only words, a budget becomes one: below 2,048 tokens `low`, below
/// 8,192 `medium`, else `high`. These bounds are ours; services publish none.
fn effort(reasoning: ReasoningParams) -> Option<Effort> {
    let of_budget = |budget| match budget {
        0 => Effort::None,
        1..2_048 => Effort::Low,
        2_048..8_192 => Effort::Medium,
        _ => Effort::High,
    };
    reasoning.effort.or(reasoning.budget.map(of_budget))
}

fn reasoning(
    body: &mut Body<'_>,
    reasoning: ReasoningParams,
    dialect: Dialect,
    warnings: &mut Vec<Warning>,
    vendor: &str,
) {
    let mut warn = |subject: &str, text: String| {
        warnings.push(Warning::new(WarningKind::Setting, subject, text));
    };
    let effort = effort(reasoning);
    match dialect.reasoning {
        ReasoningStyle::Object => {
            let budget = reasoning.budget.filter(|budget| *budget > 0);
            let amount = match (budget, effort) {
                (Some(budget), _) => Some(("max_tokens", json!(budget))),
                (None, Some(effort)) => Some(("effort", json!(word(effort, true)))),
                (None, None) => None,
            };
            let hidden = (reasoning.show == Some(false)).then_some(("exclude", json!(true)));
            let object: std::collections::BTreeMap<_, _> = amount.into_iter().chain(hidden).collect();
            return body.field("reasoning", &object);
        }
        ReasoningStyle::Switch => {
            let on = effort.is_some_and(|effort| effort > Effort::None);
            if effort.is_some() {
                body.field("thinking", &json!({"type": if on { "enabled" } else { "disabled" }}));
            }
            if effort.is_some_and(|effort| !matches!(effort, Effort::None | Effort::Medium)) {
                warn(
                    "reasoning",
                    format!(
                        "{vendor} can only turn reasoning on and off; how much it reasons is its own choice"
                    ),
                );
            }
        }
        ReasoningStyle::Effort | ReasoningStyle::WideEffort => {
            let wide = dialect.reasoning == ReasoningStyle::WideEffort;
            let word = effort.map(|effort| word(effort, wide));
            if let (Some(effort), false) = (effort, wide)
                && !matches!(effort, Effort::Low | Effort::Medium | Effort::High)
            {
                warn(
                    "reasoning",
                    format!("{vendor} knows low, medium and high effort only; the nearest was asked for"),
                );
            }
            body.optional("reasoning_effort", word);
        }
    }
    if reasoning.budget.is_some_and(|budget| budget > 0) {
        warn(
            "reasoning.budget",
            format!("{vendor} takes no budget for reasoning; it was asked for in words"),
        );
    }
}

/// The wire's word; without the wide set, the nearest of three.
fn word(effort: Effort, wide: bool) -> &'static str {
    match effort {
        Effort::None if wide => "none",
        Effort::Minimal if wide => "minimal",
        Effort::Max if wide => "xhigh",
        Effort::None | Effort::Minimal | Effort::Low => "low",
        Effort::Medium => "medium",
        _ => "high",
    }
}

fn records(
    body: &mut Body<'_>,
    params: &Params,
    dialect: Dialect,
    warnings: &mut Vec<Warning>,
    vendor: &str,
) {
    if !params.metadata.is_empty() {
        if let (Some(user), true) = (params.metadata.get("user_id"), dialect.metadata) {
            body.field("safety_identifier", user);
        }
        let rest: std::collections::BTreeMap<_, _> =
            params.metadata.iter().filter(|(key, _)| *key != "user_id").collect();
        if !dialect.metadata {
            warnings.push(unknown(WarningKind::Setting, "metadata", vendor));
        } else if !rest.is_empty() {
            body.field("metadata", &rest);
        }
    }
    if dialect.cache == CacheStyle::Key {
        body.optional("prompt_cache_key", params.cache_key.as_ref());
        body.optional("prompt_cache_retention", (params.cache == Some(PromptCache::Long)).then_some("24h"));
    } else if params.cache_key.is_some() {
        warnings.push(unknown(WarningKind::Setting, "cache_key", vendor));
    }
}
