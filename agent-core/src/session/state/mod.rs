//! The fold over events that gives a session's state. A checkpoint holds this very state; there is no second format.

mod answers;
mod costs;
mod keeping;
pub(super) mod shorter;

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

use super::{
    Account, ContextUsage, Gauge, SessionHead, SessionStatus,
    open::{Closing, EndedRun, OpenCall, OpenQuestion, OpenRun, OpenStep, QueuedPrompt},
    sound::{flaw, replied, said},
};
use crate::{
    Digest, Money, RunId, Usage,
    base::{ApprovalId, Spend, Todo, json},
    event::{Kept, ModelFinished, RunAbove, ToolFinished, versions},
    message::{History, Message, Role, ToolResult, estimate_tokens},
    outcome::{Outcome, Status},
    permission::Decision,
    spec::Labels,
};

/// State of a session: the fold of its events.
///
/// A state with an unsound conversation does not deserialize: every service would refuse, for example, a result without
/// its call.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, remote = "Self")]
pub struct SessionState {
    pub(crate) history: History,
    pub(crate) head: SessionHead,
    /// Estimated tokens of the history.
    pub(crate) tokens: u64,
    pub(crate) context: ContextUsage,
    pub(crate) estimated: bool,
    pub(crate) run: Option<Box<OpenRun>>,
    /// The newest run that has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<EndedRun>,
    pub(crate) step: Option<OpenStep>,
    #[serde(deserialize_with = "json::named")]
    pub(crate) signals: Vec<(String, Value)>,
    /// A signal that a wait set aside and no observation has taken yet.
    #[serde(deserialize_with = "json::one_named")]
    pub(crate) taken: Option<(String, Value)>,
    pub(crate) approvals: HashMap<ApprovalId, (Option<Decision>, Digest)>,
    /// Open questions to approvers, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) questions: Vec<OpenQuestion>,
    /// Calls that were handed out, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) external: Vec<OpenCall>,
    /// What approvers allowed for the session.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) grants: BTreeSet<Digest>,
    pub(crate) queue: Vec<QueuedPrompt>,
    pub(crate) todos: Vec<Todo>,
    /// Prompts and values that the agent keeps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) kept: Vec<Kept>,
    /// The kept value of a checkpoint of version 0.1.
    #[serde(skip_serializing, deserialize_with = "json::option")]
    pub(crate) progress: Option<Value>,
    /// Id of the next run's mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<Arc<str>>,
    /// True if the title is more than the first words of the first prompt.
    pub(crate) titled: bool,
    /// Gauge of how near the conversation is to a compaction.
    pub(crate) gauge: Gauge,
    /// Account of its calls on a budget.
    pub(crate) account: Account,
    /// Run of its first event, which no other session of its id has. `None` after a checkpoint of an older version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first: Option<RunId>,
    /// The run above that asked for its newest run. `None` for a root, and for runs of older versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) above: Option<Arc<RunAbove>>,
    /// Digests of the contents that its model calls have stored, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) contents: Option<Arc<BTreeSet<Digest>>>,
    #[serde(default = "Labels::all")]
    pub(crate) labels: Labels,
}

impl Serialize for SessionState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for SessionState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut state = Self::deserialize(deserializer)?;
        let kept_in_0_1 = state.progress.take().map(|value| versions::progress(&value));
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

    /// Labels of all that the session has read so far. A compaction takes none away, and a fork keeps them.
    #[must_use]
    pub fn labels(&self) -> Labels {
        self.labels
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
        self.grants.clear();
        self.contents = None;
        self.head.usage = Usage::default();
        self.head.cost = Some(Money::default());
        self
    }

    /// State of a session that begins with this conversation, of which nothing ran or was spent there. Results of tools
    /// in it have all labels.
    ///
    /// # Errors
    /// The flaw of a conversation that no service accepts.
    pub fn given(history: &History) -> Result<Self, &'static str> {
        let mut state = Self::default();
        let first = history.iter().find(|message| message.role() == Role::User);
        state.head.title = first.map(|first| shorter::title(first)).unwrap_or_default();
        history.iter().for_each(|message| state.push(Arc::clone(message)));
        state.labels.set(Labels::all(), history.iter().any(|message| message.role() == Role::Tool));
        flaw(history, None).map_or(Ok(state), Err)
    }

    /// Adds a message that is not the model's to the conversation.
    pub(crate) fn hear(&mut self, message: &Arc<Message>) {
        self.close(Closing::Abandoned);
        if let Some(message) = said(message) {
            self.push(message.into_owned());
        }
    }

    pub(crate) fn reply(&mut self, seq: u64, reply: &ModelFinished) {
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
            self.step = Some(OpenStep::new(message, seq, self.labels));
        }
    }

    pub(crate) fn unqueue(&mut self, seq: u64) {
        self.queue.retain(|waiting| waiting.seq != seq);
        self.rest();
    }

    /// Sets the status of a session between two runs: idle, or running while prompts are queued. Recovery finds those
    /// as it finds a run that a process left.
    pub(crate) fn rest(&mut self) {
        if self.run.is_none() {
            let idle = self.queue.is_empty();
            self.head.status = if idle { SessionStatus::Idle } else { SessionStatus::Running };
        }
    }

    pub(crate) fn settle(&mut self, call: &ToolFinished) {
        let Some(step) = &mut self.step else { return };
        // A result that belongs to another call would make a history that no service accepts.
        let asked = step.message.tool_calls().nth(call.index).filter(|asked| asked.id == call.result.call);
        let (Some(asked), Some(result)) = (asked, step.results.get_mut(call.index)) else { return };
        let given = result.insert(Arc::clone(&call.result));
        // The model called a deferred tool by another one, and services match a result with its call by the name.
        if given.name != asked.name {
            Arc::make_mut(given).name = Arc::clone(&asked.name);
        }
        if step.results.iter().all(Option::is_some) {
            let results = self.step.take().into_iter().flat_map(|step| step.results).flatten();
            self.push(Message::tool(results));
        }
    }

    /// Ends the open run and leaves no call unanswered.
    pub(crate) fn end(&mut self) {
        self.close(Closing::Abandoned);
        // The end of a call that began is unknown, and so is its cost.
        self.head.cost = self.head.cost.filter(|_| !self.run.as_ref().is_some_and(|run| run.is_calling()));
        self.gauge.run_ended();
        self.run = None;
        self.taken = None;
        self.approvals.clear();
        self.questions.clear();
        self.external.clear();
        self.head.run = None;
        self.rest();
    }

    pub(crate) fn close(&mut self, why: Closing<'_>) {
        let Some(mut step) = self.step.take() else { return };
        for (index, result) in step.close(why) {
            if let Some(place) = step.results.get_mut(index) {
                *place = Some(Arc::new(result));
            }
        }
        self.push(Message::tool(step.results.into_iter().flatten()));
    }

    pub(crate) fn push(&mut self, message: impl Into<Arc<Message>>) {
        let message = message.into();
        self.tokens = self.tokens.saturating_add(estimate_tokens(&message));
        self.history.push(message);
        self.head.messages = self.head.messages.saturating_add(1);
    }
}
