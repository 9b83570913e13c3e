//! Attacks at the door for engines: what crosses as JSON arrives as it was sent, or is refused.

use std::sync::{Arc, Mutex};

use entourage_core::{
    ErrorKind,
    agent::AgentPart,
    event::{Event, ModelFinished},
    message::{Arguments, Message, Part, Role, ToolCall},
    permission::Scope,
    provider::{FinishReason, Model, OutputSchema, Params},
    run::{Effect, Limits, ModelCall, Observation, PendingCall, RunContext, ToolCalls},
    tool::{Access, Tool, ToolSpec, Tools},
};
use entourage_runners::from_fn::from_fn;
use entourage_runtime::engine::{Code, answer_from_json, answer_to_json, effect_to_json};
use entourage_testkit::{FakeTool, ReactAgent, ScriptedProvider};
use futures_util::FutureExt;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    common::{act, memory, runtime_on, stored},
    meddler::{Meddler, code, open, set},
};

fn call(name: &str) -> Part {
    Part::ToolCall(ToolCall::new("c", name, Arguments::empty()))
}

fn look(description: &str) -> Arc<dyn Tool> {
    let spec = ToolSpec::new("look", description, json!({"type": "object"})).with_access(Access::READ);
    Arc::new(from_fn(spec, |_| async { Ok("seen") }))
}

#[test]
fn attack_12_arguments_that_no_tool_can_take_do_not_cross() {
    let code = code(vec![AgentPart::Tools(Tools::new([look("Looks.")]).unwrap())]);
    let message = Arc::new(Message::new(Role::Assistant, vec![call("look")]));
    let tools = Tools::new([look("Looks.")]).unwrap();
    let calls = ToolCalls::new(Arc::clone(&message), vec![PendingCall::new(0)], tools, Limits::default());
    let effect = effect_to_json(&Effect::Tools(Box::new(calls))).unwrap();
    let usage = entourage_core::Usage::default();
    let reply = ModelFinished::new(1, message, FinishReason::ToolCalls.into(), usage);
    let answer = answer_to_json(&Ok(Observation::Model(Arc::new(reply)))).unwrap();
    let with = |text: &str, arguments: &str| {
        assert_eq!(text.matches("\"arguments\":{}").count(), 1, "{text}");
        text.replace("\"arguments\":{}", &format!("\"arguments\":{arguments}"))
    };
    let token = CancellationToken::new;
    let nested = |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
    for fine in ["{ }", "{\"a\":[1,{\"$serde_json::private::RawValue\":\"]\"}]}", &nested(90)] {
        assert!(code.effect(&with(&effect, fine), token()).is_ok(), "{fine}");
        assert!(answer_from_json(&with(&answer, fine)).is_ok(), "{fine}");
    }
    let (number, large) =
        (format!("{{\"a\":1{}}}", "0".repeat(5_000)), format!("{{\"a\":\"{}\"}}", "x".repeat(33 << 20)));
    for odd in
        [&nested(100), &nested(10_000), "5", "\"x\"", "null", "[]", "{\"a\":\"\\ud800\"}", &number, &large]
    {
        let refused = code.effect(&with(&effect, odd), token()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Protocol, "{odd:.60}");
        assert_eq!(
            answer_from_json(&with(&answer, odd)).unwrap_err().kind(),
            ErrorKind::Protocol,
            "{odd:.60}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn attack_12_a_parameter_that_is_no_number_is_refused_and_not_left_out() {
    let provider = ScriptedProvider::by_history().text("hm");
    let model = provider.model();
    for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let all = [
            Params::default().with_temperature(odd),
            Params::default().with_top_p(odd),
            Params::default().with_presence_penalty(odd),
            Params::default().with_frequency_penalty(odd),
        ];
        for params in all {
            let request = model.request("hm").with_params(params);
            let call = ModelCall::new(model.clone(), request.clone(), Tools::none());
            let refused = effect_to_json(&Effect::Model(Box::new(call))).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
            let model = model.clone();
            let agent = act(move |cx| {
                let (model, request) = (model.clone(), request.clone());
                Box::pin(async move { Ok(cx.call_model(&model, request).await?.message.text()) })
            });
            let error = open().build().session().start(&agent, "Go.").outcome().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
    }
    assert_eq!(provider.count(), 0);
}

/// An engine that performs effects, as they cross, with the first context that it saw of each run: the run's own, as
/// another process would have it.
fn elsewhere(code: Code) -> Meddler {
    let own: Arc<Mutex<Vec<RunContext>>> = Arc::default();
    Meddler::new(move |cx, key, effect, local| {
        let (own, code) = (Arc::clone(&own), code.clone());
        async move {
            let sent = effect_to_json(&effect)?;
            let cx = {
                let mut own = own.lock().unwrap();
                let known = own.iter().find(|it| it.session() == cx.session()).cloned();
                known.unwrap_or_else(|| {
                    own.push(cx.clone());
                    cx
                })
            };
            local.perform(&cx, key, code.effect(&sent, CancellationToken::new())?).await
        }
        .boxed()
    })
}

#[tokio::test(start_paused = true)]
async fn attack_12_the_scope_of_a_narrowed_context_crosses_with_its_effects() {
    let write = FakeTool::new("write").access(Access::ALL);
    let tools = set(&write);
    let provider = ScriptedProvider::by_history().call("write", json!({})).text("done");
    let model = provider.model();
    let helper = ReactAgent::builder("helper", model.clone()).tool(write.clone()).build().unwrap();
    let parts = vec![
        AgentPart::Tools(tools.clone()),
        AgentPart::Model(model.into()),
        AgentPart::agent(helper.clone()),
    ];
    let agent = act(move |cx| {
        let (tools, helper) = (tools.clone(), helper.clone());
        Box::pin(async move {
            cx.now().await?;
            let narrow = cx.narrowed(&Scope::none());
            let result = narrow.call_tool(&tools, "write", &json!({})).await?.to_text();
            let child = narrow.spawn(&helper, "Write.").await?;
            narrow.wait_any(&[child], None).await?;
            narrow.ask("helper", &helper, "Write.").await?;
            Ok(result)
        })
    });
    let runtime = open().effects(elsewhere(code(parts))).build();
    let outcome = runtime.session().start(&agent, "Go.").outcome().await.unwrap();
    assert!(outcome.text.contains("scope"), "{}", outcome.text);
    assert_eq!((write.started(), provider.count()), (0, 4));
}

/// Returns a value of so many levels.
fn nested(levels: usize) -> Value {
    (1..levels).fold(json!({}), |inner, _| json!({ "a": inner }))
}

#[tokio::test(start_paused = true)]
async fn attack_12_a_schema_that_cannot_be_recorded_is_refused_before_it_is_sent() {
    let provider = ScriptedProvider::by_history().text("hm");
    let model = provider.model();
    let spec = |levels| ToolSpec::new("look", "Looks.", nested(levels)).with_access(Access::READ);
    let ask = |request: entourage_core::provider::Request| {
        let mut call = ModelCall::new(model.clone(), request.clone(), Tools::none());
        call.request = request;
        Effect::Model(Box::new(call))
    };
    let code = code(vec![AgentPart::Model(model.clone().into())]);
    for (levels, fine) in [(96, true), (97, false), (130, false)] {
        let with_tool = model.request("hm").with_tools(vec![spec(levels)]);
        let with_output = model.request("hm").with_output(OutputSchema::new("answer", nested(levels)));
        let kind = ErrorKind::InvalidInput;
        for request in [with_tool, with_output] {
            let effect = ask(request.clone());
            match effect_to_json(&effect) {
                Ok(text) => assert!(fine && code.effect(&text, CancellationToken::new()).is_ok()),
                Err(error) => assert!(!fine && error.kind() == kind, "{levels}: {error}"),
            }
            let agent = act(move |cx| {
                let effect = effect.clone();
                Box::pin(async move { cx.perform(effect).await.map(|_| String::new()) })
            });
            let before = provider.count();
            let store = memory();
            let session = runtime_on(&store).session();
            let ended = session.start(&agent, "Go.").outcome().await;
            assert_eq!(ended.err().map(|error| error.kind()), (!fine).then_some(kind), "{levels}");
            assert_eq!(provider.count() - before, usize::from(fine), "{levels}");
            let calls = stored(&store, session.id()).await.into_iter().filter_map(|it| match it.event {
                Event::ModelStarted(started) => started.request,
                _ => None,
            });
            for call in calls.collect::<Vec<_>>() {
                let telemetry = entourage_runtime::telemetry::Telemetry::new(Arc::clone(&store));
                let made = telemetry.request(session.id().as_str(), call).await.unwrap().unwrap();
                let shown = |request| serde_json::to_string(request).unwrap();
                assert_eq!(shown(&made), shown(&request));
            }
        }
    }
}

#[test]
fn attack_12_a_secret_that_changed_makes_no_other_model() {
    let provider = ScriptedProvider::new();
    let model = |params: Params| provider.model().with_params(params);
    let one = model(Params::default().with_extra(json!({"token": 1})));
    let other = model(Params::default().with_metadata("token", "2"));
    let warm = model(Params::default().with_temperature(1.0));
    let code = code(vec![AgentPart::Model(one.into())]);
    let asks = |model: &Model| {
        let call = ModelCall::new(model.clone(), model.request("hm"), Tools::none());
        code.effect(&effect_to_json(&Effect::Model(Box::new(call))).unwrap(), CancellationToken::new())
    };
    assert!(asks(&other).is_ok());
    assert_eq!(asks(&warm).unwrap_err().kind(), ErrorKind::Config);
}
