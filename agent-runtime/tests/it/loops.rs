//! Loop detection: an agent that repeats itself is told so, and then stopped.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use entourage_core::{
    SessionId,
    message::History,
    provider::FinishReason,
    run::{Outcome, Status, StopReason},
    session::SharedStore,
    tool::{Access, Repeat, Tool, ToolSpec},
};
use entourage_runners::from_fn::from_fn;
use entourage_runners::{LoopDetection, ReactAgent};
use entourage_testkit::{self as testkit, FakeTool, Script, ScriptedProvider};
use serde_json::{Value, json};

use crate::common::{
    Fault, FaultyStore, agent, assert_valid, count, memory, open_runtime, process, results, runtime_on,
    stored, until_killed,
};

const REFUSED: &str = "not run: you made this very call";

/// A model that makes these calls, one per step, and then answers.
fn model(calls: impl IntoIterator<Item = (&'static str, Value)>) -> ScriptedProvider {
    let provider = ScriptedProvider::by_history();
    calls
        .into_iter()
        .fold(provider, |provider, (name, arguments)| provider.call(name, arguments))
        .text("Done.")
}

fn same(times: usize) -> ScriptedProvider {
    model((0..times).map(|_| ("look", json!({"at": "sky"}))))
}

fn steps_only() -> LoopDetection {
    let mut loops = LoopDetection::default();
    loops.repeats = None;
    loops
}

async fn run(
    provider: &ScriptedProvider,
    loops: LoopDetection,
    tool: impl Tool + 'static,
) -> (Outcome, History) {
    let agent = agent(provider.model()).tool(tool).loops(loops).build().unwrap();
    let session = open_runtime().session();
    let outcome = session.start(&agent, "Look!").outcome().await.unwrap();
    let history = session.history().await.unwrap();
    assert_valid(&history);
    (outcome, history)
}

/// The results that the model got, call by call.
fn told(history: &History) -> Vec<String> {
    history.iter().flat_map(|message| results(message)).collect()
}

fn refused(history: &History) -> Vec<usize> {
    let told = told(history);
    let refused = told.iter().enumerate().filter(|(_, text)| text.starts_with(REFUSED));
    refused.map(|(place, _)| place + 1).collect()
}

#[tokio::test]
async fn cm16_the_third_identical_call_is_not_run_and_the_loop_goes_on() {
    let tool = FakeTool::new("look").returning("clouds");
    let (outcome, history) = run(&same(7), LoopDetection::default(), tool.clone()).await;
    assert_eq!((outcome.status, outcome.text.as_str(), outcome.steps), (Status::Completed, "Done.", 8));
    assert_eq!(refused(&history), [3, 6], "after a refusal the count begins anew");
    assert_eq!(tool.started(), 5);
    let result = history.get(6).unwrap().tool_results().next().unwrap().clone();
    assert!(result.is_error);
    assert_eq!(
        result.to_text(),
        "not run: you made this very call 3 times in a row; work with the result that you have, change the \
         arguments, or do something else"
    );
}

#[tokio::test]
async fn cm16_without_refusals_the_run_stops_after_ten_steps() {
    let (provider, tool) = (same(12), FakeTool::new("look").returning("clouds"));
    let (outcome, history) = run(&provider, steps_only(), tool.clone()).await;
    assert_eq!(outcome.status, Status::Stopped(StopReason::LoopDetected));
    assert_eq!((outcome.steps, provider.count(), tool.started()), (10, 10, 10));
    assert_eq!((history.len(), refused(&history)), (21, vec![]));
    assert_eq!(
        outcome.status.to_string(),
        "stopped: it went in circles: the same calls with the same results"
    );
}

#[tokio::test]
async fn cm16_refusals_alone_do_not_keep_a_run_going() {
    let (provider, tool) = (same(12), FakeTool::new("look").returning("clouds"));
    let (outcome, history) = run(&provider, LoopDetection::default(), tool.clone()).await;
    // 7 of 10 steps were alike.
    assert_eq!(outcome.status, Status::Stopped(StopReason::LoopDetected));
    assert_eq!((outcome.steps, tool.started(), refused(&history)), (10, 7, vec![3, 6, 9]));
}

#[tokio::test]
async fn cm16_both_guards_can_be_set_and_switched_off() {
    let clouds = || FakeTool::new("look").returning("clouds");
    let (outcome, history) = run(&same(20), LoopDetection::off(), clouds()).await;
    assert_eq!((outcome.status, refused(&history)), (Status::Completed, vec![]));
    let (outcome, history) = run(&same(20), LoopDetection::default().without_steps(), clouds()).await;
    assert_eq!((outcome.status, refused(&history)), (Status::Completed, vec![3, 6, 9, 12, 15, 18]));
    let (outcome, history) = run(&same(5), LoopDetection::off().with_repeats(5), clouds()).await;
    assert_eq!((outcome.status, refused(&history)), (Status::Completed, vec![5]));
    let (outcome, _) = run(&same(20), LoopDetection::off().with_steps(4, 2), clouds()).await;
    assert_eq!((outcome.status, outcome.steps), (Status::Stopped(StopReason::LoopDetected), 4));
    // A step is equal to itself.
    let (outcome, _) = run(&same(1), LoopDetection::off().with_steps(1, 0), clouds()).await;
    assert_eq!(outcome.status, Status::Completed);
    // Less than two in a row is no repetition.
    let (outcome, history) = run(&same(2), LoopDetection::off().with_repeats(0), clouds()).await;
    assert_eq!((outcome.status, refused(&history)), (Status::Completed, vec![2]));
}

#[tokio::test]
async fn cm16_what_gives_something_else_each_time_is_no_loop() {
    let times = Arc::new(AtomicU32::new(0));
    let spec = ToolSpec::new("look", "Looks.", json!({"type": "object"})).with_access(Access::READ);
    let tool = from_fn(spec, move |_| {
        let times = times.fetch_add(1, Ordering::Relaxed);
        async move { Ok(format!("cloud {times}")) }
    });
    let (outcome, history) = run(&same(30), steps_only(), tool).await;
    assert_eq!((outcome.status, told(&history).len()), (Status::Completed, 30));
}

#[tokio::test]
async fn cm16_five_of_ten_alike_are_not_too_many() {
    let calls = |pattern: &'static [u32]| {
        model(pattern.iter().cycle().take(30).map(|place| ("look", json!({"at": place}))))
    };
    let clouds = || FakeTool::new("look").returning("clouds");
    let (outcome, history) = run(&calls(&[1, 2]), LoopDetection::default(), clouds()).await;
    assert_eq!((outcome.status, refused(&history)), (Status::Completed, vec![]));
    // 6 of 9 and of 10.
    let (outcome, history) = run(&calls(&[1, 1, 2]), LoopDetection::default(), clouds()).await;
    assert_eq!((outcome.steps, refused(&history)), (10, vec![]));
    assert_eq!(outcome.status, Status::Stopped(StopReason::LoopDetected));
    // A long way round is taken for one only by its steps limit.
    let (outcome, _) = run(&calls(&[1, 2, 3, 4]), LoopDetection::default(), clouds()).await;
    assert_eq!(outcome.status, Status::Completed);
}

#[tokio::test]
async fn cm16_only_the_newest_ten_steps_count() {
    // 5 alike, 5 others, 5 alike: never more than 5 of any 10.
    let at = |n: usize| if (5..10).contains(&n) { n } else { 0 };
    let provider = model((0..15).map(|n| ("look", json!({"at": at(n)}))));
    let (outcome, _) = run(&provider, steps_only(), FakeTool::new("look").returning("clouds")).await;
    assert_eq!((outcome.status, outcome.steps), (Status::Completed, 16));
}

#[tokio::test]
async fn cm16_a_layout_makes_no_other_call_and_another_order_of_keys_does() {
    let raw = |texts: &[&str]| {
        let provider = ScriptedProvider::by_history();
        let step = |text: &&str| Script::new().raw_call("look", text).finish(FinishReason::ToolCalls);
        texts.iter().fold(provider, |provider, text| provider.step(step(text))).text("Done.")
    };
    let clouds = || FakeTool::new("look").returning("clouds");
    let provider = raw(&[r#"{"a":1,"b":" x"}"#, r#"{ "a": 1, "b": " x" }"#, "{\n\"a\":1,\"b\":\" x\"}"]);
    assert_eq!(refused(&run(&provider, LoopDetection::default(), clouds()).await.1), [3]);
    let provider = raw(&[r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, r#"{"a":1,"b":2}"#]);
    assert_eq!(refused(&run(&provider, LoopDetection::default(), clouds()).await.1), [0; 0]);
    // The same broken call again and again is a repetition, a different broken one is not.
    let provider = raw(&["<look>", "<look>", "<look>"]);
    assert_eq!(refused(&run(&provider, LoopDetection::default(), clouds()).await.1), [3]);
    let provider = raw(&["<look>", "<lock>", "<look>"]);
    assert_eq!(refused(&run(&provider, LoopDetection::default(), clouds()).await.1), [0; 0]);
}

#[tokio::test]
async fn cm16_calls_of_one_step_count_in_their_order() {
    let sky = || ("look", json!({"at": "sky"}));
    let sea = || ("look", json!({"at": "sea"}));
    let step = |calls: Vec<(&'static str, Value)>| ScriptedProvider::by_history().calls(calls).text("Done.");
    let tool = FakeTool::new("look").returning("blue");
    let loops = LoopDetection::default();
    // Next to each other they are one question.
    let (_, history) = run(&step(vec![sky(), sky(), sky(), sea()]), loops, tool.clone()).await;
    assert_eq!((refused(&history), tool.started(), told(&history).len()), (vec![], 4, 4));
    let (_, history) = run(&step(vec![sky(), sea(), sky(), sea(), sky()]), loops, tool.clone()).await;
    assert_eq!(refused(&history), [0; 0]);
    // Over steps they go on from the last of the one before, and are refused together.
    let steps = |last: Vec<(&'static str, Value)>| {
        ScriptedProvider::by_history().calls([sea(), sky()]).calls([sky(), sky()]).calls(last).text("Done.")
    };
    let (_, history) = run(&steps(vec![sky(), sky(), sea()]), loops, tool.clone()).await;
    assert_eq!(refused(&history), [5, 6]);
    let (_, history) = run(&steps(vec![sea(), sky()]), loops, tool.clone()).await;
    assert_eq!(refused(&history), [0; 0]);
    // Steps are alike when all their calls are, in order.
    let pair = |n: usize| if n.is_multiple_of(2) { [sky(), sea()] } else { [sea(), sky()] };
    let all = |of: &dyn Fn(usize) -> [(&'static str, Value); 2]| {
        (0..12).fold(ScriptedProvider::by_history(), |provider, n| provider.calls(of(n))).text("Done.")
    };
    let (outcome, _) = run(&all(&pair), loops.without_steps().with_steps(10, 5), tool.clone()).await;
    assert_eq!(outcome.status, Status::Completed, "5 of 10 each");
    let (outcome, _) = run(&all(&|_| pair(0)), loops, tool).await;
    assert_eq!((outcome.status, outcome.steps), (Status::Stopped(StopReason::LoopDetected), 10));
}

fn looker(provider: &ScriptedProvider, loops: LoopDetection) -> ReactAgent {
    let tool = FakeTool::new("look").access(Access::WRITE).repeat(Repeat::Idempotent).returning("clouds");
    agent(provider.model()).tool(tool).loops(loops).build().unwrap()
}

/// Runs to the end over a death at append `at`. `None` if there are fewer appends.
fn dies_at(at: usize, fault: Fault, checkpoints: u64) -> Option<(Outcome, SharedStore)> {
    let id = SessionId::new("work").unwrap();
    let inner = memory();
    let faulty = FaultyStore::new(&inner, at, fault);
    let killed = faulty.killed.clone();
    let store = faulty as SharedStore;
    let provider = same(30);
    let runtime = |store: &SharedStore| {
        testkit::runtime()
            .policy(entourage_runtime::permission::Policy::allow_all())
            .checkpoint_every(checkpoints)
            .shared_store(Arc::clone(store))
            .build()
    };
    let lived = process(until_killed(
        async {
            let session = runtime(&store).session_with_id(id.clone());
            session.start(&looker(&provider, LoopDetection::default()), "Look!").outcome().await
        },
        &killed,
    ));
    if let Some(outcome) = lived {
        assert_eq!(outcome.unwrap().status, Status::Stopped(StopReason::LoopDetected));
        return None;
    }
    let outcome = process(async {
        let session = runtime(&inner).session_with_id(id.clone());
        let agent = looker(&provider, LoopDetection::default());
        match session.unfinished().await.unwrap() {
            Some(_) => Some(session.resume(&agent).outcome().await.unwrap()),
            None if session.head().await.unwrap().seq == 0 => {
                Some(session.start(&agent, "Look!").outcome().await.unwrap())
            }
            None => None,
        }
    });
    // Killed after the very last append: the run had ended.
    let ended = || Outcome::new(Status::Stopped(StopReason::LoopDetected));
    Some((outcome.unwrap_or_else(ended), inner))
}

#[test]
fn cm16_a_run_that_dies_at_every_append_is_found_out_at_the_same_step() {
    let id = SessionId::new("work").unwrap();
    let mut deaths = 0;
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        for at in 0.. {
            let Some((outcome, store)) = dies_at(at, fault, 512) else { break };
            deaths += 1;
            let label = format!("{fault:?} at append {at}");
            assert_eq!(outcome.status, Status::Stopped(StopReason::LoopDetected), "{label}");
            process(async {
                let history = runtime_on(&store).open(&id).await.unwrap().history().await.unwrap();
                assert_valid(&history);
                assert_eq!((history.len(), refused(&history)), (21, vec![3, 6, 9]), "{label}");
                let events = stored(&store, &id).await;
                assert_eq!(
                    (count(&events, "model_finished"), count(&events, "tool_finished")),
                    (10, 10),
                    "{label}"
                );
            });
        }
    }
    assert!(deaths > 30, "{deaths}");
}

#[test]
fn cm16_after_a_checkpoint_the_windows_begin_anew_and_the_loop_is_still_found() {
    let mut deaths = 0;
    for at in 0.. {
        let Some((outcome, _)) = dies_at(at, Fault::HangAfter, 1) else { break };
        deaths += 1;
        assert_eq!(outcome.status, Status::Stopped(StopReason::LoopDetected), "append {at}");
        assert!(outcome.steps <= 20, "append {at}: {outcome}");
    }
    assert!(deaths > 15, "{deaths}");
}
