//! Steps that somebody refused, or that what bounds the run ended: no other plan tries them again.

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, Result,
    budget::BudgetLimits,
    permission::{ApprovalRequest, Approver, Decision},
    provider::FinishReason,
    run::{Status, StopReason, Task},
};
use entourage_runtime::{MemoryStore, permission::Policy};
use entourage_testkit::{self as testkit, Script, ScriptedProvider};
use serde_json::json;

use super::{REQUEST, broken_off::own, builder, edit, looks, plans, reply, step, steps, told, view};

/// Refuses what it is asked.
#[derive(Debug)]
struct No;

#[async_trait]
impl Approver for No {
    async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
        Ok(Decision::Deny)
    }
}

#[tokio::test(start_paused = true)]
async fn bo05_a_step_that_was_refused_is_not_planned_again() {
    for (asks, first) in [("edit", own(1, &[])), ("view", step(1, &[]))] {
        let model = plans(steps([first]));
        let model = if asks == "edit" { model.call("edit", json!({})) } else { model };
        let model = model.text("It was refused.");
        let other = looks();
        let other = if asks == "view" { other.call("view", json!({})) } else { other };
        let (view, edit) = (view(), edit());
        let planner =
            builder(&model, &other).max_replans(3).tools((view.clone(), edit.clone())).build().unwrap();
        let runtime = testkit::runtime()
            .policy(Policy::allow_all().ask(asks))
            .approver(No)
            .store(MemoryStore::new())
            .build();
        let outcome = runtime.session().start(&planner, REQUEST).outcome().await.unwrap();
        let Status::Stopped(StopReason::Tasks { failed, .. }) = &outcome.status else { panic!("{outcome}") };
        assert!(failed[0].is_final, "{asks}: {outcome}");
        assert_eq!(
            (outcome.text.as_str(), view.started() + edit.started()),
            ("It was refused.", 0),
            "{asks}"
        );
        let answered = told(&model, model.requests().len() - 1);
        assert!(answered.contains("is not tried again"), "{answered}");
        model.verify();
    }
}

#[tokio::test(start_paused = true)]
async fn bo05_a_budget_that_is_used_up_ends_all_plans_of_the_run() {
    for (calls, first) in [(2, own(1, &[])), (1, step(1, &[]))] {
        let model = plans(steps([first])).call("edit", json!({}));
        let other = looks();
        let planner = builder(&model, &other).max_replans(3).tools((view(), edit())).build().unwrap();
        let runtime = testkit::runtime().policy(Policy::allow_all()).store(MemoryStore::new()).build();
        let session = runtime.session();
        let task = Task::new(REQUEST).with_budget(BudgetLimits::none().with_model_calls(calls));
        let outcome = session.start(&planner, task).outcome().await.unwrap();
        let Status::Stopped(reason) = &outcome.status else { panic!("{outcome}") };
        assert!(reason.is_final() && outcome.text.contains("limit of model calls"), "{outcome}");
        let _unused = std::mem::ManuallyDrop::new(model);
    }
}

/// The planner stops for the reason that stopped an agent that makes a plan, and tells the steps that are done.
#[tokio::test(start_paused = true)]
async fn bo05_a_planner_whose_agent_is_stopped_is_stopped_for_the_same_reason() {
    let withheld = || Script::new().text("I").finish(FinishReason::ContentFilter);
    let failing = || plans(steps([own(1, &[]), step(2, &[1])])).call("edit", json!({})).text("Noted one.");
    for (model, calls, bound, text) in [
        (ScriptedProvider::named("planner").text("Never."), 0, true, ""),
        (ScriptedProvider::named("planner").step(withheld()), 9, false, ""),
        (failing().text("Never."), 4, true, "Noted one."),
        (failing().step(withheld()).text("One is noted."), 9, false, "One is noted."),
    ] {
        let other = looks().call("reply", reply("error", "No."));
        let planner = builder(&model, &other).max_replans(1).tools((view(), edit())).build().unwrap();
        let runtime = testkit::runtime().policy(Policy::allow_all()).store(MemoryStore::new()).build();
        let task = Task::new(REQUEST).with_budget(BudgetLimits::none().with_model_calls(calls));
        let outcome = runtime.session().start(&planner, task).outcome().await.unwrap();
        match &outcome.status {
            Status::Stopped(StopReason::Budget(_)) => assert!(bound, "{outcome}"),
            Status::Stopped(StopReason::Reply(FinishReason::ContentFilter)) => assert!(!bound, "{outcome}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(outcome.text.is_empty(), text.is_empty(), "{outcome}");
        assert!(outcome.text.contains(text), "{outcome}");
        let _unused = std::mem::ManuallyDrop::new([model, other]);
    }
}

/// A service refused a model call, and nobody else did anything: the next plan may do.
#[tokio::test(start_paused = true)]
async fn bo05_a_step_that_a_service_refused_is_planned_again() {
    let refused = || Script::refuse(ErrorKind::PermissionDenied, "403");
    for (is_own, first) in [(true, own(1, &[])), (false, step(1, &[]))] {
        let (mut model, mut other) = (plans(steps([first])), looks());
        if is_own {
            model = model.step(refused());
        } else {
            other = other.step(refused());
        }
        let model = model.call("final_answer", steps([step(2, &[])])).text("Done.");
        let other = other.call("reply", reply("complete", "Seen."));
        let planner = builder(&model, &other).max_replans(1).tools((view(), edit())).build().unwrap();
        let runtime = testkit::runtime().policy(Policy::allow_all()).build();
        let outcome = runtime.session().start(&planner, REQUEST).outcome().await.unwrap();
        assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "Done."), "{is_own}");
        model.verify();
    }
}

/// What ends one step alone is no reason against another plan: a limit of its turn, an error of its executor.
#[tokio::test(start_paused = true)]
async fn bo05_a_step_that_failed_alone_is_planned_again() {
    let model = plans(steps([step(1, &[])])).call("final_answer", steps([step(2, &[])])).text("Done.");
    let mut other = looks();
    for _ in 0..11 {
        other = other.call("view", json!({}));
    }
    let other = other.call("reply", reply("complete", "Seen."));
    let limits = entourage_runners::planner::ConversationLimits::default().with_tool_calls(10);
    let planner =
        builder(&model, &other).max_replans(1).limits(limits).tools((view(), edit())).build().unwrap();
    let runtime = testkit::runtime().policy(Policy::allow_all()).build();
    let outcome = runtime.session().start(&planner, REQUEST).outcome().await.unwrap();
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "Done."));
}
