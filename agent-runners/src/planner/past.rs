//! The conversation of the session that executes plans: the plans of each request, and the ends of their steps. Pure.
//!
//! It says the same in all processes, and also of a plan whose run was cancelled or abandoned: its steps are told of as
//! they end.

use std::collections::BTreeMap;

use entourage_core::{
    Result,
    message::{History, Role},
};
use serde::{Deserialize, Serialize};

use super::{
    PlannedStep, StepReport, StepStatus,
    questions::goes_on,
    report::{broken_off, report},
};
use crate::graph::NodeEnd;

/// A plan to execute, as it is given. Without steps it asks for the earlier plans of its request.
#[derive(Serialize)]
pub(super) struct Given<'a> {
    pub(super) goal: &'a str,
    pub(super) steps: &'a [PlannedStep],
    /// Steps of earlier plans whose results are needed.
    pub(super) done: Vec<&'a StepReport>,
    /// Place of the planner's run: the number of messages of its session, its prompt among them.
    pub(super) place: u64,
    /// Place of the run before it, if that had no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<u64>,
}

/// A plan to execute, as it is read.
#[derive(Deserialize)]
pub(super) struct Job {
    pub(super) goal: String,
    pub(super) steps: Vec<PlannedStep>,
    #[serde(default)]
    pub(super) done: Vec<StepReport>,
    #[serde(default)]
    place: Option<u64>,
    #[serde(default)]
    after: Option<u64>,
}

/// News of a step of the plan before it.
#[derive(Serialize, Deserialize)]
pub(super) struct Told {
    step: u32,
    /// The step as it ended; `None` when it begins.
    ended: Option<StepReport>,
}

impl Told {
    /// The news that a step begins, as the text of a message.
    ///
    /// # Errors
    /// Those of JSON.
    pub(super) fn begun(step: &PlannedStep) -> Result<String> {
        Ok(serde_json::to_string(&Self { step: step.number, ended: None })?)
    }

    /// The news that a step ended, as the text of a message.
    ///
    /// # Errors
    /// Those of JSON.
    pub(super) fn ended(step: &PlannedStep, end: &NodeEnd) -> Result<String> {
        Ok(serde_json::to_string(&Self { step: step.number, ended: Some(report(step, Some(end))) })?)
    }
}

/// A plan that was given, and its steps as far as they are known.
pub(super) struct Plan {
    job: Job,
    /// The newest news of each step.
    told: BTreeMap<u32, Option<StepReport>>,
    /// The steps as they ended, once all have.
    ended: Option<Vec<StepReport>>,
}

impl Plan {
    /// Returns its steps as they ended, or as far as they came.
    fn steps(&self) -> Vec<StepReport> {
        let so_far = |step: &PlannedStep| match self.told.get(&step.number) {
            Some(Some(ended)) => ended.clone(),
            Some(None) => broken_off(step),
            None => report(step, None),
        };
        self.ended.clone().unwrap_or_else(|| self.job.steps.iter().map(so_far).collect())
    }
}

/// Returns the plans of a conversation, oldest first. A run that asks for earlier ones has a plan without steps.
pub(super) fn plans(history: &History) -> Vec<Plan> {
    let mut plans: Vec<Plan> = Vec::new();
    for message in history.iter() {
        let text = message.text();
        if message.role() == Role::User
            && let Ok(job) = serde_json::from_str(&text)
        {
            plans.push(Plan { job, told: BTreeMap::new(), ended: None });
            continue;
        }
        let Some(plan) = plans.last_mut().filter(|plan| !plan.job.steps.is_empty()) else { continue };
        if message.role() == Role::User {
            plan.told.extend(serde_json::from_str(&text).map(|Told { step, ended }| (step, ended)));
        } else {
            plan.ended = serde_json::from_str(&text).ok();
        }
    }
    plans
}

/// Returns the steps of the plans of a request that were made before: those that are done, and what the newest plan
/// left undone. A request grows by each question about it and its answer, and one goes on with what a run without an
/// answer did. Of two other runs with the same request each has its own.
pub(super) fn earlier(asked: &Job, plans: &[Plan]) -> Vec<StepReport> {
    let (mut newer, mut found) = (asked, Vec::new());
    for plan in plans.iter().rev() {
        let job = &plan.job;
        let is_of_run = job.goal == newer.goal && job.place == newer.place;
        let is_before = newer.after.is_some() && job.place == newer.after;
        if !is_of_run && !is_before && !goes_on(&newer.goal, &job.goal) {
            break;
        }
        let is_newest = found.is_empty();
        let kept = plan.steps().into_iter().filter(|step| is_newest || step.status == StepStatus::Completed);
        found.splice(0..0, kept);
        newer = job;
    }
    found
}
