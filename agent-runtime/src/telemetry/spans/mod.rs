//! Runs as `tracing` spans, under the names that OpenTelemetry's conventions for generative AI give them.
//!
//! One span per run, model call and tool call, each below the one that started it. Parents are known from the events
//! alone, so a span of the caller is never a parent by accident. Content is left out unless it is asked for.

mod content;
mod open;
mod shape;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use entourage_core::{
    event::{Envelope, Event, ModelFinished, ModelStarted, ToolFinished, ToolStarted},
    message::Message,
    run::{Observer, Status},
};
use tracing::{Dispatch, Span, dispatcher};

use self::open::{OpenRun, OpenRuns};
use crate::deferred::written;

/// Turns events into `tracing` spans. Give it to [`RuntimeBuilder::observer`](crate::RuntimeBuilder::observer).
///
/// | span | when | carries |
/// |---|---|---|
/// | `invoke_agent {agent}` | a run, or the part of it from a resume on | `gen_ai.agent.name`, `gen_ai.conversation.id` (the session), `entourage.run.id`, `entourage.agent.path`, `entourage.resumed` (how often, for a run that goes on), `entourage.status`, `entourage.stop_reason`, `entourage.steps` |
/// | `chat {model}` | a model call with all its attempts | `gen_ai.provider.name`, `gen_ai.request.model`, `gen_ai.response.model`, `.id`, `.finish_reasons`, `gen_ai.usage.*`, `entourage.attempts`; an event `restart` for each further attempt |
/// | `execute_tool {tool}` | a tool call | `gen_ai.tool.name`, `gen_ai.tool.call.id`, `entourage.not_run` for a call that was refused before it ran; its tool is `_OTHER` where the model may have made up the name |
///
/// All have `gen_ai.operation.name` and, when they failed, `error.type` with the kind of the error. Names and kinds go
/// to OpenTelemetry through the fields `otel.name`, `otel.kind` and `otel.status_code`.
///
/// A run's parent is the tool call that started it, otherwise the run that did; other runs begin a trace of their own.
/// A run that is resumed, here or in another process, begins a new span: spans of one run share `entourage.run.id`.
///
/// Finish reasons are a JSON list in one string, since `tracing` has no lists.
///
/// # What leaves the process
/// Names, ids, counts, kinds. No prompt, reply, argument, result or error text, unless [`Spans::with_content`].
///
/// # Contract
/// A streamed event costs one comparison. Any other takes a lock for a map lookup; the lock is never held while a
/// subscriber works. Spans of at most 10,000 runs are open at a time; one more closes the oldest. Dropping this closes
/// all.
///
/// ```
/// use entourage_runtime::{Runtime, telemetry::Spans};
///
/// let runtime = Runtime::builder().observer(Spans::new()).build();
/// ```
#[derive(Default)]
pub struct Spans {
    open: Mutex<OpenRuns>,
    content: bool,
    to: Option<Dispatch>,
}

impl Spans {
    /// Spans for the subscriber that is the default where a run begins. Spans below the run go to the same one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Spans for this subscriber, regardless of the default: nothing global has to be set.
    #[must_use]
    pub fn to(mut self, subscriber: impl Into<Dispatch>) -> Self {
        self.to = Some(subscriber.into());
        self
    }

    /// Adds content: `gen_ai.input.messages` (new messages since the previous model call), `gen_ai.output.messages`,
    /// `gen_ai.tool.call.arguments`, `gen_ai.tool.call.result`, and the texts of errors. Each has at most 16 KiB of
    /// text, cut at a character; media are named by their type alone.
    #[must_use]
    pub fn with_content(mut self) -> Self {
        self.content = true;
        self
    }

    fn lock(&self) -> MutexGuard<'_, OpenRuns> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn see(&self, event: &Envelope) {
        match &event.event {
            Event::RunStarted(run) => self.begin(event, &run.agent, 0, Some(&run.prompt)),
            Event::RunResumed(run) => {
                let agent = event.origin.agent.rsplit('/').next().unwrap_or_default();
                self.begin(event, agent, run.count, None);
            }
            Event::ModelStarted(call) => self.chat(event, call),
            Event::ModelRestarted(restarted) => {
                let span = self.with(event, |run| run.chats.get(&Some(restarted.request)).cloned());
                if let Some(span) = span.flatten() {
                    shape::restarted(&span, &restarted.restart);
                }
            }
            Event::ModelFinished(reply) => self.replied(event, reply),
            Event::ToolStarted(call) => self.tool(event, call),
            Event::ToolFinished(call) => self.settled(event, call),
            Event::MessageAdded(added) if self.content => {
                self.with(event, |run| run.unsaid.push(Arc::clone(&added.message)));
            }
            Event::Compacted(_) => {
                self.with(event, |run| run.compacted = true);
            }
            Event::RunPaused(paused) => self.end(event, &Status::Paused(paused.pause.clone()), None),
            Event::RunFinished(end) => self.end(event, &end.outcome.status, Some(&end.outcome)),
            _ => {}
        }
    }

    /// Calls `look` with the run that the event belongs to. `None` when the start of that run was not seen.
    fn with<T>(&self, event: &Envelope, look: impl FnOnce(&mut OpenRun) -> T) -> Option<T> {
        self.lock().runs.get_mut(&event.origin.run).map(look)
    }

    fn begin(&self, event: &Envelope, agent: &str, resumed: u32, prompt: Option<&Arc<Message>>) {
        let parent = self.lock().parent(&event.origin.session);
        let span = shape::run(parent.as_ref(), &event.origin, agent, resumed);
        let prompt = prompt.filter(|_| self.content);
        if let Some(prompt) = prompt {
            span.record("gen_ai.input.messages", content::messages([&**prompt]));
        }
        let mut run = OpenRun::new(event.origin.session.clone(), span);
        run.seq = if resumed == 0 { event.seq } else { 0 };
        run.unsaid.extend(prompt.cloned());
        let lost = self.lock().insert(event.origin.run, run);
        // After the lock: closing a span is the subscriber's work.
        drop(lost);
    }

    fn chat(&self, event: &Envelope, call: &ModelStarted) {
        let found = self.with(event, |run| {
            // Calls of a hand-written agent are not part of the conversation.
            let said = if call.key.is_none() { std::mem::take(&mut run.unsaid) } else { Vec::new() };
            (run.span.clone(), run.compacted, said)
        });
        let Some((parent, compacted, said)) = found else { return };
        let span = shape::chat(&parent, &event.origin, call, compacted);
        if !said.is_empty() {
            span.record("gen_ai.input.messages", content::messages(said.iter().map(|it| &**it)));
        }
        let before = self.with(event, |run| run.chats.insert(call.request, span));
        drop(before);
    }

    fn replied(&self, event: &Envelope, reply: &ModelFinished) {
        let span = self.with(event, |run| {
            if reply.key.is_none() && reply.message.tool_calls().next().is_some() {
                run.calls = event.seq;
                run.asked = self.content.then(|| Arc::clone(&reply.message));
            }
            run.chats.remove(&reply.request)
        });
        let Some(span) = span.flatten() else { return };
        shape::replied(&span, reply);
        if let Some(error) = &reply.error {
            shape::failed(&span, &shape::kind(error.kind), self.content.then_some(&*error.message));
        }
        if self.content {
            let reason = shape::finish_reason(&reply.finish);
            span.record("gen_ai.output.messages", content::output(&reply.message, reason));
        }
    }

    fn tool(&self, event: &Envelope, call: &ToolStarted) {
        let found =
            self.with(event, |run| (run.span.clone(), run.asked.clone().filter(|_| call.key.is_none())));
        let Some((parent, asked)) = found else { return };
        let span = shape::tool(&parent, &call.tool, &call.call, true);
        if let Some(asked) = asked.as_deref().and_then(|it| it.tool_calls().nth(call.index)) {
            let arguments = written(asked, &call.tool);
            span.record("gen_ai.tool.call.arguments", content::cut(arguments.as_str()));
        }
        let before = self.with(event, |run| {
            let place = run.place(call.key, call.index);
            run.tools.insert(place, span)
        });
        drop(before);
    }

    fn settled(&self, event: &Envelope, call: &ToolFinished) {
        let found = self.with(event, |run| {
            if self.content && call.key.is_none() {
                run.unsaid.push(Arc::new(Message::tool([Arc::clone(&call.result)])));
            }
            (run.tools.remove(&run.place(call.key, call.index)), run.span.clone())
        });
        let Some((span, parent)) = found else { return };
        // The start of a call that continues after a resume was not seen here.
        let ran = span.is_some() || call.micros > 0;
        let span = span.unwrap_or_else(|| {
            // Only these calls are known to name an offered tool; any other name may be invented by the model.
            let known = ran || call.denied || self.content;
            let name = if known { &*call.result.name } else { "_OTHER" };
            shape::tool(&parent, name, &call.result.call, ran)
        });
        if self.content {
            span.record("gen_ai.tool.call.result", content::cut(&call.result.to_text()));
        }
        if let Some(kind) = shape::tool_error(call, ran) {
            let text = call.fatal.as_ref().filter(|_| self.content).map(|error| &*error.message);
            shape::failed(&span, &kind, text);
        }
    }

    fn end(&self, event: &Envelope, status: &Status, outcome: Option<&entourage_core::run::Outcome>) {
        let Some(run) = self.lock().remove(event.origin.run) else { return };
        let error = match status {
            Status::Failed(error) => Some((shape::kind(error.kind), self.content.then_some(&*error.message))),
            Status::Cancelled => Some(("cancelled".into(), None)),
            _ => None,
        };
        // Spans that are still open were cut off by the end of the run.
        for span in run.chats.values().chain(run.tools.values()) {
            match &error {
                Some((kind, _)) => shape::failed(span, kind, None),
                None => drop(span.record("entourage.status", "open")),
            }
        }
        shape::ended(&run.span, status, outcome);
        if let Some(outcome) = outcome.filter(|it| self.content && !it.text.is_empty()) {
            let text = Message::assistant(outcome.text.as_str());
            run.span.record("gen_ai.output.messages", content::output(&text, "stop"));
        }
        if let Some((kind, text)) = error {
            shape::failed(&run.span, &kind, text);
        }
    }
}

impl Observer for Spans {
    fn on_event(&self, event: &Envelope) {
        if !event.event.is_stored() {
            return;
        }
        match &self.to {
            Some(subscriber) => dispatcher::with_default(subscriber, || self.see(event)),
            None => self.see(event),
        }
    }
}

impl fmt::Debug for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spans({} runs open, content: {})", self.lock().runs.len(), self.content)
    }
}

/// Makes a span below `parent`, in the subscriber of `parent`: ids of one subscriber mean nothing to another.
fn below(parent: &Span, make: impl Fn(Option<tracing::Id>) -> Span) -> Span {
    parent
        .with_subscriber(|(id, subscriber)| dispatcher::with_default(subscriber, || make(Some(id.clone()))))
        .unwrap_or_else(|| make(None))
}
