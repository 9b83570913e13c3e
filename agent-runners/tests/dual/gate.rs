//! `task_complete` is the only way out, and only the checker has it.

use entourage_core::{
    ErrorKind,
    provider::FinishReason,
    run::Status,
    tool::{Access, Repeat, ToolOutput},
};
use entourage_runners::{DualAgent, ReactAgent, checked::PhaseFinished};
use entourage_runtime::AgentExt;
use entourage_testkit::{FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::{
    common::{Fault, FaultyStore, memory, process, runtime_on, settled, stored, until_killed},
    pair::{builder, child, done, executor, pair, root, session, told},
};

#[tokio::test(start_paused = true)]
async fn cw04_an_executor_that_calls_task_complete_is_told_that_there_is_no_such_tool_and_goes_on() {
    let works =
        ScriptedProvider::new().call("task_complete", done("Me!")).text("I wrote it.").text("Summary.");
    let checks = ScriptedProvider::new().call("task_complete", done("I saw it."));
    let store = memory();
    let outcome = session(&runtime_on(&store)).start(&pair(&works, &checks), "Go").outcome().await.unwrap();
    assert_eq!(outcome.text, "Summary.");
    let told = settled(&stored(&store, &child("executor")).await);
    assert!(told[0].1.contains("`task_complete`") && told[0].1.contains("write"), "{told:?}");
    let offered = |request: &entourage_core::provider::Request| {
        request.tools.iter().map(|spec| spec.name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(offered(&works.requests()[0]), ["write"]);
    assert_eq!(offered(&checks.requests()[0]), ["look", "task_complete"]);
}

#[tokio::test(start_paused = true)]
async fn cw04_saying_done_ends_nothing_and_an_empty_summary_is_an_error() {
    let works =
        ScriptedProvider::new().text("a").text("Done!").text("b").text("Done!!").text("c").text("Done!!!");
    let checks = ScriptedProvider::new()
        .text("task_complete: everything is done, I approve.")
        // A refused claim does not count, even when the run then ends.
        .call("task_complete", done(" \n"))
        .text("Well, it is done.")
        .call("task_complete", json!({}))
        .call("task_complete", done("I saw it."));
    let store = memory();
    let outcome = session(&runtime_on(&store)).start(&pair(&works, &checks), "Go").outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Completed);
    let results = settled(&stored(&store, &child("discriminator")).await);
    assert!(results[0].1.contains("empty") && results[1].1.contains("summary"), "{results:?}");
    assert_eq!(results[2].1, "The task is complete.");
}

#[tokio::test(start_paused = true)]
async fn cw04_calls_after_it_in_the_same_step_are_not_run() {
    let works = ScriptedProvider::new().text("a").text("Summary.");
    let looks = json!({});
    let checks = ScriptedProvider::new().calls([
        ("look", looks.clone()),
        ("task_complete", done("I saw it.")),
        ("look", looks.clone()),
        ("task_complete", done("Twice.")),
    ]);
    let look = FakeTool::new("look");
    let checker = ReactAgent::builder("reviewer", checks.model()).tool(look.clone()).build().unwrap();
    let pair = DualAgent::builder("pair", executor(&works), checker).build().unwrap();
    let store = memory();
    let outcome = session(&runtime_on(&store)).start(&pair, "Go").outcome().await.unwrap();
    assert_eq!((outcome.status, look.started()), (Status::Completed, 1));
    let results = settled(&stored(&store, &child("discriminator")).await);
    let texts: Vec<_> = results.iter().map(|(_, text)| text.as_str()).collect();
    let late = "not run, since `task_complete` ended the turn";
    assert_eq!(texts, ["ok", "The task is complete.", late, late]);
}

/// A process that dies after the claim was settled does not run the calls behind it.
#[test]
fn cw04_calls_after_it_are_not_run_after_a_restart_either() {
    let mut deaths = 0;
    for at in 0.. {
        let inner = memory();
        let faulty = FaultyStore::new(&inner, at, Fault::HangAfter);
        let killed = faulty.killed.clone();
        let look = FakeTool::new("look");
        let make = || {
            let works = ScriptedProvider::by_history().text("a").text("Summary.");
            let checks = ScriptedProvider::by_history()
                .calls([("task_complete", done("I saw it.")), ("look", json!({}))]);
            let checker = ReactAgent::builder("reviewer", checks.model()).tool(look.clone()).build().unwrap();
            DualAgent::builder("pair", executor(&works), checker).build().unwrap()
        };
        let lived = process(until_killed(
            async { session(&runtime_on(&(faulty as _))).start(&make(), "Go").outcome().await.unwrap() },
            &killed,
        ));
        if lived.is_none() {
            deaths += 1;
            process(async {
                let runtime = runtime_on(&inner);
                let run = match session(&runtime).unfinished().await.unwrap() {
                    Some(_) => session(&runtime).resume(&make()),
                    None => return,
                };
                assert_eq!(run.outcome().await.unwrap().status, Status::Completed, "append {at}");
            });
        }
        assert_eq!(look.started(), 0, "append {at}");
        if lived.is_some() {
            break;
        }
    }
    assert!(deaths > 8, "{deaths}");
}

#[tokio::test(start_paused = true)]
async fn cw03_what_the_checkers_tools_showed_is_kept_with_its_verdict() {
    let works = ScriptedProvider::new().text("a").text("Summary.").text("b").text("Summary.");
    let long = "é".repeat(3_000);
    let checks = ScriptedProvider::new()
        .call("look", json!({"path": "a.rs"}))
        .call("gone", json!({}))
        .text("It is not there.")
        .call("task_complete", done("I saw it."));
    let look = FakeTool::new("look").returning(&long);
    let checker = ReactAgent::builder("reviewer", checks.model()).tool(look).build().unwrap();
    let pair = DualAgent::builder("pair", executor(&works), checker).build().unwrap();
    let store = memory();
    session(&runtime_on(&store)).start(&pair, "Go").outcome().await.unwrap();
    let events = stored(&store, &root()).await;
    let verdicts: Vec<_> = events
        .iter()
        .filter_map(|event| event.event.record::<PhaseFinished>().unwrap()?.verdict.clone())
        .collect();
    let [rejected, accepted] = &verdicts[..] else { panic!("{verdicts:?}") };
    assert_eq!((rejected.accepted, rejected.reason.as_str()), (false, "It is not there."));
    assert_eq!((accepted.accepted, accepted.reason.as_str()), (true, "I saw it."));
    let [look, gone] = &rejected.evidence[..] else { panic!("{rejected:?}") };
    assert_eq!((&*look.tool, &*look.arguments, look.is_error), ("look", r#"{"path":"a.rs"}"#, false));
    assert_eq!(look.result.chars().count(), 2_000);
    assert!(gone.is_error && gone.result.contains("gone"));
    assert!(accepted.evidence.is_empty(), "what was seen in an earlier turn is that turn's");
}

#[tokio::test(start_paused = true)]
async fn r17_a_turn_that_claimed_completion_and_then_failed_is_not_complete() {
    // The stream breaks off after the call: the call is not run.
    let works = ScriptedProvider::new().text("a").text("Summary.");
    let broken =
        Script::new().call("task_complete", &done("I saw it.")).fail(ErrorKind::Overloaded, "cut off");
    let error = pair(&works, &ScriptedProvider::new().step(broken)).ask("Go").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    // The same for a reply that reached its length limit: the claim may be half a sentence, so the check is a
    // rejection.
    let works = ScriptedProvider::new().text("a").text("Summary.");
    let long =
        Script::new().text("I was about to").call("task_complete", &done("x")).finish(FinishReason::Length);
    let checks = ScriptedProvider::new().step(long);
    let agent = builder(&works, &checks).iterations(1).build().unwrap();
    assert!(agent.ask("Go").await.unwrap_err().message().contains("I was about to"));
}

#[tokio::test(start_paused = true)]
async fn cw01_a_verifier_may_only_read() {
    let works = ScriptedProvider::new().text("a").text("Summary.");
    let write = FakeTool::new("write").access(Access::WRITE);
    let checks = ScriptedProvider::new().call("write", json!({})).call("task_complete", done("I saw it."));
    let checker = ReactAgent::builder("reviewer", checks.model()).tool(write.clone()).build().unwrap();
    let pair = DualAgent::builder("pair", executor(&works), checker).read_only().build().unwrap();
    let store = memory();
    let runtime = runtime_on(&store);
    assert_eq!(session(&runtime).start(&pair, "Go").outcome().await.unwrap().text, "Summary.");
    let results = settled(&stored(&store, &child("verifier")).await);
    assert!(write.started() == 0 && results[0].1.contains("scope"), "{results:?}");
    assert_eq!(told(&session(&runtime).history().await.unwrap()), ["U: Go", "A: Summary."]);
}

/// A claim ends the run while another call is still running: after a crash, calls that had not begun are not run
/// either.
#[test]
fn cw04_after_a_death_no_call_begins_behind_one_that_ended_the_turn() {
    let (store, gate) = (memory(), Gate::new());
    let [slow, late] = ["slow", "late"].map(|name| FakeTool::new(name).repeat(Repeat::Safe));
    let late = late.access(Access::WRITE);
    let agent = |slow: FakeTool| {
        let calls = ["slow", "ends", "late"].map(|name| (name, json!({})));
        let provider = ScriptedProvider::by_history().calls(calls);
        let ends = FakeTool::new("ends").giving(ToolOutput::text("Enough.").stopping());
        let agent = ReactAgent::builder("a", provider.model()).tool(slow).tool(ends).tool(late.clone());
        agent.build().unwrap()
    };
    process(async {
        let runtime = runtime_on(&store);
        let mut run = session(&runtime).start(&agent(slow.clone().behind(&gate)), "Go");
        while let Some(event) = run.next().await {
            if event.event.kind() == "tool_finished" {
                break;
            }
        }
        run.detach();
    });
    let events = process(stored(&store, &root()));
    let ends: Vec<_> = events.iter().map(|event| event.event.kind()).collect();
    assert_eq!(ends.last(), Some(&"tool_finished"), "the process died with one call under way: {ends:?}");
    process(async {
        let outcome = session(&runtime_on(&store)).resume(&agent(slow.clone())).outcome().await.unwrap();
        assert_eq!((outcome.status, late.started(), slow.finished()), (Status::Completed, 0, 1));
        let results = settled(&stored(&store, &root()).await);
        let of_late = &results.iter().find(|(name, _)| name == "late").unwrap().1;
        assert_eq!(of_late, "not run, since a call before it ended the turn");
    });
}
