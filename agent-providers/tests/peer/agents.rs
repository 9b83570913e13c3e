//! Agents with a tool of their own whose answer is a value, in each way in which the server can be asked for it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use entourage_core::{
    ErrorKind,
    message::{History, Message, Role, ToolResult},
    provider::Egress,
    run::Outcome,
    tool::{Access, ToolSpec, Tools},
};
use entourage_runners::{
    Prepared, ReactAgent, ReactBuilder, Step, TypedAgent,
    from_fn::from_fn,
    typed::{NoValue, NoValueReason, OutcomeExt, Partial, Strategy},
};
use entourage_runtime::Session;
use serde_json::{Value, json};

use crate::{
    Peer, SERVER, params, peers,
    typed::{File, check},
};

/// Prompts until a reply that the model gives only by chance is given.
const TRIES: usize = 20;

fn session() -> Session {
    entourage_testkit::runtime().egress(Egress::Loopback).build().session()
}

/// An agent whose only tool counts its calls.
fn scout(peer: &Peer, calls: &Arc<AtomicUsize>) -> ReactBuilder {
    let counted = Arc::clone(calls);
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    let spec = ToolSpec::new("line_count", "Counts the lines of a file.", schema).with_access(Access::NONE);
    let line_count = from_fn(spec, move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok("42 lines") }
    });
    ReactAgent::builder("scout", peer.model.clone()).instructions("Answer briefly.").tool(line_count)
}

/// The model says words after a tool's result, and calls a tool after a user's message. So each step shows it one
/// message of the user's, and the second one leaves it no tool but the final one.
fn look_once(step: &Step, plan: &mut Prepared) {
    let seen: Vec<_> = plan.messages.last().unwrap().tool_results().map(ToolResult::to_text).collect();
    let prompt = format!("Which file is the longest? {}", seen.join(" "));
    plan.messages = [Message::user(prompt)].into_iter().collect();
    if step.number > 1 {
        plan.tools = Tools::none();
    }
}

/// A history as every service takes it: each call has one result, in order, in the next message.
fn assert_valid(history: &History) {
    let messages: Vec<_> = history.iter().collect();
    for (place, message) in messages.iter().enumerate() {
        assert!(!message.parts().is_empty(), "an empty message: {history:?}");
        let calls: Vec<_> = message.tool_calls().map(|call| call.id.to_string()).collect();
        let next = messages.get(place + 1).filter(|next| next.role() == Role::Tool);
        let answers = next.into_iter().flat_map(|next| next.tool_results());
        assert_eq!(answers.map(|it| it.call.to_string()).collect::<Vec<_>>(), calls, "{history:?}");
    }
}

/// Runs one prompt, and returns its outcome with each value that was seen on the way.
async fn ask(session: &Session, agent: &TypedAgent<File>) -> (Outcome, Vec<Value>) {
    let (mut partial, mut seen) = (Partial::of::<File>(), Vec::new());
    let mut run = session.start(agent, "Which file is the longest?");
    while let Some(event) = run.next().await {
        if partial.apply(&event.event) {
            seen.extend(partial.value().cloned());
        }
    }
    let outcome = run.outcome().await.unwrap();
    assert_valid(&session.history().await.unwrap());
    assert_eq!(partial.is_complete(), outcome.is_completed(), "{outcome}");
    (outcome, seen)
}

/// Asserts that the run gave a value, and that it streamed.
fn assert_value(what: &str, outcome: &Outcome, seen: &[Value]) {
    let file = outcome.value::<File>().unwrap_or_else(|error| panic!("{what}: {outcome}: {error}"));
    check(what, &file);
    let last: Value = serde_json::from_str(&outcome.text).unwrap();
    assert_eq!(seen.last(), Some(&last), "{what}: the last value is the run's own");
    let fields = |value: &Value| value.as_object().unwrap().len();
    assert!(seen.iter().any(|part| fields(part) < fields(&last)), "{what}: it came in one piece: {seen:?}");
}

#[tokio::test]
#[ignore = "needs LLM_PEER_URL, the address of a llama.cpp server"]
async fn a_typed_agent_calls_its_tool_and_answers_with_a_value_by_schema_or_by_the_final_tool() {
    let _server = SERVER.read().await;
    for peer in peers() {
        assert_eq!(Strategy::of_agent(peer.model.profile(), true), Strategy::Tool, "{}", peer.wire);
        for strategy in [Strategy::Native, Strategy::Tool] {
            let mut params = params();
            if strategy == Strategy::Native && !peer.native {
                // The server does not know the wire's own request for a schema, only that of chat completions.
                if peer.wire == "anthropic-messages" {
                    continue;
                }
                let schema = entourage_core::tool::schema_of::<File>();
                params.extra = Some(json!({
                    "response_format": {"type": "json_schema", "json_schema": {"name": "file", "schema": schema}},
                }));
            }
            let what = format!("{}, {strategy:?}", peer.wire);
            let calls = Arc::new(AtomicUsize::new(0));
            let agent = scout(&peer, &calls).params(params).prepare(look_once).returns::<File>();
            let agent = agent.strategy(strategy).build().unwrap();
            let session = session();
            for tried in 1.. {
                assert!(tried <= TRIES, "{what}: the tool was never called");
                calls.store(0, Ordering::Relaxed);
                let (outcome, seen) = ask(&session, &agent).await;
                let called = calls.load(Ordering::Relaxed);
                println!(
                    "{what}: {called} calls, {} partial values, {outcome}: {}",
                    seen.len(),
                    outcome.text
                );
                assert_value(&what, &outcome, &seen);
                assert_eq!(usize::try_from(outcome.steps).unwrap(), called + 1, "{what}: {outcome}");
                // The first request holds both tools, and the model takes either. Beside a schema this server lets it
                // take none, which is why the default is the final tool.
                if called == usize::from(strategy == Strategy::Tool) {
                    break;
                }
            }
            let (outcome, seen) = ask(&session, &agent).await;
            assert_value(&format!("{what}, second prompt"), &outcome, &seen);
        }
    }
}

#[tokio::test]
#[ignore = "needs LLM_PEER_URL, the address of a llama.cpp server"]
async fn a_typed_agent_whose_model_speaks_gibberish_ends_with_a_value_or_a_typed_error() {
    let _server = SERVER.read().await;
    for peer in peers() {
        for strategy in [Strategy::Native, Strategy::Tool, Strategy::Prompt] {
            let (what, calls) = (format!("{}, {strategy:?}", peer.wire), Arc::default());
            let agent = scout(&peer, &calls).params(params()).returns::<File>().strategy(strategy);
            let (agent, session) = (agent.build().unwrap(), session());
            // The second prompt shows the server the history of the first.
            for _ in 0..2 {
                let (outcome, seen) = ask(&session, &agent).await;
                println!("{what}: {outcome}");
                match outcome.value::<File>() {
                    Ok(_) => assert_value(&what, &outcome, &seen),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Stopped, "{what}: {error}");
                        let none = NoValue::of(&error).unwrap();
                        let known = matches!(none.reason, NoValueReason::Invalid(_) | NoValueReason::CutOff);
                        assert!(known && none.rounds == outcome.steps, "{what}: {none:?}");
                    }
                }
            }
            let called = calls.load(Ordering::Relaxed) > 0;
            assert!(called || strategy != Strategy::Prompt, "{what}: the tool was never called");
        }
    }
}
