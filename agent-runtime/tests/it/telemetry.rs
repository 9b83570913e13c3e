//! Telemetry: queries over a store about past runs.

use std::sync::Arc;

use entourage_core::{
    ErrorKind, SessionId,
    agent::Agent,
    message::Role,
    run::{Status, Waited},
    session::SharedStore,
};
use entourage_runtime::{Runtime, telemetry::Telemetry};
use entourage_testkit::{self as testkit, FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::common::{
    Fault, FaultyStore, act, agent, memory, open_runtime, process, runtime_on, until_killed,
};

fn telemetry(store: &SharedStore) -> Telemetry {
    Telemetry::new(Arc::clone(store))
}

fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

/// A root whose agent has two children do the work; a tool fails in one of them.
async fn team(store: &SharedStore, root: &str) -> Runtime {
    let runtime = runtime_on(store);
    let worker = |name: &'static str| {
        let script = Script::new().call("look", &json!({ "who": name })).usage(10, 1);
        let provider = ScriptedProvider::by_history()
            .step(script.finish(entourage_core::provider::FinishReason::ToolCalls))
            .step(Script::new().text(name).usage(20, 2).finish(entourage_core::provider::FinishReason::Stop));
        let look = FakeTool::new("look");
        let look = if name == "beta" { look.telling("nothing there") } else { look.returning("a wall") };
        Arc::new(agent(provider.model()).tool(look).build().unwrap()) as Arc<dyn Agent>
    };
    let workers = [worker("alpha"), worker("beta")];
    let lead = act(move |cx| {
        let workers = workers.clone();
        Box::pin(async move {
            let mut said = Vec::new();
            for worker in workers {
                let child = cx.spawn(worker, "Look").await?;
                if let Waited::Ended { outcome, .. } = cx.wait_any(&[child], None).await? {
                    said.push(outcome.text);
                }
            }
            Ok(said.join(" and "))
        })
    });
    runtime.session_with_id(id(root)).start(&lead, "Look around").outcome().await.unwrap();
    runtime
}

#[tokio::test]
async fn cw08_a_user_sees_one_answer_a_prompt_and_the_traces_hold_the_rest() {
    let store = memory();
    let runtime = team(&store, "root").await;
    let talker = agent(ScriptedProvider::by_history().text("x").text("Bye.").model()).build().unwrap();
    let session = runtime.session_with_id(id("root"));
    session.start(&talker, "Thanks").outcome().await.unwrap();
    let seen = telemetry(&store).external_trace("root").await.unwrap();
    let answers: Vec<_> =
        seen.external.exchanges.iter().map(|it| (it.prompt.text(), it.answer.clone())).collect();
    assert_eq!(
        answers,
        [("Look around".to_owned(), "alpha and beta".to_owned()), ("Thanks".to_owned(), "Bye.".to_owned())]
    );
    assert!(
        seen.external
            .exchanges
            .iter()
            .all(|it| it.status == Some(Status::Completed) && it.ended >= Some(it.started))
    );
    assert_eq!(seen.traces.len(), 2);
    let names: Vec<_> = seen.traces.iter().map(|it| it.record.id.clone()).collect();

    let trace = telemetry(&store).trace(names[0].as_str()).await.unwrap();
    assert_eq!((trace.root.as_str(), trace.siblings.as_slice()), ("root", &names[1..]));
    let roles: Vec<_> = trace.messages.iter().map(|message| message.role()).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Assistant]);
    assert_eq!(trace.model_calls.len(), 2);
    let call = &trace.model_calls[0];
    assert_eq!((call.step, call.usage.input, call.attempts), (1, Some(10), 1));
    assert!(
        call.completed.is_some() && call.micros.is_some() && call.reply.is_some() && call.request.is_some()
    );
    let tool = &trace.tool_calls[0];
    assert_eq!((&*tool.tool, tool.arguments.as_ref().unwrap().to_value()["who"].is_string()), ("look", true));
    assert!(tool.started.is_some() && tool.completed.is_some() && tool.allowed_by.is_some() && !tool.denied);
    serde_json::to_string(&trace).unwrap();
}

#[test]
fn cw09_a_call_that_a_crash_cut_off_is_a_row_without_an_end() {
    let inner = memory();
    // The process dies when the reply's row would be stored: its beginning is there.
    let faulty = FaultyStore::new(&inner, 1, Fault::HangBefore);
    let killed = faulty.killed.clone();
    let look = FakeTool::new("look");
    process(until_killed(
        async {
            let provider = ScriptedProvider::by_history().call("look", json!({})).text("Done.");
            let agent = agent(provider.model()).tool(look).build().unwrap();
            runtime_on(&(faulty as _)).session_with_id(id("s")).start(&agent, "Go").outcome().await.unwrap();
        },
        &killed,
    ));
    process(async {
        let trace = telemetry(&inner).trace("s").await.unwrap();
        assert_eq!(trace.model_calls.len(), 1);
        let call = &trace.model_calls[0];
        assert_eq!((call.completed, call.reply.is_none(), call.cost), (None, true, None));
        assert_eq!(telemetry(&inner).session_stats("s").await.unwrap().models["scripted:scripted"].open, 1);
        let provider = ScriptedProvider::by_history().call("look", json!({})).text("Done.");
        let agent = agent(provider.model()).tool(FakeTool::new("look")).build().unwrap();
        runtime_on(&inner).session_with_id(id("s")).resume(&agent).outcome().await.unwrap();
        let trace = telemetry(&inner).trace("s").await.unwrap();
        let ended: Vec<_> =
            trace.model_calls.iter().map(|it| (it.completed.is_some(), it.attempts)).collect();
        assert_eq!(ended, [(true, 1), (true, 1)], "the call that was asked again is one row");
        assert_eq!(trace.tool_calls.len(), 1);
    });
}

#[tokio::test]
async fn cw09_a_cancelled_call_keeps_what_had_arrived() {
    let gate = Gate::new();
    let provider = ScriptedProvider::new().step(Script::new().text("Half a").wait(&gate).text(" reply"));
    let agent = agent(provider.model()).build().unwrap();
    let runtime = open_runtime();
    let session = runtime.session();
    let run = session.start(&agent, "Go");
    gate.arrived(1).await;
    drop(run);
    assert!(runtime.cancel_all().await);
    let trace = telemetry(runtime.store()).trace(session.id().as_str()).await.unwrap();
    let call = &trace.model_calls[0];
    assert_eq!(call.reply.as_ref().unwrap().text(), "Half a");
    assert_eq!(call.error.as_ref().unwrap().kind, ErrorKind::Cancelled);
}

#[tokio::test]
async fn cw14_lists_are_newest_first_and_prefixes_must_fit_one() {
    let store = memory();
    let clock = |minutes: u64| crate::common::LaterClock::new(std::time::Duration::from_secs(60 * minutes));
    for (minutes, name) in [(1, "abc1"), (2, "abc2"), (3, "abd")] {
        let runtime = testkit::runtime().shared_store(Arc::clone(&store)).clock(clock(minutes)).build();
        let talker = agent(ScriptedProvider::by_history().text("Hi.").model()).build().unwrap();
        runtime.session_with_id(id(name)).start(&talker, "Hello").outcome().await.unwrap();
    }
    let telemetry = telemetry(&store);
    let listed = |offset, limit| {
        let telemetry = telemetry.clone();
        async move {
            let found = telemetry.external(offset, limit).await.unwrap();
            found.into_iter().map(|it| it.record.id.to_string()).collect::<Vec<_>>()
        }
    };
    assert_eq!(listed(0, 10).await, ["abd", "abc2", "abc1"]);
    assert_eq!(listed(1, 1).await, ["abc2"]);
    let found = |prefix: &'static str| {
        let telemetry = telemetry.clone();
        async move { telemetry.resolve(prefix).await.map(|it| it.record.id.to_string()).map_err(|it| it.kind()) }
    };
    assert_eq!(found("abd").await, Ok("abd".to_owned()));
    assert_eq!(found("abc1").await, Ok("abc1".to_owned()));
    assert_eq!(found("ab").await, Err(ErrorKind::InvalidInput));
    assert_eq!(found("abc").await, Err(ErrorKind::InvalidInput));
    assert_eq!(found("").await, Err(ErrorKind::InvalidInput));
    assert_eq!(found("ABD").await, Err(ErrorKind::NotFound));
    assert_eq!(found("%").await, Err(ErrorKind::NotFound));
    let text = telemetry.resolve("abc").await.unwrap_err().to_string();
    assert!(text.contains("abc1") && text.contains("abc2"), "{text}");
}

#[tokio::test]
async fn cw14_the_beginning_of_a_roots_id_means_the_root() {
    let store = memory();
    team(&store, "expedition").await;
    assert_eq!(telemetry(&store).resolve("exped").await.unwrap().record.id.as_str(), "expedition");
}

#[tokio::test]
async fn cw14_figures_of_a_tree_count_each_call_once() {
    let store = memory();
    team(&store, "one").await;
    team(&store, "two").await;
    let telemetry = telemetry(&store);
    let stats = telemetry.session_stats("one").await.unwrap();
    assert_eq!((stats.own.sessions, stats.descendants.sessions, stats.runs), (1, 2, 1));
    assert_eq!(
        (stats.own.usage.total(), stats.descendants.usage.input, stats.descendants.usage.output),
        (None, Some(60), Some(6))
    );
    assert_eq!(stats.descendants.cost, None, "no price is known");
    let models: Vec<_> =
        stats.models.iter().map(|(name, it)| (name.as_str(), it.calls, it.usage.input)).collect();
    assert_eq!(models, [("scripted:scripted", 4, Some(60))]);
    let look = &stats.tools["look"];
    assert_eq!((look.calls, look.ran, look.errors, look.denied, look.open), (2, 2, 1, 0, 0));
    assert!(look.slowest <= look.micros && look.mean().is_some());
    let all = telemetry.tool_stats(None).await.unwrap();
    assert_eq!((all["look"].calls, all["look"].errors), (4, 2));
    assert_eq!(telemetry.tool_stats(Some("two")).await.unwrap()["look"].calls, 2);
    assert_eq!(telemetry.tool_stats(Some("nobody")).await.unwrap_err().kind(), ErrorKind::NotFound);
}
