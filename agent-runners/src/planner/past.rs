//! The conversation of the session that executes plans: the plans of each request, and the ends of their steps. Pure.
//!
//! It says the same in all processes, and also of a plan whose run was cancelled or abandoned: its steps are told of as
//! they end. A run tells here that it met its request, and the next run tells if that is so, since the end came after.
//! So it is known which requests were not met, also after runs that made no plan.

use std::collections::{BTreeMap, BTreeSet};

use entourage_core::{
    Result,
    message::{History, Role},
};
use serde::{Deserialize, Serialize};

use super::{
    PlannedStep, StepReport,
    questions::goes_on,
    report::{broken_off, is_done, is_kept, report},
};
use crate::graph::NodeEnd;

/// A plan to execute, as it is given. Without steps it asks for the steps of the requests that were not met.
#[derive(Serialize, Default)]
pub(super) struct Given<'a> {
    pub(super) goal: &'a str,
    pub(super) steps: &'a [PlannedStep],
    /// Steps of earlier plans whose results are needed.
    pub(super) done: Vec<&'a StepReport>,
    /// Place of the planner's run: the number of messages of its session, its prompt among them.
    pub(super) place: u64,
    /// Place of the run that the request began with, if that is another one: this one answers questions about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) begun: Option<u64>,
    /// True if the plan goes on with the requests before that were not met.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) goes_on: bool,
    /// Place of the run before it, if that did not meet its request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<u64>,
    /// Place of a run that met its request: the run before, or this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) met: Option<u64>,
    /// True: the run says so if it meets its request. Runs of older versions did not.
    pub(super) says_met: bool,
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
    begun: Option<u64>,
    #[serde(default)]
    goes_on: bool,
    #[serde(default)]
    after: Option<u64>,
    #[serde(default)]
    met: Option<u64>,
    #[serde(default)]
    says_met: bool,
}

impl Job {
    /// True if its request is an earlier one, in the same words or with more questions and answers.
    ///
    /// A request with its answers begins at one place. Records of older versions do not tell it.
    fn is_of(&self, earlier: &Self) -> bool {
        let begun = |job: &Self| job.begun.or(job.place);
        let goes_on = || goes_on(&self.goal, &earlier.goal);
        self.goal == earlier.goal || goes_on() || begun(self).is_some_and(|it| begun(earlier) == Some(it))
    }
}

/// A step of an earlier plan, as the next run is told of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Earlier {
    #[serde(flatten)]
    pub(super) step: StepReport,
    /// The request of its plan, if that is another one than the request that asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) of: Option<String>,
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

/// Returns the steps of the plans whose requests were not met, in the order of these requests: of each request all
/// steps of its newest plan, and of the plans before that what is kept of them.
///
/// A run that met its request leaves nothing to tell of it. Where its plan went on with the requests before, it met
/// those too. Of more steps than `most` the newest are returned, those for the request that asks before others.
pub(super) fn earlier(asked: &Job, plans: &[Plan], most: usize) -> Vec<Earlier> {
    let mut requests: Vec<(&Job, Vec<&Plan>)> = Vec::new();
    for plan in unmet(asked, plans) {
        match requests.iter_mut().rfind(|(older, _)| plan.job.is_of(older)) {
            Some((newest, plans)) => {
                *newest = &plan.job;
                plans.push(plan);
            }
            None => requests.push((&plan.job, vec![plan])),
        }
    }
    let told = |(job, plans): (&Job, Vec<&Plan>)| {
        let of = (!asked.is_of(job)).then(|| job.goal.clone());
        let newest = plans.len().saturating_sub(1);
        let steps = plans.into_iter().enumerate().flat_map(move |(at, plan)| {
            plan.steps().into_iter().filter(move |step| at == newest || is_kept(step))
        });
        steps.map(move |step| Earlier { step, of: of.clone() }).collect::<Vec<_>>()
    };
    newest(requests.into_iter().flat_map(told).collect(), most)
}

fn newest(steps: Vec<Earlier>, most: usize) -> Vec<Earlier> {
    let own = steps.iter().filter(|step| step.of.is_none()).count();
    let others = steps.len().saturating_sub(own);
    let mut too_many = [own.saturating_sub(most), others.saturating_sub(most.saturating_sub(own))];
    let mut is_left_out = |step: &Earlier| {
        let [own, others] = &mut too_many;
        let left = if step.of.is_none() { own } else { others };
        let is_left_out = *left > 0;
        *left = left.saturating_sub(1);
        is_left_out
    };
    steps.into_iter().filter(|step| !is_left_out(step)).collect()
}

/// Returns the plans whose requests were not met, oldest first.
fn unmet<'a>(asked: &Job, plans: &'a [Plan]) -> Vec<&'a Plan> {
    let jobs = || plans.iter().map(|plan| &plan.job).chain([asked]);
    let met: BTreeSet<u64> = jobs().filter_map(|job| job.met).collect();
    let after: BTreeSet<u64> = jobs().filter_map(|job| job.after).collect();
    let is_met = |plan: &Plan| match plan.job.place {
        // It was cancelled after it had said that its request is met.
        Some(place) if after.contains(&place) => false,
        Some(place) if met.contains(&place) => true,
        _ => !plan.job.says_met && is_done(&plan.steps()),
    };
    let made: Vec<&Plan> = plans.iter().filter(|plan| !plan.job.steps.is_empty()).collect();
    let mut open: Vec<&Plan> = Vec::new();
    for run in made.chunk_by(|one, next| one.job.place == next.job.place) {
        open.extend(run);
        if let Some(newest) = run.last().filter(|plan| is_met(plan)) {
            let job = &newest.job;
            open.retain(|plan| !job.goes_on && !job.is_of(&plan.job));
        }
    }
    open
}

#[cfg(test)]
mod tests {
    use entourage_core::message::Message;
    use serde_json::{Value, json};

    use super::*;

    /// A plan of the run at a place, with an own step, which ended so.
    fn plan(place: u64, goal: &str, more: &[(&str, Value)]) -> Message {
        let step = json!({"number": place, "description": format!("Note {place}.")});
        let mut job = json!({"goal": goal, "steps": [step], "place": place});
        more.iter().for_each(|(name, value)| job[*name] = value.clone());
        Message::user(job.to_string())
    }

    fn ended(place: u64, status: &str, partial: bool) -> Message {
        let step = json!({"number": place, "description": "Note.", "status": status, "partial": partial});
        Message::assistant(json!([step]).to_string())
    }

    fn says(name: &str, place: u64) -> Message {
        Message::user(json!({"goal": "x", "steps": [], name: place}).to_string())
    }

    /// Numbers of the steps that a run with this request is told of, with the requests that they are of.
    fn told(goal: &str, messages: Vec<Message>) -> Vec<(u32, Option<String>)> {
        let asked = serde_json::from_value(json!({"goal": goal, "steps": []})).unwrap();
        let steps = earlier(&asked, &plans(&messages.into_iter().collect()), 3);
        steps.into_iter().map(|it| (it.step.number, it.of)).collect()
    }

    fn numbers(messages: Vec<Message>) -> Vec<u32> {
        told("other", messages).into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn bo13_a_run_that_met_its_request_leaves_nothing_to_tell() {
        let new = [("says_met", json!(true))];
        let done = || vec![plan(1, "a", &new), ended(1, "completed", false)];
        let with = |more: Vec<Message>| numbers([done(), more].concat());
        assert_eq!(with(vec![]), [1], "it did not come to its answer");
        assert_eq!(with(vec![says("met", 1)]), [0; 0]);
        assert_eq!(with(vec![says("after", 1)]), [1]);
        assert_eq!(with(vec![says("met", 1), says("after", 1)]), [1], "it was cancelled at the end");
        assert_eq!(with(vec![says("met", 2)]), [1], "the answer of a run without a plan");
        let other = |more: &[(&str, Value)]| {
            let more = [&new, more].concat();
            vec![plan(3, "b", &more), ended(3, "completed", false), says("met", 3)]
        };
        assert_eq!(with(other(&[])), [1], "another request");
        assert_eq!(with(other(&[("goes_on", json!(true))])), [0; 0]);
    }

    #[test]
    fn bo13_the_newest_steps_are_told_if_there_are_many() {
        let failed = |places: std::ops::RangeInclusive<u64>, goal: &str| {
            places.flat_map(|at| [plan(at, goal, &[]), ended(at, "failed", true)]).collect::<Vec<_>>()
        };
        let of = |number, goal: &str| (number, Some(goal.to_owned()));
        let (a, b) = (failed(1..=2, "a"), failed(3..=6, "b"));
        assert_eq!(numbers([a.clone(), b.clone()].concat()), [4, 5, 6]);
        assert_eq!(told("a", [a, b.clone()].concat()), [(1, None), (2, None), of(6, "b")]);
        assert_eq!(told("b", b), [(4, None), (5, None), (6, None)]);
    }

    /// Of a request with very many answers, the text alone does not tell that it is an earlier one.
    #[test]
    fn bo13_requests_that_began_at_the_same_place_are_one() {
        let begun = |place: u64| [("begun", json!(place))];
        let failed = |place: u64, goal: &str, more: &[(&str, Value)]| {
            [plan(place, goal, more), ended(place, "failed", true)]
        };
        let messages =
            [failed(1, "a", &[]), failed(5, "x", &begun(1)), failed(7, "y", &[]), failed(9, "z", &begun(7))];
        let messages = messages.concat();
        let all = plans(&messages.iter().cloned().collect());
        let told = |asked: Value| {
            let asked = serde_json::from_value(asked).unwrap();
            let steps = earlier(&asked, &all, 9).into_iter();
            steps.map(|it| (it.step.number, it.of)).collect::<Vec<_>>()
        };
        let of = |number, goal: &str| (number, Some(goal.to_owned()));
        let (own, begins) =
            (|number| (number, None), |place: u64| json!({"goal": "n", "steps": [], "begun": place}));
        assert_eq!(told(begins(1)), [own(1), own(5), of(7, "z"), of(9, "z")]);
        assert_eq!(told(begins(7)), [of(1, "x"), of(5, "x"), own(7), own(9)]);
        assert_eq!(told(begins(3)), [of(1, "x"), of(5, "x"), of(7, "z"), of(9, "z")]);
    }

    /// Runs of older versions said nothing of what they met.
    #[test]
    fn bo13_what_older_versions_recorded_is_told_by_their_plans() {
        let done = |more: Vec<Message>| {
            numbers([vec![plan(1, "a", &[]), ended(1, "completed", false)], more].concat())
        };
        assert_eq!(done(vec![]), [0; 0]);
        assert_eq!(done(vec![says("after", 1)]), [1]);
        assert_eq!(numbers(vec![plan(1, "a", &[]), ended(1, "failed", false)]), [1]);
        assert_eq!(numbers(vec![plan(1, "a", &[])]), [1]);
    }

    #[test]
    fn bo13_steps_are_told_by_their_requests() {
        let asks = "\n\nBefore I begin, I need to know:\n- Which?";
        let (asked, answered) = (format!("a{asks}"), format!("a{asks}\n\nThis."));
        let messages = vec![
            plan(1, "a", &[]),
            ended(1, "failed", true),
            plan(2, "b", &[]),
            ended(2, "failed", false),
            plan(3, &answered, &[]),
            ended(3, "failed", false),
            plan(4, &answered, &[]),
        ];
        let other = |number, of: &str| (number, Some(of.to_owned()));
        let (a, b) = (|number| other(number, &answered), other(2, "b"));
        assert_eq!(told("c", messages.clone()), [a(1), a(4), b.clone()], "a part of step 1 may be done");
        assert_eq!(told(&answered, messages.clone()), [(1, None), (4, None), b]);
        assert_eq!(told("b", messages), [a(1), a(4), (2, None)]);
        let job = |goal: &str| serde_json::from_value::<Job>(json!({"goal": goal, "steps": []})).unwrap();
        let is_of = |goal: &str, earlier: &str| job(goal).is_of(&job(earlier));
        assert!(is_of(&answered, "a") && is_of(&answered, &asked) && !is_of("a", &answered));
    }
}
