//! Guards on answers: what a run ends with, what its model is told, and what a parent and a later prompt see of it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use entourage_core::{
    Clock, ErrorKind,
    event::Event,
    provider::FinishReason,
    run::{Limits, RunContext, Status, StopReason, Task},
    tool::{Access, LayerVerdict, ToolOutput},
};
use entourage_runners::{
    AgentTool, ReactBuilder, StopWhen,
    graph::TaskGraph,
    typed::{AnswerRefused, OutcomeExt},
};
use entourage_testkit::{self as testkit, FakeTool, Gate, PausedClock, Script, ScriptedProvider};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::common::{agent, assert_valid, count, memory, open_runtime, results, runtime_on, stored};

type Guard = fn(&mut String, &RunContext) -> LayerVerdict;

/// Refuses phone numbers, stops at secrets, and masks names.
fn guard(text: &mut String, _: &RunContext) -> LayerVerdict {
    if text.contains("secret") {
        return LayerVerdict::Stop("the answer holds a secret".to_owned());
    }
    if text.contains("555") {
        return LayerVerdict::Refuse("give no phone number".to_owned());
    }
    *text = text.replace("Ada", "A");
    LayerVerdict::Pass
}

fn guarded(provider: &ScriptedProvider) -> ReactBuilder {
    agent(provider.model()).guard_answers(guard)
}

fn condition(text: &str) -> Status {
    Status::Stopped(StopReason::Condition(text.to_owned()))
}

#[tokio::test(start_paused = true)]
async fn a_changed_text_is_the_outcomes_and_the_model_keeps_its_own_words() {
    let provider = ScriptedProvider::new().text("Ask Ada.").text("Yes.");
    let agent = guarded(&provider).build().unwrap();
    let session = open_runtime().session();
    let outcome = session.start(&agent, "Whom?").outcome().await.unwrap();
    assert_eq!((outcome.status, &*outcome.text, outcome.steps), (Status::Completed, "Ask A.", 1));
    session.start(&agent, "Sure?").outcome().await.unwrap();
    let said: Vec<_> = provider.requests()[1].messages.iter().map(|it| it.text()).collect();
    assert_eq!(said, ["Whom?", "Ask Ada.", "Sure?"]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_answer_is_repaired_once_and_each_round_is_recorded() {
    for (second, ends) in [
        ("Ask Ada.", (Status::Completed, "Ask A.")),
        (
            "555 again",
            (
                Status::Stopped(StopReason::Incomplete {
                    iterations: 2,
                    feedback: "give no phone number".into(),
                }),
                "",
            ),
        ),
    ] {
        let (store, provider) =
            (memory(), ScriptedProvider::new().text("Call 555.").text(second).text("Hi."));
        let agent = guarded(&provider).build().unwrap();
        let session = runtime_on(&store).session();
        let outcome = session.start(&agent, "Whom?").outcome().await.unwrap();
        assert_eq!((outcome.status, &*outcome.text), ends);
        let asked = provider.requests()[1].messages.last().unwrap().text();
        assert_eq!(
            asked,
            "Answer 1 of at most 2 was refused: give no phone number. Answer again without that."
        );
        let events = stored(&store, session.id()).await;
        let refused: Vec<_> =
            events.iter().filter_map(|it| it.event.record::<AnswerRefused>().unwrap()).collect();
        assert_eq!((refused.len(), refused[0].round, &*refused[0].problem), (1, 1, "give no phone number"));
        assert_eq!(session.start(&agent, "Hello").outcome().await.unwrap().text, "Hi.");
        assert_valid(&provider.requests()[2].messages);
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_stops_or_panics_ends_the_run_and_the_next_prompt_is_answered() {
    let provider = ScriptedProvider::new().text("The secret is 7.").text("Hi.");
    let agent_of_guard = guarded(&provider).build().unwrap();
    let session = open_runtime().session();
    let outcome = session.start(&agent_of_guard, "Tell").outcome().await.unwrap();
    assert_eq!((outcome.status, &*outcome.text), (condition("the answer holds a secret"), ""));
    assert_eq!(session.start(&agent_of_guard, "Hello").outcome().await.unwrap().text, "Hi.");
    assert_valid(&provider.requests()[1].messages);

    let provider = ScriptedProvider::new().text("Hi.");
    let panics = |_: &mut String, _: &RunContext| -> LayerVerdict { panic!("lost my head") };
    let agent = agent(provider.model()).guard_answers(panics).build().unwrap();
    let outcome = open_runtime().session().start(&agent, "Hello").outcome().await.unwrap();
    assert_eq!(
        (outcome.status, &*outcome.text),
        (condition("a guard on answers panicked: lost my head"), "")
    );
}

#[tokio::test(start_paused = true)]
async fn guards_are_called_in_order_and_the_first_that_does_not_pass_is_the_last() {
    let provider = ScriptedProvider::new().text("one").text("555");
    let later = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&later);
    let agent = guarded(&provider)
        .guard_answers(move |text, cx| {
            counts.fetch_add(1, Ordering::SeqCst);
            *text = format!("{text} in {}", cx.session());
            LayerVerdict::Pass
        })
        .guard_answers(|text, _| match text.starts_with("one in ") {
            true => LayerVerdict::Pass,
            false => LayerVerdict::Stop("out of order".to_owned()),
        })
        .limits(Limits::default().with_steps(1))
        .build()
        .unwrap();
    let session = open_runtime().session();
    let outcome = session.start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(outcome.text, format!("one in {}", session.id()));
    let outcome = session.start(&agent, "Go").outcome().await.unwrap();
    assert_eq!((outcome.status, &*outcome.text), (Status::Stopped(StopReason::Steps(1)), ""));
    assert_eq!(later.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_text_beside_calls_is_guarded_when_a_tool_or_a_condition_ends_the_run() {
    let step = || {
        let script = Script::new().text("Ada has 555.").call("look", &json!({})).usage(10, 5);
        ScriptedProvider::new().step(script.finish(FinishReason::ToolCalls))
    };
    let ending = || FakeTool::new("look").giving(ToolOutput::text("seen").stopping());
    for (agent, status) in [
        (
            guarded(&step()).tool(ending()),
            Status::Stopped(StopReason::Incomplete {
                iterations: 1,
                feedback: "give no phone number".into(),
            }),
        ),
        (guarded(&step()).tool(FakeTool::new("look")).stop_when([StopWhen::steps(1)]), condition("1 steps")),
    ] {
        let agent = agent.build().unwrap();
        let outcome = open_runtime().session().start(&agent, "Go").outcome().await.unwrap();
        assert_eq!((outcome.status, &*outcome.text), (status, ""));
    }
}

#[tokio::test(start_paused = true)]
async fn a_parent_and_a_node_see_what_the_guards_left() {
    let leaf = ScriptedProvider::new().text("Ask Ada.").text("The secret is 7.");
    let leaf = guarded(&leaf).build().unwrap();
    let root = ScriptedProvider::new()
        .call("agent", json!({"prompt": "Whom?"}))
        .call("agent", json!({"prompt": "What?"}))
        .text("Done.");
    let root_agent = agent(root.model()).tool(AgentTool::new(leaf)).build().unwrap();
    open_runtime().session().start(&root_agent, "Go").outcome().await.unwrap();
    let told: Vec<_> = root.requests()[2].messages.iter().flat_map(|it| results(it)).collect();
    assert_eq!(told[0], "Ask A.");
    assert!(!told[1].contains("The secret") && told[1].contains("the answer holds a secret"), "{told:?}");

    let node = ScriptedProvider::new().text("Ask Ada.");
    let graph = TaskGraph::builder("graph");
    let node = graph.agent("node", &guarded(&node).build().unwrap(), "Whom?");
    let graph = graph.returning(&node).build().unwrap();
    assert_eq!(*graph.ask("Go").await.unwrap(), "Ask A.");
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Contact {
    name: String,
}

#[tokio::test(start_paused = true)]
async fn a_guard_sees_a_value_as_json_after_the_validators_and_leaves_a_value() {
    let named = |name: &str| json!({ "name": name }).to_string();
    let provider = ScriptedProvider::by_history().text(named("")).text(named("555")).text(named("Ada"));
    let agent_of = |guard: Guard| {
        let builder = agent(provider.model()).guard_answers(guard).returns::<Contact>();
        let validate = |it: &Contact, _: &RunContext| match it.name.is_empty() {
            true => Err("`name` is empty".to_owned()),
            false => Ok(()),
        };
        builder.validate(validate).repairs(2).build().unwrap()
    };
    let store = memory();
    let session = runtime_on(&store).session();
    let outcome = session.start(&agent_of(guard), "Whom?").outcome().await.unwrap();
    assert_eq!(outcome.value::<Contact>().unwrap(), Contact { name: "A".to_owned() });
    let events = stored(&store, session.id()).await;
    assert_eq!(count(&events, "keep:typed.answer_refused"), 2);
    let said = provider.requests()[2].messages.last().unwrap().text();
    assert!(said.contains("give no phone number"), "{said}");

    let broken: [(Guard, &str); 3] = [
        (
            |text, _| {
                *text += "!";
                LayerVerdict::Pass
            },
            "it is no JSON value",
        ),
        (
            |text, _| {
                *text = "{}".to_owned();
                LayerVerdict::Pass
            },
            "name",
        ),
        (
            |text, _| {
                *text = r#"{"name": ""}"#.to_owned();
                LayerVerdict::Pass
            },
            "`name` is empty",
        ),
    ];
    for (guard, problem) in broken {
        let provider = ScriptedProvider::new().text(named("Ada"));
        let agent = agent(provider.model()).guard_answers(guard).returns::<Contact>();
        let agent =
            agent.validate(|it, _| if it.name.is_empty() { Err("`name` is empty".into()) } else { Ok(()) });
        let run = open_runtime().session().start(&agent.build().unwrap(), "Whom?");
        let outcome = run.outcome().await.unwrap();
        let Status::Stopped(StopReason::Condition(reason)) = &outcome.status else { panic!("{outcome}") };
        assert!(reason.contains("a guard changed the answer") && reason.contains(problem), "{reason}");
        assert_eq!(outcome.text, "");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_reply_that_says_it_stopped_are_run_before_its_text_is_an_answer() {
    let odd = Script::new().text("Ada?").call("look", &json!({})).usage(10, 5).finish(FinishReason::Stop);
    let (store, provider) = (memory(), ScriptedProvider::new().step(odd).text("Call 555.").text("Fine."));
    let agent = guarded(&provider).tool(FakeTool::new("look")).build().unwrap();
    let session = runtime_on(&store).session();
    let outcome = session.start(&agent, "Go").outcome().await.unwrap();
    assert_eq!((outcome.status, &*outcome.text), (Status::Completed, "Fine."));
    for request in provider.requests() {
        assert_valid(&request.messages);
    }
    let events = stored(&store, session.id()).await;
    assert!(
        events.iter().any(|it| matches!(&it.event, Event::RunFinished(end) if end.outcome.text == "Fine."))
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_cut_off_has_no_text_that_nobody_looked_at() {
    let script = |then: Script| {
        let first = Script::new().text("It is 555.").call("look", &json!({})).usage(10, 5);
        ScriptedProvider::by_history().step(first.finish(FinishReason::ToolCalls)).step(then)
    };
    // Cancelled, and late.
    for late in [false, true] {
        let gate = Gate::new();
        let provider = script(Script::new().wait(&gate).text("Never."));
        let agent = guarded(&provider).tool(FakeTool::new("look")).build().unwrap();
        let session = open_runtime().session();
        let deadline = PausedClock::new().now().after(Duration::from_secs(60));
        let task = if late { Task::new("Go").with_deadline(deadline) } else { Task::new("Go") };
        let run = session.start(&agent, task);
        gate.arrived(1).await;
        if !late {
            run.cancel();
        }
        let outcome = run.outcome().await.unwrap();
        let ended = matches!(outcome.status, Status::Cancelled | Status::Stopped(StopReason::Deadline));
        assert!(ended && outcome.steps >= 1, "{outcome}");
        assert_eq!(outcome.text, "");
    }
    // Failed, below an agent that is told so.
    let provider = script(Script::new().fail(ErrorKind::Authentication, "no key"));
    let leaf = guarded(&provider).tool(FakeTool::new("look")).build().unwrap();
    let root = ScriptedProvider::new().call("agent", json!({"prompt": "Go"})).text("Done.");
    let top = agent(root.model()).tool(AgentTool::new(leaf)).build().unwrap();
    open_runtime().session().start(&top, "Go").outcome().await.unwrap();
    let told: Vec<_> = root.requests()[1].messages.iter().flat_map(|it| results(it)).collect();
    assert!(told[0].contains("failed") && !told[0].contains("555"), "{told:?}");
    // Paused, and then stopped for good.
    let provider = script(Script::new().text("Never."));
    let agent = guarded(&provider).tool(FakeTool::new("look").access(Access::WRITE)).build().unwrap();
    let store = memory();
    let session = testkit::runtime().shared_store(Arc::clone(&store)).build().session();
    let outcome = session.start(&agent, "Go").outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Paused(_)), "{outcome}");
    assert_eq!(outcome.text, "");
    assert!(session.stop().await.unwrap());
    let events = stored(&store, session.id()).await;
    let ends = events.iter().filter_map(|it| match &it.event {
        Event::RunFinished(end) => Some(&*end.outcome.text),
        _ => None,
    });
    assert_eq!(ends.collect::<Vec<_>>(), [""]);
}
