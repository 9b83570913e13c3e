//! The driver of a research: it plans, spawns, waits and records.

use std::{collections::VecDeque, sync::Arc};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    agent::{Agent, AgentPart},
    permission::Scope,
    run::{Effect, Observation, Outcome, RunContext, Spawn, Task},
};

use super::{
    Research, ResearchProgress, ResearchTask,
    builder::PLANNER,
    plan::{self, Plan},
    report::aggregate,
};
use crate::typed::OutcomeExt;

/// Agents that work at once, at most.
const AT_ONCE: usize = 10;

#[async_trait]
impl Agent for Research {
    fn name(&self) -> &str {
        &self.inner.name
    }

    fn description(&self) -> &str {
        "Finds things out: it divides a question into tasks, has several agents look side by side, and reports what they \
         found. It changes nothing."
    }

    fn parts(&self) -> Vec<AgentPart> {
        let part = |name: &str, agent: &Arc<dyn Agent>| AgentPart::Agent {
            name: name.into(),
            agent: Arc::clone(agent),
        };
        let planner = self.inner.planner.iter().map(|planner| part(PLANNER, planner));
        let agents = self.inner.agents.iter().map(|(kind, (agent, _))| part(kind.name(), agent));
        let tools = self.inner.cache.iter().map(|cache| AgentPart::Tools(cache.tools().clone()));
        planner.chain(agents).chain(tools).collect()
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        let prompt = task.prompt.text();
        plan::check_prompt(&prompt)?;
        let Some(cache) = &self.inner.cache else { return self.look(&prompt, cx).await };
        cache.check(cx)?;
        if !self.anew
            && let Some(report) = cache.recall(&prompt, cx).await?
        {
            return Ok(Outcome::completed(report));
        }
        let outcome = self.look(&prompt, cx).await?;
        cache.keep(&prompt, &outcome, cx).await?;
        Ok(outcome)
    }
}

impl Research {
    async fn look(&self, prompt: &str, cx: &RunContext) -> Result<Outcome> {
        let tasks = self.plan(prompt, cx).await?;
        Ok(aggregate(&self.work(tasks, cx).await?))
    }

    /// Returns the tasks: the planner's, or those of the words if it has no plan.
    ///
    /// The planner is a child, so that its end is recorded, a failure too: a resumed run has the same tasks.
    async fn plan(&self, prompt: &str, cx: &RunContext) -> Result<Vec<ResearchTask>> {
        let Some(planner) = &self.inner.planner else { return Ok(plan::by_words(prompt)) };
        let spawn = Spawn::new(Arc::clone(planner), prompt).with_part(PLANNER).with_scope(Scope::read_only());
        let child = start(spawn, cx).await?;
        let (_, outcome) = next_end(vec![child], cx).await?;
        match outcome.value::<Plan>() {
            Ok(plan) if plan.changes => Err(plan::no_coding()),
            // A value that was read back is not validated again.
            Ok(plan) if plan.check().is_ok() => Ok(plan.tasks),
            _ => Ok(plan::by_words(prompt)),
        }
    }

    /// Works on the tasks, so many at once, and returns them with their outcomes, in the same order.
    async fn work(&self, tasks: Vec<ResearchTask>, cx: &RunContext) -> Result<Vec<(ResearchTask, Outcome)>> {
        let total = tasks.len();
        let mut waiting: VecDeque<_> = (1..).zip(tasks).collect();
        let mut active: Vec<(SessionId, usize, ResearchTask)> = Vec::new();
        let mut ended: Vec<(usize, (ResearchTask, Outcome))> = Vec::new();
        loop {
            while active.len() < AT_ONCE
                && let Some((number, task)) = waiting.pop_front()
            {
                let child = start(self.spawn(&task)?, cx).await?;
                active.push((child.clone(), number, task.clone()));
                let (done, active) = (ended.len(), active.len());
                cx.record(ResearchProgress { number, task, child, outcome: None, total, done, active })?;
            }
            if active.is_empty() {
                break;
            }
            let children = active.iter().map(|(child, ..)| child.clone()).collect();
            let (of, outcome) = next_end(children, cx).await?;
            let index = active.iter().position(|(child, ..)| *child == of).ok_or_else(unexpected)?;
            let (child, number, task) = active.remove(index);
            ended.push((number, (task.clone(), outcome.clone())));
            let (outcome, done, active) = (Some(outcome), ended.len(), active.len());
            cx.record(ResearchProgress { number, task, child, outcome, total, done, active })?;
        }
        ended.sort_by_key(|(number, _)| *number);
        Ok(ended.into_iter().map(|(_, result)| result).collect())
    }

    fn spawn(&self, task: &ResearchTask) -> Result<Spawn> {
        let (agent, limits) = self.inner.agents.get(&task.kind).ok_or_else(unexpected)?;
        let given = Task::new(task.prompt.as_str()).with_budget(*limits);
        Ok(Spawn::new(Arc::clone(agent), given).with_part(task.kind.name()).with_scope(task.kind.scope()))
    }
}

/// Starts a child under the name of its part, which [`RunContext::spawn`] has no argument for.
async fn start(spawn: Spawn, cx: &RunContext) -> Result<SessionId> {
    match cx.perform(Effect::Spawn(Box::new(spawn))).await? {
        Observation::Spawned(child) => Ok(child),
        _ => Err(unexpected()),
    }
}

/// Waits for the next child that ends.
async fn next_end(children: Vec<SessionId>, cx: &RunContext) -> Result<(SessionId, Outcome)> {
    match cx.perform(Effect::WaitAny { children, timeout: None }).await? {
        Observation::Child { child: Some(child), outcome: Some(outcome), .. } => Ok((child, *outcome)),
        _ => Err(unexpected()),
    }
}

fn unexpected() -> Error {
    Error::new(ErrorKind::Internal, "the effects of a research gave what nothing asked for")
}
