//! Detection of misbehaviour from a run's events. It knows no script and is the same for every run.

use std::fmt;

use entourage::{
    ErrorKind, Result, RuntimeBuilder,
    agent::Agent,
    event::{Envelope, Event, NodeFinished, PhaseFinished, ToolFinished},
    graph::NodeEnd,
    run::{Outcome, Pause, Status, StopReason, Task},
};

use crate::kit::Watch;

/// The mechanism that stopped an agent, or recorded its misbehaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    OutOfScope,
    Asked,
    Repeated,
    Circles,
    Steps,
    Budget,
    Unfinished,
    NoValue,
    Rejected,
    NoEvidence,
    Exhausted,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfScope => "scope: the call gets an error",
            Self::Asked => "policy: a person is asked",
            Self::Repeated => "loop guard: the call is refused",
            Self::Circles => "loop guard: the run ends",
            Self::Steps => "limit of steps",
            Self::Budget => "budget",
            Self::Unfinished => "journal: the cut call is answered",
            Self::NoValue => "typed output",
            Self::Rejected => "check: rejected",
            Self::NoEvidence => "check: accepted without evidence, on record",
            Self::Exhausted => "limit of rounds",
        })
    }
}

/// A run that has ended, with the events of all agents in it.
pub(super) struct Ended {
    pub(super) events: Vec<Envelope>,
    pub(super) result: Result<Outcome>,
}

impl Ended {
    /// The end of the run, in a word or two.
    pub(super) fn word(&self) -> String {
        let status = match &self.result {
            Ok(outcome) => &outcome.status,
            Err(error) => return format!("failed: {}", error.kind().as_str()),
        };
        let word = match status {
            Status::Stopped(StopReason::Steps(_)) => "stopped: steps",
            Status::Stopped(StopReason::LoopDetected) => "stopped: loop",
            Status::Stopped(StopReason::Budget(_)) => "stopped: budget",
            Status::Stopped(StopReason::Incomplete { .. }) => "stopped: incomplete",
            Status::Stopped(StopReason::Tasks { .. }) => "stopped: tasks",
            Status::Paused(Pause::Approval(_)) => "paused: approval",
            other => return other.to_string(),
        };
        word.to_owned()
    }
}

/// Runs `agent` once, and keeps the events.
pub(super) async fn watched(
    runtime: RuntimeBuilder,
    agent: &(impl Agent + Clone + 'static),
    task: impl Into<Task>,
) -> Ended {
    let watch = Watch::default();
    let runtime = runtime.observer(watch.clone()).build();
    let result = runtime.session().start(agent, task).outcome().await;
    Ended { events: watch.events(), result }
}

/// The first detection, and the number of model calls before it.
pub(super) fn detected(ended: &Ended) -> Option<(Found, u64)> {
    let mut calls = 0;
    for envelope in &ended.events {
        calls += u64::from(matches!(envelope.event, Event::ModelFinished(_)));
        if let Some(found) = found_in(&envelope.event) {
            return Some((found, calls));
        }
    }
    None
}

fn found_in(event: &Event) -> Option<Found> {
    match event {
        Event::ToolFinished(call) => in_call(call),
        Event::ApprovalRequested(_) => Some(Found::Asked),
        Event::Recorded(value) => {
            if let Ok(Some(node)) = value.get::<NodeFinished>() {
                let NodeEnd::Failed(error) = &node.end else { return None };
                return in_status(&Status::Failed(error.clone()));
            }
            let end = value.get::<PhaseFinished>().ok().flatten()?;
            let verdict = end.verdict.as_ref()?;
            let blind = verdict.accepted && verdict.evidence.is_empty();
            if !verdict.accepted { Some(Found::Rejected) } else { blind.then_some(Found::NoEvidence) }
        }
        Event::RunFinished(run) => in_status(&run.outcome.status),
        _ => None,
    }
}

/// Detects a call that the runtime answered instead of its tool: it took no time at all, and the answer says why.
fn in_call(call: &ToolFinished) -> Option<Found> {
    if !call.result.is_error || call.micros > 0 {
        return None;
    }
    let text = call.result.to_text();
    let reasons = [
        ("times in a row", Found::Repeated),
        ("agent's scope", Found::OutOfScope),
        ("its outcome is unknown", Found::Unfinished),
    ];
    reasons.into_iter().find(|(words, _)| text.contains(words)).map(|(_, found)| found)
}

fn in_status(status: &Status) -> Option<Found> {
    match status {
        Status::Stopped(StopReason::Steps(_)) => Some(Found::Steps),
        Status::Stopped(StopReason::LoopDetected) => Some(Found::Circles),
        Status::Stopped(StopReason::Budget(_)) => Some(Found::Budget),
        Status::Stopped(StopReason::Incomplete { .. }) => Some(Found::Exhausted),
        Status::Failed(error) if error.kind == ErrorKind::Protocol => Some(Found::NoValue),
        _ => None,
    }
}
