//! Requests that were not met: what their plans did is told to each run after them, until a plan that goes on with them
//! has met its own.

use std::{mem::ManuallyDrop, time::Duration};

use entourage_core::{ErrorKind, budget::BudgetLimits, provider::FinishReason, run::Task};
use entourage_runners::{ReactAgent, planner::Planner};
use entourage_runtime::{MemoryStore, Runtime, Session, permission::Policy};
use entourage_testkit::{self as testkit, Gate, Script, ScriptedProvider};
use serde_json::{Value, json};

use super::{REQUEST, broken_off::own, builder, edit, looks, plans, reply, step, steps, told, view};

/// Says of a step that a part of it may be done.
const PARTIAL: &str = "failed, and a part of it may be done: look before it is done again:";

/// Begin of what is told of another request.
const OTHER: &str = "An earlier request of the user was not met.";

fn runtime() -> Runtime {
    testkit::runtime().policy(Policy::allow_all()).store(MemoryStore::new()).build()
}

/// An end of a run that has done a step of the planner's own.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Cancelled,
    Abandoned,
    /// The time of its budget is over.
    Late,
    /// The model calls of its budget are used up.
    Spent,
    /// The planner's model fails when it is to plan anew.
    Failed,
    /// The service withholds the next plan.
    Withheld,
    /// The plan fails, and the run has an answer that says so.
    Undone,
}

const ENDS: [End; 7] =
    [End::Cancelled, End::Abandoned, End::Late, End::Spent, End::Failed, End::Withheld, End::Undone];

/// Runs a plan whose first step writes, and whose second one is the last that begins.
async fn not_met(session: &Session, end: End) {
    let gate = Gate::new();
    let model = plans(steps([own(1, &[]), step(2, &[1])])).call("edit", json!({})).text("Noted one.");
    let model = match end {
        End::Failed => model.fail(ErrorKind::Authentication, "no key"),
        End::Withheld => model.step(Script::new().text("I").finish(FinishReason::ContentFilter)),
        _ => model.text("Not all is done."),
    };
    let other = match end {
        End::Cancelled | End::Abandoned => looks().step(Script::new().wait(&gate).text("x")),
        End::Late => looks().step(Script::new().delay(Duration::from_secs(50)).text("x")),
        _ => looks().call("reply", reply("error", "No.")),
    };
    let replans = u32::from(matches!(end, End::Failed | End::Withheld));
    let planner = builder(&model, &other).max_replans(replans).tools((view(), edit())).build().unwrap();
    let limits = match end {
        End::Late => BudgetLimits::none().with_time(Duration::from_secs(20)),
        End::Spent => BudgetLimits::none().with_model_calls(3),
        _ => BudgetLimits::none(),
    };
    let run = session.start(&planner, Task::new(REQUEST).with_budget(limits));
    if matches!(end, End::Cancelled | End::Abandoned) {
        gate.arrived(1).await;
        if end == End::Cancelled { run.cancel() } else { session.pause() }
    }
    gate.open();
    let met = run.outcome().await.is_ok_and(|outcome| outcome.is_completed());
    assert!(!met, "{end:?}");
    let _unused = ManuallyDrop::new([model, other]);
}

/// Starts a prompt that is classified so, and returns what the planner is told of it first.
async fn next(session: &Session, strategy: &str, plan: Value) -> String {
    let operations = ["simple", "tool_use", "complex"].iter().position(|name| *name == strategy).unwrap();
    let kind =
        json!({"strategy": strategy, "estimated_operations": operations * 2, "needs_tools": operations > 0});
    let model = match strategy {
        "complex" => plans(plan).text("So it is."),
        _ => ScriptedProvider::named("planner").text("So it is."),
    };
    let other = looks().call("final_answer", kind).call("reply", reply("complete", "Seen."));
    let planner = Planner::builder("assistant", model.model())
        .executor(other.model())
        .max_replans(0)
        .tools((view(), edit()))
        .build()
        .unwrap();
    let outcome = session.start(&planner, format!("Please go on by {strategy}.")).outcome().await.unwrap();
    assert!(outcome.is_completed(), "{outcome}");
    let _unused = ManuallyDrop::new(other);
    told(&model, 0)
}

/// A plan of one step of an executor, which says if it goes on with what was done before.
fn plan(goes_on: bool) -> Value {
    json!({"steps": [step(9, &[])], "goes_on": goes_on})
}

/// Runs prompts between a request that was not met and the next one.
async fn between(session: &Session, prompts: &str) {
    match prompts {
        "nothing" => {}
        "a cancel at once" => {
            let model = ScriptedProvider::named("planner");
            let planner = builder(&model, &model).tools((view(), edit())).build().unwrap();
            let run = session.start(&planner, "Stop.");
            run.cancel();
            drop(run.outcome().await);
        }
        "another agent" => {
            let model = ScriptedProvider::new().text("Hello.");
            let agent = ReactAgent::builder("other", model.model()).build().unwrap();
            session.start(&agent, "Hello?").outcome().await.unwrap();
        }
        _ => {
            for strategy in prompts.split(' ') {
                let told = next(session, strategy, plan(false)).await;
                assert!(told.contains("Noted one."), "{prompts}: {told}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn bo13_what_was_done_is_told_until_a_plan_that_goes_on_with_it_is_met() {
    for end in ENDS {
        let some = [
            "nothing",
            "a cancel at once",
            "another agent",
            "simple",
            "tool_use simple",
            "complex",
            "complex tool_use",
        ];
        for prompts in some {
            for strategy in ["simple", "tool_use", "complex"] {
                let runtime = runtime();
                let session = runtime.session();
                not_met(&session, end).await;
                between(&session, prompts).await;
                let case = format!("{end:?}, {prompts}, {strategy}");
                let told = next(&session, strategy, plan(true)).await;
                for words in [OTHER, REQUEST, "Step 1 (Note 1.), completed:", "Noted one."] {
                    assert!(told.contains(words), "{case}: {words}: {told}");
                }
                let after = next(&session, "tool_use", Value::Null).await;
                assert_eq!(after.contains("Noted one."), strategy != "complex", "{case}: {after}");
            }
        }
    }
}

/// A request that was met leaves nothing to tell, also where another agent's run came in between.
#[tokio::test(start_paused = true)]
async fn bo13_a_request_that_was_met_is_not_told_of() {
    for prompts in ["nothing", "a cancel at once", "another agent"] {
        let runtime = runtime();
        let session = runtime.session();
        next(&session, "complex", plan(false)).await;
        between(&session, prompts).await;
        for strategy in ["simple", "tool_use", "complex"] {
            let told = next(&session, strategy, plan(false)).await;
            assert!(!told.contains("not met") && !told.contains("Seen."), "{prompts}: {told}");
        }
    }
}

/// What another request did is neither told as an answer to this one, nor given to its reader.
#[tokio::test(start_paused = true)]
async fn bo13_steps_of_another_request_answer_it_only_if_the_plan_goes_on_with_it() {
    for (draft, goes_on) in [
        (plan(false), false),
        (plan(true), true),
        // A step that needs the result of another goes on with it, whatever the plan says.
        (json!({"steps": [step(9, &[1])], "goes_on": false}), true),
    ] {
        let runtime = runtime();
        let session = runtime.session();
        not_met(&session, End::Cancelled).await;
        let model = plans(draft).text("");
        let other = looks().call("reply", reply("complete", "Rome is warm."));
        let planner = builder(&model, &other).tools((view(), edit())).build().unwrap();
        let outcome = session.start(&planner, "First find it, then tell me.").outcome().await.unwrap();
        let given = told(&model, 1);
        for text in [&outcome.text, &given] {
            assert!(text.contains("Rome is warm."), "{text}");
            assert_eq!(text.contains("Noted one."), goes_on, "{text}");
        }
    }
}

/// A step of which a part may be done is told as that to each later plan, in its run and after it.
#[tokio::test(start_paused = true)]
async fn bo13_a_part_that_may_be_done_is_told_to_every_later_plan() {
    let model = plans(steps([own(1, &[])]))
        .call("edit", json!({}))
        .fail(ErrorKind::Authentication, "no key")
        .call("final_answer", steps([step(2, &[])]))
        .call("final_answer", steps([step(3, &[7])]))
        .call("final_answer", steps([step(3, &[])]))
        .fail(ErrorKind::Authentication, "no key again");
    let other = looks().call("reply", reply("error", "No.")).call("reply", reply("error", "Not now."));
    let planner = builder(&model, &other).max_replans(3).tools((view(), edit())).build().unwrap();
    let runtime = runtime();
    let session = runtime.session();
    session.start(&planner, REQUEST).outcome().await.unwrap_err();
    let asks = (0..model.requests().len()).map(|at| told(&model, at));
    let asks: Vec<_> =
        asks.filter(|ask| ask.contains("The plan failed.") || ask.contains("cannot run")).collect();
    assert_eq!(asks.len(), 4, "{asks:?}");
    let later = [next(&session, "tool_use", Value::Null).await, next(&session, "complex", plan(false)).await];
    for ask in asks.into_iter().chain(later) {
        assert!(ask.contains(PARTIAL) && ask.contains("no key"), "{ask}");
    }
}

/// Two requests that were not met are told apart, and a prompt in the words of one is that one.
#[tokio::test(start_paused = true)]
async fn bo13_the_same_words_go_on_with_their_request() {
    let runtime = runtime();
    let session = runtime.session();
    not_met(&session, End::Cancelled).await;
    let model = plans(steps([step(3, &[1])])).text("Done.");
    let other = looks().call("reply", reply("complete", "Seen three."));
    let planner = builder(&model, &other).tools((view(), edit())).build().unwrap();
    session.start(&planner, REQUEST).outcome().await.unwrap();
    let asked = told(&model, 0);
    assert!(asked.contains("Plans before this one") && asked.contains("Noted one."), "{asked}");
    assert!(!asked.contains(OTHER) && told(&model, 1).contains("Noted one."), "{asked}");
    let after = next(&session, "tool_use", Value::Null).await;
    assert!(!after.contains("Noted one."), "{after}");
}
