//! Plans: what is refused, how they run, what follows a failed step, and questions to the user.

use std::time::Duration;

use entourage_core::{
    ErrorKind,
    run::{Status, StopReason},
};
use entourage_runners::planner::{PlannerProgress, StepStatus};
use entourage_testkit::{FakeTool, ScriptedProvider};
use serde_json::json;

use super::{
    REQUEST, builder, edit, events, looks, plans, progress, reply, run, runtime, step, steps, tool_calls,
    view,
};

#[tokio::test(start_paused = true)]
async fn bo04_a_plan_that_cannot_run_has_one_attempt_more() {
    let executor_model = looks();
    let bad = || steps([step(1, &[2]), step(2, &[1]), step(2, &[7])]);
    let planner_model = plans(bad()).call("final_answer", bad());
    let planner = builder(&planner_model, &executor_model).tools((view(),)).build().unwrap();
    let session = runtime().session();
    let error = session.start(&planner, REQUEST).outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(
        error.message().contains("made no plan that can run") && error.message().contains("`7`"),
        "{error}"
    );
    let told = planner_model.requests()[1].messages.last().unwrap().text();
    assert!(told.starts_with("This plan cannot run:"), "{told}");

    // A reply that is no plan, then one that is.
    let executor_model = looks().call("reply", reply("complete", "Seen."));
    let planner_model = ScriptedProvider::named("planner")
        .text("I would look at both.")
        .call("final_answer", steps([step(1, &[])]))
        .text("Done.");
    let planner = builder(&planner_model, &executor_model).tools((view(),)).build().unwrap();
    assert_eq!(run(&planner, REQUEST).await.0.text, "Done.");
}

#[tokio::test(start_paused = true)]
async fn bo05_independent_steps_run_together_and_results_are_passed_on() {
    let planner_model = plans(steps([step(1, &[]), step(2, &[]), step(3, &[2, 1])])).text("Done.");
    let executor_model = ScriptedProvider::by_history()
        .call("view", json!({}))
        .call("reply", reply("complete", "I saw a tree."));
    let tool = view().taking(Duration::from_secs(5));
    let planner =
        builder(&planner_model, &executor_model).tools((tool.clone(),)).executors_at_once(2).build().unwrap();
    let (outcome, events) = run(&planner, REQUEST).await;
    assert_eq!((outcome.status, tool.most_at_once(), tool.finished()), (Status::Completed, 2, 3));
    let last = executor_model.requests().last().unwrap().messages.get(0).unwrap().text();
    assert!(last.starts_with("Step 3: Look at 3."), "{last}");
    assert!(last.contains("<result of=\"step 2\">\nI saw a tree.\n</result>"), "{last}");
    assert!(last.contains("<goal>\nFirst look at both, then sum up.\n</goal>"), "{last}");
    let ended = progress(&events).last().unwrap().clone();
    let PlannerProgress::PlanEnded { status, steps, .. } = &*ended else { panic!("{ended:?}") };
    assert_eq!((*status, steps.len(), steps[2].result.as_str()), (StepStatus::Completed, 3, "I saw a tree."));
}

#[tokio::test(start_paused = true)]
async fn bo05_a_failed_step_skips_those_after_it_and_fails_the_plan() {
    let planner_model =
        plans(steps([step(1, &[]), step(2, &[1]), step(3, &[])])).text("Only half of it is known.");
    let executor_model = looks()
        .call("reply", reply("error", "There is no tree."))
        .call("reply", reply("complete", "I saw three."));
    let planner = builder(&planner_model, &executor_model).tools((view(),)).build().unwrap();
    let (outcome, _) = run(&planner, REQUEST).await;
    assert_eq!(outcome.text, "Only half of it is known.");
    let Status::Stopped(StopReason::Tasks { failed, skipped, .. }) = outcome.status else {
        panic!("{outcome:?}")
    };
    assert_eq!((&*failed[0].task, failed[0].error.as_str(), failed.len()), ("1", "There is no tree.", 1));
    assert_eq!((&*skipped[0], skipped.len()), ("2", 1));
    // The answer is made from every step's status and result.
    let told = planner_model.requests()[1].messages.last().unwrap().text();
    for words in [
        "The plan failed",
        "), failed:\n\n<result of=\"step 1\">\nThere is no tree.",
        "), skipped:\n\n<result of=\"step 2\">\nstep 1 was not done",
        "), completed:\n\n<result of=\"step 3\">\nI saw three.",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
}

#[tokio::test(start_paused = true)]
async fn bo05_an_optional_step_that_fails_does_not_fail_the_plan() {
    let mut optional = step(2, &[]);
    optional["optional"] = json!(true);
    let planner_model = plans(steps([step(1, &[]), optional])).text("Done.");
    let executor_model =
        looks().call("reply", reply("complete", "Seen.")).call("reply", reply("error", "Not there."));
    let planner = builder(&planner_model, &executor_model).tools((view(),)).build().unwrap();
    let (outcome, _) = run(&planner, REQUEST).await;
    assert_eq!((outcome.status, &*outcome.failed[0]), (Status::Completed, "2"));
}

#[tokio::test(start_paused = true)]
async fn bo05_after_a_failed_step_the_planner_plans_again_and_keeps_what_is_done() {
    let tool = view();
    let planner_model = plans(steps([step(1, &[]), step(2, &[1]), step(3, &[2])]))
        .call("final_answer", steps([step(4, &[1])]))
        .text("Done in another way.");
    let executor_model = looks()
        .call("view", json!({}))
        .call("reply", reply("complete", "The tree is old."))
        .call("reply", reply("error", "No axe."))
        .call("reply", reply("complete", "Sawn."));
    let planner =
        builder(&planner_model, &executor_model).tools((tool.clone(),)).max_replans(1).build().unwrap();
    let (outcome, events) = run(&planner, REQUEST).await;
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "Done in another way."));
    assert_eq!(tool.finished(), 1, "what is done is not done again");
    let told = planner_model.requests()[1].messages.last().unwrap().text();
    for words in [
        "), completed:\n\n<result of=\"step 1\">\nThe tree is old.",
        "), failed:\n\n<result of=\"step 2\">\nNo axe.",
        "), skipped:",
        "Number the new steps from 4.",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    let last = executor_model.requests().last().unwrap().messages.get(0).unwrap().text();
    assert!(last.contains("<result of=\"step 1\">\nThe tree is old."), "{last}");
    let last = planner_model.requests().last().unwrap().messages.last().unwrap().text();
    assert!(
        last.contains("The tree is old.") && last.contains("Sawn.") && last.contains("The plan is done."),
        "{last}"
    );
    let rounds =
        progress(&events).iter().filter(|it| matches!(&***it, PlannerProgress::PlanCreated { .. })).count();
    assert_eq!(rounds, 2);
}

#[tokio::test(start_paused = true)]
async fn bo05_a_second_plan_that_fails_too_is_the_last() {
    let planner_model =
        plans(steps([step(1, &[])])).call("final_answer", steps([step(2, &[])])).text("It failed.");
    let executor_model =
        looks().call("reply", reply("error", "No.")).call("reply", reply("error", "No again."));
    let planner = builder(&planner_model, &executor_model).tools((view(),)).max_replans(1).build().unwrap();
    let (outcome, _) = run(&planner, REQUEST).await;
    let Status::Stopped(StopReason::Tasks { failed, .. }) = outcome.status else { panic!("{outcome:?}") };
    assert_eq!((failed.len(), failed[0].error.as_str()), (1, "No again."));
}

#[tokio::test(start_paused = true)]
async fn bo13_the_planner_asks_the_user_and_the_next_prompt_goes_on() {
    let tool = view();
    let planner_model = ScriptedProvider::named("planner")
        .call("final_answer", json!({"questions": ["Which one?"]}))
        .call("view", json!({}))
        .call("final_answer", json!({"questions": ["Which\u{1b}[2J one?", "When?"]}))
        .call("final_answer", steps([step(1, &[])]))
        .text("The old one stands.");
    let executor_model = looks().call("reply", reply("complete", "It stands."));
    let planner = builder(&planner_model, &executor_model).tools((tool.clone(), edit())).build().unwrap();
    let runtime = runtime();
    let session = runtime.session();
    let asked = session.start(&planner, REQUEST).outcome().await.unwrap();
    assert_eq!((asked.status, tool.finished()), (Status::Completed, 1));
    assert!(
        asked.text.contains("I need to know:\n- Which") && asked.text.ends_with("one?\n- When?"),
        "{}",
        asked.text
    );
    assert!(!asked.text.contains('\u{1b}'));
    // Before a look, questions were sent back.
    assert!(planner_model.requests()[1].messages.last().unwrap().text().contains("before you looked"));
    // No word of the answer asks for a plan, and yet the planner goes on with its own.
    let outcome = session.start(&planner, "The old one, today.").outcome().await.unwrap();
    assert_eq!(outcome.text, "The old one stands.");
    let sent = planner_model.requests()[3].clone();
    let texts: Vec<_> = sent.messages.iter().map(|message| message.text()).collect();
    assert!(texts[0].contains(REQUEST) && texts.last().unwrap().contains("The old one, today."), "{texts:?}");
    let all = events(&session, &runtime).await;
    assert_eq!(tool_calls(&all, "view"), [false], "what it saw before is kept");
    let asked =
        progress(&all).iter().filter(|it| matches!(&***it, PlannerProgress::UserAsked { .. })).count();
    assert_eq!(asked, 1);
}

#[tokio::test(start_paused = true)]
async fn bo13_an_answer_that_reads_like_questions_is_an_answer_all_the_same() {
    let begins = "Before I begin, I need to know:\nnothing more.";
    let form = "Before I begin, I need to know:\n- Which one?";
    for (said, answer) in [(begins, begins.to_owned()), (form, format!("The answer:\n\n{form}"))] {
        let planner_model = ScriptedProvider::named("planner").text(said).text("So it is.");
        let executor_model = looks();
        let planner = builder(&planner_model, &executor_model).tools((view(),)).build().unwrap();
        let session = runtime().session();
        assert_eq!(session.start(&planner, "Look at it.").outcome().await.unwrap().text, answer);
        // No plan: the next request is not about questions.
        assert_eq!(session.start(&planner, "The old one.").outcome().await.unwrap().text, "So it is.");
        assert_eq!(planner_model.count(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn bo04_a_planner_whose_model_fails_fails() {
    let planner_model = ScriptedProvider::named("planner").fail(ErrorKind::Authentication, "no key");
    let executor_model = looks();
    let planner = builder(&planner_model, &executor_model).tools((view(),)).build().unwrap();
    let error = runtime().session().start(&planner, REQUEST).outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Authentication);

    // Without the last answer, the results are the answer.
    let planner_model = plans(steps([step(1, &[])])).fail(ErrorKind::Overloaded, "busy");
    let executor_model = looks().call("reply", reply("complete", "Seen."));
    let planner = builder(&planner_model, &executor_model).tools((view(),)).build().unwrap();
    let (outcome, _) = run(&planner, REQUEST).await;
    assert_eq!(
        (outcome.status, outcome.text.as_str()),
        (Status::Completed, "Step 1 (Look at 1.), completed:\nSeen.")
    );
}

#[tokio::test(start_paused = true)]
async fn bo05_a_cancel_reaches_the_executors() {
    let planner_model = plans(steps([step(1, &[])]));
    let executor_model = looks().call("view", json!({}));
    let tool = FakeTool::new("view").hanging();
    let planner = builder(&planner_model, &executor_model).tools((tool.clone(),)).build().unwrap();
    let session = runtime().session();
    let run = session.start(&planner, REQUEST);
    // The clock moves on only when all of them wait.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(tool.running(), 1);
    run.cancel();
    let outcome = run.outcome().await.unwrap();
    assert_eq!((outcome.status, tool.running()), (Status::Cancelled, 0));
}
