//! The fold: events in, a session's state out. There is no second state format.

use std::{collections::HashMap, sync::Arc};

use serde_json::Value;

use super::{SessionHead, SessionStatus};
use crate::{
    Money, RunId, Usage,
    context::{ContextUsage, estimate_tokens, has_content, is_counted},
    digest::Digest,
    event::{Envelope, Event, ModelFinished, RunStarted, ToolFinished},
    message::{History, Message, ToolResult},
    permission::{ApprovalId, Decision},
    run::{Outcome, Status},
};

/// What a session's events add up to.
#[derive(Debug, Clone, Default)]
pub struct SessionState {
    history: History,
    head: SessionHead,
    /// About how many tokens the history takes.
    tokens: u64,
    context: ContextUsage,
    estimated: bool,
    run: Option<OpenRun>,
    step: Option<OpenStep>,
    signals: Vec<(String, Value)>,
    /// The signal that a wait set aside and nobody took note of yet.
    taken: Option<(String, Value)>,
    approvals: HashMap<ApprovalId, (Option<Decision>, Digest)>,
}

/// A run that has no end yet.
#[derive(Debug, Clone)]
pub(crate) struct OpenRun {
    pub(crate) id: RunId,
    pub(crate) agent: Arc<str>,
    pub(crate) prompt: Arc<Message>,
    /// Number of the event that started it.
    pub(crate) seq: u64,
    pub(crate) resumed: u32,
    /// Whether the run's own model calls make up the conversation.
    converses: bool,
    usage: Usage,
    cost: Option<Money>,
    steps: u32,
    /// The newest message with text.
    text: Option<Arc<Message>>,
}

/// An assistant message whose calls wait for results.
#[derive(Debug, Clone)]
pub(crate) struct OpenStep {
    pub(crate) message: Arc<Message>,
    /// Number of the event that holds the message.
    pub(crate) seq: u64,
    results: Vec<Option<Arc<ToolResult>>>,
    started: Vec<bool>,
}

/// Why calls that have no result get one now.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Closing<'a> {
    Cancelled,
    Failed(&'a str),
    Ended(&'a str),
    Abandoned,
}

impl OpenStep {
    /// Each call that has no result, with the error result that tells the model why.
    pub(crate) fn close(&self, why: Closing<'_>) -> Vec<(usize, ToolResult)> {
        let calls = self.message.tool_calls().enumerate();
        let open = calls.filter(|(index, _)| self.results.get(*index).is_some_and(Option::is_none));
        open.map(|(index, call)| (index, ToolResult::error(call, self.why(index, why)))).collect()
    }

    fn why(&self, index: usize, why: Closing<'_>) -> String {
        let started = self.started.get(index).copied().unwrap_or(false);
        match (why, started) {
            (Closing::Cancelled, true) => "cancelled while it ran; its outcome is unknown".to_owned(),
            (Closing::Cancelled, false) => "cancelled before it ran".to_owned(),
            (Closing::Failed(error), true) => {
                format!("cut off while it ran; its outcome is unknown: {error}")
            }
            (Closing::Failed(error), false) => format!("not run, since the run failed: {error}"),
            (Closing::Ended(reason), _) => format!("not run: {reason}"),
            (Closing::Abandoned, true) => {
                "the run was abandoned while it ran; its outcome is unknown".to_owned()
            }
            (Closing::Abandoned, false) => "not run: the run was abandoned".to_owned(),
        }
    }
}

impl SessionState {
    /// The conversation as the model sees it: after an assistant message with calls there is one tool message with a
    /// result for each, in call order.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// What lists show.
    #[must_use]
    pub fn head(&self) -> &SessionHead {
        &self.head
    }

    /// How full the context was in the newest step of the conversation: that step's sizes, not a sum (CC02). What
    /// earlier attempts at it used, and the calls of hand-written agents, are part of the totals alone.
    #[must_use]
    pub fn context_usage(&self) -> ContextUsage {
        self.context
    }

    /// Whether a service gave a reply and counted nothing (CC03): the totals of [`SessionState::head`] are then too low
    /// and the cost is unknown. Nothing estimated is ever added to them.
    #[must_use]
    pub fn is_estimated(&self) -> bool {
        self.estimated
    }

    pub(crate) fn run(&self) -> Option<&OpenRun> {
        self.run.as_ref()
    }

    /// What the open run has spent and said so far.
    pub(crate) fn spent(&self) -> Outcome {
        let mut outcome = Outcome::new(Status::Completed);
        if let Some(run) = &self.run {
            if let Some(text) = run.text.as_ref().and_then(|message| message.first_text()) {
                text.clone_into(&mut outcome.text);
            }
            outcome.usage = run.usage;
            outcome.cost = run.cost;
            outcome.steps = run.steps;
        }
        outcome
    }

    pub(crate) fn step(&self) -> Option<&OpenStep> {
        self.step.as_ref()
    }

    pub(crate) fn approval(&self, id: &ApprovalId, digest: Digest) -> Option<Decision> {
        self.approvals.get(id).filter(|(_, bound)| *bound == digest).and_then(|(decision, _)| *decision)
    }

    /// What the answer to this question is bound to, if it was asked.
    pub(crate) fn asked(&self, id: &ApprovalId) -> Option<Digest> {
        self.approvals.get(id).map(|(_, digest)| *digest)
    }

    /// Whether a signal of this name waits to be taken.
    pub(crate) fn has_signal(&self, name: &str) -> bool {
        self.signals.iter().any(|(it, _)| it == name)
    }

    /// Takes the signal of this name that the newest wait set aside.
    pub(crate) fn take_signal(&mut self, name: &str) -> Option<Value> {
        self.taken.take_if(|(it, _)| it == name).map(|(_, value)| value)
    }

    /// The wait for a signal ends with the oldest of its name. This is part of the fold, so that no later wait,
    /// after a restart either, gets the same one.
    fn set_signal_aside(&mut self, name: &str) {
        let place = self.signals.iter().position(|(it, _)| it == name);
        self.taken = place.map(|place| self.signals.remove(place));
    }

    /// Takes in one stored event.
    pub fn apply(&mut self, envelope: &Envelope) {
        self.head.seq = envelope.seq;
        self.head.updated = envelope.at;
        match &envelope.event {
            Event::RunStarted(started) => self.start(envelope, started),
            Event::RunResumed(resumed) => {
                self.head.status = SessionStatus::Running;
                if let Some(run) = &mut self.run {
                    run.resumed = resumed.count;
                }
            }
            Event::ModelFinished(reply) => self.reply(envelope.seq, reply),
            Event::ToolStarted(call) if call.key.is_none() => {
                if let Some(started) = self.step.as_mut().and_then(|step| step.started.get_mut(call.index)) {
                    *started = true;
                }
            }
            Event::ToolFinished(call) if call.key.is_none() => self.settle(call),
            Event::ApprovalDecided(answer) => {
                self.approvals.insert(answer.id.clone(), (Some(answer.decision), answer.digest));
            }
            Event::ApprovalRequested(request) => {
                self.approvals.insert(request.id.clone(), (None, request.digest));
            }
            Event::SignalReceived(signal) => self.signals.push((signal.name.clone(), signal.value.clone())),
            Event::Observed(_) => self.taken = None,
            Event::WaitStarted(wait) => {
                if let Some(name) = &wait.signal {
                    self.set_signal_aside(name);
                }
            }
            Event::RunPaused(_) => self.head.status = SessionStatus::Paused,
            Event::RunFinished(end) => {
                let spoke = self.run.as_ref().is_some_and(|run| run.converses);
                if !spoke && matches!(end.outcome.status, Status::Completed) && !end.outcome.text.is_empty() {
                    self.push(Message::assistant(&end.outcome.text));
                }
                self.end();
            }
            Event::ToolStarted(_)
            | Event::ToolFinished(_)
            | Event::ModelStarted(_)
            | Event::ModelRestarted(_)
            | Event::ChildStarted(_)
            | Event::ChildFinished(_)
            | Event::Warning(_)
            | Event::Delta(_)
            | Event::Progress(_) => {}
        }
    }

    fn start(&mut self, envelope: &Envelope, started: &RunStarted) {
        self.end();
        if self.head.title.is_empty() {
            self.head.title = title(&started.prompt);
        }
        self.head.status = SessionStatus::Running;
        self.head.run = Some(envelope.origin.run);
        if self.head.agent != started.agent {
            self.head.agent = Arc::clone(&started.agent);
        }
        self.run = Some(OpenRun {
            id: envelope.origin.run,
            agent: Arc::clone(&started.agent),
            prompt: Arc::clone(&started.prompt),
            seq: envelope.seq,
            resumed: 0,
            converses: false,
            usage: Usage::default(),
            cost: Some(Money::default()),
            steps: 0,
            text: None,
        });
        if has_content(&started.prompt) {
            self.push(Arc::clone(&started.prompt));
        }
    }

    fn reply(&mut self, seq: u64, reply: &ModelFinished) {
        let (usage, cost) = ((reply.usage + reply.wasted).tokens(), reply.cost);
        let counted = is_counted(&reply.usage);
        self.estimated |= !counted && reply.error.is_none();
        self.head.usage += usage;
        self.head.cost = self.head.cost.zip(cost).map(|(sum, cost)| sum + cost);
        if let Some(run) = &mut self.run {
            run.usage += usage;
            run.cost = run.cost.zip(cost).map(|(sum, cost)| sum + cost);
            run.steps += 1;
        }
        if reply.key.is_some() {
            return;
        }
        self.close(Closing::Abandoned);
        // A call that failed before anything was counted says nothing about the context.
        if counted || reply.error.is_none() {
            self.context = ContextUsage::after(&reply.usage, self.tokens, &reply.message);
        }
        if let Some(run) = &mut self.run {
            run.converses = true;
            if reply.message.first_text().is_some() {
                run.text = Some(Arc::clone(&reply.message));
            }
        }
        if !has_content(&reply.message) {
            return;
        }
        self.push(Arc::clone(&reply.message));
        let calls = reply.message.tool_calls().count();
        if calls > 0 {
            self.step = Some(OpenStep {
                message: Arc::clone(&reply.message),
                seq,
                results: vec![None; calls],
                started: vec![false; calls],
            });
        }
    }

    fn settle(&mut self, call: &ToolFinished) {
        let Some(step) = &mut self.step else { return };
        // A result that belongs to another call would make a history that no service accepts.
        let asked = step.message.tool_calls().nth(call.index);
        if asked.is_none_or(|asked| asked.id != call.result.call) {
            return;
        }
        if let Some(result) = step.results.get_mut(call.index) {
            *result = Some(Arc::clone(&call.result));
        }
        if step.results.iter().all(Option::is_some) {
            let results = self.step.take().into_iter().flat_map(|step| step.results).flatten();
            let message = Message::tool(results);
            self.push(message);
        }
    }

    /// A run's end leaves no call unanswered, whatever happened to it.
    fn end(&mut self) {
        self.close(Closing::Abandoned);
        self.run = None;
        self.taken = None;
        self.approvals.clear();
        self.head.run = None;
        self.head.status = SessionStatus::Idle;
    }

    fn close(&mut self, why: Closing<'_>) {
        let Some(mut step) = self.step.take() else { return };
        for (index, result) in step.close(why) {
            if let Some(place) = step.results.get_mut(index) {
                *place = Some(Arc::new(result));
            }
        }
        self.push(Message::tool(step.results.into_iter().flatten()));
    }

    fn push(&mut self, message: impl Into<Arc<Message>>) {
        let message = message.into();
        self.tokens = self.tokens.saturating_add(estimate_tokens(&message));
        self.history.push(message);
        self.head.messages += 1;
    }
}

fn title(prompt: &Message) -> Arc<str> {
    const MOST: usize = 80;
    let text = prompt.first_text().unwrap_or_default().trim();
    if text.len() <= MOST && !text.contains(['\n', '\r', '\t']) {
        return text.into();
    }
    let mut words = text.split_whitespace();
    let mut title: String = words.next().unwrap_or_default().chars().take(MOST).collect();
    for word in words {
        if title.chars().count() + word.chars().count() + 1 > MOST {
            title.push('…');
            break;
        }
        title.push(' ');
        title.push_str(word);
    }
    title.into()
}
