//! The fold of a session's events: each stored event changes the state.

use std::sync::Arc;

use super::{
    Account, SessionState, SessionStatus,
    account::reply_charge,
    open::{Closing, EndedRun, OpenCall, OpenRun, QueuedPrompt},
    state::shorter::{given_title, title},
};
use crate::{
    base::{CallId, Charge, Pause},
    event::{Envelope, Event, RunStarted, ToolFinished, ToolStarted},
    message::{Arguments, Message, ToolCall},
    spec::Repeat,
};

impl SessionState {
    /// Folds in one stored event.
    pub fn apply(&mut self, envelope: &Envelope) {
        self.head.seq = envelope.seq;
        let before = std::mem::replace(&mut self.head.updated, envelope.at);
        self.account.apply(&envelope.event);
        self.first = self.first.or((envelope.seq == 1).then_some(envelope.origin.run));
        if envelope.event.effect_key().is_some()
            && let Some(run) = &mut self.run
        {
            run.keyed = true;
        }
        match &envelope.event {
            Event::RunStarted(started) => self.start(envelope, started),
            Event::RunResumed(resumed) => {
                let died = std::mem::replace(&mut self.head.status, SessionStatus::Running);
                if let Some(run) = &mut self.run {
                    // A run that was cut off is taken to have run until its last event.
                    if died == SessionStatus::Running {
                        run.stand_still(before);
                    }
                    run.resumed = resumed.count;
                    (run.pause, run.answered) = (None, false);
                    run.since = envelope.at;
                }
            }
            Event::ModelStarted(call) => self.call(call),
            Event::ModelFinished(reply) => {
                self.reply(envelope.seq, reply);
                if reply.key.is_none() {
                    let measured = reply.usage.is_counted() || reply.error.is_none();
                    self.gauge.replied(reply, measured, self.context, self.tokens);
                }
            }
            Event::ToolStarted(call) => {
                if let Some(run) = &mut self.run {
                    run.tool_calls = run.tool_calls.saturating_add(1);
                }
                self.hand_out(envelope, call);
                self.close_questions_about(call.index, call.key);
                if call.key.is_some() {
                    return;
                }
                if let Some(started) = self.step.as_mut().and_then(|step| step.started.get_mut(call.index)) {
                    *started = true;
                }
            }
            Event::ToolFinished(call) => {
                self.labels |= call.labels;
                self.take_back(call);
                self.close_questions_about(call.index, call.key);
                if call.key.is_none() {
                    self.settle(call);
                }
            }
            Event::ApprovalDecided(answer) => self.decided(answer),
            Event::ApprovalRequested(request) => self.asks(envelope.at, request),
            Event::SignalReceived(signal) => {
                self.signals.push((signal.name.clone(), signal.value.clone()));
                self.answer(|pause| matches!(pause, Pause::Signal { name, .. } if *name == signal.name));
            }
            Event::Observed(_) => self.taken = None,
            Event::WaitStarted(wait) => {
                if let Some(name) = &wait.signal {
                    self.set_signal_aside(name);
                }
            }
            Event::RunPaused(paused) => {
                self.head.status = SessionStatus::Paused;
                if let Some(run) = &mut self.run {
                    (run.pause, run.answered) = (Some(paused.pause.clone()), false);
                    run.stand_still(envelope.at);
                }
            }
            Event::RunFinished(end) => {
                let spoke = self.run.as_ref().is_some_and(|run| run.converses);
                let text = &end.outcome.text;
                if !spoke && end.outcome.status.has_answer() && !text.is_empty() {
                    self.close(Closing::Abandoned);
                    self.push(Message::assistant(text));
                }
                if let Some(run) = &self.run {
                    let (id, messages_before) = (run.id, run.messages_before);
                    self.ended = Some(EndedRun { id, messages_before, end: Arc::clone(end) });
                }
                // The prompt that took its place may be about the same task.
                if !end.abandoned {
                    self.kept.clear();
                }
                self.end();
            }
            Event::Recorded(value) => self.keep(value),
            Event::PromptQueued(queued) => {
                self.queue.push(QueuedPrompt { seq: envelope.seq, queued: Arc::clone(queued) });
                self.rest();
            }
            Event::PromptDropped(dropped) => self.unqueue(dropped.queued),
            Event::MessageAdded(added) => {
                if let Some(queued) = added.queued {
                    let prompt = self.queue.iter().find(|it| it.seq == queued);
                    self.labels |= prompt.map(|it| it.queued.labels).unwrap_or_default();
                    self.unqueue(queued);
                }
                self.hear(&added.message);
            }
            Event::CompactionStarted(started) => self.gauge.started(started),
            Event::CompactionFailed(_) => self.gauge.failed(self.context, self.tokens),
            Event::Compacted(compacted) => self.compact(compacted),
            Event::OutputsCleared(note) => self.clear_outputs(note),
            Event::LabelsAdded(added) => self.labels |= added.labels,
            Event::Titled(titled) => {
                self.head.title = given_title(&titled.title);
                self.titled = true;
            }
            Event::TodosChanged(changed) => self.todos.clone_from(&changed.todos),
            Event::ModeChanged(changed) => self.mode = Some(Arc::clone(&changed.mode)),
            Event::Checkpoint(checkpoint) => {
                let head = (envelope.seq, envelope.at);
                let (run, first) = (self.run.take(), self.first);
                self.clone_from(&checkpoint.state);
                self.keep_pause(run);
                self.first = first.or(self.first);
                (self.head.seq, self.head.updated) = head;
                self.head.checkpoint = envelope.seq;
            }
            Event::ModelRestarted(_)
            | Event::ChildStarted(_)
            | Event::ChildFinished(_)
            | Event::WarningRaised(_)
            | Event::Delta(_)
            | Event::Progress(_) => {}
        }
    }

    /// Keeps a call whose result comes from outside.
    fn hand_out(&mut self, envelope: &Envelope, started: &ToolStarted) {
        if started.repeat != Repeat::External {
            return;
        }
        let step = self.step.as_ref().filter(|_| started.key.is_none());
        let place = step.map_or_else(|| self.run.as_ref().map(|run| run.seq), |step| Some(step.seq));
        let asked = step.and_then(|step| step.message.tool_calls().nth(started.index));
        let arguments = started.edited.as_ref().or(asked.map(|call| &call.arguments)).cloned();
        let arguments = arguments.unwrap_or_else(Arguments::empty);
        let number = started.key.and_then(|key| usize::try_from(key.ordinal).ok()).unwrap_or(started.index);
        self.external.push(OpenCall {
            id: CallId::new(&envelope.origin.session, envelope.origin.run, place.unwrap_or_default(), number),
            since: envelope.at,
            index: started.index,
            call: ToolCall::new(Arc::clone(&started.call), Arc::clone(&started.tool), arguments),
            key: started.key,
        });
    }

    /// Forgets a handed out call that has its result, and marks the run that waited for it as answered.
    fn take_back(&mut self, finished: &ToolFinished) {
        let is_it = |call: &OpenCall| (call.index, call.key) == (finished.index, finished.key);
        if let Some(place) = self.external.iter().position(is_it) {
            let answered = self.external.remove(place).id;
            self.answer(|pause| matches!(pause, Pause::Call(id) if *id == answered));
        }
    }

    fn start(&mut self, envelope: &Envelope, started: &RunStarted) {
        self.end();
        self.labels |= started.labels;
        self.gauge.run_started();
        self.above = started.above.clone().or(self.above.take());
        if self.head.title.is_empty() {
            self.titled = started.title.is_some();
            self.head.title = started.title.as_ref().map_or_else(|| title(&started.prompt), given_title);
        }
        self.head.status = SessionStatus::Running;
        self.head.run = Some(envelope.origin.run);
        self.keep_prompt(started);
        if self.head.agent != started.agent {
            self.head.agent = Arc::clone(&started.agent);
        }
        let mut run = OpenRun::new(envelope.origin.run, envelope.seq, envelope.at, started);
        run.spent_before = self.account.spent();
        run.mode.clone_from(&self.mode);
        self.run = Some(Box::new(run));
        if let Some(queued) = started.queued {
            self.unqueue(queued);
        }
        self.hear(&started.prompt);
        if let Some(run) = &mut self.run {
            run.messages_before = self.head.messages;
        }
    }
}

impl Account {
    /// Folds in one stored event. Model calls without a budget are skipped.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::ModelStarted(call) => {
                let Some((request, reserved)) = call.request.zip(call.reserved) else { return };
                // The same call again: the end of the first one is unknown.
                if let Some(lost) = self.take(request) {
                    self.charge(&lost);
                }
                self.open.push((request, reserved));
            }
            Event::ModelFinished(reply) => {
                if let Some(reserved) = reply.request.and_then(|request| self.take(request)) {
                    self.charge(&reply_charge(&reserved, reply));
                }
            }
            Event::ToolStarted(_) => self.charge(&Charge::tool_call()),
            Event::RunStarted(_) | Event::RunFinished(_) => {
                self.spent = self.spent();
                self.open.clear();
            }
            _ => {}
        }
    }
}
