//! The driver of a run: it performs what the turn decides, and tells the turn what came of it.

use std::{any::Any, sync::Arc};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    agent::{Agent, AgentPart},
    context::{Compaction, CompactionCause},
    event::Event,
    message::Message,
    provider::{Model, ToolChoice},
    run::{Effect, ModelCall, Observation, Outcome, RunContext, Task, ToolCalls},
    session::SessionState,
    tool::Tools,
};
use entourage_runtime::{AnswersGuarded, context::shown_to};

use super::{
    Compacts, More, Prepared, ReactAgent, Step,
    guard::{Bar, REPAIRS},
    offer::Offer,
    prepare::joined,
};
use crate::{
    turn::{Action, Turn},
    typed::{AnswerRefused, Rule, Strategy},
};

const REMINDER: &str = "<reminder>The list of what is to be done is empty. If this takes three steps or more, keep one \
    with the tool `todos`; otherwise go on without. Do not mention this reminder.</reminder>";

/// The next action of a run, with what it needs. Of one word and a tag, whatever it holds.
enum Next {
    Remind,
    Steer,
    Compact(CompactionCause),
    Model(Box<ModelCall>),
    Tools(Box<ToolCalls>),
    Finish,
    Fail(Error),
}

/// A run in progress.
struct Run {
    turn: Turn,
    /// The model of the next call, from the first look at its window on.
    model: Option<Model>,
    /// The tools of the newest call.
    offered: Option<Tools>,
    shown: Offer,
}

impl Run {
    /// Returns the next action. A plain function, so that no part of an action lives across an `.await`: that keeps the
    /// future small and cheap to allocate.
    fn next(&mut self, agent: &ReactAgent, cx: &RunContext) -> Next {
        self.decide(agent, cx).unwrap_or_else(Next::Fail)
    }

    /// Returns the next action.
    ///
    /// # Errors
    /// Those of the hook that writes instructions.
    fn decide(&mut self, agent: &ReactAgent, cx: &RunContext) -> Result<Next> {
        loop {
            if self.turn.is_over() {
                return Ok(Next::Finish);
            }
            match self.turn.action() {
                Action::Remind => return Ok(Next::Remind),
                Action::Steer => return Ok(Next::Steer),
                Action::Compact(cause) => return Ok(Next::Compact(cause)),
                Action::CallModel(step) => {
                    let model = self.model.take().unwrap_or_else(|| agent.0.model.model());
                    let mut call = agent.next_call(step, cx, model)?;
                    self.shown.restrict(&mut call.request, cx.scope());
                    self.offered = Some(call.offered.clone());
                    return Ok(Next::Model(call));
                }
                Action::CallTools { message, calls } => {
                    // After a restart the tools offered before are unknown: assume those that would be offered now.
                    let offered = match &self.offered {
                        Some(offered) => offered.clone(),
                        None => agent.next_call(self.turn.steps(), cx, agent.0.model.model())?.offered,
                    };
                    self.offered = Some(offered.clone());
                    return Ok(Next::Tools(Box::new(ToolCalls::new(
                        message,
                        calls,
                        offered,
                        agent.limits(),
                    ))));
                }
                Action::Check(message) => match agent.check(&message, cx) {
                    Ok(answer) => self.turn.checked(Ok(answer)),
                    Err(Bar::Refused(problem)) => self.turn.checked(Err(problem)),
                    Err(Bar::Stopped(reason)) => self.turn.barred(reason),
                },
                Action::Refuse { problem, round, told } => match agent.refuse(cx, round, &problem, told) {
                    Ok(()) => self.turn.refused(),
                    Err(error) => return Ok(Next::Fail(error)),
                },
                Action::Finish(_) => return Ok(Next::Finish),
            }
        }
    }
}

impl ReactAgent {
    /// Begins the run, or continues it from what is recorded.
    fn begin(&self, cx: &RunContext) -> Run {
        let (limits, more) = (self.limits(), self.0.more.as_deref());
        let stop_when = more.map(|more| Arc::clone(&more.stop_when)).unwrap_or_default();
        let compacts = !matches!(more, Some(More { compacts: Compacts::Never, .. }));
        let reminds = more.is_some_and(|more| more.reminds) && cx.parent().is_none() && cx.todos().is_empty();
        let loops = more.map(|more| more.loops).unwrap_or_default();
        let turn = Turn::new(limits.steps).stop_when(stop_when).loops(loops);
        let mut turn = turn.compacts(compacts).reminds(reminds);
        if let Some(rule) = self.rule() {
            turn = turn.answers_with_a_value(rule.repairs());
        }
        if self.is_guarded() {
            turn = turn.guards_answers(REPAIRS);
        }
        turn.resume(&cx.effects().recorded(), || cx.read(SessionState::may_retry));
        Run { turn, model: None, offered: None, shown: Offer::default() }
    }

    /// Compacts the conversation and returns true when it shrank. A compaction that leaves it as it was does not end
    /// the run.
    async fn compact(&self, cx: &RunContext, model: Model, cause: CompactionCause) -> Result<bool> {
        let compaction = match self.0.more.as_deref() {
            Some(More { compacts: Compacts::As(compaction), .. }) => compaction.clone(),
            _ => Compaction::default(),
        };
        let compaction = Box::new(compaction);
        let effect = Effect::Compact { compaction, model, cause, silence: self.limits().model_silence };
        match cx.effects().perform(cx, None, effect).await? {
            Observation::Compacted(smaller) => Ok(smaller),
            _ => Err(wrong_observation()),
        }
    }

    /// Returns the rule of the agent's answers, if they must be values.
    pub(super) fn rule(&self) -> Option<&Rule> {
        self.0.more.as_ref()?.rule.as_deref()
    }

    /// Returns the strategy by which a value is asked for now.
    pub(super) fn strategy(&self, rule: &Rule, cx: &RunContext) -> Strategy {
        rule.strategy(&self.0.model.model(), &self.tools(), cx.scope())
    }

    /// Records that an answer was refused, and tells the model unless it was told. The message comes first: one that
    /// is recorded without the refusal is not given again.
    fn refuse(&self, cx: &RunContext, round: u32, problem: &str, told: bool) -> Result<()> {
        if !told {
            cx.remind(self.refusal(round, problem, cx))?;
        }
        cx.append(AnswerRefused::new(round, problem))
    }

    /// Returns the content of a step's request, as the hooks make it.
    fn plan(&self, step: u32, cx: &RunContext, model: Model) -> Result<Prepared> {
        let mut plan = Prepared {
            instructions: self.instructions(),
            messages: cx.history(),
            tools: self.tools(),
            tool_choice: ToolChoice::Auto,
            model,
        };
        let hooks = self.0.more.as_ref().filter(|more| more.instruct.is_some() || more.prepare.is_some());
        if let Some(more) = hooks {
            let step = Step { number: step, run: cx.clone() };
            if let Some(instruct) = &more.instruct {
                plan.instructions = joined(&plan.instructions, &instruct(&step)?);
            }
            if let Some(prepare) = &more.prepare {
                prepare.prepare(&step, &mut plan);
            }
        }
        Ok(plan)
    }

    /// Builds the call of the next step, with all settings read afresh.
    fn next_call(&self, step: u32, cx: &RunContext, model: Model) -> Result<Box<ModelCall>> {
        let more = self.0.more.as_deref();
        let params = more.and_then(|more| more.params.as_ref());
        let Prepared { model, instructions, messages, tools, tool_choice } = self.plan(step, cx, model)?;
        let mut request = model.request(shown_to(&messages, model.profile()));
        let (instructions, template) = instructions.into_parts();
        request.instructions = instructions;
        let speaks_only = more.is_some_and(|more| more.speaks_only);
        request.tool_choice = if speaks_only { ToolChoice::None } else { tool_choice };
        if let Some(params) = params {
            request.params = params.over(&request.params);
        }
        request.tools = Arc::clone(tools.specs_for(model.profile()));
        let offered = match self.rule() {
            Some(rule) => {
                let joined = rule.join(&tools);
                let strategy = rule.strategy(&model, &tools, cx.scope());
                rule.ask(strategy, &mut request, joined.specs_for(model.profile()));
                joined
            }
            None if speaks_only => Tools::none(),
            None => tools,
        };
        let specs = Arc::clone(&request.tools);
        let mut call = ModelCall::new(model, request, offered);
        call.request.tools = specs;
        call.repair = more.and_then(|more| more.repair.clone());
        (call.step, call.silence, call.template) = (step, self.limits().model_silence, template);
        Ok(Box::new(call))
    }
}

#[async_trait]
impl Agent for ReactAgent {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn description(&self) -> &str {
        self.0.more.as_ref().map_or("", |more| &more.description)
    }

    fn parts(&self) -> Vec<AgentPart> {
        let tools = self.tools();
        let tools = self.rule().map(|rule| rule.join(&tools)).unwrap_or(tools);
        let mut parts = vec![AgentPart::Model(self.0.model.clone()), AgentPart::Tools(tools)];
        if let Some(More { compacts: Compacts::As(compaction), .. }) = self.0.more.as_deref() {
            parts.push(AgentPart::Model(compaction.summariser(&self.0.model.model()).into()));
        }
        parts.extend(self.0.more.iter().filter_map(|more| more.repair.clone().map(AgentPart::Repair)));
        parts
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }

    fn begins_with_an_effect(&self) -> bool {
        self.0.more.as_ref().is_none_or(|more| more.prepare.is_none() && more.instruct.is_none())
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        drop(task);
        let narrowed = match &self.0.more {
            _ if self.is_planned(cx) => Some(cx.narrowed(&Box::pin(self.scope_now(cx)).await?)),
            Some(more) if !more.scope.contains(cx.scope()) => Some(cx.narrowed(&more.scope)),
            _ => None,
        };
        let cx = narrowed.as_ref().unwrap_or(cx);
        let effects = cx.effects();
        let mut run = self.begin(cx);
        if self.is_guarded() && !cx.read(AnswersGuarded::is_in) {
            cx.append(AnswersGuarded::new())?;
        }
        loop {
            match run.next(self, cx) {
                Next::Remind => {
                    // A run that is over has no model call to remind: its first effect is refused.
                    drop(cx.remind(Message::user(REMINDER)));
                    run.turn.reminded();
                }
                Next::Steer => {
                    cx.steer().await?;
                    let model = run.model.get_or_insert_with(|| self.0.model.model());
                    run.turn.steered(|| is_compaction_due(cx, model));
                }
                Next::Compact(cause) => {
                    let model = run.model.clone().unwrap_or_else(|| self.0.model.model());
                    let smaller = Box::pin(self.compact(cx, model, cause)).await?;
                    // The agent may be on another model by now.
                    run.model = run.model.map(|_| self.0.model.model());
                    cx.read(|state| run.turn.compacted(smaller, state.run()));
                }
                Next::Model(call) => match effects.perform(cx, None, Effect::Model(call)).await {
                    Ok(Observation::Model(reply)) => run.turn.apply(&Event::ModelFinished(reply)),
                    Ok(_) => return Err(wrong_observation()),
                    Err(error) => run.turn.failed(error, || cx.read(SessionState::may_retry)),
                },
                Next::Tools(calls) => match effects
                    .perform(cx, None, Effect::Tools(calls).scoped(cx.scope()))
                    .await?
                {
                    Observation::Tools(results) => {
                        results.into_iter().for_each(|result| run.turn.apply(&Event::ToolFinished(result)));
                    }
                    _ => return Err(wrong_observation()),
                },
                Next::Finish => return run.turn.finish(),
                Next::Fail(error) => return Err(error),
            }
        }
    }
}

fn is_compaction_due(cx: &RunContext, model: &Model) -> bool {
    cx.read(|state| state.compaction_due(cx.session(), model.profile().context_window))
}

fn wrong_observation() -> Error {
    Error::new(ErrorKind::Internal, "unexpected kind of observation")
}
