//! The driver of a team: the lead plans, the graph of the items runs, the lead answers.

use std::sync::Arc;

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    agent::{Agent, AgentPart},
    run::{Outcome, RunContext, Status, StopReason, Task},
};

use super::{
    Member, Team, TeamItem, TeamPlanned,
    lead::{answer_task, news_task, plan_task},
    mail::{Inbox, LEAD, Mail, Room, SendMessage},
    plan::TeamPlan,
};
use crate::{
    finality::failed_task,
    graph::{
        GraphControl, GraphReport, News, NodeEnd, NodeReport, NodeState, SkipCause, Supervisor, TaskGraph,
    },
};

/// Place at which the lead reads what came until the end.
const END: &str = "end";

#[async_trait]
impl Agent for Team {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn description(&self) -> &str {
        "A team: it divides a task among several agents, which work side by side, and answers for all of them."
    }

    fn parts(&self) -> Vec<AgentPart> {
        let part = |name: &str, agent: Arc<dyn Agent>| AgentPart::Agent { name: name.into(), agent };
        let members = self.0.roster.members.iter().map(|member| part(member.id(), Arc::clone(&member.agent)));
        let planner = part("lead plans", Arc::clone(&self.0.planner));
        let supervisor = part("lead steps in", Arc::new(self.0.supervisor.clone()));
        members.chain([planner, supervisor]).collect()
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        let items = match self.plan(&task, cx).await? {
            Ok(items) => items,
            Err(outcome) => return Ok(outcome),
        };
        let room = self.0.mailbox.then(|| self.room(cx)).transpose()?;
        let graph = self.graph(&items, room.as_ref())?;
        let (outcome, report) = graph.run_within(&task, cx).await?;
        self.answer(outcome?, &report, room.as_ref(), cx).await
    }
}

impl Team {
    /// Returns the items of the plan, or the outcome of a run in which nobody works.
    async fn plan(&self, task: &Task, cx: &RunContext) -> Result<Result<Vec<TeamItem>, Outcome>> {
        let recorded = cx.recorded::<TeamPlanned>()?.into_iter().next();
        if let Some(planned) = &recorded {
            // The lead is told of all members: to ask it would fail as well, and name no difference.
            self.0.roster.check(&planned.items)?;
        }
        let asked = plan_task(task, &self.0.roster);
        let outcome = cx.ask(LEAD, &self.0.planner, asked).await?;
        if !outcome.is_completed() {
            return Ok(Err(ended(outcome.status, outcome.text)));
        }
        let plan = read_plan(&outcome.text)?;
        if let Some(answer) = plan.answer.as_ref().filter(|_| plan.items.is_empty()) {
            return Ok(Err(Outcome::completed(answer.as_str())));
        }
        // What was learned meanwhile must not change the plan of a run that began.
        let items = match recorded {
            Some(planned) => planned.items.clone(),
            None => self.0.roster.assign(&plan)?,
        };
        cx.record(TeamPlanned { items: items.clone() })?;
        Ok(Ok(items))
    }

    fn room(&self, cx: &RunContext) -> Result<Arc<Room>> {
        let control = GraphControl::within(&self.0.name, &self.0.live, cx);
        let members = self.0.roster.members.iter().map(Member::id).filter(|id| *id != LEAD);
        Room::open(members.map(Into::into), control, cx)
    }

    /// Builds the graph of the items for one run.
    fn graph(&self, items: &[TeamItem], room: Option<&Arc<Room>>) -> Result<TaskGraph> {
        let inner = &self.0;
        let equip = |member: &Member| equipped(member, room);
        let supervisor = match room {
            Some(room) => inner.supervisor.with_tool(Arc::new(SendMessage::new(room, LEAD)))?,
            None => inner.supervisor.clone(),
        };
        let ask = {
            let room = room.cloned();
            move |news: &News| {
                let mail = read(room.as_ref(), LEAD, &news.run.to_string())?;
                Ok(news_task(news, &mail))
            }
        };
        let supervisor = Supervisor::new(Arc::new(supervisor), LEAD, Arc::new(ask));
        let mut graph = inner.roster.graph(&inner.name, items, equip)?;
        graph = graph.limit(inner.at_once).live(&inner.live).supervised_by(supervisor);
        if let Some(room) = room.cloned() {
            graph = graph.beside(room);
        }
        graph.build()
    }

    /// Has the lead answer for all.
    async fn answer(
        &self,
        worked: Outcome,
        report: &GraphReport,
        room: Option<&Arc<Room>>,
        cx: &RunContext,
    ) -> Result<Outcome> {
        let mail = room.map(|room| room.at_end(END)).transpose()?.unwrap_or_default();
        let said = cx.ask(LEAD, &self.0.speaker, answer_task(report, &mail)).await?;
        if !said.is_completed() {
            return Ok(ended(said.status, worked.text));
        }
        if report.count(NodeState::Completed) == 0 {
            return Ok(ended(Status::Stopped(undone(report)), said.text));
        }
        let mut outcome = Outcome::completed(said.text);
        outcome.failed = lost(report);
        Ok(outcome)
    }
}

/// Returns the reason for the end of a team of which no item was done. What failed is told as such, also where
/// somebody skipped or cancelled it later.
fn undone(report: &GraphReport) -> StopReason {
    let (mut failed, mut cancelled, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
    for node in &report.nodes {
        let id = Arc::clone(&node.id);
        match (&node.failure, &node.end) {
            (Some(error), _) => failed.push(failed_task(id, error)),
            (None, Some(NodeEnd::Cancelled)) => cancelled.push(id),
            _ => skipped.push(id),
        }
    }
    StopReason::Tasks { failed: failed.into(), cancelled: cancelled.into(), skipped: skipped.into() }
}

/// Returns the items that were lost: those that failed or were cancelled, those that could not begin without another
/// one, and that one. An item that was skipped is none of them while what comes after it goes on.
fn lost(report: &GraphReport) -> Box<[Arc<str>]> {
    let blocks = |id: &Arc<str>| {
        let by = |node: &NodeReport| matches!(&node.end, Some(NodeEnd::Skipped(SkipCause::Blocked(by))) if by == id);
        report.nodes.iter().any(by)
    };
    let is_lost = |node: &&NodeReport| match &node.end {
        Some(NodeEnd::Failed(_) | NodeEnd::Cancelled | NodeEnd::Skipped(SkipCause::Blocked(_))) => true,
        Some(NodeEnd::Skipped(SkipCause::Asked)) => blocks(&node.id),
        _ => false,
    };
    report.nodes.iter().filter(is_lost).map(|node| Arc::clone(&node.id)).collect()
}

/// Returns the agent that works for a member: with its mail, if there is a mailbox.
fn equipped(member: &Member, room: Option<&Arc<Room>>) -> Result<Arc<dyn Agent>> {
    let Some((room, react)) = room.zip(member.react()) else { return Ok(Arc::clone(&member.agent)) };
    let sends = react.with_tool(Arc::new(SendMessage::new(room, member.id())))?;
    Ok(Arc::new(sends.layered(Inbox::new(room, member.id()))))
}

fn read(room: Option<&Arc<Room>>, to: &str, place: &str) -> Result<Mail> {
    room.map(|room| room.with_prompt(to, place)).transpose().map(Option::unwrap_or_default)
}

/// Reads the plan that the planner's rule has accepted: its schema is not made once more.
fn read_plan(text: &str) -> Result<TeamPlan> {
    serde_json::from_str(text).map_err(|error| {
        let what = "the lead's answer is no plan; resume the run with the team that made it";
        Error::new(ErrorKind::Protocol, what).caused_by(error)
    })
}

fn ended(status: Status, text: String) -> Outcome {
    let mut outcome = Outcome::new(status);
    outcome.text = text;
    outcome
}
