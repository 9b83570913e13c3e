//! Hard cases of the loop of work and check: broken streams, cancels between two phases, budgets that run out in a
//! check, queued prompts, sessions used by two pairs.

use std::sync::{Arc, Mutex};

use entourage_core::{
    ErrorKind,
    budget::BudgetLimits,
    event::Envelope,
    permission::Decision,
    provider::{Delta, FinishReason},
    run::{Observer, Pause, Status, StopReason, Task},
    session::{SessionFilter, SharedStore},
    tool::Access,
};
use entourage_runners::{
    AgentTool, DualAgent, Phase, ReactAgent,
    checked::{PhaseFinished, PhaseStarted},
};
use entourage_runtime::permission::Policy;
use entourage_testkit::{self as testkit, FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    common::{count, memory, process, runtime_on, settled, stored},
    pair::{builder, checker, child, conversation, done, executor, pair, phases, root, session, told},
};

#[tokio::test(start_paused = true)]
async fn cw04_a_stream_that_breaks_within_the_arguments_of_task_complete_completes_nothing() {
    // Half of the arguments; all of them and no end; all of them, an end that is an error.
    let begun = || Script::new().delta(Delta::tool_call(0, "call_0", "task_complete"));
    let whole = done("I saw it.").to_string();
    for script in [
        begun().delta(Delta::arguments(0, "{\"summ")).fail(ErrorKind::Transport, "the line is dead"),
        begun().delta(Delta::arguments(0, whole.clone())).fail(ErrorKind::Transport, "the line is dead"),
        begun().delta(Delta::arguments(0, whole.clone())),
        begun().delta(Delta::arguments(0, whole)).finish(FinishReason::Error),
    ] {
        let works = ScriptedProvider::new().text("a").text("Summary.");
        let checks = ScriptedProvider::new().step(script);
        let store = memory();
        let run = session(&runtime_on(&store)).start(&pair(&works, &checks), "Go");
        let outcome = run.outcome().await;
        assert!(outcome.as_ref().map_or(true, |outcome| !outcome.is_completed()), "{outcome:?}");
        assert!(!phases(&store).await.contains(&"1 check accepted".to_owned()));
        assert!(
            settled(&stored(&store, &child("discriminator")).await)
                .iter()
                .all(|(_, text)| { !text.contains("The task is complete") })
        );
    }
}

#[tokio::test(start_paused = true)]
async fn cw04_arguments_that_were_cut_short_are_no_claim() {
    let works = ScriptedProvider::new().text("a").text("Summary.");
    let cut = Script::new().raw_call("task_complete", "{\"summary\": \"I saw").finish(FinishReason::Length);
    let checks = ScriptedProvider::new().step(cut);
    let agent = builder(&works, &checks).iterations(1).build().unwrap();
    let store = memory();
    let outcome = session(&runtime_on(&store)).start(&agent, "Go").outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Stopped(StopReason::Incomplete { .. })), "{outcome}");
}

#[tokio::test(start_paused = true)]
async fn cw04_a_claim_that_was_refused_and_one_that_was_not_in_one_step_are_one_completion() {
    let works = ScriptedProvider::new().text("a").text("Summary.");
    let claims = ["", "I saw it.", "I saw it twice."].map(|text| ("task_complete", done(text)));
    let checks = ScriptedProvider::new().calls(claims);
    let store = memory();
    let outcome = session(&runtime_on(&store)).start(&pair(&works, &checks), "Go").outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Completed);
    let verdict = stored(&store, &root())
        .await
        .into_iter()
        .find_map(|event| event.event.record::<PhaseFinished>().unwrap()?.verdict.clone());
    assert_eq!(verdict.unwrap().reason, "I saw it.");
}

#[tokio::test(start_paused = true)]
async fn cw03_feedback_in_any_script_and_of_any_length_crosses_whole() {
    for feedback in ["まだです。テストがありません。🦀", "لا، لم يكتمل", &"é🙂 not done. ".repeat(20_000)]
    {
        let works = ScriptedProvider::new().text("a").text("Summary one.").text("b").text("Summary two.");
        let checks = ScriptedProvider::new().text(feedback).call("task_complete", done("見ました。"));
        let outcome =
            session(&runtime_on(&memory())).start(&pair(&works, &checks), "Go").outcome().await.unwrap();
        assert_eq!(outcome.status, Status::Completed);
        assert_eq!(works.requests()[2].messages.last().unwrap().text(), feedback.trim());
    }
}

#[tokio::test(start_paused = true)]
async fn cw03_a_budget_that_is_used_up_in_the_check_is_never_completion() {
    // Two calls of the executor fit; of the checker's two calls, none or one.
    for calls in [2, 3] {
        let works = ScriptedProvider::new().text("I wrote it.").text("Summary.");
        let checks =
            ScriptedProvider::by_history().call("look", json!({})).call("task_complete", done("I saw it."));
        let task = Task::new("Write it.").with_budget(BudgetLimits::none().with_model_calls(calls));
        let store = memory();
        let outcome =
            session(&runtime_on(&store)).start(&pair(&works, &checks), task).outcome().await.unwrap();
        let Status::Stopped(StopReason::Budget(exhausted)) = &outcome.status else { panic!("{outcome}") };
        assert_eq!((&*exhausted.bound, outcome.text.as_str()), ("model_calls", "Summary."));
        assert!(checks.count() <= 1);
        assert!(!phases(&store).await.iter().any(|phase| phase.ends_with("accepted")));
    }
    // The claim itself needs approval.
    let works = ScriptedProvider::new().text("I wrote it.").text("Summary.");
    let checks = ScriptedProvider::new().calls([("look", json!({})), ("task_complete", done("I saw it."))]);
    let task = Task::new("Write it.").with_budget(BudgetLimits::none().with_tool_calls(1));
    let outcome =
        session(&runtime_on(&memory())).start(&pair(&works, &checks), task).outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Stopped(StopReason::Budget(_))), "{outcome}");
}

/// Cancels a run as soon as a given event of its own session is shown.
#[derive(Debug, Clone, Default)]
struct CancelAt(Arc<Mutex<Option<(Phase, bool, CancellationToken)>>>);

impl Observer for CancelAt {
    fn on_event(&self, event: &Envelope) {
        let started = event.event.record::<PhaseStarted>().unwrap().map(|started| (started.phase, true));
        let ended = event.event.record::<PhaseFinished>().unwrap().map(|end| (end.phase, false));
        let Some((phase, begins)) = started.or(ended) else { return };
        let mut armed = self.0.lock().unwrap();
        if let Some((_, _, cancel)) = armed.take_if(|(at, start, _)| (*at, *start) == (phase, begins)) {
            cancel.cancel();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn cw15_a_cancel_at_the_very_border_of_a_phase_loses_no_word_and_repeats_no_phase() {
    for phase in [Phase::Execute, Phase::Summarize, Phase::Check] {
        for begins in [true, false] {
            // After the last phase of an accepted task there is nothing left to cancel.
            if phase == Phase::Check && !begins {
                continue;
            }
            for says in [None, Some("In Rust, please.")] {
                let (observer, store) = (CancelAt::default(), memory());
                let runtime = testkit::runtime()
                    .policy(Policy::allow_all())
                    .observer(observer.clone())
                    .shared_store(Arc::clone(&store))
                    .build();
                let works = ScriptedProvider::by_history();
                let works = (0..8).fold(works, |works, n| works.text(format!("Said {n}.")));
                let checks = ScriptedProvider::by_history();
                let checks = (0..4).fold(checks, |checks, _| checks.call("task_complete", done("I saw it.")));
                let (agent, work) = (pair(&works, &checks), session(&runtime));
                let run = work.start(&agent, "Write it.");
                *observer.0.lock().unwrap() = Some((phase, begins, run.cancellation()));
                let label = format!("{phase:?} begins: {begins}, says: {says:?}");
                assert_eq!(run.outcome().await.unwrap().status, Status::Paused(Pause::Asked), "{label}");
                let run = match says {
                    Some(words) => work.start(&agent, words),
                    None => work.resume(&agent),
                };
                let outcome = run.outcome().await.unwrap();
                assert_eq!(outcome.status, Status::Completed, "{label}");
                let heard = told(&conversation(&runtime, "executor").await);
                let asked = heard.iter().filter(|line| line.contains("Write it.")).count();
                // A phase that was cut off at its start may have heard the prompt: it is repeated, never left out.
                let most = if phase == Phase::Execute && begins { 2 } else { 1 };
                assert!((1..=most).contains(&asked), "{label}: {heard:?}");
                assert_eq!(
                    heard.iter().any(|line| line.contains("In Rust")),
                    says.is_some(),
                    "{label}: {heard:?}"
                );
                let checked = told(&conversation(&runtime, "discriminator").await);
                let asked = checked.iter().filter(|line| *line == "A: Write it.").count();
                assert_eq!(asked, 1, "{label}: {checked:?}");
                let said = checked.iter().filter(|line| *line == "A: In Rust, please.").count();
                assert_eq!(said, usize::from(says.is_some()), "{label}: {checked:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn cm13_what_waits_behind_a_cancelled_pair_waits_on_and_a_cancel_of_the_session_drops_it() {
    for whole_session in [false, true] {
        let gate = Gate::new();
        let mut works =
            ScriptedProvider::new().step(Script::new().wait(&gate).text("never").finish(FinishReason::Stop));
        let mut checks = ScriptedProvider::new();
        for name in if whole_session { vec!["c"] } else { vec!["b", "c"] } {
            works = works.text(name).text(format!("Summary {name}."));
            checks = checks.call("task_complete", done(name));
        }
        let store = memory();
        let runtime = runtime_on(&store);
        let (agent, work) = (pair(&works, &checks), session(&runtime));
        let first = work.start(&agent, "Write a.");
        gate.arrived(1).await;
        let second = work.start(&agent, "Then b.");
        if whole_session {
            work.cancel();
        } else {
            first.cancel();
        }
        assert_eq!(first.outcome().await.unwrap().status, Status::Paused(Pause::Asked));
        if whole_session {
            assert_eq!(second.outcome().await.unwrap().status, Status::Cancelled);
            assert!(work.state().await.unwrap().queue().is_empty());
            let third = work.start(&agent, "No, c.").outcome().await.unwrap();
            assert_eq!(third.status, Status::Completed);
            let heard = told(&works.requests()[1].messages);
            assert!(heard.last().unwrap().ends_with("No, c."), "{heard:?}");
            assert!(!heard.iter().any(|line| line.contains("Then b.")), "{heard:?}");
        } else {
            // The queued prompt is not lost: its event shows it to the user, and a new prompt runs after it.
            assert_eq!(count(&stored(&store, &root()).await, "prompt_queued"), 1);
            assert_eq!(work.state().await.unwrap().queue().len(), 1);
            let third = work.start(&agent, "And c.");
            assert_eq!(second.outcome().await.unwrap().text, "Summary b.");
            assert_eq!(third.outcome().await.unwrap().text, "Summary c.");
            let heard = told(&works.requests()[1].messages);
            assert!(
                heard.last().unwrap().ends_with("The user stopped the work and says:\nThen b."),
                "{heard:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn cw05_two_pairs_one_after_the_other_in_one_session_go_on_in_its_two_conversations() {
    let store = memory();
    let runtime = runtime_on(&store);
    let work = session(&runtime);
    let first_works = ScriptedProvider::new().text("a").text("Summary a.");
    let first_checks = ScriptedProvider::new().call("task_complete", done("I saw a."));
    work.start(&pair(&first_works, &first_checks), "Write a.").outcome().await.unwrap();

    let works = ScriptedProvider::named("other").text("b").text("Summary b.");
    let checks = ScriptedProvider::named("other").text("Look.").call("task_complete", done("I saw b."));
    let works = works.text("b2").text("Summary b2.");
    let other = DualAgent::builder("other", executor(&works), checker(&checks)).build().unwrap();
    let outcome = work.start(&other, "Write b.").outcome().await.unwrap();
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "Summary b2."));
    let heard = told(&works.requests()[0].messages);
    assert_eq!((heard[0].as_str(), heard.last().unwrap().as_str()), ("U: Write a.", "U: Write b."));
    let heard = told(&checks.requests()[0].messages);
    let tail: Vec<_> = heard.iter().rev().take(3).rev().map(String::as_str).collect();
    assert_eq!(tail, ["U: Hello! What can I do for you?", "A: Write b.", "U: Summary b."]);
    assert_eq!(
        told(&work.history().await.unwrap()),
        ["U: Write a.", "A: Summary a.", "U: Write b.", "A: Summary b2."]
    );
}

/// A pair that waits for approval, and another pair started instead of resuming it: the old task is abandoned whole.
#[tokio::test(start_paused = true)]
async fn cw15_another_pair_abandons_the_first_pairs_task() {
    let pay = FakeTool::new("pay").access(Access::WRITE);
    let store = memory();
    let runtime =
        testkit::runtime().policy(Policy::allow_all().ask("pay")).shared_store(Arc::clone(&store)).build();
    let work = session(&runtime);
    let asks = ScriptedProvider::new().call("pay", json!({}));
    let payer = ReactAgent::builder("coder", asks.model()).tool(pay.clone()).build().unwrap();
    let never = ScriptedProvider::new();
    let first = DualAgent::builder("first", payer, checker(&never)).build().unwrap();
    let outcome = work.start(&first, "Pay.").outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Paused(Pause::Approval(_))), "{outcome}");

    let works = ScriptedProvider::new().text("b").text("Summary b.");
    let checks = ScriptedProvider::new().call("task_complete", done("I saw b."));
    let second = pair(&works, &checks);
    let outcome = work.start(&second, "Write b.").outcome().await.unwrap();
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "Summary b."));
    assert_eq!(pay.started(), 0);
    // The other pair's task is no feedback on this one.
    let heard = told(&works.requests()[0].messages);
    assert_eq!(heard.last().unwrap(), "U: Write b.");
    assert!(heard.iter().any(|line| line.starts_with("T: <")), "the open call has a result: {heard:?}");
    let heard = told(&checks.requests()[0].messages);
    assert_eq!(heard, ["U: Hello! What can I do for you?", "A: Write b.", "U: Summary b."]);
}

fn payer(pay: &FakeTool) -> DualAgent {
    let below = ScriptedProvider::by_history().call("pay", json!({})).text("Paid.");
    let clerk = ReactAgent::builder("clerk", below.model()).tool(pay.clone()).build().unwrap();
    let works = ScriptedProvider::by_history()
        .call("agent", json!({"prompt": "Pay!"}))
        .text("It is paid.")
        .text("Summary one.");
    let lead = ReactAgent::builder("lead", works.model()).tool(AgentTool::new(clerk)).build().unwrap();
    let checks = ScriptedProvider::by_history().call("task_complete", done("I saw it."));
    DualAgent::builder("pair", lead, checker(&checks)).build().unwrap()
}

/// An agent three levels down waits for approval: it is given in another process, and all levels continue.
#[test]
fn cw16_leave_that_is_asked_for_by_a_sub_agent_of_the_executor_is_given_in_another_process() {
    let store: SharedStore = memory();
    let pay = FakeTool::new("pay").access(Access::WRITE).returning("paid");
    let runtime =
        || testkit::runtime().policy(Policy::allow_all().ask("pay")).shared_store(Arc::clone(&store)).build();
    let question = process(async {
        let outcome = session(&runtime()).start(&payer(&pay), "Pay it.").outcome().await.unwrap();
        let Status::Paused(Pause::Approval(question)) = outcome.status else { panic!("{outcome}") };
        question
    });
    // Nothing was decided yet: it still waits.
    process(async {
        let outcome = session(&runtime()).resume(&payer(&pay)).outcome().await.unwrap();
        assert_eq!(outcome.status, Status::Paused(Pause::Approval(question.clone())));
    });
    process(async {
        let runtime = runtime();
        runtime.decide(&question, Decision::Allow).await.unwrap();
        let outcome = session(&runtime).resume(&payer(&pay)).outcome().await.unwrap();
        assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "Summary one."));
        assert_eq!((pay.started(), phases(&store).await.len()), (1, 6));
        for info in store.query(&SessionFilter::tree(root())).await.unwrap() {
            let events = stored(&store, &info.record.id).await;
            let ends = (count(&events, "run_started"), count(&events, "run_finished"));
            assert_eq!(ends.0, ends.1, "{:?}", info.record.id);
        }
    });
}

/// A program whose own stop condition ends the checker's run after the claim still accepts the task.
#[tokio::test(start_paused = true)]
async fn cw04_a_claim_in_a_turn_that_a_condition_ends_too_is_one() {
    use entourage_runners::StopWhen;
    let works = ScriptedProvider::new().text("a").text("Summary.");
    let checks = ScriptedProvider::new().call("task_complete", done("I saw it."));
    let condition = StopWhen::tool_called("task_complete");
    let checker = ReactAgent::builder("reviewer", checks.model()).stop_when([condition]).build().unwrap();
    let agent = DualAgent::builder("pair", executor(&works), checker).iterations(1).build().unwrap();
    let outcome = session(&runtime_on(&memory())).start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Completed);
}
