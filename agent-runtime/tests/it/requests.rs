//! What a model was asked, made again from the record.

use std::collections::BTreeSet;

use entourage_core::{
    ErrorKind, RequestId,
    context::Compaction,
    event::{Envelope, Event},
    message::{History, Message},
    provider::{OutputSchema, Params, Request, ToolChoice},
    run::{Effect, ModelCall},
    session::{SessionFilter, SharedStore},
    tool::{ToolSpec, Tools},
};
use entourage_runners::{
    AgentTool, Prepared, Step,
    typed::{Generate, RunExt},
};
use entourage_runtime::{Agents, Moment, telemetry::Telemetry};
use entourage_testkit::{Distant, FakeTool, Script, ScriptedProvider};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::{
    common::{Fault, FaultyStore, act, agent, memory, process, runtime_on, stored, until_killed},
    compaction::{looker, looks, says},
};

/// A request as a service sees it.
fn shown(request: &Request) -> String {
    serde_json::to_string(request).unwrap()
}

/// The recorded calls of all sessions, each session's in order.
async fn calls(store: &SharedStore) -> Vec<Envelope> {
    let mut calls = Vec::new();
    for info in store.query(&SessionFilter::all()).await.unwrap() {
        let events = stored(store, &info.record.id).await;
        calls.extend(events.into_iter().filter(|event| matches!(event.event, Event::ModelStarted(_))));
    }
    calls
}

/// Checks that each recorded call gives the request that a model got, and that no session holds a content twice.
/// Returns the number of contents.
async fn check(store: &SharedStore, models: &[&ScriptedProvider]) -> usize {
    let telemetry = Telemetry::new(SharedStore::clone(store));
    let (mut made, mut contents) = (Vec::new(), BTreeSet::new());
    for call in calls(store).await {
        let Event::ModelStarted(started) = &call.event else { panic!("a call") };
        let session = &call.origin.session;
        let request = telemetry.request(session.as_str(), started.request.unwrap()).await.unwrap();
        made.push(shown(&request.unwrap_or_else(|| panic!("nothing of {started:?}"))));
        for content in started.contents.iter().flat_map(|new| new.keys()) {
            assert!(contents.insert((session.clone(), *content)), "held twice");
        }
    }
    let mut sent: Vec<_> = models.iter().flat_map(|model| model.requests()).map(|it| shown(&it)).collect();
    made.sort();
    sent.sort();
    assert_eq!(made, sent);
    contents.len()
}

#[tokio::test]
async fn cw09_each_content_is_held_once_and_every_request_is_made_again() {
    let store = memory();
    let provider =
        ScriptedProvider::new().call("look", json!({})).text("One.").call("look", json!({})).text("Two.");
    let agent = agent(provider.model())
        .instructions("Look around.")
        .tool(FakeTool::new("look").returning("a wall"))
        .params(Params::default().with_max_output(100))
        .build()
        .unwrap();
    let runtime = runtime_on(&store);
    let session = runtime.session();
    session.start(&agent, "First").outcome().await.unwrap();
    session.start(&agent, "Second").outcome().await.unwrap();
    assert_eq!(check(&store, &[&provider]).await, 3, "instructions, tools and settings");

    // A fork holds nothing of the session that it was made from.
    let fork = session.fork(Moment::Event(session.state().await.unwrap().head().seq)).await.unwrap();
    let provider = ScriptedProvider::new().text("Three.");
    let agent = crate::common::agent(provider.model()).instructions("Look around.").build().unwrap();
    fork.start(&agent, "Third").outcome().await.unwrap();
    let calls = stored(&store, fork.id()).await;
    let call = calls.iter().find_map(|event| match &event.event {
        Event::ModelStarted(started) => started.request,
        _ => None,
    });
    let telemetry = Telemetry::new(SharedStore::clone(&store));
    let made = telemetry.request(fork.id().as_str(), call.unwrap()).await.unwrap().unwrap();
    assert_eq!((shown(&made), made.messages.len()), (shown(&provider.requests()[0]), 9));

    let unknown = telemetry.request(fork.id().as_str(), RequestId::generate()).await.unwrap();
    assert_eq!(unknown, None);
}

#[tokio::test]
async fn cw09_what_a_hook_sends_is_recorded_beside_the_conversation() {
    let store = memory();
    let provider = ScriptedProvider::new()
        .call("look", json!({}))
        .call("look", json!({}))
        .call("look", json!({}))
        .call("look", json!({}))
        .text("Done.");
    let hook = |step: &Step, plan: &mut Prepared| match step.number {
        1 => plan.push(Message::user("by the way")),
        2 => {
            plan.instructions = "Only look.".into();
            plan.tool_choice = ToolChoice::Required;
            plan.tools = plan.tools.keep(|spec| spec.name() == "look");
        }
        // The oldest messages are left out, and one is put between the others.
        3 => plan.messages = plan.messages.iter().skip(2).cloned().collect(),
        4 => {
            let between = std::sync::Arc::new(Message::user("between"));
            let (first, rest) = (plan.messages.iter().take(1), plan.messages.iter().skip(1));
            plan.messages = first.chain([&between]).chain(rest).cloned().collect();
        }
        _ => {}
    };
    let tools = [FakeTool::new("look"), FakeTool::new("write")];
    let mut builder = agent(provider.model()).instructions("Look.").prepare(hook);
    for tool in tools {
        builder = builder.tool(tool);
    }
    runtime_on(&store).session().start(&builder.build().unwrap(), "Go").outcome().await.unwrap();
    let instructions_tools_settings = 5;
    // Two messages, each in a list of one; three lists of pieces.
    assert_eq!(check(&store, &[&provider]).await, instructions_tools_settings + 2 + 2 + 3);
}

/// A city.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct City {
    name: String,
}

#[tokio::test]
async fn cw09_requests_of_hand_written_agents_children_and_summaries_are_made_again() {
    let store = memory();
    let (below, above) = (
        ScriptedProvider::new().text("Below."),
        ScriptedProvider::new().call("agent", json!({"prompt": "Look"})).text("Done."),
    );
    let scout = entourage_runners::ReactAgent::builder("scout", below.model())
        .instructions("Scout.")
        .build()
        .unwrap();
    let lead = agent(above.model()).tool(AgentTool::new(scout)).build().unwrap();
    let runtime = runtime_on(&store);
    runtime.session().start(&lead, "Go").outcome().await.unwrap();

    let own = ScriptedProvider::new().text("a").text("b").text(r#"{"name": "Paris"}"#);
    let model = own.model();
    let talker = act(move |cx| {
        let model = model.clone();
        Box::pin(async move {
            let mut said: History = (0..70).map(|number| Message::user(format!("{number}"))).collect();
            cx.call_model(&model, model.request(said.clone())).await?;
            said.push(Message::user("and this"));
            cx.call_model(&model, model.request(said)).await?;
            let city: City = cx.generate(&model, Generate::new("Which city?")).await?.value;
            Ok(city.name)
        })
    });
    runtime.session().start(&talker, "Go").outcome().await.unwrap();

    let long = ScriptedProvider::new().step(looks(99_000, 900)).step(says("A summary.")).step(says("Done."));
    let reader = looker(&long, 100_000).instructions("Read.").compaction(Compaction::new()).build().unwrap();
    runtime.session().start(&reader, "Go").outcome().await.unwrap();
    assert_eq!(long.requests().len(), 3, "a summary was written");
    check(&store, &[&above, &below, &own, &long]).await;
}

#[test]
fn cw09_a_call_that_is_made_again_after_a_death_is_the_one_that_is_shown() {
    let mut deaths = 0;
    for (at, fault) in (1..6).flat_map(|at| [(at, Fault::HangBefore), (at, Fault::HangAfter)]) {
        let inner = memory();
        let provider = ScriptedProvider::by_history()
            .step(
                Script::new()
                    .call("look", &json!({}))
                    .finish(entourage_core::provider::FinishReason::ToolCalls),
            )
            .step(Script::new().text("Done.").finish(entourage_core::provider::FinishReason::Stop));
        let reader =
            agent(provider.model()).instructions("Look.").tool(FakeTool::new("look")).build().unwrap();
        let faulty = FaultyStore::new(&inner, at, fault);
        let killed = faulty.killed.clone();
        let id = entourage_core::SessionId::new("root").unwrap();
        let store = faulty as SharedStore;
        let lived = process(until_killed(
            async { runtime_on(&store).session_with_id(id.clone()).start(&reader, "Go").outcome().await },
            &killed,
        ));
        if lived.is_none() {
            deaths += 1;
            let session = runtime_on(&inner).session_with_id(id);
            let resumed = process(async { session.resume(&reader).outcome().await });
            match resumed {
                Ok(outcome) => assert_eq!(outcome.text, "Done."),
                // Its last append was its end.
                Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
            }
        }
        process(async {
            let telemetry = Telemetry::new(SharedStore::clone(&inner));
            let mut held = BTreeSet::new();
            for call in calls(&inner).await {
                let Event::ModelStarted(started) = &call.event else { panic!("a call") };
                let made = telemetry.request("root", started.request.unwrap()).await.unwrap().unwrap();
                let sent: BTreeSet<_> = provider.requests().iter().map(shown).collect();
                assert!(sent.contains(&shown(&made)), "killed at append {at}: {made:?}");
                for content in started.contents.iter().flat_map(|new| new.keys()) {
                    assert!(held.insert(*content), "held twice, killed at append {at}");
                }
            }
            assert_eq!(held.len(), 2, "instructions and tools");
        });
    }
    assert!(deaths > 5, "{deaths}");
}

#[tokio::test]
async fn issue_12_calls_without_a_number_of_their_own_are_each_another_one() {
    let store = memory();
    let provider = ScriptedProvider::new().text("a").text("b").text("c").text("d").text("e");
    let model = provider.model();
    let agent = act(move |cx| {
        let model = model.clone();
        Box::pin(async move {
            let ask = |text: &str| {
                let call = ModelCall::new(model.clone(), model.request(text.to_owned()), Tools::none());
                cx.effects().perform(cx, None, Effect::Model(Box::new(call)))
            };
            ask("one").await?;
            ask("two").await?;
            let (three, four) = futures_util::join!(ask("three"), ask("four"));
            three?;
            four?;
            cx.call_model(&model, model.request("five")).await?;
            Ok(String::new())
        })
    });
    runtime_on(&store).session().start(&agent, "Go").outcome().await.unwrap();
    check(&store, &[&provider]).await;
}

#[tokio::test]
async fn issue_12_a_schema_with_a_key_that_serde_reserves_is_made_again() {
    const RESERVED: &str = "$serde_json::private::RawValue";
    let store = memory();
    let provider = ScriptedProvider::new().text("a").text("b").text("c");
    let model = provider.model();
    let agent = act(move |cx| {
        let model = model.clone();
        Box::pin(async move {
            for schema in
                [json!({RESERVED: "[1]"}), json!({RESERVED: "]"}), json!({"default": {RESERVED: 3}})]
            {
                let request = model.request("hm").with_output(OutputSchema::new("answer", schema.clone()));
                cx.call_model(&model, request.with_tools(vec![ToolSpec::new("look", "Looks.", schema)]))
                    .await?;
            }
            Ok(String::new())
        })
    });
    runtime_on(&store).session().start(&agent, "Go").outcome().await.unwrap();
    check(&store, &[&provider]).await;
}

type Hook = fn(&Step, &mut Prepared);

#[tokio::test]
async fn issue_12_a_conversation_that_crossed_is_not_recorded_again() {
    let dropped = |_: &Step, plan: &mut Prepared| {
        plan.push(Message::user("by the way"));
        plan.messages = plan.messages.iter().skip(1).cloned().collect();
    };
    let copied = |_: &Step, plan: &mut Prepared| {
        let copy = |message: &std::sync::Arc<Message>| std::sync::Arc::new(Message::clone(message));
        plan.messages = plan.messages.iter().map(copy).collect();
    };
    let plain = |_: &Step, _: &mut Prepared| {};
    let hooks: [(Hook, bool); 3] = [(plain, false), (copied, false), (dropped, true)];
    for (hook, changes) in hooks {
        for crosses in [true, false] {
            let store = memory();
            let steps = 12;
            let looks = (0..steps).fold(ScriptedProvider::new(), |it, n| it.call("look", json!({"n": n})));
            let provider = looks.text("Done.");
            let agent = agent(provider.model())
                .tool(FakeTool::new("look").returning("a wall"))
                .prepare(hook)
                .build()
                .unwrap();
            let runtime = entourage_testkit::runtime()
                .policy(entourage_runtime::permission::Policy::allow_all())
                .shared_store(SharedStore::clone(&store));
            let engine = Distant::new(Agents::new().with(agent.clone()));
            let runtime = if crosses { runtime.effects(engine) } else { runtime }.build();
            runtime.session().start(&agent, "Go").outcome().await.unwrap();
            let contents = check(&store, &[&provider]).await;
            // The tools; and of each step the list of its pieces, beside one message and its list.
            let most = if changes { 1 + steps + 1 + 2 } else { 1 };
            assert!(contents <= most, "crosses: {crosses}: {contents}");
        }
    }
}

#[tokio::test]
async fn cw09_what_a_program_passes_on_to_a_service_is_not_kept() {
    let store = memory();
    let provider = ScriptedProvider::new().text("Done.").text("Done.");
    let secret =
        Params::default().with_metadata("key", "sk-secret").with_extra(json!({"token": "sk-secret"}));
    for params in [secret.clone(), secret.with_temperature(0.5)] {
        let agent = agent(provider.model()).params(params).build().unwrap();
        runtime_on(&store).session().start(&agent, "Go").outcome().await.unwrap();
    }
    let telemetry = Telemetry::new(SharedStore::clone(&store));
    let mut temperatures = Vec::new();
    for call in calls(&store).await {
        assert!(!serde_json::to_string(&call).unwrap().contains("sk-secret"));
        let Event::ModelStarted(started) = &call.event else { panic!("a call") };
        let session = call.origin.session.as_str();
        let made = telemetry.request(session, started.request.unwrap()).await.unwrap().unwrap();
        temperatures.push((started.settings.is_some(), made.params.temperature));
    }
    temperatures.sort_by_key(|(recorded, _)| *recorded);
    assert_eq!(temperatures, [(false, None), (true, Some(0.5))]);
}

#[tokio::test]
async fn cw09_what_is_too_large_for_an_event_is_not_kept_and_the_call_says_so() {
    let store = memory();
    let provider = ScriptedProvider::new().text("Done.");
    let agent = agent(provider.model()).instructions("x".repeat((32 << 20) + 1)).build().unwrap();
    let session = runtime_on(&store).session();
    session.start(&agent, "Go").outcome().await.unwrap();
    let call = calls(&store).await;
    let Event::ModelStarted(started) = &call[0].event else { panic!("a call") };
    assert!(started.instructions.is_some() && started.contents.as_ref().unwrap().is_empty());
    let telemetry = Telemetry::new(SharedStore::clone(&store));
    let made = telemetry.request(session.id().as_str(), started.request.unwrap()).await.unwrap();
    assert_eq!(made, None);
}
