//! The request in the prompts of a planner: it is there however much was seen since, and whatever was asked about it.

use std::mem::ManuallyDrop;

use entourage_core::{ErrorKind, run::Status, tool::Access};
use entourage_runtime::{MemoryStore, permission::Policy};
use entourage_testkit::{self as testkit, FakeTool, ScriptedProvider};
use serde_json::json;

use super::{
    REQUEST, broken_off::own, builder, edit, looks, plans, reply, run, runtime, step, steps, told, view,
};

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

/// Steps that were done before the user was asked are not asked for again, and those after them get their results.
#[tokio::test(start_paused = true)]
async fn bo13_a_plan_after_questions_keeps_what_earlier_plans_did() {
    let planner_model = plans(steps([step(1, &[]), step(2, &[1])]))
        .call("view", json!({}))
        .call("final_answer", json!({"questions": ["Which one?"]}))
        .call("final_answer", steps([step(3, &[1])]))
        .text("Done.");
    let executor_model = looks()
        .call("reply", reply("complete", "The bill is paid."))
        .call("reply", reply("error", "Two of them."))
        .call("reply", reply("complete", "Seen."));
    let large = FakeTool::new("view").access(Access::READ).returning("x".repeat(20_000));
    let planner =
        builder(&planner_model, &executor_model).tools((large, edit())).max_replans(1).build().unwrap();
    let session = runtime().session();
    session.start(&planner, REQUEST).outcome().await.unwrap();
    let outcome = session.start(&planner, "The old one.").outcome().await.unwrap();
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "Done."));
    let paid = "<result of=\"step 1\">\nThe bill is paid.";
    let asked = told(&planner_model, 3);
    for words in [REQUEST, "The old one.", paid, "), failed:", "Two of them.", "Number the new steps from 3."]
    {
        assert!(asked.contains(words), "{words}: {asked}");
    }
    let given = executor_model.requests()[2].messages.get(0).unwrap().text();
    assert!(given.contains(paid), "{given}");
    let answered = told(&planner_model, 4);
    assert!(answered.contains(paid) && answered.contains("Seen."), "{answered}");
}

/// The run of an answer that failed leaves the request, the answer and what was done to the next one.
#[tokio::test(start_paused = true)]
async fn bo13_a_prompt_after_a_run_that_failed_goes_on_with_the_request() {
    let planner_model = ScriptedProvider::named("planner")
        .call("view", json!({}))
        .call("final_answer", json!({"questions": ["Which one?"]}))
        .fail(ErrorKind::Authentication, "no key")
        .call("final_answer", steps([step(1, &[]), step(2, &[1])]))
        .fail(ErrorKind::Authentication, "no key again")
        .call("final_answer", steps([step(3, &[1])]))
        .text("Done.");
    let executor_model = looks()
        .call("reply", reply("complete", "Paid."))
        .call("reply", reply("error", "No."))
        .call("reply", reply("complete", "Seen."));
    let planner = builder(&planner_model, &executor_model).tools((view(),)).max_replans(1).build().unwrap();
    let session = runtime().session();
    for (prompt, works) in
        [(REQUEST, true), ("The old one.", false), ("Try it.", false), ("Please try again.", true)]
    {
        assert_eq!(session.start(&planner, prompt).outcome().await.is_ok(), works, "{prompt}");
    }
    let asked = told(&planner_model, 5);
    for words in [REQUEST, "Which one?", "The old one.", "Try it.", "Please try again.", "Paid.", "No."] {
        assert!(asked.contains(words), "{words}: {asked}");
    }
    assert!(told(&planner_model, 6).contains("Paid."));
}

/// The numbers of a plan in a later run have room above those before, whatever these were.
#[tokio::test(start_paused = true)]
async fn bo13_a_plan_after_questions_has_room_for_its_numbers() {
    let planner_model = plans(steps([step(1_000_000, &[])]))
        .call("view", json!({}))
        .call("final_answer", json!({"questions": ["Which one?"]}))
        .call("final_answer", steps([step(1_000_001, &[])]))
        .text("Done.");
    let executor_model =
        looks().call("reply", reply("error", "Two of them.")).call("reply", reply("complete", "Seen."));
    let planner = builder(&planner_model, &executor_model).tools((view(),)).max_replans(1).build().unwrap();
    let session = runtime().session();
    session.start(&planner, REQUEST).outcome().await.unwrap();
    let outcome = session.start(&planner, "The old one.").outcome().await.unwrap();
    assert!(told(&planner_model, 3).contains("Number the new steps from 1000001."));
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "Done."));
}

/// A run that failed after a part of its plan leaves that to the next ones, though one of them fails at once.
#[tokio::test(start_paused = true)]
async fn bo05_what_a_run_without_an_answer_did_is_kept_by_the_next_one() {
    let planner_model = plans(steps([step(1, &[]), step(2, &[1])]))
        .fail(ErrorKind::Authentication, "no key")
        .fail(ErrorKind::Authentication, "no key again")
        .call("final_answer", steps([step(3, &[1])]))
        .text("Done.")
        .call("final_answer", steps([step(1, &[])]))
        .text("Another one.");
    let executor_model = looks()
        .call("reply", reply("complete", "Paid."))
        .call("reply", reply("error", "No."))
        .call("reply", reply("complete", "Seen."))
        .call("reply", reply("complete", "Seen once more."));
    let planner = builder(&planner_model, &executor_model).tools((view(),)).max_replans(1).build().unwrap();
    let session = runtime().session();
    for (prompt, works) in
        [(REQUEST, false), ("Then try it again.", false), ("Then again.", true), (REQUEST, true)]
    {
        assert_eq!(session.start(&planner, prompt).outcome().await.is_ok(), works, "{prompt}");
    }
    let asked = told(&planner_model, 3);
    for words in ["Then again.", "Paid.", "No.", "Number the new steps from 3."] {
        assert!(asked.contains(words), "{words}: {asked}");
    }
    assert!(told(&planner_model, 4).contains("Paid."));
    let other = told(&planner_model, 5);
    assert!(!other.contains("Plans before"), "{other}");
}

/// The same words as those of an earlier request are another request.
#[tokio::test(start_paused = true)]
async fn bo13_what_another_request_did_is_not_done_for_this_one() {
    let planner_model = plans(steps([step(1, &[])]))
        .text("Done.")
        .call("view", json!({}))
        .call("final_answer", json!({"questions": ["Which one?"]}))
        .call("final_answer", steps([step(1, &[])]))
        .text("Done.");
    let executor_model =
        looks().call("reply", reply("complete", "Paid.")).call("reply", reply("complete", "Paid twice."));
    let planner = builder(&planner_model, &executor_model).tools((view(),)).build().unwrap();
    let session = runtime().session();
    for prompt in [REQUEST, REQUEST, "The old one."] {
        session.start(&planner, prompt).outcome().await.unwrap();
    }
    let asked = told(&planner_model, 4);
    assert!(!asked.contains("Plans before") && asked.contains("The old one."), "{asked}");
}

/// A request with very many questions is one request from its first plan to its last.
#[tokio::test(start_paused = true)]
async fn bo13_a_request_stays_the_same_after_any_number_of_questions() {
    const LAST: u32 = 13;
    let session = testkit::runtime().policy(Policy::allow_all()).store(MemoryStore::new()).build().session();
    for round in 0..=LAST + 1 {
        let number = 2 * round + 1;
        let (begins, fails) = (own(number, &[]), step(number + 1, &[number]));
        let steps = if round < LAST { steps([begins, fails]) } else { steps([begins]) };
        let model = plans(steps).call("edit", json!({})).text(format!("Noted {round}."));
        let model = if round < LAST {
            model
                .call("view", json!({}))
                .call("final_answer", json!({"questions": [format!("Which {round}?")]}))
        } else {
            model.text("Done.")
        };
        let other = looks().call("reply", reply("error", "No."));
        let planner = builder(&model, &other).max_replans(1).tools((view(), edit())).build().unwrap();
        let prompt = match round {
            0 => REQUEST.to_owned(),
            round if round > LAST => "First do another, then tell.".to_owned(),
            round => format!("This, {round}."),
        };
        assert!(session.start(&planner, prompt).outcome().await.unwrap().is_completed());
        let asked = told(&model, 0);
        assert!(!asked.contains("An earlier request"), "{round}: {asked}");
        let noted = (0..round).filter(|round| asked.contains(&format!("Noted {round}."))).count();
        assert_eq!(noted, if round > LAST { 0 } else { round as usize }, "{round}: {asked}");
        assert_eq!(asked.contains(REQUEST), round <= LAST, "{round}: {asked}");
        let _unused = ManuallyDrop::new([model, other]);
    }
}
