//! The driver of a planner: it asks for a strategy and a plan, executes the plan, and answers. Each of its agents is a
//! child whose end is recorded, so a resumed run decides the same.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    agent::{Agent, AgentPart},
    event::plain_line,
    message::{Message, Part as MessagePart},
    permission::Scope,
    provider::FinishReason,
    run::{Delegate, Effect, Outcome, RunContext, Spawn, Status, StopReason, Task},
};

use super::{
    PlannedStep, Planner, PlannerProgress, PlannerStrategy, StepReport, StepStatus,
    before::Before,
    budget::cut,
    builder::Inner,
    execution::PLAN,
    past::Given,
    plan::{Draft, Rules},
    questions::{Request, answering, asked_before, asking, request},
    report::{is_done, listing, marked_listing, stop_reason},
    strategy::{self, Analysis},
};
use crate::{
    below::Below,
    graph::section,
    typed::{NoValue, NoValueReason, OutcomeExt},
};

/// Name of the planner, and the role of its session.
pub(super) const PLANNER: &str = "planner";

/// Role of the session in which requests are classified.
const STRATEGY: &str = "strategy";

/// Most bytes of a plan: a service may ignore the output that it was given.
const PLAN_BYTES: usize = 256 * 1024;

/// End of an answer that was cut at its bound.
const CUT: &str = "\n\n[… the answer was cut at its limit]";

/// An agent of a planner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Classifies a request.
    Strategy,
    /// Makes plans.
    Steps,
    /// Works with all tools.
    Work,
    /// Answers without tools.
    Answer,
    /// Answers from the results of a plan.
    Synthesis,
    /// Executes plans.
    Plan,
}

impl Part {
    pub(super) const ALL: [Self; 6] =
        [Self::Strategy, Self::Steps, Self::Work, Self::Answer, Self::Synthesis, Self::Plan];

    fn name(self) -> &'static str {
        match self {
            Self::Strategy => STRATEGY,
            Self::Steps => "planner steps",
            Self::Work => "planner work",
            Self::Answer => "planner answer",
            Self::Synthesis => "planner synthesis",
            Self::Plan => PLAN,
        }
    }

    fn role(self) -> &'static str {
        match self {
            Self::Strategy => STRATEGY,
            Self::Plan => PLAN,
            Self::Steps | Self::Work | Self::Answer | Self::Synthesis => PLANNER,
        }
    }
}

#[async_trait]
impl Agent for Planner {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn description(&self) -> &str {
        "Plans a request, has executors look things up side by side, makes the changes itself, and answers from all of it."
    }

    fn parts(&self) -> Vec<AgentPart> {
        let part = |part: Part| {
            Some(AgentPart::Agent { name: part.name().into(), agent: Arc::clone(self.0.agent(part)?) })
        };
        Part::ALL.into_iter().filter_map(part).collect()
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        cx.effects().check()?;
        let history = cx.history();
        let goes_on = asked_before(&history);
        let Request { text: goal, since } = request(&history, &task.prompt);
        let (place, last) = cx.read(|state| {
            let met = |end: &Outcome| end.is_completed() && !goes_on;
            let last = state.ended().map(|ended| (ended.messages_before, met(&ended.end.outcome)));
            (state.run().map(|run| run.messages_before).unwrap_or_default(), last)
        });
        let begun =
            u64::try_from(since).ok().filter(|since| *since > 0).and_then(|since| place.checked_sub(since));
        let mut drive =
            Drive { planner: &self.0, cx, runs: 0, looked: goes_on, goes_on: false, place, begun };
        // Before anything else, so that the next run is told the same if this one fails too.
        let before = match last {
            Some(last) => drive.before(&goal, last).await?,
            None => Before::default(),
        };
        let strategy = if goes_on { PlannerStrategy::Complex } else { drive.analyse(&task.prompt).await? };
        let told = || before.tell(&task.prompt, self.0.budgets.planner_conversation);
        match strategy {
            PlannerStrategy::Simple => answered(drive.turn(Part::Answer, told(), None).await?),
            PlannerStrategy::ToolUse => answered(drive.turn(Part::Work, told(), None).await?),
            PlannerStrategy::Complex => drive.by_plan(&task.prompt, goal, before).await.or_else(stopped),
        }
    }
}

/// A run of a planner.
struct Drive<'a> {
    planner: &'a Inner,
    cx: &'a RunContext,
    /// Number of agents that were run.
    runs: u64,
    /// True if the planner has used a tool to make its plan.
    looked: bool,
    /// True if its plan goes on with requests before that were not met.
    goes_on: bool,
    /// Number of messages of the session, the prompt among them: no other run has it.
    place: u64,
    /// That of the run that its request began with, if it answers questions.
    begun: Option<u64>,
}

impl Drive<'_> {
    /// Runs an agent of the planner to its end, for at most this time.
    async fn turn(&mut self, part: Part, prompt: Message, limit: Option<Duration>) -> Result<Outcome> {
        let agent = self.planner.agent(part).ok_or_else(lost)?;
        let child = self.cx.session().in_role(part.role())?;
        self.runs = self.runs.saturating_add(1);
        let scope = match part {
            Part::Steps => Scope::all().with_access(self.planner.reads),
            _ => Scope::all(),
        };
        let spawn = Spawn::new(Arc::clone(agent), prompt)
            .with_role(part.role())
            .with_part(part.name())
            .with_scope(scope)
            .sharing_todos();
        let run = self.cx.run().started_at(self.runs);
        let delegate = Delegate::new(child, spawn).run(run).part_of_run().within(limit);
        let observed = self.cx.perform(Effect::Delegate(Box::new(delegate))).await?;
        let outcome = Below::of(observed)?.outcome;
        if self.cx.cancellation().is_cancelled() || (limit.is_none() && outcome.status == Status::Cancelled) {
            return Err(Error::cancelled());
        }
        Ok(*outcome)
    }

    /// Returns the strategy for a request: the model's as its counts leave it, or that of the words.
    async fn analyse(&mut self, prompt: &Message) -> Result<PlannerStrategy> {
        let analysis = match self.planner.agent(Part::Strategy) {
            None => None,
            Some(_) => {
                let limit = Some(self.planner.limits.answer_time);
                let outcome = self.turn(Part::Strategy, Message::user(prompt.text()), limit).await?;
                outcome.value::<Analysis>().ok()
            }
        };
        let by_words = analysis.is_none();
        let strategy =
            analysis.as_ref().map_or_else(|| strategy::by_words(&prompt.text()), Analysis::normalised);
        let reasoning = analysis.as_ref().map(|it| plain_line(&cut(&it.reasoning, 100))).unwrap_or_default();
        let operations = analysis.map_or(0, |analysis| analysis.estimated_operations);
        self.cx.record(PlannerProgress::Analyzed { strategy, reasoning, operations, by_words })?;
        Ok(strategy)
    }

    /// Makes a plan, executes it, makes another one for what failed, and answers. Keeps what earlier plans did.
    async fn by_plan(&mut self, prompt: &Message, goal: String, mut before: Before) -> Result<Outcome> {
        let files = prompt.parts().iter().filter(|part| matches!(part, MessagePart::Media(_))).cloned();
        let ask =
            [self.ask(&goal), self.told(&before, "Plans before this one ended with these steps:")].concat();
        let (mut ask, mut undone) = (files.fold(Message::user(ask), Message::with), Vec::new());
        let mut ended = None;
        for round in 1..=self.planner.max_replans.saturating_add(1) {
            let draft = match self.draft(&goal, ask, &before).await {
                Ok(draft) => draft,
                // What is done is answered from, whatever became of the rest.
                Err(error)
                    if round > 1
                        && matches!(
                            error.kind(),
                            ErrorKind::Protocol | ErrorKind::TooLarge | ErrorKind::Stopped
                        ) =>
                {
                    ended = error.stop_reason().cloned();
                    break;
                }
                Err(error) => return Err(error),
            };
            if !draft.questions.is_empty() {
                return self.ask_user(draft.questions);
            }
            if draft.goes_on
                || before.is_needed(draft.steps.iter().flat_map(|step| step.depends_on.iter().copied()))
            {
                self.goes_on |= before.take_over();
            }
            let reports = self.execute(round, &goal, draft.steps, before.own()).await?;
            undone = reports.iter().filter(|step| step.status != StepStatus::Completed).cloned().collect();
            // Whoever refused a step, or set a bound that is used up, has decided about the rest too.
            let is_over = is_done(&undone) || undone.iter().any(|step| step.is_final);
            before.add(reports);
            if is_over {
                break;
            }
            let told = self.told(&before, "The plan failed. These are its steps, after those that are kept:");
            ask = Message::user(self.about([told.trim_start(), "\n\nThe request:"].concat(), &goal));
        }
        let done = before.own().iter().filter(|step| step.status == StepStatus::Completed).cloned().collect();
        let mut outcome = self.synthesis(&goal, done, undone).await?;
        if let (Some(ended), Status::Stopped(reason)) = (ended, &mut outcome.status) {
            *reason = ended;
        }
        Ok(outcome)
    }

    /// Returns the steps of earlier plans whose requests were not met, and tells the plans of the run before this one.
    async fn before(&mut self, goal: &str, (last, is_met): (u64, bool)) -> Result<Before> {
        let (after, met) = if is_met { (None, Some(last)) } else { (Some(last), None) };
        let (place, begun) = (self.place, self.begun);
        let job = Given { goal, place, begun, after, met, says_met: true, ..Given::default() };
        let outcome = self.turn(Part::Plan, Message::user(serde_json::to_string(&job)?), None).await?;
        failure(&outcome.status).map_or(Ok(()), Err)?;
        Ok(Before::new(serde_json::from_str(&outcome.text)?))
    }

    /// Returns the plan that the planner makes, which has one attempt more if the first cannot run.
    async fn draft(&mut self, goal: &str, mut ask: Message, before: &Before) -> Result<Draft> {
        let completed = before.all().filter(|step| step.status == StepStatus::Completed);
        let (done, highest) = (completed.map(|step| step.number).collect(), before.highest());
        let mut refused = None;
        for _ in 0..2 {
            let outcome = self.turn(Part::Steps, ask, None).await?;
            // One model call gives the plan; any other called a tool.
            self.looked |= outcome.steps > 1;
            let (kind, problem) = match self.read_draft(&outcome, &self.rules(highest, &done))? {
                Ok(draft) => return Ok(draft),
                Err(problem) => problem,
            };
            let text = format!("This plan cannot run: {problem}\n\nGive one that can, for this request:");
            let told = self.told(before, "Plans before these ended with these steps:");
            ask = Message::user(self.about(text, goal) + &told);
            refused = Some((kind, problem));
        }
        let (kind, problem) = refused.ok_or_else(lost)?;
        let next = match kind {
            ErrorKind::TooLarge => {
                "ask for less at once, or raise the limits of plans with `PlannerBuilder::limits`"
            }
            _ => "say what is to be done in other words, or plan with another model",
        };
        let problem = plain_line(&cut(&problem, 200));
        Err(Error::new(kind, format!("the planner made no plan that can run: {problem}; {next}")))
    }

    /// Reads a plan. A problem, with its kind, is one that the planner can mend.
    ///
    /// # Errors
    /// The end of a run that gave no answer.
    fn read_draft(&self, outcome: &Outcome, rules: &Rules<'_>) -> Result<Result<Draft, (ErrorKind, String)>> {
        let limits = &self.planner.limits;
        let too_long = |problem: String| Ok(Err((ErrorKind::TooLarge, problem)));
        if matches!(outcome.status, Status::Stopped(StopReason::Reply(FinishReason::Length))) {
            let most = limits.plan_output;
            return too_long(format!("it takes more than {most} tokens; give fewer steps, in fewer words"));
        }
        let bytes = outcome.text.len();
        if bytes > PLAN_BYTES {
            return too_long(format!(
                "it has {bytes} bytes, and {PLAN_BYTES} are allowed; give fewer steps, in fewer words"
            ));
        }
        // A completed answer was judged by its schema.
        let draft = match serde_json::from_str(&outcome.text) {
            Ok(draft) if outcome.is_completed() => Ok(draft),
            _ => outcome.value::<Draft>(),
        };
        match (draft, &outcome.status) {
            (Ok(draft), _) if draft.steps.len() > limits.plan_steps => {
                let (count, most) = (draft.steps.len(), limits.plan_steps);
                too_long(format!("it has {count} steps, and {most} are allowed; give fewer"))
            }
            (Ok(draft), _) => Ok(match draft.check(rules) {
                Ok(()) => Ok(draft.without_doubles()),
                Err(problem) => Err((ErrorKind::Protocol, problem)),
            }),
            (Err(error), Status::Completed | Status::Stopped(StopReason::Incomplete { .. })) => {
                // The error itself tells the programmer what to do, and not the planner.
                let problem = match NoValue::of(&error).map(|none| &none.reason) {
                    Some(NoValueReason::Invalid(problem)) => problem.clone(),
                    _ => error.message().to_owned(),
                };
                Ok(Err((ErrorKind::Protocol, problem)))
            }
            (Err(error), status) => Err(failure(status).unwrap_or(error)),
        }
    }

    fn rules<'a>(&'a self, highest: u32, done: &'a BTreeSet<u32>) -> Rules<'a> {
        let planner = self.planner;
        Rules {
            tools: &planner.tools,
            reads: planner.reads,
            budgets: &planner.budgets,
            agents: planner.execution.agents(),
            done,
            looked: self.looked,
            highest,
        }
    }

    /// Executes a plan, and returns its steps as they ended.
    async fn execute(
        &mut self,
        round: u32,
        goal: &str,
        steps: Vec<PlannedStep>,
        before: &[StepReport],
    ) -> Result<Vec<StepReport>> {
        let needed: BTreeSet<_> = steps.iter().flat_map(|step| &step.depends_on).collect();
        let is_needed =
            |step: &&StepReport| step.status == StepStatus::Completed && needed.contains(&step.number);
        let done = before.iter().filter(is_needed).collect();
        let Self { place, begun, goes_on, .. } = *self;
        let job =
            Given { goal, steps: &steps, done, place, begun, goes_on, says_met: true, ..Given::default() };
        let job = serde_json::to_string(&job)?;
        self.cx.record(PlannerProgress::PlanCreated { round, steps })?;
        let outcome = self.turn(Part::Plan, Message::user(job), None).await?;
        if let Some(error) = failure(&outcome.status) {
            return Err(error);
        }
        let reports: Vec<StepReport> = serde_json::from_str(&outcome.text)?;
        let status = if is_done(&reports) { StepStatus::Completed } else { StepStatus::Failed };
        self.cx.record(PlannerProgress::PlanEnded { round, status, steps: reports.clone() })?;
        Ok(reports)
    }

    /// Ends the run with questions to the user.
    fn ask_user(&self, questions: Vec<String>) -> Result<Outcome> {
        let text = asking(&questions);
        self.cx.record(PlannerProgress::UserAsked { questions })?;
        Ok(Outcome::completed(text))
    }

    /// Returns the answer, by the planner from the results of all steps.
    async fn synthesis(
        &mut self,
        goal: &str,
        done: Vec<StepReport>,
        undone: Vec<StepReport>,
    ) -> Result<Outcome> {
        let (completed, reason) = (is_done(&undone), stop_reason(&undone));
        let how = match undone.iter().any(|step| step.is_final) {
            _ if completed => "The plan is done.",
            true => {
                "The plan failed: say so, and what is missing. It is not tried again, since a step was refused, or what \
                 bounds the run is used up."
            }
            false => "The plan failed: say so, and what is missing.",
        };
        let all: Vec<_> = done.into_iter().chain(undone).collect();
        let budget = self.planner.budgets.planner_conversation;
        let results = marked_listing(&all, budget);
        let ask = self.about(format!("{how} Answer this request from the results of its steps:"), goal);
        let ask = format!("{ask}\n\n{results}");
        let outcome = self.turn(Part::Synthesis, Message::user(ask), None).await?;
        let mark = match &outcome.status {
            Status::Completed | Status::Stopped(StopReason::Reply(FinishReason::Other)) => Some(""),
            // An answer that is longer than its bound is an answer, and says that it is cut.
            Status::Stopped(StopReason::Reply(FinishReason::Length)) => Some(CUT),
            _ => None,
        };
        let text = match mark.filter(|_| !outcome.text.trim().is_empty()) {
            Some(mark) => answering(outcome.text + mark),
            None => listing(&all, budget),
        };
        if completed {
            // The next run may not see how this one ends: another agent's may come in between. The answer stands, also
            // if that is not said.
            let met = Given { goal, place: self.place, met: Some(self.place), ..Given::default() };
            self.turn(Part::Plan, Message::user(serde_json::to_string(&met)?), None).await?;
            let mut outcome = Outcome::completed(text);
            let failed = all.iter().filter(|step| step.status != StepStatus::Completed);
            outcome.failed = failed.map(|step| step.number.to_string().into()).collect();
            return Ok(outcome);
        }
        let mut outcome = Outcome::new(Status::Stopped(reason));
        outcome.text = text;
        Ok(outcome)
    }

    /// Returns the prompt that asks for a plan.
    fn ask(&self, goal: &str) -> String {
        let tools = |reads: bool| {
            let is = |access| self.planner.reads.contains(access) == reads;
            let named = self.planner.tools.iter().filter(|tool| is(tool.spec().access()));
            let names: Vec<_> = named.map(|tool| tool.spec().name().to_owned()).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        };
        format!(
            "Plan this request:\n\n{goal}\n\nTools of executors: {}. Tools of yours alone: {}.",
            tools(true),
            tools(false)
        )
    }

    /// Adds the request to a prompt: messages before it may have been left out by then.
    fn about(&self, mut text: String, goal: &str) -> String {
        section(&mut text, "request", "", &cut(goal, self.planner.budgets.planner_conversation));
        text
    }

    /// Tells of steps that ended, and what that means for the next plan; empty if there are none.
    fn told(&self, before: &Before, how: &str) -> String {
        let budget = self.planner.budgets.planner_conversation;
        let (mut text, results) = (String::new(), before.listing(budget));
        if !results.is_empty() {
            text = format!(
                "\n\n{how}\n\n{results}\n\nMake a plan for what is left, in another way where one failed. Steps that \
                 are completed are kept: do not repeat them, and name them in `depends_on` where their results are needed."
            );
        }
        text.push_str(&before.for_plan(budget));
        if !text.is_empty() {
            text.push_str(&format!(" Number the new steps from {}.", before.highest().saturating_add(1)));
        }
        text
    }
}

/// Returns the answer of the run of an agent of the planner.
fn answered(outcome: Outcome) -> Result<Outcome> {
    if let Status::Failed(error) = &outcome.status {
        return Err(error.to_error());
    }
    let mut answer = Outcome::new(outcome.status);
    answer.text = answering(outcome.text);
    Ok(answer)
}

/// Returns the end of a planner one of whose agents was stopped: it is stopped for the same reason.
fn stopped(error: Error) -> Result<Outcome> {
    match error.stop_reason() {
        Some(reason) => Ok(Outcome::new(Status::Stopped(reason.clone()))),
        None => Err(error),
    }
}

/// Returns the error of a run that has no result.
fn failure(status: &Status) -> Option<Error> {
    match status {
        Status::Completed => None,
        Status::Failed(error) => Some(error.to_error()),
        Status::Stopped(reason) => Some(Error::stopped(reason.clone())),
        Status::Paused(pause) => Some(Error::paused(pause.clone())),
        _ => Some(Error::cancelled()),
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Internal, "the effects of a planner gave what nothing asked for")
}
