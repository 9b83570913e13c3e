//! Agents whose answer is a value: what each step asks for, what becomes of wrong answers, and the value as it streams.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use entourage_core::{
    ErrorKind,
    event::Event,
    message::Role,
    permission::Scope,
    provider::{Delta, Effort, FinishReason, OutputFormat, Params, Profile, Request, ToolChoice},
    run::{Limits, Outcome, Status, StopReason},
    tool::{Access, ToolOutput, Tools},
};
use entourage_runners::{
    Prepared, ReactAgent, ReactBuilder, Step, StopWhen, TypedAgent,
    typed::{NoValue, NoValueReason, OutcomeExt, Partial, Strategy},
};
use entourage_runtime::{AgentExt, layers::Retry};
use entourage_testkit::{FakeTool, LiveProvider, Script, ScriptedProvider};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::common::{agent, open_runtime, results};

/// A report of a defect.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
struct Report {
    /// One line.
    summary: String,
    /// From 1 to 5.
    severity: u8,
}

fn report(severity: u8) -> Report {
    Report { summary: "It panics".into(), severity }
}

fn answer(severity: impl Into<Value>) -> Value {
    json!({"summary": "It panics", "severity": severity.into()})
}

fn profile(structured: Option<bool>, beside: Option<bool>, tools: Option<bool>) -> Profile {
    let mut profile = Profile::default();
    (profile.structured_output, profile.structured_beside_tools, profile.tools) = (structured, beside, tools);
    profile
}

/// Each strategy with a profile that leads to it.
fn ways() -> [(Strategy, Profile); 3] {
    [
        (Strategy::Native, profile(Some(true), Some(true), Some(true))),
        (Strategy::Tool, profile(Some(true), None, None)),
        (Strategy::Prompt, profile(None, None, Some(false))),
    ]
}

/// A reply with an answer, as a model gives it with this strategy.
fn reply(strategy: Strategy, answer: &Value) -> Script {
    let script = Script::new().usage(10, 5);
    match strategy {
        Strategy::Tool => script.call("final_answer", answer).finish(FinishReason::ToolCalls),
        _ => script.text(answer.to_string()).finish(FinishReason::Stop),
    }
}

fn builder(provider: &ScriptedProvider, profile: &Profile) -> ReactBuilder {
    let model = provider.model().with_profile(profile.clone());
    agent(model).instructions("You sort reports.").tool(FakeTool::new("grep").access(Access::READ))
}

fn triage(provider: &ScriptedProvider, profile: &Profile) -> TypedAgent<Report> {
    builder(provider, profile).returns::<Report>().build().unwrap()
}

/// A model that calls a final tool where it is not told otherwise.
fn by_tool() -> Profile {
    Profile::default()
}

async fn outcome(agent: &TypedAgent<Report>) -> Outcome {
    let session = open_runtime().session();
    let outcome = session.start(agent, "It crashes!").outcome().await.unwrap();
    crate::common::assert_valid(&session.history().await.unwrap());
    outcome
}

/// Asserts that each request extends the one before: what a prompt cache keeps stays.
fn assert_stable(requests: &[Request]) {
    for (one, next) in requests.iter().zip(requests.iter().skip(1)) {
        assert_eq!((&one.instructions, &one.output), (&next.instructions, &next.output));
        assert_eq!((&one.tool_choice, &one.params), (&next.tool_choice, &next.params));
        assert!(Arc::ptr_eq(&one.tools, &next.tools), "wires keep encoded tools by their address");
        let told: Vec<_> = next.messages.iter().take(one.messages.len()).collect();
        assert_eq!(one.messages.iter().collect::<Vec<_>>(), told);
    }
}

#[tokio::test]
async fn a_value_is_asked_for_by_the_best_strategy_beside_tools() {
    for (strategy, profile) in ways() {
        let provider = ScriptedProvider::new()
            .call("grep", json!({"text": "panic"}))
            .step(reply(strategy, &answer(9)))
            .step(reply(strategy, &answer(4)));
        let agent = builder(&provider, &profile)
            .returns::<Report>()
            .validate(|report, _| if report.severity > 5 { Err("at most 5".into()) } else { Ok(()) })
            .build()
            .unwrap();
        let outcome = outcome(&agent).await;
        assert_eq!((&outcome.status, outcome.steps), (&Status::Completed, 3), "{strategy:?}");
        assert_eq!(outcome.value::<Report>().unwrap(), report(4));
        assert_eq!(serde_json::from_str::<Value>(&outcome.text).unwrap(), answer(4));

        let requests = provider.requests();
        assert_stable(&requests);
        let names: Vec<_> = requests[0].tools.iter().map(|tool| tool.name()).collect();
        let schema_told = requests[0].instructions.contains("\"severity\"");
        let typed = matches!(&requests[0].output, OutputFormat::Schema(schema) if schema.name == "Report");
        let choice = &requests[0].tool_choice;
        match strategy {
            Strategy::Native => {
                assert_eq!((names.as_slice(), typed, schema_told), (["grep"].as_slice(), true, false));
            }
            Strategy::Tool => {
                assert_eq!((names, typed, schema_told), (vec!["final_answer", "grep"], false, false));
                assert_eq!(choice, &ToolChoice::Required);
                let spec = requests[0].tools.iter().find(|tool| tool.name() == "final_answer").unwrap();
                assert!(spec.description().contains("A report of a defect."));
                assert!(results(requests[2].messages.last().unwrap())[0].contains("at most 5"));
            }
            _ => assert_eq!((names.as_slice(), typed, schema_told), (["grep"].as_slice(), false, true)),
        }
        if strategy != Strategy::Tool {
            let told = requests[2].messages.last().unwrap();
            assert_eq!(told.role(), Role::User);
            assert!(told.text().contains("at most 5"), "{}", told.text());
            assert_eq!(choice, &ToolChoice::Auto);
        }
    }
}

#[tokio::test]
async fn without_tools_of_its_own_the_final_one_is_forced() {
    let provider = ScriptedProvider::new().step(reply(Strategy::Tool, &answer(2)));
    let model = provider.model().with_profile(profile(None, None, Some(true)));
    let typed = ReactAgent::builder("triage", model).returns::<Report>().build().unwrap();
    assert_eq!(typed.ask("It crashes!").await.unwrap(), report(2));
    assert_eq!(provider.requests()[0].tool_choice, ToolChoice::Tool("final_answer".into()));
}

#[tokio::test]
async fn a_model_that_thinks_is_not_forced() {
    let provider = ScriptedProvider::new().step(reply(Strategy::Tool, &answer(2)));
    let params = Params::default().with_reasoning(Effort::High);
    let typed = builder(&provider, &by_tool()).params(params).returns::<Report>().build().unwrap();
    typed.ask("It crashes!").await.unwrap();
    assert_eq!(provider.requests()[0].tool_choice, ToolChoice::Auto);
}

#[tokio::test]
async fn an_answer_that_is_always_wrong_ends_the_run_with_the_problem() {
    for (strategy, profile) in ways() {
        for repairs in [0, 2] {
            let wrong = reply(strategy, &answer("high"));
            let provider = (0..=repairs).fold(ScriptedProvider::new(), |all, _| all.step(wrong.clone()));
            let agent = builder(&provider, &profile).returns::<Report>().repairs(repairs).build().unwrap();
            let outcome = outcome(&agent).await;
            let Status::Stopped(StopReason::Incomplete { iterations, feedback }) = &outcome.status else {
                panic!("{strategy:?} {repairs}: {outcome:?}")
            };
            assert_eq!((*iterations, outcome.steps), (repairs + 1, repairs + 1));
            assert!(feedback.contains("/severity"), "{feedback}");

            let error = outcome.value::<Report>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Stopped);
            assert!(matches!(error.stop_reason(), Some(StopReason::Incomplete { .. })));
            let none = NoValue::of(&error).unwrap();
            assert_eq!(
                (&none.reason, none.rounds),
                (&NoValueReason::Invalid(feedback.to_string()), repairs + 1)
            );
            provider.verify();
        }
    }
}

#[tokio::test]
async fn a_validator_that_always_refuses_ends_the_run_and_all_reasons_are_told() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let provider = ScriptedProvider::new().text(answer(1).to_string()).text(answer(2).to_string());
    let agent = builder(&provider, &ways()[0].1)
        .returns::<Report>()
        .validate(move |_, cx| {
            counted.fetch_add(1, Ordering::Relaxed);
            Err(format!("not in {} messages", cx.history().len()))
        })
        .validate(|report, _| Err(format!("not {}", report.severity)))
        .build()
        .unwrap();
    let Status::Stopped(StopReason::Incomplete { feedback, .. }) = outcome(&agent).await.status else {
        panic!()
    };
    assert_eq!(&*feedback, "not in 4 messages; not 2");
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    assert!(provider.requests()[1].messages.last().unwrap().text().contains("not in 2 messages; not 1"));
}

#[tokio::test]
async fn a_validator_that_panics_refuses_the_answer_with_the_panics_text() {
    for (strategy, profile) in ways() {
        let provider =
            ScriptedProvider::new().step(reply(strategy, &answer(1))).step(reply(strategy, &answer(2)));
        let agent = builder(&provider, &profile)
            .returns::<Report>()
            .validate(|report, _| match report.severity {
                1 => panic!("no such severity"),
                _ => Ok(()),
            })
            .build()
            .unwrap();
        assert_eq!(outcome(&agent).await.value::<Report>().unwrap(), report(2), "{strategy:?}");
        let told = provider.requests()[1].messages.last().unwrap().clone();
        let told = told.text() + &results(&told).concat();
        assert!(told.contains("its check panicked: no such severity"), "{strategy:?}: {told}");
    }
    let provider = ScriptedProvider::new().step(reply(Strategy::Native, &answer(1)));
    let agent = builder(&provider, &ways()[0].1).returns::<Report>().repairs(0);
    let outcome = outcome(&agent.validate(|_, _| panic!("always")).build().unwrap()).await;
    let Status::Stopped(StopReason::Incomplete { feedback, .. }) = &outcome.status else {
        panic!("{outcome}")
    };
    assert_eq!(&**feedback, "its check panicked: always");
}

#[tokio::test]
async fn a_whole_number_with_a_point_is_taken_for_an_integer() {
    for (strategy, profile) in ways() {
        let provider = ScriptedProvider::new().step(reply(strategy, &answer(4.0)));
        let outcome = outcome(&triage(&provider, &profile)).await;
        assert_eq!(outcome.value::<Report>().unwrap(), report(4), "{strategy:?}");
        assert!(outcome.text.contains("\"severity\":4,"), "{strategy:?}: {}", outcome.text);
    }
}

#[tokio::test]
async fn words_instead_of_the_final_call_are_an_answer_only_if_they_are_nothing_else() {
    let provider = ScriptedProvider::new()
        .text(format!("I would say {}, but let me look.", answer(1)))
        .text(format!("```json\n{}\n```", answer(2)));
    let outcome = outcome(&triage(&provider, &by_tool())).await;
    assert_eq!(outcome.value::<Report>().unwrap(), report(2));
    let told = provider.requests()[1].messages.last().unwrap().text();
    assert!(told.contains("the tool `final_answer` was not called. Call `final_answer` once"), "{told}");
}

#[tokio::test]
async fn a_call_and_an_answer_in_one_step_are_both_taken() {
    let grep = FakeTool::new("grep").access(Access::READ);
    for calls in [
        [("grep", json!({})), ("final_answer", answer(3))],
        [("final_answer", answer(3)), ("grep", json!({}))],
    ] {
        let provider = ScriptedProvider::new().calls(calls);
        let typed = agent(provider.model()).tool(grep.clone()).returns::<Report>().build().unwrap();
        assert_eq!(outcome(&typed).await.value::<Report>().unwrap(), report(3));
    }
    assert_eq!(grep.finished(), 2);
}

#[tokio::test]
async fn two_answers_in_one_step_are_taken_only_if_they_are_equal() {
    let both = |one, other| [("final_answer", answer(one)), ("final_answer", answer(other))];
    let provider = ScriptedProvider::new().calls(both(3, 4)).calls(both(4, 4));
    assert_eq!(outcome(&triage(&provider, &by_tool())).await.value::<Report>().unwrap(), report(4));
    let told = provider.requests()[1].messages.last().unwrap().text();
    assert!(told.contains("it holds several values"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_off_half_way_is_asked_for_again() {
    let half = |text: &str| Script::new().text(text).fail(ErrorKind::Transport, "cut off");
    let provider = ScriptedProvider::new().step(half(r#"{"summary": "It h"#)).text(answer(4).to_string());
    let model = provider.model().with_profile(ways()[0].1.clone()).layer(Retry::new());
    let typed = agent(model).returns::<Report>().build().unwrap();
    let mut run = typed.start("It crashes!");
    let (mut partial, mut seen) = (Partial::of::<Report>(), Vec::new());
    while let Some(event) = run.next().await {
        if partial.apply(&event.event) {
            seen.push(partial.value().cloned());
        }
    }
    let outcome = run.outcome().await.unwrap();
    assert_eq!((outcome.value::<Report>().unwrap(), outcome.steps), (report(4), 1), "it is no repair");
    assert_eq!(seen[..2], [Some(json!({"summary": "It h"})), None], "{seen:?}");
    assert_eq!(seen.last().unwrap(), &Some(answer(4)));
}

#[tokio::test]
async fn a_value_only_grows_while_it_streams_and_ends_as_the_value() {
    for (strategy, profile) in ways() {
        let json = answer(4).to_string();
        let pieces: Vec<_> = json.as_bytes().chunks(3).map(|piece| String::from_utf8_lossy(piece)).collect();
        let mut script = Script::new();
        if strategy == Strategy::Tool {
            script = script.delta(Delta::tool_call(0, "c", "final_answer"));
        }
        for piece in &pieces {
            script = script.delta(match strategy {
                Strategy::Tool => Delta::arguments(0, &**piece),
                _ => Delta::text(&**piece),
            });
        }
        let reason = if strategy == Strategy::Tool { FinishReason::ToolCalls } else { FinishReason::Stop };
        let provider = ScriptedProvider::new().step(script.usage(9, 9).finish(reason));
        let mut run = triage(&provider, &profile).start("It crashes!");
        let (mut partial, mut summaries, mut last) = (Partial::of::<Report>(), Vec::new(), None);
        while let Some(event) = run.next().await {
            if partial.apply(&event.event) {
                last = partial.value().cloned();
                let text = last.as_ref().and_then(|value| value["summary"].as_str().map(str::to_owned));
                summaries.extend(text);
            }
        }
        assert!(summaries.windows(2).all(|pair| pair[1].starts_with(&pair[0])), "{summaries:?}");
        assert!(summaries.len() > 3 && partial.is_complete(), "{strategy:?} {summaries:?}");
        assert_eq!(last, Some(answer(4)));
        assert_eq!(run.outcome().await.unwrap().value::<Report>().unwrap(), report(4));
    }
}

#[tokio::test]
async fn what_ends_a_run_without_a_value_is_told_by_the_error() {
    let declines =
        Script::new().delta(Delta::Refusal("I will not.".into())).usage(1, 1).finish(FinishReason::Stop);
    let cut = Script::new().text("{\"summary\": ").usage(1, 1).finish(FinishReason::Length);
    for (script, reason) in [(declines, NoValueReason::Refused), (cut, NoValueReason::CutOff)] {
        let provider = ScriptedProvider::new().step(script);
        let error = triage(&provider, &ways()[0].1).ask("It crashes!").await.unwrap_err();
        assert_eq!(NoValue::of(&error).unwrap().reason, reason);
    }
    let provider = ScriptedProvider::new().call("grep", json!({}));
    let limited = builder(&provider, &by_tool()).limits(Limits::default().with_steps(1));
    let error = limited.returns::<Report>().build().unwrap().ask("It crashes!").await.unwrap_err();
    assert_eq!(NoValue::of(&error).unwrap().reason, NoValueReason::Stopped(StopReason::Steps(1)));
    // The outcome of an agent that is not typed.
    let error = Outcome::completed("It is bad.").value::<Report>().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(matches!(NoValue::of(&error).unwrap().reason, NoValueReason::Invalid(_)));
    assert!(Outcome::completed(answer("high").to_string()).value::<Report>().is_err());
}

#[tokio::test]
async fn repairs_are_steps_under_the_limit() {
    let wrong = || Script::new().text("Hm.").usage(1, 1).finish(FinishReason::Stop);
    let provider = ScriptedProvider::new().step(wrong()).step(wrong());
    let limited = builder(&provider, &by_tool()).limits(Limits::default().with_steps(2));
    let agent = limited.returns::<Report>().repairs(9).build().unwrap();
    assert_eq!(outcome(&agent).await.status, Status::Stopped(StopReason::Steps(2)));
}

#[tokio::test]
async fn a_tool_that_ends_the_turn_gives_no_value() {
    let halt = FakeTool::new("halt").access(Access::READ).giving(ToolOutput::text("halted").stopping());
    let provider = ScriptedProvider::new().call("halt", json!({}));
    let typed = agent(provider.model()).tool(halt).returns::<Report>().build().unwrap();
    let Status::Stopped(StopReason::Condition(text)) = outcome(&typed).await.status else { panic!() };
    assert_eq!(text, "a tool ended the turn");
    // A condition after a step gives way to a value in it.
    let provider = ScriptedProvider::new().call("final_answer", answer(1));
    let ending = builder(&provider, &by_tool()).stop_when([StopWhen::steps(1)]).returns::<Report>().build();
    assert_eq!(outcome(&ending.unwrap()).await.value::<Report>().unwrap(), report(1));
}

#[tokio::test]
async fn a_scope_without_the_final_tool_and_a_hook_that_takes_it_away_leave_a_way_to_answer() {
    let provider = ScriptedProvider::new().text(answer(1).to_string());
    let narrow = builder(&provider, &by_tool()).scope(Scope::all().with_tools(["grep"]));
    assert_eq!(outcome(&narrow.returns().build().unwrap()).await.value::<Report>().unwrap(), report(1));
    let sent = &provider.requests()[0];
    assert_eq!(sent.tools.iter().map(|tool| tool.name()).collect::<Vec<_>>(), ["grep"]);
    assert!(sent.instructions.contains("\"severity\""));

    let provider = ScriptedProvider::new().call("final_answer", answer(2));
    let hook = |_: &Step, plan: &mut Prepared| plan.tools = Tools::none();
    let hooked = builder(&provider, &by_tool()).prepare(hook).returns::<Report>().build().unwrap();
    assert_eq!(outcome(&hooked).await.value::<Report>().unwrap(), report(2));
}

#[tokio::test]
async fn values_of_any_shape_are_answers() {
    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Tree {
        name: String,
        children: Vec<Tree>,
        #[serde(default)]
        extra: serde_json::Map<String, Value>,
    }
    let tree = json!({"name": "a", "children": [{"name": "b", "children": []}], "extra": {"x": [1, null]}});
    for (strategy, profile) in ways() {
        let provider = ScriptedProvider::new().step(reply(strategy, &tree));
        let found = builder(&provider, &profile).returns::<Tree>().build().unwrap().ask("?").await.unwrap();
        assert_eq!((found.children[0].name.as_str(), &found.extra["x"]), ("b", &json!([1, null])));

        let provider = ScriptedProvider::new().step(reply(strategy, &json!({"value": [1, 2]})));
        let list = builder(&provider, &profile).returns::<Vec<u8>>().build().unwrap();
        let outcome = open_runtime().session().start(&list, "?").outcome().await.unwrap();
        assert_eq!((&*outcome.text, outcome.value::<Vec<u8>>().unwrap()), ("[1,2]", vec![1, 2]));

        let provider = ScriptedProvider::new().step(reply(strategy, &json!({"value": {"any": true}})));
        let any = builder(&provider, &profile).returns::<Value>().build().unwrap();
        assert_eq!(any.ask("?").await.unwrap(), json!({"any": true}));
    }
}

#[tokio::test]
async fn a_conversation_goes_on_after_a_value() {
    let provider =
        ScriptedProvider::new().call("final_answer", answer(1)).text("Hm.").call("final_answer", answer(2));
    let (typed, session) = (triage(&provider, &by_tool()), open_runtime().session());
    for severity in 1..=2 {
        let outcome = session.start(&typed, "It crashes!").outcome().await.unwrap();
        assert_eq!(outcome.value::<Report>().unwrap(), report(severity));
    }
    assert_stable(&provider.requests());
    crate::common::assert_valid(&session.history().await.unwrap());
}

#[test]
fn a_tool_of_the_final_ones_name_is_refused() {
    let model = ScriptedProvider::new().model();
    let built = agent(model).tool(FakeTool::new("final_answer")).returns::<Report>().build();
    assert_eq!(built.unwrap_err().kind(), ErrorKind::Config);
}

#[tokio::test]
async fn refusals_are_recorded_for_people() {
    let provider = ScriptedProvider::new().text("Hm.").text(answer(2).to_string());
    let mut run = triage(&provider, &ways()[0].1).start("It crashes!");
    let mut lines = Vec::new();
    while let Some(event) = run.next().await {
        if let Event::Recorded(value) = &event.event {
            lines.push(value.summary());
        }
    }
    assert_eq!(lines, ["answer 1 refused: there is no complete JSON value in the reply"]);
    run.outcome().await.unwrap();
}

#[tokio::test]
async fn a_run_that_pauses_at_a_refusal_tells_the_model_once() {
    let live = LiveProvider::new();
    let model = live.model().with_profile(ways()[0].1.clone());
    let typed = agent(model).returns::<Report>().build().unwrap();
    let session = open_runtime().session();
    let run = session.start(&typed, "It crashes!");
    let mut first = live.asked().await;
    run.pause();
    first.text("Hm.");
    first.finish(FinishReason::Stop);
    assert!(matches!(run.outcome().await.unwrap().status, Status::Paused(_)));

    let resumed = session.resume(&typed);
    let mut second = live.asked().await;
    let told = second.request().messages.iter().filter(|message| message.text().contains("Answer 1 of"));
    assert_eq!(told.count(), 1);
    second.text(&answer(2).to_string());
    second.finish(FinishReason::Stop);
    let outcome = resumed.outcome().await.unwrap();
    assert_eq!((outcome.value::<Report>().unwrap(), outcome.steps), (report(2), 2));
}

#[tokio::test]
async fn a_prompt_that_waits_joins_before_a_repair_and_after_the_refusal() {
    let live = LiveProvider::new();
    let model = live.model().with_profile(ways()[0].1.clone());
    let typed = agent(model).returns::<Report>().build().unwrap();
    let session = open_runtime().session();
    let run = session.start(&typed, "It crashes!");
    let mut first = live.asked().await;
    session.steer("On Mondays.").await.unwrap();
    first.text("Hm.");
    first.finish(FinishReason::Stop);
    let mut second = live.asked().await;
    let texts: Vec<_> = second.request().messages.iter().map(|message| message.text()).collect();
    assert!(texts[2].contains("Answer 1 of") && texts[3] == "On Mondays.", "{texts:?}");
    second.text(&answer(2).to_string());
    second.finish(FinishReason::Stop);
    assert_eq!(run.outcome().await.unwrap().value::<Report>().unwrap(), report(2));
}
