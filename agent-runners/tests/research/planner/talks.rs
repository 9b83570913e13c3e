//! Conversations between planner and executor, and their limits.

use std::time::Duration;

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, Result,
    message::Role,
    permission::{ApprovalRequest, Approver, Decision},
    provider::FinishReason,
    run::{Outcome, Status, StopReason},
};
use entourage_runners::planner::{ConversationLimits, Planner, StepMessageKind};
use entourage_runtime::permission::Policy;
use entourage_testkit::{self as testkit, FakeTool, Script, ScriptedProvider};
use serde_json::json;

use super::{REQUEST, builder, looks, messages, plans, reply, run, step, steps, view};

/// Returns the reason that the only step failed for.
fn reason(outcome: &Outcome) -> String {
    let Status::Stopped(StopReason::Tasks { failed, .. }) = &outcome.status else { panic!("{outcome:?}") };
    failed[0].error.clone()
}

fn one_step(
    planner_model: &ScriptedProvider,
    executor_model: &ScriptedProvider,
    tool: FakeTool,
    limits: ConversationLimits,
) -> Planner {
    builder(planner_model, executor_model).tools((tool,)).limits(limits).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn bo06_a_question_is_answered_by_the_planner_and_then_the_step_is_complete() {
    use StepMessageKind::{Clarification, Question, TaskAssignment, TaskComplete};
    let planner_model = plans(steps([step(1, &[])])).text("The old one.").text("Done.");
    let executor_model = looks()
        .call("reply", reply("question", "Which tree?"))
        .call("view", json!({}))
        .call("reply", reply("complete", "It stands."));
    let planner = one_step(&planner_model, &executor_model, view(), ConversationLimits::default());
    let (outcome, events) = run(&planner, REQUEST).await;
    assert_eq!(outcome.text, "Done.");
    let messages = messages(&events);
    let said: Vec<_> =
        messages.iter().map(|it| (it.turn, it.most, it.kind, &*it.text, it.tool_calls)).collect();
    assert!(said[0].3.starts_with("Step 1: Look at 1."), "{said:?}");
    assert_eq!((said[0].0, said[0].2), (1, TaskAssignment));
    let rest = [
        (1, 10, Question, "Which tree?", 0),
        (2, 10, Clarification, "The old one.", 0),
        (2, 10, TaskComplete, "It stands.", 1),
    ];
    assert_eq!(said[1..], rest);
    // To the executor the planner is the user, and it is the assistant.
    let roles: Vec<_> = executor_model.requests()[1].messages.iter().map(|message| message.role()).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::User]);
    let asked = planner_model.requests()[1].clone();
    assert!(asked.messages.last().unwrap().text().contains("Which tree?"));
    assert_eq!((asked.params.max_output, asked.params.temperature), (Some(1_000), Some(0.7)));
}

#[tokio::test(start_paused = true)]
async fn bo08_texts_without_a_reply_are_partial_results_whatever_their_words() {
    let planner_model = plans(steps([step(1, &[])])).text("Done.");
    let executor_model =
        looks().text("no errors, task complete").text("failed tests: 0").text("TASK COMPLETE: It stands.");
    let planner = one_step(&planner_model, &executor_model, view(), ConversationLimits::default());
    let (outcome, events) = run(&planner, REQUEST).await;
    assert!(outcome.is_completed());
    let messages = messages(&events);
    let kinds: Vec<_> =
        messages.iter().filter(|it| it.kind.is_by_executor()).map(|it| (it.kind, &*it.text)).collect();
    assert_eq!(
        kinds,
        [
            (StepMessageKind::PartialResult, "no errors, task complete"),
            (StepMessageKind::PartialResult, "failed tests: 0"),
            (StepMessageKind::TaskComplete, "It stands."),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn bo07_the_tenth_turn_is_the_last_and_can_complete() {
    let partial =
        |turns: usize| (0..turns).fold(looks(), |looks, _| looks.call("reply", reply("partial", "half")));
    let planner_model = plans(steps([step(1, &[])])).text("Done.");
    let executor_model = partial(9).call("reply", reply("complete", "Seen."));
    let planner = one_step(&planner_model, &executor_model, view(), ConversationLimits::default());
    assert!(run(&planner, REQUEST).await.0.is_completed());

    let planner_model = plans(steps([step(1, &[])])).text("It failed.");
    let executor_model = partial(10);
    let planner = one_step(&planner_model, &executor_model, view(), ConversationLimits::default());
    let (outcome, _) = run(&planner, REQUEST).await;
    assert_eq!(reason(&outcome), "the executor had no result after 10 turns");
}

#[tokio::test(start_paused = true)]
async fn bo07_a_turn_takes_60_seconds_at_most() {
    let planner_model = plans(steps([step(1, &[])])).text("It failed.");
    let executor_model = looks().call("view", json!({}));
    let began = tokio::time::Instant::now();
    let hangs = FakeTool::new("view").hanging();
    let planner = one_step(&planner_model, &executor_model, hangs, ConversationLimits::default());
    let (outcome, events) = run(&planner, REQUEST).await;
    assert_eq!(reason(&outcome), "a turn of the executor took longer than 60s");
    assert!((60..61).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    assert_eq!(messages(&events).last().unwrap().kind, StepMessageKind::Error);
}

/// An approver that takes ten minutes.
#[derive(Debug)]
struct Slow;

#[async_trait]
impl Approver for Slow {
    async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
        tokio::time::sleep(Duration::from_secs(600)).await;
        Ok(Decision::Allow)
    }
}

#[tokio::test(start_paused = true)]
async fn bo07_the_time_of_a_person_does_not_count_in_a_turn() {
    let planner_model = plans(steps([step(1, &[])])).text("Done.");
    let executor_model = looks().call("view", json!({})).call("reply", reply("complete", "Seen."));
    let began = tokio::time::Instant::now();
    let planner = one_step(&planner_model, &executor_model, view(), ConversationLimits::default());
    let runtime = testkit::runtime().policy(Policy::allow_all().ask("view")).approver(Slow).build();
    let outcome = runtime.session().start(&planner, REQUEST).outcome().await.unwrap();
    assert_eq!((outcome.text.as_str(), began.elapsed().as_secs()), ("Done.", 600));
}

#[tokio::test(start_paused = true)]
async fn bo07_an_answer_of_the_planner_takes_30_seconds_at_most() {
    let late = Script::new().delay(Duration::from_secs(31)).text("The old one.").finish(FinishReason::Stop);
    let planner_model = plans(steps([step(1, &[])])).step(late).text("It failed.");
    let executor_model = looks().call("reply", reply("question", "Which tree?"));
    let began = tokio::time::Instant::now();
    let planner = one_step(&planner_model, &executor_model, view(), ConversationLimits::default());
    let (outcome, _) = run(&planner, REQUEST).await;
    assert_eq!(reason(&outcome), "the planner did not answer within 30s");
    assert!((30..31).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn bo07_a_conversation_takes_300_seconds_at_most() {
    let slow = || {
        let script = Script::new().delay(Duration::from_secs(55)).call("reply", &reply("partial", "half"));
        script.finish(FinishReason::ToolCalls)
    };
    let planner_model = plans(steps([step(1, &[])])).text("It failed.");
    let executor_model = (0..6).fold(looks(), |looks, _| looks.step(slow()));
    let began = tokio::time::Instant::now();
    let planner = one_step(&planner_model, &executor_model, view(), ConversationLimits::default());
    let (outcome, _) = run(&planner, REQUEST).await;
    assert!(reason(&outcome).contains("longer than 300s"), "{}", reason(&outcome));
    assert!((300..301).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn bo07_a_turn_has_ten_tool_calls_at_most() {
    let planner_model = plans(steps([step(1, &[])])).text("Done.");
    let many = |count: usize| vec![("view", json!({})); count];
    let executor_model = looks().calls(many(10)).call("reply", reply("complete", "Seen."));
    let tool = view();
    let planner = one_step(&planner_model, &executor_model, tool.clone(), ConversationLimits::default());
    assert!(run(&planner, REQUEST).await.0.is_completed());
    assert_eq!(tool.finished(), 10);

    let planner_model = plans(steps([step(1, &[])])).text("It failed.");
    let executor_model = looks().calls(many(7)).calls(many(4));
    let tool = view();
    let planner = one_step(&planner_model, &executor_model, tool.clone(), ConversationLimits::default());
    let (outcome, _) = run(&planner, REQUEST).await;
    assert_eq!(reason(&outcome), "the executor asked for more than 10 tool calls in one turn");
    assert_eq!(tool.finished(), 7);
}

#[tokio::test(start_paused = true)]
async fn bo07_a_tool_that_fails_is_tried_again_twice() {
    let planner_model = plans(steps([step(1, &[])])).text("Done.");
    let executor_model = (0..4)
        .fold(looks(), |looks, n| looks.call("view", json!({"n": n})))
        .call("reply", reply("complete", "Not seen."));
    let tool = FakeTool::new("view").telling("it is dark");
    let planner = one_step(&planner_model, &executor_model, tool.clone(), ConversationLimits::default());
    let (outcome, _) = run(&planner, REQUEST).await;
    assert!(outcome.is_completed());
    assert_eq!(tool.started(), 3);
    let told = executor_model.requests()[4].messages.last().unwrap().tool_results().next().unwrap().to_text();
    assert!(told.contains("`view` failed 3 times in this turn"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn bo07_an_executor_whose_model_fails_fails_its_step() {
    let planner_model = plans(steps([step(1, &[])])).text("It failed.");
    let executor_model = looks().fail(ErrorKind::Authentication, "no key");
    let planner = one_step(&planner_model, &executor_model, view(), ConversationLimits::default());
    let (outcome, _) = run(&planner, REQUEST).await;
    assert!(reason(&outcome).contains("no key"), "{}", reason(&outcome));
}

#[test]
fn bo07_limits_of_zero_are_refused() {
    let (plans, looks) = (ScriptedProvider::new(), ScriptedProvider::new());
    let limits = ConversationLimits::default();
    for (name, limits) in [
        ("turns", limits.with_turns(0)),
        ("time", limits.with_time(Duration::ZERO)),
        ("turn_time", limits.with_turn_time(Duration::ZERO)),
        ("answer_time", limits.with_answer_time(Duration::ZERO)),
    ] {
        let error = builder(&plans, &looks).limits(limits).build().unwrap_err();
        assert!(
            error.kind() == ErrorKind::Config && error.message().contains(&format!("`{name}`")),
            "{error}"
        );
    }
    assert!(builder(&plans, &looks).executors_at_once(0).build().is_err());
}
