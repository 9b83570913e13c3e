//! The fold over events that gives a session's state. A checkpoint holds this very state; there is no second format.

mod answers;
mod costs;
mod keeping;
mod shorter;

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

use shorter::{given_title, title};

use super::{
    Account, ContextUsage, Gauge, SessionHead, SessionStatus,
    open::{Closing, EndedRun, OpenRun, OpenStep, QueuedPrompt},
    sound::{flaw, replied, said},
};
use crate::{
    Digest, Money, RunId, Usage,
    base::{ApprovalId, Pause, Spend, Todo, json},
    event::{Envelope, Event, Kept, ModelFinished, RunAbove, RunStarted, ToolFinished, legacy},
    message::{History, Message, ToolResult, estimate_tokens},
    outcome::{Outcome, Status},
    permission::Decision,
};

/// State of a session: the fold of its events.
///
/// A state with an unsound conversation does not deserialize: every service would refuse, for example, a result without
/// its call.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, remote = "Self")]
pub struct SessionState {
    history: History,
    head: SessionHead,
    /// Estimated tokens of the history.
    tokens: u64,
    context: ContextUsage,
    estimated: bool,
    run: Option<Box<OpenRun>>,
    /// The newest run that has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<EndedRun>,
    step: Option<OpenStep>,
    #[serde(deserialize_with = "json::named")]
    signals: Vec<(String, Value)>,
    /// A signal that a wait set aside and no observation has taken yet.
    #[serde(deserialize_with = "json::one_named")]
    taken: Option<(String, Value)>,
    approvals: HashMap<ApprovalId, (Option<Decision>, Digest)>,
    queue: Vec<QueuedPrompt>,
    todos: Vec<Todo>,
    /// Prompts and values that the agent keeps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kept: Vec<Kept>,
    /// The kept value of a checkpoint of version 0.1.
    #[serde(skip_serializing, deserialize_with = "json::option")]
    progress: Option<Value>,
    /// Id of the next run's mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<Arc<str>>,
    /// True if the title is more than the first words of the first prompt.
    titled: bool,
    /// Gauge of how near the conversation is to a compaction.
    gauge: Gauge,
    /// Account of its calls on a budget.
    account: Account,
    /// Run of its first event, which no other session of its id has. `None` after a checkpoint of an older version.
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<RunId>,
    /// The run above that asked for its newest run. `None` for a root, and for runs of older versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    above: Option<Arc<RunAbove>>,
    /// Digests of the contents that its model calls have stored, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    contents: Option<Arc<BTreeSet<Digest>>>,
}

impl Serialize for SessionState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for SessionState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut state = Self::deserialize(deserializer)?;
        let kept_in_0_1 = state.progress.take().map(|value| legacy::progress(&value));
        state.kept.extend(kept_in_0_1.transpose().map_err(de::Error::custom)?);
        match flaw(&state.history, state.step.as_ref()) {
            Some(flaw) => Err(de::Error::custom(flaw)),
            None => Ok(state),
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

    /// Facts for lists.
    #[must_use]
    pub fn head(&self) -> &SessionHead {
        &self.head
    }

    /// Size of the context in the newest step of the conversation: that step's figures, not a sum. Failed attempts at
    /// it and calls of hand-written agents count in the totals only.
    #[must_use]
    pub fn context_usage(&self) -> ContextUsage {
        self.context
    }

    /// True if a service gave a reply and reported no tokens. The totals of [`SessionState::head`] are then too low and
    /// the cost is unknown; estimates are never added to them.
    #[must_use]
    pub fn is_estimated(&self) -> bool {
        self.estimated
    }

    /// Prompts in the queue, oldest first.
    #[must_use]
    pub fn queue(&self) -> &[QueuedPrompt] {
        &self.queue
    }

    /// The todo list.
    #[must_use]
    pub fn todos(&self) -> &[Todo] {
        &self.todos
    }

    /// Id of the next run's mode; `None` if none was ever picked.
    #[must_use]
    pub fn mode(&self) -> Option<&Arc<str>> {
        self.mode.as_ref()
    }

    /// True if the session was given a title. Until then the beginning of its first prompt is shown.
    #[must_use]
    pub fn is_titled(&self) -> bool {
        self.titled
    }

    /// Estimated tokens of the conversation, by its text.
    #[must_use]
    pub fn estimated_tokens(&self) -> u64 {
        self.tokens
    }

    /// Returns the run that has no end yet.
    #[must_use]
    pub fn run(&self) -> Option<&OpenRun> {
        self.run.as_deref()
    }

    /// Number of the first event that a resume of the open run needs; 0 if no run is open.
    pub fn run_window(&self) -> u64 {
        match &self.run {
            Some(run) if run.keyed => run.seq,
            Some(run) => run.seq.max(self.head.checkpoint),
            None => 0,
        }
    }

    /// The newest run that has ended.
    pub fn ended(&self) -> Option<&EndedRun> {
        self.ended.as_ref()
    }

    /// Messages that joined the conversation after its first `before` ones, as far as a compaction left them.
    pub fn messages_after(&self, before: u64) -> Vec<Arc<Message>> {
        let count = usize::try_from(self.head.messages.saturating_sub(before)).unwrap_or(usize::MAX);
        self.history.iter().skip(self.history.len().saturating_sub(count)).cloned().collect()
    }

    /// Outcome of the open run so far: its newest text and its totals.
    pub fn spent(&self) -> Outcome {
        let mut outcome = Outcome::new(Status::Completed);
        if let Some(run) = &self.run {
            if let Some(text) = run.text.as_ref().and_then(|message| message.first_text()) {
                text.clone_into(&mut outcome.text);
            }
            outcome.usage = run.usage;
            outcome.cost = run.cost.filter(|_| !run.is_calling());
            outcome.steps = run.steps;
        }
        outcome
    }

    /// Returns the gauge of how near the conversation is to a compaction.
    #[must_use]
    pub fn gauge(&self) -> &Gauge {
        &self.gauge
    }

    /// Spend of the session's calls in all its runs. A call that was cut off counts as it was reserved.
    pub fn charged(&self) -> Spend {
        self.account.spent()
    }

    /// Returns the messages of the open run, its prompt not among them, as far as a compaction left them.
    #[must_use]
    pub fn work(&self) -> Vec<Arc<Message>> {
        self.run().map_or_else(Vec::new, |run| self.messages_after(run.messages_before))
    }

    /// Yields the results of the open step's tool calls that have ended.
    pub fn open_results(&self) -> impl Iterator<Item = &ToolResult> {
        self.step.iter().flat_map(|step| step.results.iter().flatten()).map(|result| &**result)
    }

    /// Returns the newest reply whose tool calls have not all ended.
    #[must_use]
    pub fn step(&self) -> Option<&OpenStep> {
        self.step.as_ref()
    }

    /// State of a fork at its start: nothing is open or queued, and the totals are zero.
    pub fn forked(mut self) -> Self {
        self.queue.clear();
        self.end();
        self.kept.clear();
        self.signals.clear();
        self.contents = None;
        self.head.usage = Usage::default();
        self.head.cost = Some(Money::default());
        self
    }

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
                if call.key.is_some() {
                    return;
                }
                if let Some(started) = self.step.as_mut().and_then(|step| step.started.get_mut(call.index)) {
                    *started = true;
                }
            }
            Event::ToolFinished(call) if call.key.is_none() => self.settle(call),
            Event::ApprovalDecided(answer) => {
                self.approvals.insert(answer.id.clone(), (Some(answer.decision), answer.digest));
                self.answer(|pause| matches!(pause, Pause::Approval(_)));
            }
            Event::ApprovalRequested(request) => {
                self.approvals.insert(request.id.clone(), (None, request.digest));
            }
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
                    self.unqueue(queued);
                }
                self.hear(&added.message);
            }
            Event::CompactionStarted(started) => self.gauge.started(started),
            Event::CompactionFailed(_) => self.gauge.failed(self.context, self.tokens),
            Event::Compacted(compacted) => self.compact(compacted),
            Event::OutputsCleared(note) => self.clear_outputs(note),
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
            Event::ToolFinished(_)
            | Event::ModelRestarted(_)
            | Event::ChildStarted(_)
            | Event::ChildFinished(_)
            | Event::WarningRaised(_)
            | Event::Delta(_)
            | Event::Progress(_) => {}
        }
    }

    fn start(&mut self, envelope: &Envelope, started: &RunStarted) {
        self.end();
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

    /// Adds a message that is not the model's to the conversation.
    fn hear(&mut self, message: &Arc<Message>) {
        self.close(Closing::Abandoned);
        if let Some(message) = said(message) {
            self.push(message.into_owned());
        }
    }

    fn reply(&mut self, seq: u64, reply: &ModelFinished) {
        let (usage, cost) = ((reply.usage + reply.wasted).tokens(), reply.cost);
        let counted = reply.usage.is_counted();
        self.estimated |= !counted && reply.error.is_none();
        self.head.usage += usage;
        self.charge(reply.request, cost);
        if let Some(run) = &mut self.run {
            run.usage += usage;
            run.cost = run.cost.zip(cost).map(|(sum, cost)| sum + cost);
            run.steps = run.steps.saturating_add(1);
            run.calling = false;
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
        let Some(message) = replied(&reply.message).map(Cow::into_owned) else { return };
        self.push(Arc::clone(&message));
        if message.tool_calls().next().is_some() {
            self.step = Some(OpenStep::new(message, seq));
        }
    }

    fn unqueue(&mut self, seq: u64) {
        self.queue.retain(|waiting| waiting.seq != seq);
        self.rest();
    }

    /// Sets the status of a session between two runs: idle, or running while prompts are queued. Recovery finds those
    /// as it finds a run that a process left.
    fn rest(&mut self) {
        if self.run.is_none() {
            let idle = self.queue.is_empty();
            self.head.status = if idle { SessionStatus::Idle } else { SessionStatus::Running };
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

    /// Ends the open run and leaves no call unanswered.
    fn end(&mut self) {
        self.close(Closing::Abandoned);
        // The end of a call that began is unknown, and so is its cost.
        self.head.cost = self.head.cost.filter(|_| !self.run.as_ref().is_some_and(|run| run.is_calling()));
        self.gauge.run_ended();
        self.run = None;
        self.taken = None;
        self.approvals.clear();
        self.head.run = None;
        self.rest();
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
        self.head.messages = self.head.messages.saturating_add(1);
    }
}
