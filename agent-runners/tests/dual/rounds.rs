//! Rounds of work and check, and how they end.

use std::time::Duration;

use entourage_core::{
    ErrorKind, Timestamp,
    budget::BudgetLimits,
    provider::{FinishReason, ToolChoice},
    run::{Limits, Status, StopReason, Task},
    tool::Access,
};
use entourage_runners::{CheckedTask, DualAgent, LoopDetection, ReactAgent};
use entourage_runtime::AgentExt;
use entourage_runtime::permission::Policy;
use entourage_testkit::{self as testkit, FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::{
    common::{memory, runtime_on},
    pair::{builder, checker, done, executor, pair, phases, session, told, two_rounds},
};

#[tokio::test(start_paused = true)]
async fn cw03_a_rejected_turn_goes_back_with_the_feedback_and_an_accepted_one_ends_the_task() {
    let (works, checks) = two_rounds();
    let store = memory();
    let runtime = runtime_on(&store);
    let outcome = session(&runtime).start(&pair(&works, &checks), "Write it.").outcome().await.unwrap();
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "Summary two."));
    assert_eq!((outcome.steps, outcome.usage.total()), (0, None), "what was used is in the sessions below");
    assert_eq!(
        phases(&store).await,
        [
            "1 execute",
            "1 execute completed",
            "1 summarize",
            "1 summarize completed",
            "1 check",
            "1 check rejected",
            "2 execute",
            "2 execute completed",
            "2 summarize",
            "2 summarize completed",
            "2 check",
            "2 check accepted"
        ]
    );
    let last = &works.requests()[3];
    let heard = told(&last.messages);
    assert_eq!((heard[0].as_str(), heard[4].as_str()), ("U: Write it.", "U: Test it."));
    // The summary step may call no tool, but its request still carries them.
    assert_eq!((last.tools.len(), last.tool_choice.clone()), (1, ToolChoice::None));
    assert_eq!(works.requests()[2].tool_choice, ToolChoice::Auto);
    assert_eq!(CheckedTask::of(&session(&runtime).state().await.unwrap()).unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn cw03_a_task_that_is_never_called_complete_ends_as_incomplete_with_what_is_left() {
    let (mut works, mut checks) = (ScriptedProvider::new(), ScriptedProvider::new());
    for round in 1..=10 {
        works = works.text("Done!").text(format!("Summary {round}."));
        checks = checks.text(format!("It is not done, {round}."));
    }
    let runtime = runtime_on(&memory());
    let work = session(&runtime);
    let outcome = work.start(&pair(&works, &checks), "Write it.").outcome().await.unwrap();
    let reason = StopReason::Incomplete { iterations: 10, feedback: "It is not done, 10.".into() };
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Stopped(reason), "Summary 10."));
    assert_eq!(told(&work.history().await.unwrap()), ["U: Write it.", "A: Summary 10."]);
    let (works, checks) = (ScriptedProvider::new().text("a").text("b"), ScriptedProvider::new().text("No."));
    let error = builder(&works, &checks).iterations(1).build().unwrap().ask("Do it").await.unwrap_err();
    assert!(error.message().contains("not complete after 1 attempt:"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn cw03_the_caller_sees_one_stream_and_both_agents_in_it() {
    let (works, checks) = two_rounds();
    let mut run = session(&runtime_on(&memory())).start(&pair(&works, &checks), "Write it.");
    let mut agents = std::collections::BTreeSet::new();
    while let Some(event) = run.next().await {
        agents.insert(event.origin.agent.to_string());
    }
    assert_eq!(agents.into_iter().collect::<Vec<_>>(), ["pair", "pair/coder", "pair/reviewer"]);
}

#[tokio::test(start_paused = true)]
async fn cw06_a_blank_or_failed_summary_is_replaced_by_the_digest_of_the_turn() {
    let blank = || Script::new().text(" \n").finish(FinishReason::Stop);
    let failed = || Script::refuse(ErrorKind::InvalidInput, "no summaries today");
    let disobeying =
        || Script::new().text("Let me write more.").call("write", &json!({})).finish(FinishReason::ToolCalls);
    for script in [blank(), failed(), disobeying()] {
        let works =
            ScriptedProvider::new().call("write", json!({"path": "a.rs"})).text("I wrote it.").step(script);
        let checks = ScriptedProvider::new().call("task_complete", done("I saw it."));
        let outcome = session(&runtime_on(&memory()))
            .start(&pair(&works, &checks), "Write it.")
            .outcome()
            .await
            .unwrap();
        assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "I wrote it."));
        let shown = checks.requests()[0].messages.last().unwrap().text();
        assert_eq!(shown, "- write(path: \"a.rs\"): written\nI wrote it.");
    }
}

#[tokio::test(start_paused = true)]
async fn cw03_a_turn_that_reached_its_own_bound_is_checked_without_a_summary() {
    let mut limits = Limits::default();
    limits.steps = 2;
    let works = ScriptedProvider::new().call("write", json!({})).call("write", json!({}));
    let checks = ScriptedProvider::new().call("task_complete", done("Enough."));
    let executor = ReactAgent::builder("coder", works.model())
        .tool(FakeTool::new("write").access(Access::WRITE))
        .limits(limits)
        .loops(LoopDetection::off())
        .build()
        .unwrap();
    let pair = DualAgent::builder("pair", executor, checker(&checks)).build().unwrap();
    let outcome = session(&runtime_on(&memory())).start(&pair, "Write it.").outcome().await.unwrap();
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "- write(): ok\n- write(): ok"));
}

#[tokio::test(start_paused = true)]
async fn cw03_a_refusal_ends_the_task_as_refused_in_either_turn() {
    for tool in ["write", "look"] {
        let works = ScriptedProvider::by_history();
        let works = if tool == "write" {
            works.call("write", json!({})).text("never")
        } else {
            works.text("Done.").text("Summary.")
        };
        let checks = ScriptedProvider::by_history().call("look", json!({})).text("never");
        let store = memory();
        let runtime = testkit::runtime()
            .policy(Policy::allow_all().deny(tool))
            .shared_store(std::sync::Arc::clone(&store))
            .build();
        let outcome = session(&runtime).start(&pair(&works, &checks), "Write it.").outcome().await.unwrap();
        assert_eq!(outcome.status, Status::Stopped(StopReason::Denied(tool.into())));
        assert_eq!(CheckedTask::of(&session(&runtime).state().await.unwrap()).unwrap(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn cw03_a_failure_of_either_agent_is_the_runs_failure_and_never_completion() {
    let works = ScriptedProvider::new().fail(ErrorKind::InvalidInput, "no work today");
    let error = pair(&works, &ScriptedProvider::new()).ask("Write it.").await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::InvalidInput, "no work today"));
    let works = ScriptedProvider::new().text("Done.").text("All of it is done.");
    let checks = ScriptedProvider::new().fail(ErrorKind::Overloaded, "no checks today");
    let error = pair(&works, &checks).ask("Write it.").await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Overloaded, "no checks today"));
}

#[tokio::test(start_paused = true)]
async fn cw11_each_role_has_its_own_model_and_an_unknown_role_is_an_error() {
    let (works, checks) = two_rounds();
    let never = ScriptedProvider::new();
    let agent = pair(&never, &checks).with_model("executor", works.model()).unwrap();
    assert_eq!(agent.ask("Write it.").await.unwrap(), "Summary two.");
    let (works, checks) = two_rounds();
    let agent = pair(&works, &never).with_model("discriminator", checks.model()).unwrap();
    assert_eq!(agent.ask("Write it.").await.unwrap(), "Summary two.");
    for role in ["verifier", "judge", "", "Executor"] {
        let error = agent.with_model(role, never.model()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains("`executor` and `discriminator`"), "{error}");
    }
    let reading = builder(&never, &never).read_only().build().unwrap();
    assert!(reading.with_model("verifier", never.model()).is_ok());
}

#[test]
fn a_pair_that_could_not_work_is_refused_when_it_is_built() {
    let provider = ScriptedProvider::new();
    let claims = FakeTool::new("task_complete");
    let with_claims = ReactAgent::builder("a", provider.model()).tool(claims).build().unwrap();
    let scope = entourage_core::permission::Scope::all().with_tools(["look"]);
    let narrow = ReactAgent::builder("b", provider.model()).scope(scope).build().unwrap();
    let fine = || (executor(&provider), checker(&provider));
    let builders = [
        DualAgent::builder("pair", with_claims.clone(), fine().1),
        DualAgent::builder("pair", fine().0, with_claims),
        DualAgent::builder("pair", fine().0, narrow),
        DualAgent::builder("no name", fine().0, fine().1),
        DualAgent::builder("pair", fine().0, fine().1).iterations(0),
    ];
    for builder in builders {
        assert_eq!(builder.build().unwrap_err().kind(), ErrorKind::Config);
    }
}

#[tokio::test(start_paused = true)]
async fn cw03_a_budget_that_is_used_up_ends_the_task_wherever_it_is() {
    // The first call fits, with its reservation; the summary and the check do not.
    let limits = BudgetLimits::none().with_model_calls(1);
    let works = ScriptedProvider::new().text("I wrote it.");
    let checks = ScriptedProvider::new();
    let task = Task::new("Write it.").with_budget(limits);
    let outcome =
        session(&runtime_on(&memory())).start(&pair(&works, &checks), task).outcome().await.unwrap();
    let Status::Stopped(StopReason::Budget(exhausted)) = &outcome.status else { panic!("{outcome}") };
    assert_eq!((&*exhausted.bound, outcome.text.as_str()), ("model_calls", "I wrote it."));
}

#[tokio::test(start_paused = true)]
async fn cw03_a_deadline_is_an_end_and_not_a_pause() {
    let gate = Gate::new();
    let works = ScriptedProvider::new().step(Script::new().wait(&gate));
    let checks = ScriptedProvider::new();
    let runtime = runtime_on(&memory());
    let work = session(&runtime);
    let deadline = Timestamp::from_micros(1_767_225_600_000_000).after(Duration::from_secs(60));
    let task = Task::new("Write it.").with_deadline(deadline);
    let outcome = work.start(&pair(&works, &checks), task).outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Stopped(StopReason::Deadline));
    assert_eq!(CheckedTask::of(&work.state().await.unwrap()).unwrap(), None);
}
