//! The driver of a step's conversation: it runs the turns that the machine asks for, and records each message.
//!
//! It is the agent of the step. It goes on where its record ends, so a turn that ended is never repeated.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, SessionId, Usage,
    agent::{Agent, AgentPart},
    run::{Delegate, Outcome, Pause, RunContext, Spawn, Status, StopReason, Task},
};

use super::{
    ConversationLimits, StepMessage, StepMessageKind,
    execution::EXECUTOR,
    reply::{Said, final_stop, said},
    run::PLANNER,
    talk::{Begun, GO_ON, Next, Talk},
};
use crate::{below::Below, graph::section};

/// The planner and an executor, who talk about one step until it is done.
pub(super) struct Conversation {
    pub(super) executor: Arc<dyn Agent>,
    /// The planner when it answers a question.
    pub(super) planner: Arc<dyn Agent>,
    pub(super) limits: ConversationLimits,
}

#[async_trait]
impl Agent for Conversation {
    fn name(&self) -> &str {
        EXECUTOR
    }

    fn begins_with_an_effect(&self) -> bool {
        true
    }

    fn parts(&self) -> Vec<AgentPart> {
        let part = |name: &str, agent: &Arc<dyn Agent>| AgentPart::Agent {
            name: name.into(),
            agent: Arc::clone(agent),
        };
        vec![part(EXECUTOR, &self.executor), part(PLANNER, &self.planner)]
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        cx.effects().check()?;
        let mut talk = self.recalled(cx).await?;
        loop {
            let message = match talk.next() {
                Next::Done(text) => return Ok(Outcome::completed(text)),
                Next::Failed(text, stopped) => return Err(failed(text, stopped)),
                _ if cx.cancellation().is_cancelled() => return Err(Error::cancelled()),
                // A run that is to pause begins no turn. One that goes on is paused by its own run.
                Next::Assign | Next::GoOn(_) if cx.is_stopping() => return Err(Error::paused(Pause::Asked)),
                Next::Assign => {
                    let text = task.prompt.text();
                    Self::tell(cx, &talk, 1, StepMessageKind::TaskAssignment, text, Usage::default())?
                }
                Next::GoOn(turn) => {
                    let (kind, text) = (StepMessageKind::Clarification, GO_ON.to_owned());
                    Self::tell(cx, &talk, turn, kind, text, Usage::default())?
                }
                Next::Turn(turn, begun) => self.turn(cx, &talk, turn, begun).await?,
                Next::Answer(turn, begun) => self.answer(cx, &talk, turn, begun, &task.prompt.text()).await?,
            };
            talk.add(&message);
        }
    }
}

impl Conversation {
    /// Returns the conversation as far as it is recorded.
    async fn recalled(&self, cx: &RunContext) -> Result<Talk> {
        let mut talk = Talk::new(self.limits.turns);
        cx.recorded::<StepMessage>()?.iter().for_each(|message| talk.add(message));
        while !talk.is_over() {
            let replayed = cx.effects().replayed(cx).await?;
            if replayed.is_empty() {
                break;
            }
            for record in replayed {
                if let Some(message) = record.get::<StepMessage>()? {
                    talk.add(&message);
                }
            }
        }
        Ok(talk)
    }

    /// Records a message to the executor, which begins its turn.
    fn tell(
        cx: &RunContext,
        talk: &Talk,
        turn: u32,
        kind: StepMessageKind,
        text: String,
        usage: Usage,
    ) -> Result<Arc<StepMessage>> {
        let (child, most) = (Some(cx.session().in_role(EXECUTOR)?), talk.most());
        let text = Arc::from(text);
        cx.append_with(|_, seq| {
            let run = Some(cx.run().started_at(seq));
            Ok(StepMessage { turn, most, kind, text, child, run, tool_calls: 0, usage, stopped: None })
        })
    }

    /// Runs a turn of the executor, and records what it said.
    async fn turn(&self, cx: &RunContext, talk: &Talk, turn: u32, begun: Begun) -> Result<Arc<StepMessage>> {
        let limit = self.limits.turn_time;
        let Below { outcome, work, .. } = perform(cx, EXECUTOR, &self.executor, begun, limit).await?;
        let said = said(&outcome, &work, &self.limits)?;
        let asks = said.kind == StepMessageKind::Question && !talk.is_last_turn();
        let child = asks.then(|| cx.session().in_role(PLANNER)).transpose()?;
        let (most, usage) = (talk.most(), outcome.usage);
        cx.append_with(|_, seq| {
            let run = child.as_ref().map(|_| cx.run().started_at(seq));
            let Said { kind, text, tool_calls, stopped } = said;
            Ok(StepMessage { turn, most, kind, text: text.into(), child, run, tool_calls, usage, stopped })
        })
    }

    /// Lets the planner answer a question about a step, and records the answer, which begins the next turn.
    async fn answer(
        &self,
        cx: &RunContext,
        talk: &Talk,
        turn: u32,
        begun: Begun,
        step: &str,
    ) -> Result<Arc<StepMessage>> {
        let limit = self.limits.answer_time;
        let mut asked = "An executor has this step of yours:".to_owned();
        section(&mut asked, "step", "", step);
        asked.push_str("\n\nIt asks you:");
        section(&mut asked, "question", "", &begun.text);
        asked.push_str("\n\nAnswer it in a few sentences.");
        let begun = Begun { text: asked, ..begun };
        let Below { outcome, .. } = perform(cx, PLANNER, &self.planner, begun, limit).await?;
        let answer = outcome.text.trim();
        if !outcome.is_completed() || answer.is_empty() {
            let stopped = final_stop(PLANNER, &outcome.status);
            let reason = match outcome.status {
                Status::Cancelled => format!("within {limit:?}"),
                status => format!("the question of the executor: {status}"),
            };
            return Err(failed(format!("the planner did not answer {reason}"), stopped));
        }
        let (kind, next) = (StepMessageKind::Clarification, turn.saturating_add(1));
        Self::tell(cx, talk, next, kind, answer.to_owned(), outcome.usage)
    }
}

/// Runs an agent in its session below this one, in the run that was recorded for it, for at most this time.
async fn perform(
    cx: &RunContext,
    role: &'static str,
    agent: &Arc<dyn Agent>,
    begun: Begun,
    limit: Duration,
) -> Result<Below> {
    let place: Option<(SessionId, _)> = begun.child.zip(begun.run);
    let (child, run) = place.ok_or_else(lost)?;
    let spawn = Spawn::new(Arc::clone(agent), begun.text).with_role(role).with_part(role);
    let delegate = Delegate::new(child, spawn).run(run).part_of_run().within(Some(limit));
    let ended = Below::run(delegate, cx).await?;
    // Its end is then the end of this run too, and says nothing about the turn.
    if cx.cancellation().is_cancelled() { Err(Error::cancelled()) } else { Ok(ended) }
}

/// Returns the error of a step that failed, which is final with the reason of a stop.
fn failed(text: String, stopped: Option<Box<StopReason>>) -> Error {
    let error = Error::new(ErrorKind::Stopped, text);
    match stopped {
        Some(reason) => error.with_stop_reason(*reason),
        None => error,
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Internal, "the effects of a conversation gave what nothing asked for")
}
