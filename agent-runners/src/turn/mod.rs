//! The pure machine of one run: observations in, the next action out. It never awaits, reads a clock or does I/O.
//!
//! It is not stored: applying a run's events rebuilds it, and [`Turn::action`] then returns the first action that has
//! no observation yet.
//!
//! ```text
//!              ┌────────────────────── results ──────────────────────┐
//!              ▼                                                     │
//! Remind ─► Steer ─► (Compact ─► Steer) ─► CallModel ─┬─ calls ─► CallTools
//!              ▲                                      ├─ answer, failure ─► Finish
//!              └── smaller ── Compact ◄── too long ───┘
//!                                └─ no smaller ─► Finish
//! ```
//!
//! The answer of a typed agent, in a reply or in a call among others, passes one gate more. So does the text that the
//! run of a guarded agent ends with, however it ends:
//!
//! ```text
//! answer ─► Check ─┬─ value, passed text ─► Finish
//!                  ├─ none ─► Refuse ─► Steer; Finish once all repairs are used up
//!                  └─ stopped by a guard ─► Finish
//! ```

mod answers;
mod phase;
mod stop_when;

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind, ErrorRecord, Money, Result, Usage,
    context::CompactionCause,
    event::{Event, ModelFinished, Record, ToolFinished},
    message::Message,
    provider::FinishReason,
    run::{Outcome, PendingCall, Status, StopReason},
    session::OpenRun,
};

use self::{
    answers::Answers,
    phase::{End, Phase, Stage, Stop},
};
use crate::{
    loops::{LoopDetection, Loops},
    typed::{AnswerRefused, refused_in},
};

pub(crate) use phase::CallState;
pub use stop_when::StopWhen;

/// The next action, which the turn's driver performs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// Remind the model of its empty todo list, and report it with [`Turn::reminded`].
    Remind,
    /// Let the prompts that wait join the conversation, and report it with [`Turn::steered`].
    Steer,
    /// Make the conversation smaller for this cause, and report it with [`Turn::compacted`].
    Compact(CompactionCause),
    /// Call the model, as this step; steps count from 1. A reply is applied, and a failure reported with
    /// [`Turn::failed`].
    CallModel(u32),
    /// Run these calls of the newest assistant message, and apply their results.
    CallTools {
        /// The message that asks for them.
        message: Arc<Message>,
        /// The calls without a result, in order.
        calls: Vec<PendingCall>,
    },
    /// Check this message of the model, which must answer with a value, or with a text that guards pass; report it with
    /// [`Turn::checked`].
    Check(Arc<Message>),
    /// Record that the answer was refused, and report it with [`Turn::refused`].
    Refuse {
        /// What is wrong with it.
        problem: Arc<str>,
        /// Number of answers refused, this one included.
        round: u32,
        /// True if a tool's result has told the model; else a message must.
        told: bool,
    },
    /// The run is over: return [`Turn::finish`].
    Finish(Outcome),
}

/// The machine of one run.
///
/// A driver performs each [`Turn::action`] and tells the turn what came of it: events go to [`Turn::apply`], and what
/// is no event of the conversation to the method that the [`Action`] names.
///
/// ```
/// use entourage_runners::{Action, Turn};
///
/// let mut turn = Turn::new(50);
/// assert_eq!(turn.action(), Action::Steer);
/// turn.steered(|| false);
/// assert_eq!(turn.action(), Action::CallModel(1));
/// ```
#[derive(Debug, Clone)]
pub struct Turn {
    max_steps: u32,
    /// What few agents need; boxed apart, since a run holds its machine for as long as it lasts.
    extra: Option<Box<Extra>>,
    compacts: bool,
    /// True until the reminder is given, or the time for it is over.
    reminds: bool,
    step: u32,
    usage: Usage,
    cost: Option<Money>,
    /// The newest message with text.
    text: Option<Arc<Message>>,
    loops: Loops,
    phase: Phase,
}

/// Settings that most turns leave at their defaults.
#[derive(Debug, Clone, Default)]
struct Extra {
    stop_when: Arc<[StopWhen]>,
    /// State of an answer that is checked; `None` when any text is an answer.
    answers: Option<Answers>,
}

impl Turn {
    /// Creates the machine of a run of at most `max_steps` model calls.
    #[must_use]
    pub fn new(max_steps: u32) -> Self {
        Self {
            max_steps,
            extra: None,
            compacts: false,
            reminds: false,
            step: 0,
            usage: Usage::default(),
            cost: Some(Money::default()),
            text: None,
            loops: Loops::default(),
            phase: Phase::Before(Stage::Steer),
        }
    }

    /// Settings of loop detection. Default: [`LoopDetection::default`].
    #[must_use]
    pub fn loops(mut self, settings: LoopDetection) -> Self {
        self.loops = Loops::new(settings);
        self
    }

    /// Ends the run when any of `conditions` holds.
    #[must_use]
    pub fn stop_when(mut self, conditions: Arc<[StopWhen]>) -> Self {
        if !conditions.is_empty() || self.extra.is_some() {
            self.extra.get_or_insert_default().stop_when = conditions;
        }
        self
    }

    /// Makes the conversation smaller when it is due, and once more when it was too long for the model. Default: false.
    #[must_use]
    pub fn compacts(mut self, compacts: bool) -> Self {
        self.compacts = compacts;
        self
    }

    /// Reminds the model of its todo list before the first step, unless the run's record has the reminder. For a run
    /// that begins with an empty list. Default: false.
    #[must_use]
    pub fn reminds(mut self, reminds: bool) -> Self {
        self.reminds = reminds;
        self
    }

    /// Continues a run from the events that it recorded before it was interrupted; does nothing in a new run.
    /// `may_retry` is the answer of [`SessionState::may_retry`], which is needed only if the conversation was too long
    /// for the newest call.
    ///
    /// [`SessionState::may_retry`]: entourage_core::session::SessionState::may_retry
    pub fn resume(&mut self, recorded: &[Event], may_retry: impl FnOnce() -> bool) {
        recorded.iter().for_each(|event| self.apply(event));
        if let Phase::TooLong { may_retry: retries, .. } = &mut self.phase {
            *retries = self.compacts && may_retry();
        }
    }

    /// Applies one observation. Ignores events that are not part of the conversation.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::ModelFinished(reply) if reply.key.is_none() => self.reply(reply),
            Event::ToolStarted(call) if call.key.is_none() => {
                if let Phase::Tools { calls, .. } = &mut self.phase
                    && let Some(state @ (CallState::New | CallState::Repeated)) = calls.get_mut(call.index)
                {
                    *state = CallState::Started;
                }
            }
            Event::ToolFinished(call) if call.key.is_none() => self.settle(call),
            // A conversation that was too long has been made smaller: the step is tried again.
            Event::Compacted(_) | Event::OutputsCleared(_) if matches!(self.phase, Phase::TooLong { .. }) => {
                self.phase = Phase::Before(Stage::Steer);
            }
            // Of messages that nobody queued, a run has its reminder first.
            Event::MessageAdded(added) if added.queued.is_none() => self.reminds = false,
            Event::Recorded(value) if value.name() == AnswerRefused::KIND => self.refused(),
            Event::Checkpoint(checkpoint) => {
                if let Some(run) = checkpoint.state.run() {
                    self.go_on(run);
                }
                if let Some(answers) = self.answers_mut() {
                    answers.refused = refused_in(&checkpoint.state);
                }
            }
            _ => {}
        }
    }

    /// Returns the next action. Pure: asking again gives the same answer.
    #[must_use]
    pub fn action(&self) -> Action {
        match &self.phase {
            Phase::Before(_) if self.step >= self.max_steps => {
                Action::Finish(self.outcome(self.out_of_steps()))
            }
            Phase::Before(Stage::Steer) if self.reminds => Action::Remind,
            Phase::Before(Stage::Steer | Stage::SteerAgain) => Action::Steer,
            Phase::Before(Stage::Compact) => Action::Compact(CompactionCause::Threshold),
            Phase::Before(Stage::Call) => Action::CallModel(self.step + 1),
            Phase::Tools { reply, calls, stopped } => {
                let pending = calls.iter().enumerate().filter(|(_, state)| !state.is_settled());
                let pending = pending.map(|(index, state)| {
                    let mut call = PendingCall::new(index);
                    call.started = matches!(state, CallState::Started);
                    call.repeated = if matches!(state, CallState::Repeated) { self.loops.most() } else { 0 };
                    call.late = stopped.is_some() && !call.started;
                    call
                });
                Action::CallTools { message: Arc::clone(&reply.message), calls: pending.collect() }
            }
            Phase::Check { reply, .. } => Action::Check(self.to_check(reply)),
            Phase::Refused { problem, told } => {
                let refused = self.answers().map_or(0, |answers| answers.refused);
                Action::Refuse { problem: Arc::clone(problem), round: refused + 1, told: *told }
            }
            Phase::TooLong { may_retry: true, .. } => Action::Compact(CompactionCause::Overflow),
            Phase::TooLong { end, .. } | Phase::Done(end) => Action::Finish(self.outcome(end.status())),
        }
    }

    /// Applies one observation and returns the next action.
    pub fn next(&mut self, observation: &Event) -> Action {
        self.apply(observation);
        self.action()
    }

    /// Reports that the reminder was given, or that no model could read it.
    pub fn reminded(&mut self) {
        self.reminds = false;
    }

    /// Reports that the prompts which waited have joined the conversation. `compaction_due` is the answer of
    /// [`SessionState::compaction_due`]; it is needed once a step, and only if the turn compacts.
    ///
    /// [`SessionState::compaction_due`]: entourage_core::session::SessionState::compaction_due
    pub fn steered(&mut self, compaction_due: impl FnOnce() -> bool) {
        if let Phase::Before(stage @ (Stage::Steer | Stage::SteerAgain)) = &mut self.phase
            && !self.reminds
        {
            let compacts = *stage == Stage::Steer && self.compacts && compaction_due();
            *stage = if compacts { Stage::Compact } else { Stage::Call };
        }
    }

    /// Reports the end of the compaction: `smaller` is true if the conversation shrank. `run` is the session's open
    /// run: its totals include a call that failed, which no event has told this machine.
    pub fn compacted(&mut self, smaller: bool, run: Option<&OpenRun>) {
        match &mut self.phase {
            Phase::Before(stage @ Stage::Compact) => *stage = Stage::SteerAgain,
            Phase::TooLong { may_retry, .. } if !smaller => *may_retry = false,
            Phase::TooLong { may_retry: true, .. } => {
                self.phase = Phase::Before(Stage::Steer);
                if let Some(run) = run {
                    self.take_totals(run);
                }
            }
            _ => {}
        }
    }

    /// Reports that the model call failed in this life of the run. `may_retry` is the answer of
    /// [`SessionState::may_retry`], which is needed only if the conversation was too long and the turn compacts.
    ///
    /// [`SessionState::may_retry`]: entourage_core::session::SessionState::may_retry
    pub fn failed(&mut self, error: Error, may_retry: impl FnOnce() -> bool) {
        let too_long = error.kind() == ErrorKind::ContextOverflow;
        let end = End::Failed(Arc::new(error));
        self.phase = if too_long {
            Phase::TooLong { end, may_retry: self.compacts && may_retry() }
        } else {
            Phase::Done(end)
        };
    }

    /// Returns what the caller of the run gets: the outcome of [`Action::Finish`], or the error of the model call that
    /// failed in this life of the run.
    ///
    /// # Errors
    /// That error; [`ErrorKind::Internal`] for a turn that is not over.
    pub fn finish(mut self) -> Result<Outcome> {
        if !self.is_over() {
            let text = "this turn is not over; perform its actions until one is `Finish`";
            return Err(Error::new(ErrorKind::Internal, text));
        }
        let end = match std::mem::replace(&mut self.phase, Phase::Before(Stage::Steer)) {
            Phase::TooLong { end, .. } | Phase::Done(end) => end,
            _ => End::Recorded(self.out_of_steps()),
        };
        end.result(|status| self.outcome(status))
    }

    /// Number of model calls so far.
    #[must_use]
    pub fn steps(&self) -> u32 {
        self.step
    }

    /// The outcome if the run ended now with `status`.
    #[must_use]
    pub fn outcome(&self, status: Status) -> Outcome {
        let mut outcome = Outcome::new(status);
        let (answers, text) = (self.answers(), self.text.as_ref());
        let text = text.filter(|_| answers.is_none_or(|answers| !answers.guarded));
        if let Some(value) = answers.and_then(|answers| answers.value.as_deref()) {
            value.clone_into(&mut outcome.text);
        } else if let Some(text) = text.and_then(|message| message.first_text()) {
            text.clone_into(&mut outcome.text);
        }
        outcome.usage = self.usage;
        outcome.cost = self.cost;
        outcome.steps = self.step;
        outcome
    }

    /// True when the next action is [`Action::Finish`].
    pub(crate) fn is_over(&self) -> bool {
        match &self.phase {
            Phase::Before(_) => self.step >= self.max_steps,
            Phase::Tools { .. } | Phase::Check { .. } | Phase::Refused { .. } => false,
            Phase::TooLong { may_retry, .. } => !may_retry,
            Phase::Done(_) => true,
        }
    }

    fn out_of_steps(&self) -> Status {
        Status::Stopped(StopReason::Steps(self.max_steps))
    }

    /// Continues from a checkpoint, which lies between two steps.
    fn go_on(&mut self, run: &OpenRun) {
        self.take_totals(run);
        self.reminds &= run.steps == 0;
        self.phase = Phase::Before(Stage::Steer);
        self.loops.forget();
    }

    fn take_totals(&mut self, run: &OpenRun) {
        (self.step, self.usage, self.cost) = (run.steps, run.usage, run.cost);
        self.text.clone_from(&run.text);
    }

    fn reply(&mut self, reply: &Arc<ModelFinished>) {
        self.step += 1;
        self.reminds = false;
        self.usage += (reply.usage + reply.wasted).tokens();
        self.cost = self.cost.zip(reply.cost).map(|(sum, cost)| sum + cost);
        if reply.message.first_text().is_some() {
            self.text = Some(Arc::clone(&reply.message));
        }
        if let Some(error) = &reply.error {
            let cancelled = reply.finish.reason == FinishReason::Cancelled;
            let status = if cancelled { Status::Cancelled } else { ended_by(error) };
            let too_long =
                matches!(&status, Status::Failed(error) if error.kind == ErrorKind::ContextOverflow);
            let end = End::Recorded(status);
            self.phase = if too_long { Phase::TooLong { end, may_retry: false } } else { Phase::Done(end) };
            return;
        }
        self.phase = match reply.finish.reason {
            // Only a reply that waits for its calls continues the run.
            reason if self.waits_for_calls(reason, &reply.message) => {
                let state = |repeated| if repeated { CallState::Repeated } else { CallState::New };
                let calls = self.loops.note_calls(&reply.message, state);
                Phase::Tools { reply: Arc::clone(reply), calls, stopped: None }
            }
            FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Other => self.answered(reply),
            reason => self.ending(reply, Status::Stopped(StopReason::Reply(reason))),
        };
    }

    fn settle(&mut self, call: &ToolFinished) {
        let Phase::Tools { reply, calls, stopped } = &mut self.phase else { return };
        if let Some(state) = calls.get_mut(call.index) {
            *state = CallState::Settled(Arc::clone(&call.result));
        }
        if let Some(error) = &call.fatal {
            *stopped = Some(Stop::Status(ended_by(error)));
        } else if call.denied && stopped.is_none() {
            *stopped = Some(Stop::Status(Status::Stopped(StopReason::Denied(call.result.name.to_string()))));
        } else if call.stop_turn && stopped.is_none() {
            *stopped = Some(Stop::Turn);
        }
        if !calls.iter().all(CallState::is_settled) {
            return;
        }
        let extra = self.extra.as_deref();
        let typed = extra.and_then(|extra| extra.answers.as_ref()).is_some_and(|answers| answers.typed);
        let told = if typed { answers::told(&reply.message, calls, stopped.as_ref()) } else { None };
        let stopped = stopped.take().map(|stop| match stop {
            Stop::Turn if typed => answers::ended_by_a_tool(),
            Stop::Turn => Status::Completed,
            Stop::Status(status) => status,
        });
        let mut conditions = extra.into_iter().flat_map(|extra| &*extra.stop_when);
        let mut held = || conditions.find(|it| it.holds(self.step, reply, calls, &self.usage, self.cost));
        let held = if stopped.is_none() { held() } else { None };
        let condition = held.map(|held| Status::Stopped(StopReason::Condition(held.to_string())));
        let circling = self.loops.note_step(self.step, reply, std::mem::take(calls));
        let circling = circling.then_some(Status::Stopped(StopReason::LoopDetected));
        let (reply, ended) = (Arc::clone(reply), stopped.or(condition).or(circling));
        self.phase = match (told, ended) {
            (Some(told), then) => Phase::Check { reply, told, then: then.map(Box::new) },
            (None, Some(status)) => self.ending(&reply, status),
            (None, None) if self.step >= self.max_steps => self.ending(&reply, self.out_of_steps()),
            (None, None) => Phase::Before(Stage::Steer),
        };
    }
}

/// Returns the status of a run whose recorded error is `error`.
fn ended_by(error: &ErrorRecord) -> Status {
    match &error.exhausted {
        Some(exhausted) => Status::Stopped((**exhausted).clone().into()),
        None => Status::Failed(error.clone()),
    }
}

#[cfg(test)]
mod tests;
