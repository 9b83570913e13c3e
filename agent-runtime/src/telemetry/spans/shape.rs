//! Names and attributes of each span.
//!
//! Numbers are signed: OpenTelemetry has no unsigned ones and would turn them into text.

use std::borrow::Cow;

use entourage_core::{
    ErrorKind,
    event::{ModelFinished, ModelStarted, Origin, ToolFinished},
    provider::{Finish, FinishReason, Restart},
    run::{Outcome, Status, StopReason},
};
use tracing::{Level, Span, field::Empty};

use super::{below, content};

/// A span of one operation: the common fields, and these.
macro_rules! span {
    ($parent:expr, $operation:literal, $on:expr, $kind:literal, $($fields:tt)*) => {
        tracing::span!(
            target: "entourage",
            parent: $parent,
            Level::INFO,
            $operation,
            "otel.name" = format!("{} {}", $operation, $on),
            "otel.kind" = $kind,
            "otel.status_code" = Empty,
            "otel.status_description" = Empty,
            "gen_ai.operation.name" = $operation,
            "entourage.status" = Empty,
            "error.type" = Empty,
            $($fields)*
        )
    };
}

pub(super) fn run(parent: Option<&Span>, origin: &Origin, agent: &str, resumed: u32) -> Span {
    let make = |parent: Option<tracing::Id>| {
        span!(
            parent,
            "invoke_agent",
            agent,
            "internal",
            "gen_ai.agent.name" = agent,
            "gen_ai.conversation.id" = origin.session.as_str(),
            "entourage.run.id" = %origin.run,
            "entourage.agent.path" = &*origin.agent,
            "entourage.resumed" = (resumed > 0).then(|| i64::from(resumed)),
            "entourage.stop_reason" = Empty,
            "entourage.steps" = Empty,
            "gen_ai.usage.input_tokens" = Empty,
            "gen_ai.usage.output_tokens" = Empty,
            "gen_ai.input.messages" = Empty,
            "gen_ai.output.messages" = Empty,
        )
    };
    match parent {
        Some(parent) => below(parent, make),
        None => make(None),
    }
}

pub(super) fn chat(parent: &Span, origin: &Origin, call: &ModelStarted, compacted: bool) -> Span {
    below(parent, |parent| {
        span!(
            parent,
            "chat",
            call.model,
            "client",
            "gen_ai.provider.name" = &*call.provider,
            "gen_ai.request.model" = &*call.model,
            "gen_ai.request.stream" = true,
            "gen_ai.conversation.id" = origin.session.as_str(),
            "gen_ai.conversation.compacted" = compacted.then_some(true),
            "gen_ai.prompt.name" = call.template.as_deref(),
            "gen_ai.response.model" = Empty,
            "gen_ai.response.id" = Empty,
            "gen_ai.response.finish_reasons" = Empty,
            "gen_ai.usage.input_tokens" = Empty,
            "gen_ai.usage.output_tokens" = Empty,
            "gen_ai.usage.cache_read.input_tokens" = Empty,
            "gen_ai.usage.cache_write.input_tokens" = Empty,
            "gen_ai.usage.reasoning.output_tokens" = Empty,
            "entourage.step" = i64::from(call.step),
            "entourage.attempts" = Empty,
            "gen_ai.input.messages" = Empty,
            "gen_ai.output.messages" = Empty,
        )
    })
}

pub(super) fn tool(parent: &Span, tool: &str, call: &str, ran: bool) -> Span {
    below(parent, |parent| {
        span!(
            parent,
            "execute_tool",
            tool,
            "internal",
            "gen_ai.tool.name" = tool,
            "gen_ai.tool.call.id" = call,
            "gen_ai.tool.type" = "function",
            "entourage.not_run" = (!ran).then_some(true),
            "gen_ai.tool.call.arguments" = Empty,
            "gen_ai.tool.call.result" = Empty,
        )
    })
}

pub(super) fn restarted(span: &Span, restart: &Restart) {
    let kind = kind(restart.error.kind);
    span.with_subscriber(|(id, subscriber)| {
        tracing::dispatcher::with_default(subscriber, || {
            tracing::event!(
                name: "restart",
                target: "entourage",
                parent: id.clone(),
                Level::INFO,
                message = "restart",
                "entourage.attempt" = i64::from(restart.attempt),
                "error.type" = &*kind,
                "gen_ai.provider.name" = restart.provider.as_deref(),
                "gen_ai.request.model" = restart.model.as_deref(),
            );
        });
    });
}

pub(super) fn replied(span: &Span, reply: &ModelFinished) {
    let usage = &reply.usage;
    let reasons = format!("[\"{}\"]", finish_reason(&reply.finish));
    span.record("gen_ai.response.finish_reasons", reasons)
        .record("gen_ai.response.model", reply.model.as_deref())
        .record("gen_ai.response.id", reply.response.as_deref())
        .record("gen_ai.usage.input_tokens", count(usage.input))
        .record("gen_ai.usage.output_tokens", count(usage.output))
        .record("gen_ai.usage.cache_read.input_tokens", count(usage.cache_read))
        .record("gen_ai.usage.cache_write.input_tokens", count(usage.cache_write))
        .record("gen_ai.usage.reasoning.output_tokens", count(usage.reasoning))
        .record("entourage.attempts", i64::from(reply.attempt));
}

fn count(tokens: Option<u64>) -> Option<i64> {
    tokens.map(|tokens| i64::try_from(tokens).unwrap_or(i64::MAX))
}

/// Finish reason in the conventions' words. A reply that broke off is an error there, whatever the cause.
pub(super) fn finish_reason(finish: &Finish) -> &'static str {
    match finish.reason {
        FinishReason::Stop => "stop",
        FinishReason::ToolCalls => "tool_call",
        FinishReason::Length => "length",
        FinishReason::ContentFilter => "content_filter",
        FinishReason::Refusal => "refusal",
        FinishReason::Cancelled | FinishReason::Error => "error",
        _ => "other",
    }
}

/// Error type of a failed tool call; `None` for a success.
pub(super) fn tool_error(call: &ToolFinished, ran: bool) -> Option<Cow<'static, str>> {
    match &call.fatal {
        Some(error) => Some(kind(error.kind)),
        None if call.denied => Some(kind(ErrorKind::PermissionDenied)),
        None if !call.result.is_error => None,
        None => Some(if ran { "tool_error" } else { "not_run" }.into()),
    }
}

pub(super) fn ended(span: &Span, status: &Status, outcome: Option<&Outcome>) {
    let (name, reason) = match status {
        Status::Completed => ("completed", None),
        Status::Stopped(reason) => ("stopped", Some(stop_reason(reason))),
        Status::Cancelled => ("cancelled", None),
        Status::Paused(_) => ("paused", None),
        Status::Failed(_) => ("failed", None),
        _ => ("other", None),
    };
    span.record("entourage.status", name).record("entourage.stop_reason", reason);
    if let Some(outcome) = outcome {
        span.record("entourage.steps", i64::from(outcome.steps))
            .record("gen_ai.usage.input_tokens", count(outcome.usage.input))
            .record("gen_ai.usage.output_tokens", count(outcome.usage.output));
    }
}

fn stop_reason(reason: &StopReason) -> &'static str {
    match reason {
        StopReason::Steps(_) => "steps",
        StopReason::Condition(_) => "condition",
        StopReason::Reply(_) => "reply",
        StopReason::Denied(_) => "denied",
        StopReason::Deadline => "deadline",
        StopReason::Budget(_) => "budget",
        StopReason::LoopDetected => "loop",
        StopReason::Incomplete { .. } => "incomplete",
        StopReason::Tasks { .. } => "tasks",
        _ => "other",
    }
}

/// Marks a span as failed. Texts of errors may quote what was said: they come only with content.
pub(super) fn failed(span: &Span, kind: &str, text: Option<&str>) {
    span.record("error.type", kind).record("otel.status_code", "ERROR");
    if let Some(text) = text {
        span.record("otel.status_description", content::cut(text));
    }
}

/// The kind of an error as an attribute, in one word.
pub(super) fn kind(kind: ErrorKind) -> Cow<'static, str> {
    let name = kind.as_str();
    if name.contains(' ') { name.replace(' ', "_").into() } else { name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_one_word() {
        for (of, word) in [
            (ErrorKind::Busy, "busy"),
            (ErrorKind::InvalidInput, "invalid_input"),
            (ErrorKind::NewerVersion, "newer_version"),
            (ErrorKind::TooMany, "too_many"),
        ] {
            assert_eq!(kind(of), word);
        }
    }
}
