//! Budgets of input by part, and bounds on plans.

use entourage_core::{ErrorKind, provider::FinishReason};
use entourage_runners::planner::{ConversationLimits, PartBudgets};
use entourage_testkit::{Script, ScriptedProvider};
use serde_json::json;

use super::{REQUEST, builder, looks, plans, reply, run, runtime, step, steps, told, view};

#[test]
fn bo10_a_fixed_part_over_its_budget_is_a_build_error_that_names_it() {
    let (plans, looks) = (ScriptedProvider::new(), ScriptedProvider::new());
    let build = || builder(&plans, &looks).tools((view(),));
    let budgets = PartBudgets::default();
    for (part, built) in [
        ("planner system", build().instructions("x".repeat(3_201)).build()),
        ("planner location", build().location("x".repeat(4_001)).build()),
        ("planner profile", build().profile("x".repeat(1_201)).build()),
        ("executor system", build().budgets(budgets.with_executor_system(10)).build()),
        ("executor tools: view", build().budgets(budgets.with_executor_tools(1)).build()),
    ] {
        let error = built.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{part}");
        assert!(error.message().contains(&format!("`{part}`")), "{part}: {error}");
    }
    assert!(build().location("x".repeat(4_000)).profile("x".repeat(1_200)).build().is_ok());
}

#[tokio::test(start_paused = true)]
async fn bo10_the_place_and_the_user_join_the_planners_instructions() {
    let planner_model = ScriptedProvider::named("planner").text("Hello.");
    let executor_model = looks();
    let planner = builder(&planner_model, &executor_model)
        .instructions("You are kind.")
        .location("An orchard.")
        .profile("A gardener.")
        .build()
        .unwrap();
    run(&planner, "Hello").await;
    assert_eq!(&*planner_model.requests()[0].instructions, "You are kind.\n\nAn orchard.\n\nA gardener.");
}

#[tokio::test(start_paused = true)]
async fn bo10_a_long_conversation_loses_its_oldest_exchanges() {
    let answer = "y".repeat(1_000);
    let planner_model =
        (0..5).fold(ScriptedProvider::named("planner"), |plans, _| plans.text(answer.clone()));
    let executor_model = looks();
    // 250 tokens an answer: two exchanges and the new prompt.
    let budgets = PartBudgets::default().with_planner_conversation(600);
    let planner = builder(&planner_model, &executor_model).budgets(budgets).build().unwrap();
    let session = runtime().session();
    for n in 0..5 {
        session.start(&planner, format!("prompt {n}")).outcome().await.unwrap();
    }
    let sent = planner_model.requests()[4].clone();
    let texts: Vec<_> = sent.messages.iter().map(|message| message.text()).collect();
    assert_eq!(texts, ["prompt 2", &answer, "prompt 3", &answer, "prompt 4"]);
}

#[tokio::test(start_paused = true)]
async fn bo10_data_of_an_executor_is_cut_and_its_assignment_stays() {
    let planner_model = plans(steps([step(1, &[]), step(2, &[1])])).text("Done.");
    let long = "z".repeat(5_000);
    let executor_model = looks()
        .call("reply", reply("complete", &long))
        .call("reply", reply("partial", &long))
        .call("reply", reply("partial", &long))
        .call("reply", reply("complete", "Seen."));
    let planner = builder(&planner_model, &executor_model).tools((view(),)).build().unwrap();
    assert!(run(&planner, REQUEST).await.0.is_completed());
    let asked = executor_model.requests();
    let data = asked[1].messages.get(0).unwrap().text();
    assert!(data.len() < 4 * 400 + 300 && data.contains("zzz…"), "{}", data.len());
    // The first partial result is left out of the last turn, the assignment is not.
    let last: Vec<_> = asked[3].messages.iter().collect();
    assert!(last[0].text().starts_with("Step 2"));
    assert!(last.len() < 7, "{}", last.len());
}

#[tokio::test(start_paused = true)]
async fn bo10_a_step_over_its_budget_goes_back_to_the_planner() {
    let mut long = step(1, &[]);
    long["description"] = json!("x".repeat(801));
    let planner_model = plans(steps([long])).call("final_answer", steps([step(1, &[])])).text("Done.");
    let executor_model = looks().call("reply", reply("complete", "Seen."));
    let planner = builder(&planner_model, &executor_model).tools((view(),)).build().unwrap();
    assert!(run(&planner, REQUEST).await.0.is_completed());
    let told = planner_model.requests()[1].messages.last().unwrap().text();
    assert!(told.contains("step 1 has a description of 201 tokens; 200 are allowed"), "{told}");
}

/// An answer that was cut says so, and of one that the service withheld the results of the steps are left.
#[tokio::test(start_paused = true)]
async fn bo03_an_answer_that_broke_off_is_no_whole_one() {
    for (reason, expected) in [
        (FinishReason::Stop, "Half of it"),
        (FinishReason::Length, "Half of it\n\n[… the answer was cut at its limit]"),
        (FinishReason::ContentFilter, "Step 1 (Look at 1.), completed:\nSeen."),
        (FinishReason::Refusal, "Step 1 (Look at 1.), completed:\nSeen."),
    ] {
        let half = Script::new().text("Half of it").finish(reason);
        let planner_model = plans(steps([step(1, &[])])).step(half);
        let executor_model = looks().call("reply", reply("complete", "Seen."));
        let planner = builder(&planner_model, &executor_model).tools((view(),)).build().unwrap();
        let outcome = run(&planner, REQUEST).await.0;
        assert_eq!((outcome.is_completed(), outcome.text.as_str()), (true, expected), "{reason:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn attack_22_a_plan_that_is_too_long_goes_back_once_and_then_fails_the_run() {
    let steps_of = |count| steps((1..=count).map(|number| step(number, &[])));
    let cut = || Script::new().text("{\"steps\": [{\"number\": 1, ").finish(FinishReason::Length);
    let long = || {
        let mut step = step(1, &[]);
        step["description"] = "x".repeat(300_000).into();
        steps([step])
    };
    let plan = |draft| ScriptedProvider::named("planner").call("final_answer", draft);
    for (problem, planner_model) in [
        ("it has 3 steps, and 2 are allowed", plan(steps_of(3)).call("final_answer", steps_of(3))),
        ("it takes more than 900 tokens", ScriptedProvider::named("planner").step(cut()).step(cut())),
        ("and 262144 are allowed", plan(long()).call("final_answer", long())),
    ] {
        let executor_model = looks();
        let limits = ConversationLimits::default().with_plan_steps(2).with_plan_output(900);
        let planner = builder(&planner_model, &executor_model).tools((view(),)).limits(limits);
        let planner = planner.build().unwrap();
        let error = runtime().session().start(&planner, REQUEST).outcome().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{problem}: {error}");
        assert!(error.message().contains(problem) && error.message().contains("raise"), "{error}");
        assert_eq!((planner_model.count(), executor_model.count()), (2, 0), "{problem}");
        assert!(told(&planner_model, 1).contains(problem), "{problem}");
        assert_eq!(planner_model.requests()[0].params.max_output, Some(900));
    }
    // A shorter one runs.
    let planner_model = ScriptedProvider::named("planner").step(cut()).call("final_answer", steps_of(1));
    let planner_model = planner_model.text("Done.");
    let executor_model = looks().call("reply", reply("complete", "Seen."));
    let planner = builder(&planner_model, &executor_model).tools((view(),)).build().unwrap();
    assert_eq!(run(&planner, REQUEST).await.0.text, "Done.");
    let none = ConversationLimits::default().with_plan_steps(0);
    let error = builder(&planner_model, &executor_model).limits(none).build().unwrap_err();
    assert!(error.kind() == ErrorKind::Config && error.message().contains("`plan_steps`"), "{error}");
}
