//! The machine against a naive model: for any verdicts, cancels, prompts and crashes, both produce the same phases.

use entourage_core::{Error, ErrorKind, RunId, SessionId, permission::ApprovalId, run::FailedTask};
use proptest::prelude::*;

use super::*;
use crate::{Verdict, checked::PhaseFinished};

fn started(iteration: u32, phase: Phase, prompt: Arc<Message>) -> Arc<PhaseStarted> {
    let child = SessionId::new(format!("s$${phase}")).unwrap_or_else(|_| SessionId::generate());
    Arc::new(PhaseStarted { iteration, phase, child, run: RunId::generate(), prompt })
}

fn finished(of: &PhaseStarted, status: Status, verdict: Option<Verdict>) -> Arc<PhaseFinished> {
    let mut outcome = Outcome::new(status);
    outcome.text = format!("said in {} {}", of.iteration, of.phase);
    let text = verdict.as_ref().map_or("digest", |verdict| verdict.reason.as_str()).into();
    Arc::new(PhaseFinished { iteration: of.iteration, phase: of.phase, outcome, text, verdict })
}

/// The next thing that happens to a task in progress.
#[derive(Debug, Clone)]
enum Turn {
    /// The phase ends with this status; a check with this verdict.
    End(Status, bool),
    /// The phase is cancelled, and the task continued.
    Cancel,
    /// The phase is cancelled, and then the user sends a prompt.
    CancelAndSay,
    /// The process dies; the next one resumes.
    Die,
    /// The process dies in the phase, and then the user sends a prompt.
    DieAndSay,
}

fn turns() -> impl Strategy<Value = Turn> {
    let completed = any::<bool>().prop_map(|accepted| Turn::End(Status::Completed, accepted));
    let others = prop::sample::select(vec![
        Turn::End(Status::Stopped(StopReason::Steps(3)), true),
        Turn::End(Status::Stopped(StopReason::LoopDetected), false),
        Turn::End(Status::Stopped(StopReason::Denied("x".into())), true),
        Turn::End(Status::Failed(Error::new(ErrorKind::Overloaded, "gone").record()), true),
        Turn::Cancel,
        Turn::CancelAndSay,
        Turn::Die,
        Turn::DieAndSay,
    ]);
    prop_oneof![3 => completed, 1 => others]
}

/// The loop of work and check written down plainly, a line for each phase.
fn model(plan: Plan, turns: &[Turn]) -> (Vec<String>, Option<Status>) {
    let (mut lines, mut turns) = (Vec::new(), turns.iter());
    let (mut round, mut phase) = (1, if plan.criteria { Phase::Criteria } else { Phase::Execute });
    let mut feedback = String::new();
    loop {
        lines.push(format!("{round} {phase}"));
        let status = loop {
            match turns.next() {
                None => return (lines, None),
                Some(Turn::Die) => {}
                Some(Turn::Cancel) => lines.push(format!("{round} {phase}")),
                Some(Turn::CancelAndSay | Turn::DieAndSay) => {
                    // Criteria that are not written yet come first, and take the new prompt into account.
                    phase = if phase == Phase::Criteria { phase } else { Phase::Execute };
                    lines.push(format!("{round} {phase}"));
                }
                Some(Turn::End(status, accepted)) => break (status, *accepted),
            }
        };
        let (status, accepted) = status;
        let bounded = matches!(status, Status::Stopped(StopReason::Steps(_) | StopReason::LoopDetected));
        let fine = *status == Status::Completed || bounded;
        phase = match phase {
            Phase::Criteria if *status == Status::Completed => Phase::Execute,
            Phase::Criteria => return (lines, Some(status.clone())),
            Phase::Execute if !fine => return (lines, Some(status.clone())),
            Phase::Execute if plan.claims && accepted => return (lines, Some(Status::Completed)),
            Phase::Check if !fine => return (lines, Some(status.clone())),
            Phase::Check if accepted => return (lines, Some(Status::Completed)),
            Phase::Execute | Phase::Check if plan.claims || phase == Phase::Check => {
                feedback.clear();
                feedback.push_str(&format!("rejected in {round}"));
                if round == plan.iterations {
                    let reason = StopReason::Incomplete { iterations: round, feedback: feedback.into() };
                    return (lines, Some(Status::Stopped(reason)));
                }
                round += 1;
                Phase::Execute
            }
            Phase::Execute if plan.sums_up && !bounded => Phase::Summarize,
            _ => Phase::Check,
        };
    }
}

/// The machine, driven by the same turns; `None` when they are used up, as in the model.
fn machine(plan: Plan, turns: &[Turn]) -> (Vec<String>, Option<Status>, Option<CheckedTask>) {
    let (mut lines, mut turns) = (Vec::new(), turns.iter());
    let prompt = Arc::new(Message::user("Do it"));
    let words = Arc::new(Message::user("Otherwise!"));
    let mut progress: Option<CheckedTask> = None;
    loop {
        match plan.next(progress.as_ref(), &prompt) {
            Next::End(outcome) => return (lines, Some(outcome.status), progress),
            Next::Begin { iteration, phase, prompt: asked } => {
                lines.push(format!("{iteration} {phase}"));
                let asked = asked.unwrap_or_else(|| Arc::clone(&prompt));
                assert!(asked.first_text().is_some(), "a phase is asked something");
                progress =
                    Some(CheckedTask::begun(progress.take(), &prompt, &started(iteration, phase, asked)));
            }
            Next::GoOn(phase) => {
                let Some(turn) = turns.next() else { return (lines, None, progress) };
                let now = progress.as_mut().unwrap();
                match turn {
                    // The fold holds all that a process knew: the next one reads it.
                    Turn::Die => {
                        let stored = serde_json::to_string(&progress).unwrap();
                        progress = serde_json::from_str(&stored).unwrap();
                    }
                    Turn::DieAndSay => now.told(&words),
                    Turn::Cancel => now.ended(&finished(&phase, Status::Cancelled, None)),
                    Turn::CancelAndSay => {
                        now.ended(&finished(&phase, Status::Cancelled, None));
                        now.told(&words);
                    }
                    Turn::End(status, accepted) => {
                        let verdict_in = if plan.claims { Phase::Execute } else { Phase::Check };
                        let judged = phase.phase == verdict_in && fate(status) != Fate::Over;
                        let verdict = judged.then(|| match accepted {
                            true => Verdict::accepted("fine"),
                            false => Verdict::rejected(format!("rejected in {}", phase.iteration)),
                        });
                        now.ended(&finished(&phase, status.clone(), verdict));
                    }
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn cw03_the_machine_does_what_the_loop_says(
        turns in prop::collection::vec(turns(), 0..40),
        iterations in 1u32..5,
        sums_up in any::<bool>(),
        criteria in any::<bool>(),
        claims in any::<bool>(),
    ) {
        let plan = Plan { iterations, checks: true, sums_up, criteria, claims };
        let (expected, end) = model(plan, &turns);
        let (lines, ended, progress) = machine(plan, &turns);
        prop_assert_eq!(&lines, &expected);
        prop_assert_eq!(&ended, &end);
        // Fail closed: only an accepted check of a turn that ended well is complete.
        if ended == Some(Status::Completed) {
            let last = progress.unwrap().finished.unwrap();
            let verdict_in = if claims { Phase::Execute } else { Phase::Check };
            prop_assert!(last.phase == verdict_in && last.verdict.as_ref().unwrap().accepted);
        }
        prop_assert!(lines.iter().all(|line| line.split(' ').next().unwrap().parse::<u32>().unwrap() <= iterations));
    }
}

#[test]
fn cw03_each_end_of_a_turn_has_its_fate() {
    let tasks = |is_final: bool| {
        let failed = Box::from([FailedTask::new("x", "no").final_if(is_final)]);
        StopReason::Tasks { failed, cancelled: Box::default(), skipped: Box::default() }
    };
    let stopped = |reason| Status::Stopped(reason);
    for (status, expected) in [
        (Status::Completed, Fate::Done),
        (stopped(StopReason::Condition("x".into())), Fate::Done),
        (stopped(StopReason::Steps(5)), Fate::Cut),
        (stopped(StopReason::LoopDetected), Fate::Cut),
        (stopped(StopReason::Reply(FinishReason::Length)), Fate::Cut),
        (stopped(StopReason::Incomplete { iterations: 1, feedback: "x".into() }), Fate::Cut),
        (stopped(StopReason::Reply(FinishReason::Refusal)), Fate::Over),
        (stopped(StopReason::Reply(FinishReason::ContentFilter)), Fate::Over),
        (stopped(StopReason::Denied("x".into())), Fate::Over),
        (stopped(StopReason::Deadline), Fate::Over),
        (stopped(tasks(true)), Fate::Over),
        (stopped(tasks(false)), Fate::Cut),
        (Status::Failed(Error::new(ErrorKind::Overloaded, "x").record()), Fate::Over),
        (Status::Paused(entourage_core::run::Pause::Approval(ApprovalId::from("session.1$$0"))), Fate::Over),
        (Status::Cancelled, Fate::Again),
    ] {
        assert_eq!(fate(&status), expected, "{status}");
    }
}

#[test]
fn cw12_without_a_check_the_executors_end_is_the_end() {
    let plan = Plan { iterations: 1, checks: false, sums_up: false, criteria: false, claims: false };
    let prompt = Arc::new(Message::user("Do it"));
    let begun = started(1, Phase::Execute, Arc::clone(&prompt));
    for status in [Status::Completed, Status::Stopped(StopReason::Steps(3))] {
        let mut progress = CheckedTask::begun(None, &prompt, &begun);
        progress.ended(&finished(&begun, status.clone(), None));
        let Next::End(outcome) = plan.next(Some(&progress), &prompt) else { panic!("it goes on") };
        assert_eq!((outcome.status, outcome.text.as_str()), (status, "said in 1 works"));
    }
}

#[test]
fn r14_what_the_user_said_and_the_criteria_are_in_the_executors_first_prompt() {
    let plan = Plan { iterations: 3, checks: true, sums_up: true, criteria: true, claims: false };
    let prompt = Arc::new(Message::user("Do it"));
    let begun = started(1, Phase::Criteria, Arc::new(Message::user("What counts?")));
    let mut progress = CheckedTask::begun(None, &prompt, &begun);
    progress.ended(&finished(&begun, Status::Cancelled, None));
    progress.told(&Arc::new(Message::user("Quickly!")));
    let Next::Begin { phase, prompt: None, .. } = plan.next(Some(&progress), &prompt) else { panic!() };
    assert_eq!(phase, Phase::Criteria);
    let mut progress = CheckedTask::begun(Some(progress), &prompt, &begun);
    assert_eq!(plan.next(Some(&progress), &prompt), Next::GoOn(Arc::clone(&begun)), "it is not begun twice");
    progress.ended(&finished(&begun, Status::Completed, None));
    let Next::Begin { iteration: 1, phase: Phase::Execute, prompt: Some(first) } =
        plan.next(Some(&progress), &prompt)
    else {
        panic!("it does not begin")
    };
    let said = [
        "Do it",
        "The user stopped the work and says:\nQuickly!",
        "It counts as done when all of this is true:",
    ];
    let text = format!("{}\ndigest", said.join("\n\n"));
    assert_eq!(first.text(), text);
    // An agent built without criteria continues without them.
    let without = Plan { criteria: false, ..plan };
    let mut progress = CheckedTask::begun(None, &prompt, &begun);
    let expected = Next::Begin { iteration: 1, phase: Phase::Execute, prompt: Some(Arc::clone(&prompt)) };
    assert_eq!(without.next(Some(&progress), &prompt), expected);
    // Criteria whose phase was stopped do not count.
    progress.ended(&finished(&begun, Status::Stopped(StopReason::Steps(1)), None));
    assert!(matches!(plan.next(Some(&progress), &prompt), Next::End(outcome) if !outcome.is_completed()));
}
