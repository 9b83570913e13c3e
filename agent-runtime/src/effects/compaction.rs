//! Makes a run's conversation smaller: clears old outputs, or has a summary written in a child session.
//!
//! `CompactionStarted` names the child before it begins, so a run that was killed in between continues the same child,
//! whose finished calls are not repeated.

use std::{any::Any, sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    agent::Agent,
    context::{Compaction, CompactionCause, estimate_tokens},
    event::{
        Compacted, CompactionFailed, CompactionStarted, EffectKey, Event, ModelFinished, OutputsCleared,
    },
    message::{History, Message, Part},
    permission::Scope,
    provider::{FinishReason, Model},
    run::{
        Delegate, Effect, Effects, ModelCall, Observation, Outcome, RunContext, Spawn, Status, StopReason,
        Task,
    },
    session::{Gauge, SessionState},
    team::Todo,
    tool::Tools,
};

use crate::{
    context::{
        Frame, Plan, Room, fitted, instruction, plan, shown_to, summary_message, summary_plan, summary_prompt,
    },
    effects::site::Site,
    own::own,
};

/// Name of the child agent, and role of its session.
const ROLE: &str = "summary";

/// Number of attempts at the summary's own call when it fails for length; each next one gets half as much.
const ATTEMPTS: u32 = 3;

/// The result of a compaction.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The conversation is smaller.
    Smaller,
    /// Nothing could be removed, and nothing was recorded.
    Impossible,
    /// The conversation is unchanged.
    Failed(Error),
}

/// Returns the error of a compaction with a key: its own events have none, so nothing would answer it after a restart.
fn keyed() -> Error {
    let text = "a compaction takes no key; perform it by `RunContext::effects`, and without one";
    Error::new(ErrorKind::Unsupported, text)
}

/// The run whose conversation is made smaller.
#[derive(Clone, Copy)]
pub(crate) struct Here<'a> {
    pub(crate) site: &'a Site,
    pub(crate) cx: &'a RunContext,
    /// Effects of this process. The summary is the runtime's own work: no engine could find its agent.
    pub(crate) local: &'a dyn Effects,
}

/// Makes the conversation smaller, and returns what the agent hears of it. A compaction that leaves the conversation as
/// it was is no error.
///
/// # Errors
/// [`ErrorKind::Cancelled`], the store's; [`ErrorKind::Unsupported`] with a key.
pub(crate) async fn answer(
    here: Here<'_>,
    key: Option<EffectKey>,
    compaction: Box<Compaction>,
    model: Model,
    cause: CompactionCause,
    silence: Duration,
) -> Result<Observation> {
    if key.is_some() {
        return Err(keyed());
    }
    let ended = perform(here, &compaction, &model, cause, silence).await?;
    Ok(Observation::Compacted(matches!(ended, Ended::Smaller)))
}

/// Makes the conversation smaller. The model calls are recorded in a session of their own.
///
/// # Errors
/// [`ErrorKind::Cancelled`], with nothing recorded, and the store's. Any other failure is [`Ended::Failed`].
pub(crate) async fn perform(
    here: Here<'_>,
    compaction: &Compaction,
    model: &Model,
    cause: CompactionCause,
    silence: Duration,
) -> Result<Ended> {
    let Here { site, cx, .. } = here;
    let todos = cx.todos();
    let prompt = compaction.prompt().cloned().unwrap_or_else(summary_prompt);
    let ask = Message::user(instruction(prompt.text(), &todos, compaction.focus_text()));
    let before = Before::read(cx);
    let cause = before.open.as_ref().map_or(cause, |open| open.cause);
    let frame = before.frame(model, cause);
    let chosen =
        if before.open.is_some() { summary_plan(compaction, &frame) } else { plan(compaction, &frame) };
    let older = match chosen {
        None if before.open.is_none() => return Ok(Ended::Impossible),
        None => {
            return fail(site, Error::new(ErrorKind::InvalidInput, "there is nothing to summarise any more"));
        }
        Some(Plan::Clear { before: count, least }) => {
            clear(site, count, least)?;
            return Ok(Ended::Smaller);
        }
        Some(Plan::Summarise { older }) => older,
    };
    let summariser = compaction.summariser(model);
    let writer = Writer {
        room: Room::of(&summariser, &frame, estimate_tokens(&ask)),
        model: summariser,
        older: before.history.iter().take(older).cloned().collect(),
        goal: before.goal.clone(),
        permille: before.permille,
        silence,
        template: prompt.into_parts().1,
    };
    match write(here, &before, cause, writer, ask).await? {
        Ok(outcome) => match adopt(site, &before, older, &outcome, &todos) {
            Ok(()) => Ok(Ended::Smaller),
            Err(error) => fail(site, error),
        },
        Err(error) => fail(site, error),
    }
}

/// The state when the compaction began.
struct Before {
    history: History,
    goal: Option<Arc<Message>>,
    open: Option<Arc<CompactionStarted>>,
    summarised: bool,
    tokens: u64,
    used: u64,
    permille: u64,
}

impl Before {
    fn read(cx: &RunContext) -> Self {
        cx.read(|state| {
            let (gauge, context, tokens) = (state.gauge(), state.context_usage(), state.estimated_tokens());
            Self {
                history: state.history().clone(),
                goal: state.run().map(|run| Arc::clone(&run.prompt)),
                open: gauge.open(cx.session()).cloned(),
                summarised: gauge.is_summarised(),
                tokens,
                used: gauge.projected(context, tokens),
                permille: permille(state, gauge),
            }
        })
    }

    fn frame(&self, model: &Model, cause: CompactionCause) -> Frame<'_> {
        Frame {
            cause,
            history: &self.history,
            goal: self.goal.as_deref(),
            summarised: self.summarised,
            tokens: self.tokens,
            used: self.used,
            window: model.profile().context_window,
            permille: self.permille,
        }
    }
}

/// Ratio of counted to estimated tokens, in per mille, clamped to 1,000..=2,000. The count includes instructions and
/// tools, so it overestimates a summary's request.
fn permille(state: &SessionState, gauge: &Gauge) -> u64 {
    let context = state.context_usage();
    if context.estimated {
        return 1_000;
    }
    (context.total().saturating_mul(1_000) / gauge.counted().max(1)).clamp(1_000, 2_000)
}

fn clear(site: &Site, before: usize, least: u64) -> Result<()> {
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    site.stage_with(site.now(), |state| {
        let after = state.history().iter().enumerate().map(|(place, message)| {
            let shown = if place < before {
                entourage_core::session::cleared(message, least)
            } else {
                Arc::clone(message)
            };
            estimate_tokens(&shown)
        });
        let after = after.fold(0, u64::saturating_add);
        Ok(Event::OutputsCleared(Arc::new(OutputsCleared::new(count(before), least, after))))
    })?;
    Ok(())
}

fn fail(site: &Site, error: Error) -> Result<Ended> {
    let failed = CompactionFailed::new(error.record());
    site.stage(site.now(), Event::CompactionFailed(Arc::new(failed)))?;
    Ok(Ended::Failed(error))
}

/// Lets the child write the summary. The outer error ends the run; the inner one leaves the conversation as it is.
async fn write(
    Here { site, cx, local }: Here<'_>,
    before: &Before,
    cause: CompactionCause,
    writer: Writer,
    ask: Message,
) -> Result<Result<Outcome>> {
    let task = Task::new(ask);
    let agent = Arc::new(writer) as Arc<dyn Agent>;
    let delegate = async |child: SessionId, begun: bool| {
        let spawn = Spawn::new(Arc::clone(&agent), task.clone()).with_role(ROLE).with_scope(Scope::none());
        let mut delegate = Delegate::new(child, spawn).part_of_run();
        delegate.lasting = begun;
        let effect = Effect::Delegate(Box::new(delegate));
        let observed = local.perform(cx, None, effect).await;
        if cx.cancellation().is_cancelled() {
            return Err(Error::cancelled());
        }
        match observed? {
            Observation::Child { outcome: Some(outcome), .. } => Ok(*outcome),
            _ => Err(Error::new(ErrorKind::Internal, "a summary's session ended without an outcome")),
        }
    };
    if let Some(open) = &before.open {
        let outcome = delegate(open.child.clone(), true).await?;
        // The process before this one cancelled the child, and died before it could end its own run.
        if outcome.status != Status::Cancelled {
            return Ok(Ok(outcome));
        }
    }
    let tokens = before.used.max(before.tokens);
    let mut begun = None;
    let staged = site.stage_with(site.now(), |state| {
        let child = cx.session().child(state.head().seq + 1, 0)?;
        begun = Some(child.clone());
        Ok(Event::CompactionStarted(Arc::new(CompactionStarted::new(cause, child, tokens))))
    });
    match (staged, begun) {
        (Ok(_), Some(child)) => Ok(Ok(delegate(child, false).await?)),
        (Ok(_), None) => Ok(Err(Error::new(ErrorKind::Internal, "a compaction began without a session"))),
        // The tree is too deep for one more level.
        (Err(error), _) => Ok(Err(error)),
    }
}

/// Replaces the older messages by the summary, unless the outcome is none.
fn adopt(site: &Site, before: &Before, older: usize, outcome: &Outcome, todos: &[Todo]) -> Result<()> {
    check(outcome)?;
    let text = outcome.text.trim();
    let shown = |goal: &Arc<Message>| before.history.iter().skip(older).any(|kept| kept == goal);
    let goal = before.goal.as_ref().filter(|goal| !shown(goal));
    let summary = Arc::new(summary_message(text, todos, goal.map(|goal| &**goal)));
    // Reasoning is not part of the context.
    let reasoned = outcome.usage.reasoning.unwrap_or(0);
    let counted =
        outcome.usage.output.map(|output| output.saturating_sub(reasoned)).filter(|tokens| *tokens > 0);
    let output = counted.unwrap_or_else(|| estimate_tokens(&Message::assistant(text)));
    site.stage_with(site.now(), |state| {
        // Messages that joined the conversation meanwhile are kept too.
        let kept = state.history().iter().skip(older);
        let count = u64::try_from(kept.len()).unwrap_or(u64::MAX);
        let after =
            kept.map(|message| estimate_tokens(message)).fold(estimate_tokens(&summary), u64::saturating_add);
        let before = state.estimated_tokens();
        if after >= before {
            let text = format!("the summary makes about {after} tokens of {before}; it was not taken");
            return Err(Error::new(ErrorKind::TooLarge, text));
        }
        Ok(Event::Compacted(Arc::new(Compacted::new(summary, count, before, after, output))))
    })?;
    Ok(())
}

/// Checks that the outcome is a summary. One that reached its output limit is, as far as it goes.
fn check(outcome: &Outcome) -> Result<()> {
    match &outcome.status {
        Status::Failed(error) => return Err(error.to_error()),
        Status::Completed | Status::Stopped(StopReason::Reply(FinishReason::Length)) => {}
        Status::Stopped(StopReason::Reply(FinishReason::Refusal | FinishReason::ContentFilter)) => {
            return Err(Error::new(ErrorKind::ContentFiltered, "the model declined to write a summary"));
        }
        other => return Err(Error::new(ErrorKind::Protocol, format!("no summary was written: {other}"))),
    }
    if outcome.text.trim().is_empty() {
        return Err(Error::new(ErrorKind::Protocol, "the model answered without a summary"));
    }
    Ok(())
}

/// The agent of the child session: asks a model once, without tools, for a summary of a conversation that it holds.
struct Writer {
    model: Model,
    older: History,
    goal: Option<Arc<Message>>,
    room: Room,
    permille: u64,
    silence: Duration,
    template: Option<Arc<str>>,
}

impl Writer {
    /// Returns the call of attempt `attempt`, from 0. Its last message is the task's prompt.
    fn call(&self, task: &Task, attempt: u32) -> Result<ModelCall> {
        let most = self.room.estimated(self.permille, attempt);
        let mut input = fitted(&self.older, most, self.goal.as_deref()).ok_or_else(|| {
            Error::new(
                ErrorKind::TooLarge,
                "not even the newest messages fit the window of the model that writes summaries; choose one with a larger window",
            )
        })?;
        input.push(Arc::clone(&task.prompt));
        let mut request = self.model.request(shown_to(&input, self.model.profile()));
        if let Some(output) = self.room.output {
            Arc::make_mut(&mut request.params).max_output = Some(output);
        }
        let mut call = ModelCall::new(self.model.clone(), request, Tools::none());
        (call.step, call.silence) = (attempt.saturating_add(1), self.silence);
        call.template.clone_from(&self.template);
        Ok(call)
    }
}

#[async_trait]
impl Agent for Writer {
    fn name(&self) -> &str {
        ROLE
    }

    fn as_any(&self) -> Option<&dyn Any> {
        own()
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        let mut attempt = 0;
        for event in &*cx.effects().recorded() {
            let Event::ModelFinished(reply) = event else { continue };
            match &reply.error {
                None => return Ok(outcome(cx, reply)),
                Some(error) if error.kind != ErrorKind::ContextOverflow => return Err(error.to_error()),
                Some(_) => attempt += 1,
            }
        }
        loop {
            let effect = Effect::Model(Box::new(self.call(&task, attempt)?));
            match cx.effects().perform(cx, None, effect).await {
                Ok(Observation::Model(reply)) => return Ok(outcome(cx, &reply)),
                Ok(_) => return Err(Error::new(ErrorKind::Internal, "a model call gave no reply")),
                Err(error) if error.kind() == ErrorKind::ContextOverflow && attempt + 1 < ATTEMPTS => {
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn outcome(cx: &RunContext, reply: &ModelFinished) -> Outcome {
    let mut outcome = cx.read(SessionState::spent);
    let declined = reply.message.parts().iter().any(|part| matches!(part, Part::Refusal(_)));
    outcome.status = match reply.finish.reason {
        _ if declined => Status::Stopped(StopReason::Reply(FinishReason::Refusal)),
        FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Other => Status::Completed,
        reason => Status::Stopped(StopReason::Reply(reason)),
    };
    outcome.text = reply.message.text();
    outcome
}
