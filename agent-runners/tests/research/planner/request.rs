//! The request in the prompts of a planner: it is there however much was seen since, and whatever was asked about it.

use entourage_core::tool::Access;
use entourage_testkit::{FakeTool, ScriptedProvider};
use serde_json::json;

use super::{REQUEST, builder, edit, looks, plans, reply, run, runtime, step, steps, told, view};

/// What the planner has seen fills its budget: it still knows what it was asked.
#[tokio::test(start_paused = true)]
async fn bo10_the_planner_knows_the_request_however_much_it_has_seen() {
    let own = json!({"number": 2, "description": "Note it.", "tools": ["edit"]});
    let planner_model = ScriptedProvider::named("planner")
        .call("view", json!({}))
        .call("final_answer", steps([step(1, &[9])]))
        .call("view", json!({}))
        .call("final_answer", steps([step(1, &[])]))
        .call("final_answer", steps([own]))
        .text("Noted.")
        .text("Done.");
    let executor_model = looks().call("reply", reply("error", "No."));
    let large = FakeTool::new("view").access(Access::READ).returning("x".repeat(20_000));
    let planner =
        builder(&planner_model, &executor_model).tools((large, edit())).max_replans(1).build().unwrap();
    assert_eq!(run(&planner, REQUEST).await.0.text, "Done.");
    let requests = planner_model.requests();
    assert_eq!(requests.len(), 7);
    for (number, request) in requests.iter().enumerate() {
        let knows = request.messages.iter().any(|message| message.text().contains(REQUEST));
        assert!(knows, "request {number}: {}", request.messages.last().unwrap().text());
    }
}

#[tokio::test(start_paused = true)]
async fn bo13_a_plan_after_questions_is_for_the_request_that_they_were_about() {
    let planner_model = ScriptedProvider::named("planner")
        .call("view", json!({}))
        .call("final_answer", json!({"questions": ["Which one?"]}))
        .call("final_answer", json!({"questions": ["Today?"]}))
        .call("final_answer", steps([step(1, &[])]))
        .text("Done.");
    let executor_model = looks().call("reply", reply("complete", "Seen."));
    let large = FakeTool::new("view").access(Access::READ).returning("x".repeat(20_000));
    let planner = builder(&planner_model, &executor_model).tools((large,)).build().unwrap();
    let session = runtime().session();
    for prompt in ["First, look at both.", "The old one.", "Not today."] {
        session.start(&planner, prompt).outcome().await.unwrap();
    }
    let expected = [
        "First, look at both.",
        "I need to know:\n- Which one?",
        "The old one.",
        "I need to know:\n- Today?",
        "Not today.",
    ];
    let asked = told(&planner_model, 3);
    let assigned = executor_model.requests()[0].messages.get(0).unwrap().text();
    for words in expected {
        assert!(asked.contains(words) && assigned.contains(words), "{words}: {asked} {assigned}");
    }
}

#[tokio::test(start_paused = true)]
async fn bo06_the_planner_that_answers_a_question_knows_the_step() {
    let planner_model = plans(steps([step(1, &[])])).text("The old one.").text("Done.");
    let executor_model =
        looks().call("reply", reply("question", "Which?")).call("reply", reply("complete", "It stands."));
    let planner = builder(&planner_model, &executor_model).tools((view(),)).build().unwrap();
    run(&planner, REQUEST).await;
    let told = told(&planner_model, 1);
    assert!(
        told.contains("Step 1: Look at 1.") && told.contains(REQUEST) && told.contains("Which?"),
        "{told}"
    );
}
