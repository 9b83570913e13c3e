//! Display of events for people: one line for a terminal or a log.

use std::fmt::{self, Write};

use super::{Envelope, Event};
use crate::{
    base::shown::Shown,
    message::ToolCall,
    provider::{Delta, Restart},
};

impl fmt::Display for Envelope {
    /// Writes one line for a terminal or a log. A text delta keeps its layout, with each further line indented by two
    /// spaces; any other delta shows nothing, so print deltas without a line of their own.
    ///
    /// Text of models and tools cannot control the terminal or pass for another event: control and hidden characters
    /// are shown as escapes (in a text delta they are left out), and no line that such text begins looks like an
    /// event's.
    ///
    /// A program that prints deltas begins the first of a reply within a line of its own, such as `> `.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_delta = matches!(self.event, Event::Delta(_));
        self.show(&mut if is_delta { Shown::layout(f) } else { Shown::line(f) })
    }
}

impl Envelope {
    fn show(&self, f: &mut Shown<'_, '_>) -> fmt::Result {
        let agent = &self.origin.agent;
        match &self.event {
            Event::Delta(Delta::Text(text)) => f.write_str(text),
            Event::Delta(_) => Ok(()),
            Event::RunStarted(run) => write!(f, "{agent}: {}", one_line(&run.prompt.text())),
            Event::RunResumed(it) => write!(f, "{agent}: resumed, time {}", it.count),
            Event::ModelStarted(call) => write!(f, "{agent}: asks {}:{}", call.provider, call.model),
            Event::ModelRestarted(call) => {
                let Restart { attempt, error, delay, .. } = &call.restart;
                write!(
                    f,
                    "{agent}: the model failed, attempt {attempt} in {} s: {}",
                    delay.as_secs_f32(),
                    error.message
                )
            }
            Event::ModelFinished(reply) => match &reply.error {
                Some(error) => write!(f, "{agent}: the model failed: {}", error.message),
                None => {
                    let call =
                        |it: &ToolCall| one_line(&format!(", calls {} {}", it.name, it.arguments.as_str()));
                    let calls: String = reply.message.tool_calls().map(call).collect();
                    write!(f, "{agent}: replied ({}){calls}", reply.usage)
                }
            },
            Event::ToolStarted(call) => write!(f, "{agent}: runs {}", call.tool),
            Event::ToolFinished(call) => {
                let verb = if call.result.is_error { "failed" } else { "returned" };
                write!(f, "{agent}: {} {verb}: {}", call.result.name, one_line(&call.result.to_text()))
            }
            Event::ApprovalRequested(request) => {
                write!(f, "{agent}: asks leave to run {} {}", request.tool, request.arguments.as_str())
            }
            Event::ApprovalDecided(answer) => match &answer.by {
                Some(by) => write!(f, "{agent}: {} is {} by {}", answer.id, answer.decision, one_line(by)),
                None => write!(f, "{agent}: {} is {}", answer.id, answer.decision),
            },
            Event::ChildStarted(child) => write!(f, "{agent}: starts {} in {}", child.agent, child.child),
            Event::ChildFinished(it) => match (&it.child, &it.outcome) {
                (Some(child), Some(outcome)) => write!(f, "{agent}: {child} ended, {}", outcome.status),
                (Some(child), None) => write!(f, "{agent}: {child} ended"),
                (None, _) => write!(f, "{agent}: timed out waiting for a child"),
            },
            Event::WaitStarted(wait) => match &wait.signal {
                Some(signal) => write!(f, "{agent}: waits for the signal {signal}"),
                None => write!(f, "{agent}: waits"),
            },
            Event::Observed(it) => write!(f, "{agent}: observed {}", one_line(&it.value.to_string())),
            Event::SignalReceived(signal) => write!(f, "{agent}: received the signal {}", signal.name),
            Event::PromptQueued(it) if it.steer => write!(f, "{agent}: told {}", one_line(&it.prompt.text())),
            Event::PromptQueued(it) => write!(f, "{agent}: queued {}", one_line(&it.prompt.text())),
            Event::PromptDropped(it) => write!(f, "{agent}: dropped a prompt: {}", it.error.message),
            Event::MessageAdded(it) => write!(f, "{agent}: {}", one_line(&it.message.text())),
            Event::CompactionStarted(it) => write!(f, "{agent}: compacts about {} tokens", it.tokens),
            Event::Compacted(it) => write!(f, "{agent}: compacted {} to {} tokens", it.before, it.after),
            Event::CompactionFailed(it) => write!(f, "{agent}: did not compact: {}", it.error.message),
            Event::OutputsCleared(it) => {
                write!(f, "{agent}: cleared old results, about {} tokens are left", it.after)
            }
            Event::Recorded(it) => write!(f, "{agent}: {}", one_line(&it.summary())),
            Event::LabelsAdded(it) => {
                write!(f, "{agent}: has read text that is ")?;
                bitflags::parser::to_writer(&it.labels, f)
            }
            Event::Titled(it) => write!(f, "{agent}: is about {}", it.title),
            Event::TodosChanged(it) => write!(f, "{agent}: has {} todos", it.todos.len()),
            Event::ModeChanged(it) => write!(f, "{agent}: works in mode {} from its next run on", it.mode),
            Event::Checkpoint(it) => write!(f, "{agent}: checkpoint of {} events", it.state.head().seq),
            Event::WarningRaised(warning) => write!(f, "{agent}: warning: {}", warning.text),
            Event::Progress(progress) => write!(f, "{agent}: {}", one_line(&progress.text)),
            Event::RunPaused(paused) => write!(f, "{agent}: {}", paused.pause),
            Event::RunFinished(end) => write!(f, "{agent}: {}", end.outcome),
        }
    }
}

fn one_line(text: &str) -> String {
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() > 100 {
        line = line.chars().take(99).chain(['…']).collect();
    }
    line
}
