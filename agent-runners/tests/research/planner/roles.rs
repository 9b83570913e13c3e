//! Strategies, roles and permissions.

use std::time::Duration;

use entourage_core::{ErrorKind, provider::FinishReason, run::Status};
use entourage_runners::planner::{PlannerProgress, PlannerStrategy, StepMessageKind};
use entourage_testkit::{Script, ScriptedProvider};
use serde_json::json;

use super::{
    REQUEST, builder, edit, looks, messages, plans, progress, reply, run, step, steps, tool_calls, view,
};

fn strategy(events: &[entourage_core::event::Envelope]) -> (PlannerStrategy, bool) {
    match &*progress(events)[0] {
        PlannerProgress::Analyzed { strategy, by_words, .. } => (*strategy, *by_words),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn bo03_a_cheap_model_chooses_the_strategy_and_without_it_the_words_do() {
    use PlannerStrategy::{Simple, ToolUse};
    let says = |text: &str| looks().text(text);
    let simple = r#"{"strategy": "simple", "reasoning": "A greeting.", "estimated_operations": 0}"#;
    let one = r#"{"strategy": "complex", "estimated_operations": 1, "needs_tools": true}"#;
    for (case, classifier, expected) in [
        ("simple", says(simple), (Simple, false)),
        ("contradicts itself", says(one), (ToolUse, false)),
        ("bad JSON", says("It is simple."), (ToolUse, true)),
        ("unknown strategy", says(r#"{"strategy": "great"}"#), (ToolUse, true)),
        ("fails", looks().fail(ErrorKind::Overloaded, "busy"), (ToolUse, true)),
        (
            "hangs",
            looks()
                .step(Script::new().delay(Duration::from_secs(100)).text(simple).finish(FinishReason::Stop)),
            (ToolUse, true),
        ),
    ] {
        let answers = ScriptedProvider::named("planner").text("Hello.");
        let planner = entourage_runners::planner::Planner::builder("assistant", answers.model())
            .executor(classifier.model())
            .tools((view(),))
            .build()
            .unwrap();
        let (outcome, events) = run(&planner, "Say hello").await;
        assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "Hello."), "{case}");
        assert_eq!(strategy(&events), expected, "{case}");
        assert_eq!(answers.requests()[0].tools.is_empty(), expected.0 == Simple, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn bo01_an_executor_has_the_read_tools_of_its_step_alone() {
    let planner_model = plans(steps([step(1, &[])])).text("A tree.");
    let executor_model = looks().call("reply", reply("complete", "A tree."));
    let tools = (view(), edit(), entourage_testkit::FakeTool::new("grep"));
    let planner = builder(&planner_model, &executor_model).tools(tools).build().unwrap();
    let (outcome, _) = run(&planner, REQUEST).await;
    assert_eq!(outcome.text, "A tree.");
    let names = |request: &entourage_core::provider::Request| {
        request.tools.iter().map(|tool| tool.name().to_owned()).collect::<Vec<_>>()
    };
    let asked = executor_model.requests();
    assert_eq!(names(&asked[0]), ["reply", "view"]);
    assert_eq!((asked[0].params.max_output, asked[0].params.temperature), (Some(1_500), Some(0.3)));
    assert!(asked[0].instructions.starts_with("You do one step of a plan."));
    // The planner plans with what only looks, and answers without tools.
    let asked = planner_model.requests();
    assert_eq!(names(&asked[0]), ["final_answer", "grep", "view"]);
    assert!(
        asked[0]
            .messages
            .last()
            .unwrap()
            .text()
            .contains("Tools of executors: grep, view. Tools of yours alone: edit.")
    );
    assert_eq!((names(&asked[1]).len(), asked[1].params.max_output), (0, Some(500)));
}

#[tokio::test(start_paused = true)]
async fn bo01_the_planner_works_with_all_its_tools() {
    let planner_model = ScriptedProvider::named("planner").call("edit", json!({})).text("Written.");
    let (executor_model, tool) = (looks(), edit());
    let planner = builder(&planner_model, &executor_model).tools((view(), tool.clone())).build().unwrap();
    let (outcome, _) = run(&planner, "Write it").await;
    assert_eq!((outcome.text.as_str(), tool.finished()), ("Written.", 1));
}

#[tokio::test(start_paused = true)]
async fn bo02_an_executor_that_writes_gets_an_error_and_nothing_runs() {
    let own = json!({"number": 2, "description": "Write it.", "tools": ["edit"], "depends_on": [1]});
    let planner_model =
        plans(steps([step(1, &[]), own])).call("edit", json!({})).text("Written.").text("Done.");
    let executor_model =
        looks().call("edit", json!({})).call("reply", reply("complete", "The planner must write it."));
    let tool = edit();
    let planner = builder(&planner_model, &executor_model).tools((view(), tool.clone())).build().unwrap();
    let (outcome, events) = run(&planner, REQUEST).await;
    assert_eq!((outcome.text.as_str(), outcome.status), ("Done.", Status::Completed));
    // The executor's call is refused and recorded; the planner's step writes.
    assert_eq!((tool_calls(&events, "edit").len(), tool.started()), (2, 1));
    let refused =
        executor_model.requests()[1].messages.last().unwrap().tool_results().next().unwrap().clone();
    assert!(
        refused.is_error && refused.to_text().contains("outside this agent's scope"),
        "{}",
        refused.to_text()
    );
    // It reports back, and the planner's step is told.
    assert_eq!(messages(&events).last().unwrap().kind, StepMessageKind::TaskComplete);
    assert!(
        planner_model.requests()[1].messages.last().unwrap().text().contains("The planner must write it.")
    );
}

#[tokio::test(start_paused = true)]
async fn bo02_a_plan_that_gives_an_executor_a_write_tool_goes_back() {
    let mut writes = step(1, &[]);
    writes["tools"] = json!(["edit"]);
    let planner_model = plans(steps([writes])).call("final_answer", steps([step(1, &[])])).text("Done.");
    let executor_model = looks().call("reply", reply("complete", "Seen."));
    let planner = builder(&planner_model, &executor_model).tools((view(), edit())).build().unwrap();
    assert!(run(&planner, REQUEST).await.0.is_completed());
    let told = planner_model.requests()[1].messages.last().unwrap().text();
    assert!(told.contains("step 1 gives an executor `edit`, which needs write access"), "{told}");
}
