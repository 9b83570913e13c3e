//! The steps of plans as they ended, the texts that tell of them, and the figures of their work. Pure.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::{self, Write as _},
    ops::Not,
    time::Duration,
};

use entourage_core::{
    Result, RunId, SessionId, Usage,
    event::{Envelope, Event, plain_line},
    run::{FailedTask, StopReason},
};
use serde::{Deserialize, Serialize};

use super::{
    PlannedStep, StepMessage,
    budget::{cut, shares},
    execution::PLAN,
    reply::REPLY,
};
use crate::{
    finality::is_final_record,
    graph::{GraphReport, NodeEnd, NodeFinished, NodeStarted, SkipCause, section},
};

/// Most tokens of a result in a report.
const RESULT: usize = 1_000;

/// Reason why a step of the planner's own was not done, if its run ended in the middle of it.
const BROKEN_OFF: &str = "it was broken off";

/// Addition to the status of a step of which a part may be done.
const PARTIAL: &str = ", and a part of it may be done: look before it is done again";

/// Status of a step, and of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StepStatus {
    /// It has not begun.
    Pending,
    /// It is worked on.
    Executing,
    /// It is done.
    Completed,
    /// It failed or was cancelled.
    Failed,
    /// It was not begun, since a step that it depends on was not done.
    Skipped,
}

impl fmt::Display for StepStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pending => "pending",
            Self::Executing => "executing",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        })
    }
}

/// A step of a plan as it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StepReport {
    /// Its number.
    pub number: u32,
    /// What was to be done.
    pub description: String,
    /// Its status.
    pub status: StepStatus,
    /// Its result, cut to 4,000 characters; empty without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub result: String,
    /// The reason if it was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// True if the plan is done without it.
    #[serde(default)]
    pub optional: bool,
    /// True for a step of the planner's own that began and was not done: a part of it may be.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub partial: bool,
    /// True if it is not tried again in its run: somebody refused it, or what bounds the run is used up.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub is_final: bool,
}

impl StepReport {
    /// Returns about how many bytes its JSON has.
    pub(super) fn bytes(&self) -> usize {
        let error = self.error.as_ref().map_or(0, String::len);
        [self.description.len(), self.result.len(), error].into_iter().fold(120, usize::saturating_add)
    }
}

/// Returns the reports of steps, in the order of the plan, by that of their graph.
pub(super) fn reports(steps: &[PlannedStep], graph: &GraphReport) -> Vec<StepReport> {
    let ends: HashMap<&str, Option<&NodeEnd>> =
        graph.nodes.iter().map(|node| (&*node.id, node.end.as_ref())).collect();
    let end = |step: &PlannedStep| ends.get(&*step.number.to_string()).copied().flatten();
    steps.iter().map(|step| report(step, end(step))).collect()
}

/// Returns the report of a step by the end of its node.
pub(super) fn report(step: &PlannedStep, end: Option<&NodeEnd>) -> StepReport {
    let own = !step.executor_required;
    let mut report = StepReport {
        number: step.number,
        description: step.description.clone(),
        status: StepStatus::Pending,
        result: String::new(),
        error: None,
        optional: step.optional,
        partial: false,
        is_final: false,
    };
    let (status, error) = match end {
        None => return report,
        Some(NodeEnd::Completed(value)) => {
            report.result = cut(&value.to_text(), RESULT);
            (StepStatus::Completed, None)
        }
        Some(NodeEnd::Failed(error)) => {
            (report.partial, report.is_final) = (own, is_final_record(error));
            (StepStatus::Failed, Some(cut(&error.message, RESULT)))
        }
        Some(NodeEnd::Cancelled) => {
            (report.partial, report.is_final) = (own, true);
            (StepStatus::Failed, Some(if own { BROKEN_OFF } else { "it was cancelled" }.to_owned()))
        }
        Some(NodeEnd::Skipped(SkipCause::Blocked(by))) => {
            (StepStatus::Skipped, Some(format!("step {by} was not done")))
        }
        Some(NodeEnd::Skipped(cause)) => (StepStatus::Skipped, Some(cause.to_string())),
    };
    StepReport { status, error, ..report }
}

/// Returns the report of a step that began, and of whose end nothing is known.
pub(super) fn broken_off(step: &PlannedStep) -> StepReport {
    report(step, Some(&NodeEnd::Cancelled))
}

/// True for a step that later plans are told of, though another plan took the place of its own.
pub(super) fn is_kept(step: &StepReport) -> bool {
    step.partial || step.status == StepStatus::Completed
}

/// True if every step that is not optional is done.
pub(super) fn is_done(reports: &[StepReport]) -> bool {
    reports.iter().all(|step| step.optional || step.status == StepStatus::Completed)
}

/// Returns the reason that a plan was stopped for, with the steps that failed or were skipped.
pub(super) fn stop_reason(reports: &[StepReport]) -> StopReason {
    let with = |status| reports.iter().filter(move |step| step.status == status);
    let failed = with(StepStatus::Failed).map(|step| {
        let reason = step.error.clone().unwrap_or_default();
        FailedTask::new(step.number.to_string(), reason).final_if(step.is_final)
    });
    let skipped = with(StepStatus::Skipped).map(|step| step.number.to_string().into());
    StopReason::Tasks { failed: failed.collect(), cancelled: Box::default(), skipped: skipped.collect() }
}

/// Lists steps for people, with their status and result, each result cut to its share of the budget.
pub(super) fn listing(reports: &[StepReport], budget: usize) -> String {
    listed(reports, budget, |text, _, told| {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{}", told.trim());
    })
}

/// Lists steps for the planner. Each result stands between marks that do not occur in it: what an executor says cannot
/// pass for another step.
pub(super) fn marked_listing(reports: &[StepReport], budget: usize) -> String {
    listed(reports, budget, |text, step, told| {
        section(text, "result", &format!(" of=\"step {}\"", step.number), told);
    })
}

fn listed(reports: &[StepReport], budget: usize, tell: impl Fn(&mut String, &StepReport, &str)) -> String {
    let told = |step: &StepReport| match &step.error {
        None => step.result.clone(),
        Some(error) => error.clone(),
    };
    let told: Vec<_> = reports.iter().map(told).collect();
    let told = shares(told.iter().map(String::as_str), budget);
    let mut text = String::new();
    for (step, told) in reports.iter().zip(told) {
        let description = plain_line(&cut(&step.description, 20));
        let gap = if text.is_empty() { "" } else { "\n\n" };
        let partial = if step.partial { PARTIAL } else { "" };
        let _ = write!(text, "{gap}Step {} ({description}), {}{partial}:", step.number, step.status);
        tell(&mut text, step, &told);
    }
    text
}

/// Figures of the work on one step that began, from the events of a planner and of all sessions below it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StepExecution {
    /// Number of the step.
    pub number: u32,
    /// Executing, completed or failed.
    pub status: StepStatus,
    /// Session of the step, in which its messages are recorded.
    pub session: SessionId,
    /// Name of the agent: `executor` or `planner`.
    pub agent: String,
    /// Tokens of all its model calls, those of the planner's answers among them.
    pub usage: Usage,
    /// Time from its start to its end.
    pub time: Duration,
    /// Tool calls that ended, whatever came of them.
    pub tool_calls: u32,
    /// Messages between planner and executor; 0 for a step that the planner did itself.
    pub messages: u32,
}

impl StepExecution {
    /// Folds events into one row for each step that began, in the order of their starts. Events of one session must be
    /// in their order; the sessions may come in any.
    ///
    /// The figures of tokens and time are known once a step has ended, by a limit or a cancel too.
    ///
    /// # Errors
    /// Those of a record that cannot be read.
    pub fn of<'a>(events: impl IntoIterator<Item = &'a Envelope>) -> Result<Vec<Self>> {
        let mut fold = Fold::default();
        events.into_iter().try_for_each(|envelope| fold.see(envelope))?;
        Ok(fold.rows())
    }
}

#[derive(Default)]
struct Fold {
    rows: Vec<StepExecution>,
    /// Newest row of each step, by the run of its plan.
    places: HashMap<(RunId, u32), usize>,
    /// Tool calls and messages of each session.
    counts: BTreeMap<SessionId, (u32, u32)>,
}

impl Fold {
    fn see(&mut self, envelope: &Envelope) -> Result<()> {
        let session = &envelope.origin.session;
        let record = match &envelope.event {
            Event::ToolFinished(call) if *call.result.name != *REPLY => {
                let (calls, _) = self.counts.entry(session.clone()).or_default();
                *calls = calls.saturating_add(1);
                return Ok(());
            }
            Event::Recorded(record) => record,
            _ => return Ok(()),
        };
        if record.get::<StepMessage>()?.is_some() {
            let (_, messages) = self.counts.entry(session.clone()).or_default();
            *messages = messages.saturating_add(1);
        }
        // A step may run a graph of its own.
        if session.role().is_none_or(|(_, role)| role != PLAN) {
            return Ok(());
        }
        let run = envelope.origin.run;
        if let Some(started) = record.get::<NodeStarted>()? {
            self.started(run, &started);
        } else if let Some(finished) = record.get::<NodeFinished>()? {
            self.finished(run, &finished);
        }
        Ok(())
    }

    fn started(&mut self, run: RunId, started: &NodeStarted) {
        let (Ok(number), Some(child)) = (started.node.parse(), &started.child) else { return };
        self.places.insert((run, number), self.rows.len());
        self.rows.push(StepExecution {
            number,
            status: StepStatus::Executing,
            session: child.clone(),
            agent: started.agent.as_deref().unwrap_or_default().to_owned(),
            usage: Usage::default(),
            time: Duration::ZERO,
            tool_calls: 0,
            messages: 0,
        });
    }

    fn finished(&mut self, run: RunId, finished: &NodeFinished) {
        let place = finished.node.parse().ok().and_then(|number| self.places.get(&(run, number)));
        let Some(row) = place.and_then(|place| self.rows.get_mut(*place)) else { return };
        row.status = if finished.end.is_completed() { StepStatus::Completed } else { StepStatus::Failed };
        row.usage = finished.usage;
        row.time = Duration::from_micros(finished.micros);
    }

    fn rows(mut self) -> Vec<StepExecution> {
        let places: HashMap<_, _> =
            self.rows.iter().enumerate().map(|(at, row)| (row.session.as_str().to_owned(), at)).collect();
        for (session, (calls, messages)) in &self.counts {
            let id = session.as_str();
            let above = id.match_indices("$$").filter_map(|(at, _)| id.get(..at)).chain([id]);
            let place = above.filter_map(|id| places.get(id)).last();
            if let Some(row) = place.and_then(|place| self.rows.get_mut(*place)) {
                row.tool_calls = row.tool_calls.saturating_add(*calls);
                row.messages = row.messages.saturating_add(*messages);
            }
        }
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(number: u32, status: StepStatus, optional: bool) -> StepReport {
        let error = (status != StepStatus::Completed).then(|| format!("reason {number}"));
        let (description, result) = (format!("Do {number}\nso"), "x".repeat(50));
        let (partial, is_final) = (false, false);
        StepReport { number, description, status, result, error, optional, partial, is_final }
    }

    #[test]
    fn bo05_a_plan_is_failed_if_a_step_that_is_needed_is_not_done() {
        use StepStatus::{Completed, Failed, Pending, Skipped};
        for (status, optional, done) in [
            (Completed, false, true),
            (Failed, false, false),
            (Failed, true, true),
            (Skipped, false, false),
            (Skipped, true, true),
            (Pending, false, false),
        ] {
            let all = [report(1, Completed, false), report(2, status, optional)];
            assert_eq!(is_done(&all), done, "{status} {optional}");
        }
        let StopReason::Tasks { failed, skipped, .. } =
            stop_reason(&[report(1, Completed, false), report(2, Failed, false), report(3, Skipped, false)])
        else {
            panic!()
        };
        assert_eq!((&*failed[0].task, failed[0].error.as_str()), ("2", "reason 2"));
        assert_eq!((failed.len(), &*skipped[0]), (1, "3"));
    }

    #[test]
    fn bo05_every_step_is_listed_with_its_status_and_result() {
        let all = [report(1, StepStatus::Completed, false), report(2, StepStatus::Failed, false)];
        let text = listing(&all, 7);
        assert!(text.starts_with("Step 1 (Do 1 so), completed:\nxxx"), "{text}");
        assert!(text.contains("…\n\nStep 2 (Do 2 so), failed:\nreason 2"), "{text}");
        assert_eq!(listing(&[], 7), "");
    }

    #[test]
    fn bo13_an_own_step_that_began_and_was_not_done_may_be_done_in_part() {
        use entourage_core::{Error, ErrorKind};
        let failed = |kind| NodeEnd::Failed(Error::new(kind, "no").record());
        let skipped = NodeEnd::Skipped(SkipCause::Asked);
        let of_service = Error::new(ErrorKind::PermissionDenied, "no").during("model.stream").record();
        for (end, own, partial, is_final) in [
            (None, true, false, false),
            (Some(NodeEnd::Cancelled), true, true, true),
            (Some(NodeEnd::Cancelled), false, false, true),
            (Some(failed(ErrorKind::Authentication)), true, true, false),
            (Some(failed(ErrorKind::PermissionDenied)), true, true, true),
            (Some(NodeEnd::Failed(of_service.clone())), true, true, false),
            (Some(NodeEnd::Failed(of_service)), false, false, false),
            (Some(failed(ErrorKind::Authentication)), false, false, false),
            (Some(skipped), true, false, false),
        ] {
            let step = PlannedStep { executor_required: !own, ..PlannedStep::default() };
            let report = super::report(&step, end.as_ref());
            assert_eq!((report.partial, report.is_final), (partial, is_final), "{end:?} {own}");
            assert_eq!(is_kept(&report), partial, "{end:?}");
            let text = listing(&[report], 100);
            assert_eq!(text.contains("a part of it may be done: look before"), partial, "{text}");
        }
    }
}
