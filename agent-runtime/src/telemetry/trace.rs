//! One session's history as records: exchanges, model calls, tool calls, messages.

use std::sync::Arc;

use entourage_core::{
    ErrorRecord, Money, RequestId, RunId, SessionId, Timestamp, Usage,
    event::{Envelope, Event, ModelFinished, ModelStarted, ToolFinished, ToolStarted},
    message::{Arguments, Message, ToolResult},
    provider::Finish,
    run::Status,
    session::SessionInfo,
};
use serde::Serialize;

use crate::deferred::written;

/// One prompt and its outcome. The compressed stream of a root session is a list of these.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Exchange {
    /// Id of the run.
    pub run: RunId,
    /// The agent that ran.
    pub agent: Arc<str>,
    /// The prompt.
    pub prompt: Arc<Message>,
    /// The answer; empty while there is none.
    pub answer: String,
    /// Status at the end; `None` for a run that has not ended.
    pub status: Option<Status>,
    /// Start of the run.
    pub started: Timestamp,
    /// End of the run.
    pub ended: Option<Timestamp>,
}

/// One model call, as far as it is known: a process may have died before the reply came.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ModelCallTrace {
    /// Id of the run.
    pub run: RunId,
    /// The agents from the root down.
    pub agent: Arc<str>,
    /// The step of the run, from 1; 0 in a hand-written agent.
    pub step: u32,
    /// The service of the model.
    pub provider: Arc<str>,
    /// The model that was asked.
    pub model: Arc<str>,
    /// Id of the request.
    pub request: Option<RequestId>,
    /// The template of the instructions.
    pub template: Option<Arc<str>>,
    /// Start of the call.
    pub started: Timestamp,
    /// End of the reply.
    pub completed: Option<Timestamp>,
    /// From the call to the end of the reply, in microseconds.
    pub micros: Option<u64>,
    /// The reply, possibly partial.
    pub reply: Option<Arc<Message>>,
    /// The reason why the reply ended.
    pub finish: Option<Finish>,
    /// Tokens of all attempts.
    pub usage: Usage,
    /// Cost of all attempts; `None` when unknown.
    pub cost: Option<Money>,
    /// Number of known attempts.
    pub attempts: u32,
    /// The error of a failed call.
    pub error: Option<ErrorRecord>,
}

/// One tool call.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ToolCallTrace {
    /// Id of the run.
    pub run: RunId,
    /// The agents from the root down.
    pub agent: Arc<str>,
    /// The id of the call, as the model's service chose it.
    pub call: Arc<str>,
    /// Name of the tool.
    pub tool: Arc<str>,
    /// The arguments, as far as the session's messages tell.
    pub arguments: Option<Arguments>,
    /// The rule or the person that allowed it; `None` for a call that never ran.
    pub allowed_by: Option<String>,
    /// Start of the execution.
    pub started: Option<Timestamp>,
    /// Time of the result.
    pub completed: Option<Timestamp>,
    /// Duration of the execution, in microseconds.
    pub micros: Option<u64>,
    /// The result as the model saw it.
    pub result: Option<Arc<ToolResult>>,
    /// True if permission to run was refused.
    pub denied: bool,
}

impl ToolCallTrace {
    /// True if the call ended with an error.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.result.as_ref().is_some_and(|result| result.is_error)
    }
}

/// The full history of one session, including messages that a summary replaced for the model.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Trace {
    /// The session.
    pub info: SessionInfo,
    /// The root of its tree.
    pub root: SessionId,
    /// The other sessions below the same parent.
    pub siblings: Vec<SessionId>,
    /// All messages.
    pub messages: Vec<Arc<Message>>,
    /// One record per run.
    pub exchanges: Vec<Exchange>,
    /// All model calls.
    pub model_calls: Vec<ModelCallTrace>,
    /// All tool calls.
    pub tool_calls: Vec<ToolCallTrace>,
}

/// Collects records from a session's events.
#[derive(Debug, Default)]
pub(super) struct Records {
    pub(super) messages: Vec<Arc<Message>>,
    pub(super) exchanges: Vec<Exchange>,
    pub(super) model_calls: Vec<ModelCallTrace>,
    pub(super) tool_calls: Vec<ToolCallTrace>,
    /// The newest message with calls.
    asking: Option<Arc<Message>>,
    /// Results for it that are not yet part of a message.
    results: Vec<Arc<ToolResult>>,
    /// Indices of the newest run's open records, oldest first. Few, however many calls a run makes.
    open_tools: Vec<usize>,
    open_models: Vec<usize>,
}

impl Records {
    pub(super) fn apply(&mut self, envelope: &Envelope) {
        match &envelope.event {
            Event::RunStarted(started) => {
                self.flush();
                self.messages.push(Arc::clone(&started.prompt));
                self.open_tools.clear();
                self.open_models.clear();
                self.exchanges.push(Exchange {
                    run: envelope.origin.run,
                    agent: Arc::clone(&started.agent),
                    prompt: Arc::clone(&started.prompt),
                    answer: String::new(),
                    status: None,
                    started: envelope.at,
                    ended: None,
                });
            }
            Event::RunFinished(end) => {
                self.flush();
                let run = envelope.origin.run;
                if let Some(exchange) = self.exchanges.iter_mut().rev().find(|it| it.run == run) {
                    exchange.answer.clone_from(&end.outcome.text);
                    exchange.status = Some(end.outcome.status.clone());
                    exchange.ended = Some(envelope.at);
                }
            }
            Event::MessageAdded(added) => {
                self.flush();
                self.messages.push(Arc::clone(&added.message));
            }
            // A call whose process died before the reply is asked again under the same id.
            Event::ModelStarted(started) => match self.open_model(started.request) {
                Some(call) if started.request.is_some() => call.attempts = call.attempts.saturating_add(1),
                _ => {
                    self.open_models.push(self.model_calls.len());
                    self.model_calls.push(asked(envelope, started));
                }
            },
            Event::ModelRestarted(again) => {
                if let Some(call) = self.open_model(Some(again.request)) {
                    call.attempts = again.restart.attempt;
                }
            }
            Event::ModelFinished(reply) => self.reply(envelope, reply),
            Event::ToolStarted(started) => {
                let again = self.open_tool(&started.call);
                match again.and_then(|place| self.tool_calls.get_mut(place)) {
                    Some(call) => call.started = Some(envelope.at),
                    None => {
                        self.open_tools.push(self.tool_calls.len());
                        self.tool_calls.push(self.claimed(envelope, started));
                    }
                }
            }
            Event::ToolFinished(finished) => self.settle(envelope, finished),
            _ => {}
        }
    }

    /// Joins the pending results into one message.
    pub(super) fn flush(&mut self) {
        if !self.results.is_empty() {
            self.messages.push(Arc::new(Message::tool(self.results.drain(..))));
        }
    }

    fn open_model(&mut self, request: Option<RequestId>) -> Option<&mut ModelCallTrace> {
        let asks = |place: &&usize| self.model_calls.get(**place).is_some_and(|call| call.request == request);
        let place = self.open_models.iter().rev().find(asks).copied()?;
        self.model_calls.get_mut(place)
    }

    /// Index of the open call with this id: begun, without a result.
    fn open_tool(&self, call: &str) -> Option<usize> {
        let asks = |place: &&usize| self.tool_calls.get(**place).is_some_and(|it| &*it.call == call);
        self.open_tools.iter().rev().find(asks).copied()
    }

    fn reply(&mut self, envelope: &Envelope, reply: &ModelFinished) {
        self.flush();
        if let Some(call) = self.open_model(reply.request) {
            call.completed = Some(envelope.at);
            call.micros = Some(reply.micros);
            call.reply = Some(Arc::clone(&reply.message));
            call.finish = Some(reply.finish.clone());
            call.usage = (reply.usage + reply.wasted).tokens();
            call.cost = reply.cost;
            call.attempts = reply.attempt;
            call.error.clone_from(&reply.error);
            let calls = &self.model_calls;
            self.open_models.retain(|place| calls.get(*place).is_some_and(|call| call.completed.is_none()));
        }
        if reply.message.tool_calls().next().is_some() {
            self.asking = Some(Arc::clone(&reply.message));
        }
        if !reply.message.parts().is_empty() {
            self.messages.push(Arc::clone(&reply.message));
        }
    }

    fn claimed(&self, envelope: &Envelope, started: &ToolStarted) -> ToolCallTrace {
        ToolCallTrace {
            allowed_by: Some(started.allowed_by.to_string()),
            started: Some(envelope.at),
            ..self.unrun(envelope, &started.call, &started.tool)
        }
    }

    fn unrun(&self, envelope: &Envelope, call: &Arc<str>, tool: &Arc<str>) -> ToolCallTrace {
        let asked = self.asking.as_ref().and_then(|message| message.tool_calls().find(|it| it.id == *call));
        ToolCallTrace {
            run: envelope.origin.run,
            agent: Arc::clone(&envelope.origin.agent),
            call: Arc::clone(call),
            tool: Arc::clone(tool),
            arguments: asked.map(|call| written(call, tool)),
            allowed_by: None,
            started: None,
            completed: None,
            micros: None,
            result: None,
            denied: false,
        }
    }

    fn settle(&mut self, envelope: &Envelope, finished: &ToolFinished) {
        let result = &finished.result;
        let place = self.open_tool(&result.call).unwrap_or_else(|| {
            let call = self.unrun(envelope, &result.call, &result.name);
            self.tool_calls.push(call);
            self.tool_calls.len().saturating_sub(1)
        });
        if let Some(call) = self.tool_calls.get_mut(place) {
            call.completed = Some(envelope.at);
            call.micros = call.started.map(|_| finished.micros);
            call.result = Some(Arc::clone(result));
            call.denied = finished.denied;
            self.open_tools.retain(|open| *open != place);
        }
        if finished.key.is_none() {
            self.results.push(Arc::clone(result));
        }
    }

    /// Removes and returns the completed records, for callers that only want sums.
    pub(super) fn drain(&mut self) -> (Vec<ModelCallTrace>, Vec<ToolCallTrace>) {
        self.messages.clear();
        let models = self.model_calls.iter().position(|call| call.completed.is_none());
        let tools = self.tool_calls.iter().position(|call| call.completed.is_none());
        let models: Vec<_> = self.model_calls.drain(..models.unwrap_or(self.model_calls.len())).collect();
        let tools: Vec<_> = self.tool_calls.drain(..tools.unwrap_or(self.tool_calls.len())).collect();
        self.open_models.iter_mut().for_each(|place| *place = place.saturating_sub(models.len()));
        self.open_tools.iter_mut().for_each(|place| *place = place.saturating_sub(tools.len()));
        (models, tools)
    }
}

fn asked(envelope: &Envelope, started: &ModelStarted) -> ModelCallTrace {
    ModelCallTrace {
        run: envelope.origin.run,
        agent: Arc::clone(&envelope.origin.agent),
        step: started.step,
        provider: Arc::clone(&started.provider),
        model: Arc::clone(&started.model),
        request: started.request,
        template: started.template.clone(),
        started: envelope.at,
        completed: None,
        micros: None,
        reply: None,
        finish: None,
        usage: Usage::default(),
        cost: None,
        attempts: 1,
        error: None,
    }
}
