//! Reads a reply to its end by the rules of the stream's contract, and compares it with the scenario.

use std::collections::BTreeSet;

use entourage_core::{
    Error, ErrorKind, Result, RetryStatus, Usage,
    message::{History, Message, Part, Reasoning},
    provider::{CallContext, Delta, DeltaStream, Egress, FinishReason, Request},
    tool::ToolSpec,
};
use entourage_runtime::reply::{Assembled, Assembler};
use futures_util::StreamExt;
use serde_json::{Value, json};

use super::{Checked, Ending, Failure, Flaw, Reply, Say, Stage, StreamScenario};

/// The request of the suite. It offers both tools of the scenarios.
pub(super) fn request() -> Request {
    let schema = json!({"type": "object", "properties": {"at": {"type": "string"}}});
    let tools =
        ["count", "look"].map(|name| ToolSpec::new(name, "Looks at something.", schema.clone())).to_vec();
    Request::new("model-1", [Message::user("Say it.")].into_iter().collect::<History>()).with_tools(tools)
}

pub(super) fn context() -> CallContext {
    CallContext::new().with_egress(Egress::Loopback)
}

/// A whole reply.
pub(super) struct Heard {
    pub(super) deltas: Vec<Delta>,
    pub(super) end: Result<Assembled>,
    /// True if the call itself failed, before there was a stream.
    pub(super) at_once: bool,
}

/// Calls the provider and reads the whole reply.
pub(super) async fn hear(stage: &Stage) -> Checked<Heard> {
    let cx = context();
    let mut heard = match stage.provider.stream(request(), &cx).await {
        Ok(stream) => listen(stream).await?,
        Err(error) => Heard { deltas: Vec::new(), end: Err(error), at_once: true },
    };
    if let Err(error) = heard.end {
        heard.end = Err(shown(stage, error)?);
    }
    hides(stage, &format!("{:?}{:?}", stage.provider, heard.deltas))?;
    Ok(heard)
}

async fn listen(mut stream: DeltaStream) -> Checked<Heard> {
    let mut rules = Rules::default();
    let mut assembler = Assembler::default();
    let mut deltas = Vec::new();
    while let Some(item) = stream.next().await {
        match item {
            Ok(delta) => {
                rules.take(&delta)?;
                assembler.push(&delta)?;
                deltas.push(delta);
            }
            Err(error) => {
                holds("an error comes after the finish", !assembler.is_finished())?;
                let more = stream.next().await;
                holds(&format!("after its error the stream goes on: {more:?}"), more.is_none())?;
                return Ok(Heard { deltas, end: Err(error), at_once: false });
            }
        }
    }
    Ok(Heard { deltas, end: assembler.finish(), at_once: false })
}

/// Rules for every stream, whatever its content.
#[derive(Debug, Default)]
pub(super) struct Rules {
    finished: bool,
    calls: BTreeSet<u32>,
    attempt: u32,
    /// Deltas with and without content.
    said: u32,
    unsaid: u32,
}

/// Most deltas without content beyond those with content, in one stream.
const MAX_UNSAID: u32 = 16;

impl Rules {
    pub(super) fn take(&mut self, delta: &Delta) -> Checked {
        holds(&format!("something comes after the finish: {delta:?}"), !self.finished)?;
        *if says_something(delta) { &mut self.said } else { &mut self.unsaid } += 1;
        holds(
            &format!("{} deltas without content come with {} of content", self.unsaid, self.said),
            self.unsaid <= self.said.saturating_add(MAX_UNSAID),
        )?;
        match delta {
            Delta::Finish(_) => self.finished = true,
            Delta::ToolCallStart(call) => {
                let index = call.index;
                let last = self.calls.last().copied();
                holds(
                    &format!("call {index} begins after call {last:?}"),
                    last.is_none_or(|last| last < index),
                )?;
                self.calls.insert(index);
            }
            Delta::ToolCallArguments { index, .. } => {
                holds(
                    &format!("arguments of call {index} come before it begins"),
                    self.calls.contains(index),
                )?;
            }
            Delta::Restart(restart) => {
                holds(
                    &format!("attempt {} follows attempt {}", restart.attempt, self.attempt.max(1)),
                    restart.attempt > self.attempt.max(1),
                )?;
                self.attempt = restart.attempt;
                self.calls.clear();
            }
            _ => {}
        }
        Ok(())
    }
}

fn says_something(delta: &Delta) -> bool {
    match delta {
        Delta::Text(text)
        | Delta::Reasoning(text)
        | Delta::Refusal(text)
        | Delta::ToolCallArguments { text, .. } => !text.is_empty(),
        Delta::Response(_) | Delta::Usage(_) | Delta::Warning(_) => false,
        _ => true,
    }
}

/// Plays all replies of the scenario and compares each.
pub(super) async fn plays_out(stage: Stage, scenario: StreamScenario) -> Checked {
    for (number, reply) in scenario.replies.iter().enumerate() {
        let heard = hear(&stage).await?;
        compare(reply, heard).map_err(|flaw| match scenario.replies.len() {
            1 => flaw,
            _ => Flaw(format!("reply {}: {}", number + 1, flaw.0)),
        })?;
    }
    Ok(())
}

pub(super) fn compare(reply: &Reply, heard: Heard) -> Checked {
    match reply {
        Reply::Refused(failure) => {
            same("what came before the refusal", &said_so_far(&heard.deltas), &String::new())?;
            failed_with(failure, heard.end)
        }
        Reply::Silent => Err(Flaw("a silent service was answered for".to_owned())),
        Reply::Streamed { says, ending } => match ending {
            Ending::Finish(reason) | Ending::Unclosed(reason) => finished(says, *reason, heard.end?),
            Ending::Failed(failure) => {
                same("what was said before the error", &said_so_far(&heard.deltas), &text_of(says))?;
                failed_with(failure, heard.end)
            }
            Ending::CutOff => {
                same("what was said before the break", &said_so_far(&heard.deltas), &text_of(says))?;
                cut_off(heard.end)
            }
            Ending::Open => Err(Flaw("a reply without an end has ended".to_owned())),
        },
    }
}

fn failed_with(failure: &Failure, end: Result<Assembled>) -> Checked {
    let Err(error) = end else {
        return Err(Flaw(format!("the failure is lost: {failure:?}")));
    };
    same("the error's kind", &error.kind(), &failure.kind)?;
    retryable(&error, failure.retry())?;
    same("how long to wait", &error.retry_after(), &failure.retry_after)?;
    holds(
        &format!("the error does not quote `{}`: {error}", failure.message),
        error.message().contains(failure.message),
    )
}

/// Compares the retry advice. A retry layer that gives up reports a temporary failure as exhausted.
fn retryable(error: &Error, expected: RetryStatus) -> Checked {
    match (expected, error.retry()) {
        (RetryStatus::Temporary, RetryStatus::Exhausted) => Ok(()),
        (expected, retry) => same("whether trying again may help", &retry, &expected),
    }
}

fn cut_off(end: Result<Assembled>) -> Checked {
    let Err(error) = end else {
        return Err(Flaw("a reply that was cut off counts as complete".to_owned()));
    };
    holds(
        &format!("a reply that was cut off is a transport or protocol error: {error:?}"),
        matches!(error.kind(), ErrorKind::Transport | ErrorKind::Protocol),
    )?;
    retryable(&error, RetryStatus::Temporary)
}

fn finished(says: &[Say], reason: FinishReason, reply: Assembled) -> Checked {
    let declined = says.iter().any(|say| matches!(say, Say::Refusal(_)));
    // A refusal in its own channel may also be reported by the finish.
    if !(declined && reply.finish.reason == FinishReason::Refusal) {
        same("why it ended", &reply.finish.reason, &reason)?;
    }
    for say in says {
        match say {
            Say::ResponseId(id) => same("the response's id", &reply.info.id.as_deref(), &Some(*id))?,
            Say::ResponseModel(model) => same("the model", &reply.info.model.as_deref(), &Some(*model))?,
            Say::Usage(usage) => used(&reply.usage, usage)?,
            _ => {}
        }
    }
    let message = reply.into_message();
    let ids: BTreeSet<_> = message.tool_calls().map(|call| call.id.to_string()).collect();
    holds(&format!("a call has no id of its own: {ids:?}"), ids.len() == message.tool_calls().count())?;
    holds("a call's id is empty", !ids.contains(""))?;
    same("the message", &heard_pieces(message.parts()), &said_pieces(says))
}

/// Compares usage. Some services report 0 instead of nothing; only a price of 0 is a real figure.
fn used(found: &Usage, expected: &Usage) -> Checked {
    let mut found = *found;
    for (found, expected) in [
        (&mut found.cache_read, expected.cache_read),
        (&mut found.cache_write, expected.cache_write),
        (&mut found.reasoning, expected.reasoning),
    ] {
        if *found == Some(0) && expected.is_none() {
            *found = None;
        }
    }
    same("the usage", &found, expected)
}

/// A part of a message in the terms of a scenario.
#[derive(Debug, PartialEq)]
enum Piece {
    Text(String),
    Reasoning {
        text: String,
        signature: Option<String>,
    },
    Refusal(String),
    /// A call; without arguments if they are not a JSON object.
    Call {
        name: String,
        arguments: Option<Value>,
    },
    Block,
    Other(String),
}

fn heard_pieces(parts: &[Part]) -> Vec<Piece> {
    let piece = |part: &Part| match part {
        Part::Text(text) => Piece::Text(text.clone()),
        Part::Reasoning(reasoning) => Piece::Reasoning {
            text: reasoning.text.clone(),
            // Without data it is the wire's own note, such as the field in which plain reasoning came.
            signature: signed(reasoning).map(str::to_owned),
        },
        Part::Refusal(text) => Piece::Refusal(text.clone()),
        Part::ToolCall(call) => Piece::Call {
            name: call.name.to_string(),
            arguments: call.malformed.is_none().then(|| call.arguments.to_value()),
        },
        Part::Opaque(block) if !block.data.is_null() && !block.wire.is_empty() => Piece::Block,
        other => Piece::Other(format!("{other:?}")),
    };
    let says_nothing = |part: &&Part| matches!(part, Part::Reasoning(reasoning) if reasoning.text.is_empty() && signed(reasoning).is_none());
    parts.iter().filter(|part| !says_nothing(part)).map(piece).collect()
}

fn signed(reasoning: &Reasoning) -> Option<&str> {
    reasoning.signature.as_ref().map(|signature| signature.data.as_str()).filter(|data| !data.is_empty())
}

fn said_pieces(says: &[Say]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for say in says {
        match (say, pieces.last_mut()) {
            (Say::Text(more), Some(Piece::Text(text)))
            | (Say::Refusal(more), Some(Piece::Refusal(text)))
            | (Say::Reasoning(more), Some(Piece::Reasoning { text, signature: None })) => text.push_str(more),
            (Say::Signature(data), Some(Piece::Reasoning { signature: signature @ None, .. })) => {
                *signature = Some((*data).to_owned());
            }
            (Say::Text(text), _) => pieces.push(Piece::Text((*text).to_owned())),
            (Say::Refusal(text), _) => pieces.push(Piece::Refusal((*text).to_owned())),
            (Say::Reasoning(text), _) => {
                pieces.push(Piece::Reasoning { text: (*text).to_owned(), signature: None });
            }
            (Say::Signature(data), _) => {
                pieces.push(Piece::Reasoning { text: String::new(), signature: Some((*data).to_owned()) });
            }
            (Say::CallStart { index, name, .. }, _) => {
                let arguments = arguments_of(says, *index);
                pieces.push(Piece::Call { name: (*name).to_owned(), arguments });
            }
            (Say::Block, _) => pieces.push(Piece::Block),
            (Say::Arguments { .. } | Say::ResponseId(_) | Say::ResponseModel(_) | Say::Usage(_), _) => {}
        }
    }
    pieces
}

fn arguments_of(says: &[Say], call: u32) -> Option<Value> {
    let text = raw_arguments(says, call);
    if text.is_empty() { Some(json!({})) } else { serde_json::from_str(&text).ok().filter(Value::is_object) }
}

pub(super) fn raw_arguments(says: &[Say], call: u32) -> String {
    let pieces = says.iter().filter_map(|say| match say {
        Say::Arguments { index, json } if *index == call => Some(*json),
        _ => None,
    });
    pieces.collect()
}

fn text_of(says: &[Say]) -> String {
    says.iter().filter_map(|say| if let Say::Text(text) = say { Some(*text) } else { None }).collect()
}

fn said_so_far(deltas: &[Delta]) -> String {
    let mut text = String::new();
    for delta in deltas {
        match delta {
            Delta::Text(more) => text.push_str(more),
            Delta::Restart(_) => text.clear(),
            _ => {}
        }
    }
    text
}

fn shown(stage: &Stage, error: Error) -> Checked<Error> {
    hides(stage, &format!("{error} {error:?} {:?}", error.record()))?;
    Ok(error)
}

fn hides(stage: &Stage, text: &str) -> Checked {
    match &stage.secret {
        Some(secret) => holds("the provider's key is shown", !text.contains(secret.as_str())),
        None => Ok(()),
    }
}

/// Fails with `flaw` unless `held`.
pub(super) fn holds(flaw: &str, held: bool) -> Checked {
    if held { Ok(()) } else { Err(Flaw(flaw.to_owned())) }
}

pub(super) fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Checked {
    if found == expected {
        return Ok(());
    }
    Err(Flaw(format!("{what}: {found:?} instead of {expected:?}")))
}
