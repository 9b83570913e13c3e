//! The amount of thinking: the caller's settings translated into the form that the model takes.

use entourage_core::provider::{Effort, ReasoningParams, Request, Warning, WarningKind};
use serde_json::{Value, json};

use super::profile::Claude;

/// The smallest budget that the service takes.
const LEAST: u64 = 1_024;

/// Fields of a request about thinking.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Thinking {
    /// The field `thinking`.
    pub(super) field: Option<Value>,
    /// The `effort` within `output_config`.
    pub(super) effort: Option<&'static str>,
    /// True if the model thinks because of this request: then the service refuses some other settings.
    pub(super) on: bool,
}

/// Plans the thinking of a request. `limit` is its output limit, which includes thinking.
pub(super) fn plan(
    request: &Request,
    claude: Option<Claude>,
    limit: u64,
    warnings: &mut Vec<Warning>,
) -> Thinking {
    let extra = request.params.extra.as_ref().and_then(|extra| extra.get("thinking"));
    if let Some(own) = extra {
        let on = own.get("type").is_some_and(|kind| kind == "enabled" || kind == "adaptive");
        return Thinking { on, ..Thinking::default() };
    }
    let Some(asked) = request.params.reasoning else { return Thinking::default() };
    let off = asked.effort == Some(Effort::None) || (asked.effort.is_none() && asked.budget == Some(0));
    let mut warn = |text: String| warnings.push(Warning::new(WarningKind::Setting, "reasoning", text));
    let can = request.profile.reasoning != Some(false) && claude.is_none_or(Claude::thinks);
    if !can {
        if !off {
            warn("this model does not think before it answers; the setting was left out".to_owned());
        }
        return Thinking::default();
    }
    if off {
        return turn_off(claude, &mut warn);
    }
    let adapts = claude.is_some_and(Claude::adapts);
    let budgeted = claude.is_none_or(|claude| !claude.refuses_budget());
    if adapts && !(budgeted && asked.effort.is_none() && asked.budget.is_some()) {
        adaptive(asked, &mut warn)
    } else {
        enabled(asked, limit, &mut warn)
    }
}

fn turn_off(claude: Option<Claude>, warn: &mut impl FnMut(String)) -> Thinking {
    if claude.is_some_and(Claude::always_thinks) {
        warn("this model always thinks; it is asked to think little".to_owned());
        return Thinking { effort: Some("low"), ..Thinking::default() };
    }
    Thinking { field: Some(json!({"type": "disabled"})), ..Thinking::default() }
}

fn adaptive(asked: ReasoningParams, warn: &mut impl FnMut(String)) -> Thinking {
    if asked.effort.is_none() && asked.budget.is_none() && asked.show != Some(true) {
        return Thinking::default();
    }
    let effort = asked.effort.map(word);
    let effort = effort.or_else(|| asked.budget.map(|budget| word(effort_of(budget))));
    if let (Some(budget), Some(effort)) = (asked.budget, effort) {
        warn(format!(
            "this model takes no budget; instead of {budget} tokens it was given the effort `{effort}`"
        ));
    }
    Thinking { field: Some(shown(json!({"type": "adaptive"}), asked.show)), effort, on: true }
}

fn enabled(asked: ReasoningParams, limit: u64, warn: &mut impl FnMut(String)) -> Thinking {
    if asked.effort.is_none() && asked.budget.is_none() && asked.show != Some(true) {
        return Thinking::default();
    }
    if limit <= LEAST {
        warn(format!("an output limit of {limit} tokens leaves no room for thinking; it was left out"));
        return Thinking::default();
    }
    let budget = match asked.budget {
        Some(budget) => {
            let fits = budget.clamp(LEAST, limit.saturating_sub(1));
            if fits != budget {
                warn(format!(
                    "a budget of {budget} tokens became {fits}, to be {LEAST} at least and below the output limit"
                ));
            }
            fits
        }
        None => budget_of(asked.effort.unwrap_or(Effort::Medium)).min(limit / 2).max(LEAST),
    };
    let field = shown(json!({"type": "enabled", "budget_tokens": budget}), asked.show);
    Thinking { field: Some(field), effort: None, on: true }
}

fn shown(mut field: Value, show: Option<bool>) -> Value {
    if let (Some(show), Some(fields)) = (show, field.as_object_mut()) {
        fields.insert("display".to_owned(), json!(if show { "summarized" } else { "omitted" }));
    }
    field
}

fn word(effort: Effort) -> &'static str {
    match effort {
        Effort::None | Effort::Minimal | Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
        _ => "max",
    }
}

fn budget_of(effort: Effort) -> u64 {
    match effort {
        Effort::None | Effort::Minimal => LEAST,
        Effort::Low => 2_048,
        Effort::Medium => 8_192,
        Effort::High => 16_384,
        _ => 32_768,
    }
}

fn effort_of(budget: u64) -> Effort {
    match budget {
        0..=2_048 => Effort::Low,
        2_049..=8_192 => Effort::Medium,
        8_193..=16_384 => Effort::High,
        _ => Effort::Max,
    }
}
