//! The pure machine of one run: observations in, the next action out. It never awaits, reads a clock or does I/O.
//!
//! It is not stored: applying a run's events rebuilds it, and [`Turn::action`] then returns the first action that has
//! no observation yet.

mod stop_when;

use std::sync::Arc;

use entourage_core::{
    ErrorKind, Money, Usage,
    event::{Event, ModelFinished, ToolFinished},
    message::{Message, ToolResult},
    provider::FinishReason,
    run::{LoopDetection, Outcome, PendingCall, Status, StopReason},
    session::OpenRun,
};

use crate::loops::Loops;

pub use stop_when::StopWhen;

/// The next action, which the turn's driver performs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// Call the model, as this step; steps count from 1.
    CallModel(u32),
    /// Run these calls of the newest assistant message.
    CallTools {
        /// The message that asks for them.
        message: Arc<Message>,
        /// The calls without a result, in order.
        calls: Vec<PendingCall>,
    },
    /// The run is over.
    Finish(Outcome),
}

/// The machine of one run.
///
/// ```
/// use entourage_runners::{Action, Turn};
///
/// let turn = Turn::new(50);
/// assert_eq!(turn.action(), Action::CallModel(1));
/// ```
#[derive(Debug, Clone)]
pub struct Turn {
    max_steps: u32,
    stop_when: Arc<[StopWhen]>,
    step: u32,
    usage: Usage,
    cost: Option<Money>,
    /// The newest message with text.
    text: Option<Arc<Message>>,
    loops: Loops,
    phase: Phase,
}

#[derive(Debug, Clone)]
enum Phase {
    /// The model is called next.
    Model,
    /// Calls of the newest reply wait for results.
    Tools { reply: Arc<ModelFinished>, calls: Vec<CallState>, stopped: Option<Stop> },
    /// The run is over, with this status.
    Done(Status),
}

#[derive(Debug, Clone)]
pub(crate) enum CallState {
    New,
    /// A repetition to be refused: loop detection counted the same call too often.
    Repeated,
    Started,
    Settled(Arc<ToolResult>),
}

impl CallState {
    fn is_settled(&self) -> bool {
        matches!(self, Self::Settled(_))
    }

    pub(crate) fn result(&self) -> Option<&ToolResult> {
        if let Self::Settled(result) = self { Some(result) } else { None }
    }
}

#[derive(Debug, Clone)]
enum Stop {
    Turn,
    Status(Status),
}

impl Turn {
    /// Creates the machine of a run of at most `max_steps` model calls.
    #[must_use]
    pub fn new(max_steps: u32) -> Self {
        Self {
            max_steps,
            stop_when: Arc::default(),
            step: 0,
            usage: Usage::default(),
            cost: Some(Money::default()),
            text: None,
            loops: Loops::default(),
            phase: Phase::Model,
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
        self.stop_when = conditions;
        self
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
            Event::Compacted(_) | Event::OutputsCleared(_) if self.overflowed() => self.phase = Phase::Model,
            Event::Checkpoint(checkpoint) => {
                if let Some(run) = checkpoint.state.run() {
                    self.go_on(run);
                }
            }
            _ => {}
        }
    }

    /// Returns the next action. Pure: asking again gives the same answer.
    #[must_use]
    pub fn action(&self) -> Action {
        match &self.phase {
            Phase::Model if self.step >= self.max_steps => {
                Action::Finish(self.outcome(Status::Stopped(StopReason::Steps(self.max_steps))))
            }
            Phase::Model => Action::CallModel(self.step + 1),
            Phase::Tools { reply, calls, stopped } => {
                let pending = calls.iter().enumerate().filter(|(_, state)| !state.is_settled());
                let pending = pending.map(|(index, state)| {
                    let mut call = PendingCall::new(index);
                    call.started = matches!(state, CallState::Started);
                    call.repeated = matches!(state, CallState::Repeated);
                    call.late = stopped.is_some() && !call.started;
                    call
                });
                Action::CallTools { message: Arc::clone(&reply.message), calls: pending.collect() }
            }
            Phase::Done(status) => Action::Finish(self.outcome(status.clone())),
        }
    }

    /// Applies one observation and returns the next action.
    pub fn next(&mut self, observation: &Event) -> Action {
        self.apply(observation);
        self.action()
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
        if let Some(text) = self.text.as_ref().and_then(|message| message.first_text()) {
            text.clone_into(&mut outcome.text);
        }
        outcome.usage = self.usage;
        outcome.cost = self.cost;
        outcome.steps = self.step;
        outcome
    }

    /// True when the run has nothing left to do.
    pub(crate) fn is_over(&self) -> bool {
        match &self.phase {
            Phase::Model => self.step >= self.max_steps,
            Phase::Tools { .. } => false,
            Phase::Done(_) => true,
        }
    }

    /// True when the run ended because the conversation was too long for the model.
    pub(crate) fn overflowed(&self) -> bool {
        matches!(&self.phase, Phase::Done(Status::Failed(error)) if error.kind == ErrorKind::ContextOverflow)
    }

    /// Continues from a checkpoint, which lies between two steps.
    fn go_on(&mut self, run: &OpenRun) {
        self.try_again(run);
        self.loops.forget();
    }

    /// Lets the step be tried again: the newest model call failed for length, and the conversation was made smaller
    /// since.
    pub(crate) fn try_again(&mut self, run: &OpenRun) {
        (self.step, self.usage, self.cost) = (run.steps, run.usage, run.cost);
        self.text.clone_from(&run.text);
        self.phase = Phase::Model;
    }

    fn reply(&mut self, reply: &Arc<ModelFinished>) {
        self.step += 1;
        self.usage += (reply.usage + reply.wasted).tokens();
        self.cost = self.cost.zip(reply.cost).map(|(sum, cost)| sum + cost);
        if reply.message.first_text().is_some() {
            self.text = Some(Arc::clone(&reply.message));
        }
        if let Some(error) = &reply.error {
            let cancelled = reply.finish.reason == FinishReason::Cancelled;
            self.phase = Phase::Done(if cancelled { Status::Cancelled } else { Status::of_record(error) });
            return;
        }
        self.phase = match reply.finish.reason {
            // Only a reply that waits for its calls continues the run.
            FinishReason::ToolCalls if reply.message.tool_calls().next().is_some() => {
                let state = |repeated| if repeated { CallState::Repeated } else { CallState::New };
                let calls = self.loops.note_calls(&reply.message, state);
                Phase::Tools { reply: Arc::clone(reply), calls, stopped: None }
            }
            FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Other => {
                Phase::Done(Status::Completed)
            }
            reason => Phase::Done(Status::Stopped(StopReason::Reply(reason))),
        };
    }

    fn settle(&mut self, call: &ToolFinished) {
        let Phase::Tools { reply, calls, stopped } = &mut self.phase else { return };
        if let Some(state) = calls.get_mut(call.index) {
            *state = CallState::Settled(Arc::clone(&call.result));
        }
        if let Some(error) = &call.fatal {
            *stopped = Some(Stop::Status(Status::of_record(error)));
        } else if call.denied && stopped.is_none() {
            *stopped = Some(Stop::Status(Status::Stopped(StopReason::Denied(call.result.name.to_string()))));
        } else if call.stop_turn && stopped.is_none() {
            *stopped = Some(Stop::Turn);
        }
        if !calls.iter().all(CallState::is_settled) {
            return;
        }
        let stopped = stopped.take().map(|stop| match stop {
            Stop::Turn => Status::Completed,
            Stop::Status(status) => status,
        });
        let condition = || {
            let held = self
                .stop_when
                .iter()
                .find(|condition| condition.holds(self.step, reply, &self.usage, self.cost))?;
            Some(Status::Stopped(StopReason::Condition(held.to_string())))
        };
        let circling = self.loops.note_step(self.step, reply, std::mem::take(calls));
        let circling = circling.then_some(Status::Stopped(StopReason::LoopDetected));
        self.phase = stopped.or_else(condition).or(circling).map_or(Phase::Model, Phase::Done);
    }
}
