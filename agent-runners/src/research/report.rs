//! The answer of a research, from the outcomes of its tasks. Pure.

use std::fmt::Write as _;

use entourage_core::{
    event::plain_line,
    run::{FailedTask, Outcome, Status, StopReason},
};

use super::ResearchTask;
use crate::{cut::cut, finality::is_final};

/// Characters of a task's prompt in its heading, and of a failure in the outcome of a research without any answer.
const HEADING: usize = 80;
const FAILURE: usize = 200;

/// Joins the outcomes, in the order of the tasks. A single answer stands alone; failures are reported beside results.
/// Without any answer the research was stopped, with the reason of each task.
pub(super) fn aggregate(results: &[(ResearchTask, Outcome)]) -> Outcome {
    let failures = || (1..).zip(results).filter(|(_, (_, outcome))| !has_answer(outcome));
    let id = |number: usize, task: &ResearchTask| format!("{number}-{}", task.kind);
    let text = match results {
        [(_, only)] => only.text.clone(),
        _ => sections(results),
    };
    if failures().count() == results.len() {
        let failed = |(number, (task, outcome)): (usize, &(ResearchTask, Outcome))| {
            FailedTask::new(id(number, task), cut(&reason(outcome), FAILURE))
                .final_if(is_final(&outcome.status))
        };
        let failed = failures().map(failed).collect();
        let (cancelled, skipped) = Default::default();
        let mut outcome = Outcome::new(Status::Stopped(StopReason::Tasks { failed, cancelled, skipped }));
        outcome.text = text;
        return outcome;
    }
    let mut outcome = Outcome::completed(text);
    outcome.failed = failures().map(|(number, (task, _))| id(number, task).into()).collect();
    outcome
}

fn has_answer(outcome: &Outcome) -> bool {
    outcome.is_completed() && !outcome.text.trim().is_empty()
}

fn sections(results: &[(ResearchTask, Outcome)]) -> String {
    let mut text = String::new();
    for (number, (task, outcome)) in (1..).zip(results) {
        let gap = if text.is_empty() { "" } else { "\n\n" };
        let heading = cut(&plain_line(task.prompt.lines().next().unwrap_or_default()), HEADING);
        let answer = outcome.text.trim();
        // Writing to a string cannot fail.
        let _ = write!(text, "{gap}## {number}. {heading} ({})\n\n", task.kind);
        text += &match (has_answer(outcome), answer) {
            (true, answer) => answer.to_owned(),
            (false, "") => format!("No answer: {}.", reason(outcome)),
            (false, answer) => format!("No answer: {}. By then it had:\n{answer}", reason(outcome)),
        };
    }
    text
}

fn reason(outcome: &Outcome) -> String {
    match &outcome.status {
        Status::Completed => "the agent ended without one".to_owned(),
        status => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use entourage_core::{
        Error, ErrorKind,
        run::{Outcome, Status, StopReason},
    };

    use super::aggregate;
    use crate::research::{ResearchTask, Researcher};

    fn with(text: &str, status: Status) -> (ResearchTask, Outcome) {
        let mut outcome = Outcome::new(status);
        outcome.text = text.to_owned();
        (ResearchTask::new(Researcher::DocReader, "Read\u{1b}[2J it\nall"), outcome)
    }

    #[test]
    fn ai08_results_keep_their_order_and_failures_stand_beside_them() {
        let failed = Status::of(&Error::new(ErrorKind::Internal, "the agent panicked: oh"));
        let results = [
            with("One.", Status::Completed),
            with("", failed),
            with("half", Status::Stopped(StopReason::Deadline)),
            with(" ", Status::Completed),
            with("Five.", Status::Completed),
        ];
        let outcome = aggregate(&results);
        assert_eq!(outcome.status, Status::Completed);
        let ids: Vec<_> = outcome.failed.iter().map(|id| &**id).collect();
        assert_eq!(ids, ["2-doc-reader", "3-doc-reader", "4-doc-reader"]);
        let places: Vec<_> =
            ["## 1. Read", "One.", "## 2.", "panicked: oh", "## 3.", "half", "## 4.", "without one", "Five."]
                .map(|part| outcome.text.find(part).unwrap_or_else(|| panic!("{part}: {}", outcome.text)))
                .to_vec();
        assert!(places.is_sorted(), "{places:?}: {}", outcome.text);
        assert!(!outcome.text.contains('\u{1b}'), "{}", outcome.text);
    }

    #[test]
    fn ai08_a_single_answer_stands_alone_and_without_any_the_research_fails() {
        assert_eq!(aggregate(&[with("One.", Status::Completed)]).text, "One.");
        let late = with("half", Status::Stopped(StopReason::Deadline));
        let long = Status::of(&Error::new(ErrorKind::Internal, "ü".repeat(3_000)));
        let outcome = aggregate(&[late, with("", long), with("", Status::Completed)]);
        let Status::Stopped(StopReason::Tasks { failed, .. }) = &outcome.status else {
            panic!("{outcome:?}")
        };
        let failed: Vec<_> = failed.iter().map(|it| (&*it.task, it.error.as_str())).collect();
        assert_eq!(failed[0], ("1-doc-reader", "stopped: the deadline passed"));
        assert_eq!((failed[1].0, failed[1].1.chars().count()), ("2-doc-reader", 200));
        assert_eq!(failed[2], ("3-doc-reader", "the agent ended without one"));
        assert!(outcome.text.contains("By then it had:\nhalf"), "{}", outcome.text);
    }
}
