//! A call of a deferred tool: its check, its schedule, its time, its record, and what the model is told.

use std::{sync::Arc, time::Duration};

use entourage_core::{
    event::Event,
    message::Part,
    provider::RawCall,
    run::{Pause, Status, StopReason},
    session::SharedStore,
    tool::{Access, Repair, ToolOutput, ToolSpec, Tools},
};
use entourage_runners::{Combined, ReactAgent, StopWhen, ToolsetExt, external};
use entourage_runtime::{Runtime, Waiting, permission::Policy, telemetry::Telemetry};
use entourage_testkit::{self as testkit, FakeTool, Gate, ScriptedProvider};
use serde_json::json;

use crate::{agent, finished, memory, of, set, started, stored, told};

fn on(store: &SharedStore) -> Runtime {
    testkit::runtime().policy(Policy::allow_all()).shared_store(Arc::clone(store)).build()
}

#[tokio::test]
async fn issue_15_the_record_has_the_real_tool_and_the_conversation_what_the_model_wrote() {
    let store = memory();
    let call = of("crm_look", json!({"id": 7}));
    let provider = ScriptedProvider::new().call("use_tool", call.clone()).text("Done.");
    let agent =
        agent(&provider).toolset(set([FakeTool::new("crm_look").echoing()]).deferred()).build().unwrap();
    let session = on(&store).session();
    session.start(&agent, "Go").outcome().await.unwrap();

    let events = stored(&store, session.id()).await;
    assert_eq!(started(&events), ["crm_look"]);
    assert_eq!(finished(&events), [("crm_look".to_owned(), r#"{"id":7}"#.to_owned())]);
    let request = provider.requests().remove(1);
    let asked = request.messages.iter().find_map(|message| message.tool_calls().next().cloned()).unwrap();
    assert_eq!((&*asked.name, asked.arguments.to_value()), ("use_tool", call));
    let result = told(&request)[0];
    assert_eq!((&*result.name, &result.call), ("use_tool", &asked.id), "some services match them by name");

    let trace = Telemetry::new(Arc::clone(&store)).trace(session.id().as_str()).await.unwrap();
    let traced = &trace.tool_calls[0];
    assert_eq!((&*traced.tool, traced.arguments.as_ref().unwrap().as_str()), ("crm_look", r#"{"id":7}"#));
    // A state that is folded anew is the same, and the run can be played again.
    let folded = on(&store).open(session.id()).await.unwrap().state().await.unwrap();
    let last = folded.history().iter().flat_map(|message| message.parts()).find_map(|part| match part {
        Part::ToolResult(result) => Some(result.name.to_string()),
        _ => None,
    });
    assert_eq!(last.as_deref(), Some("use_tool"));
}

#[tokio::test]
async fn issue_15_inner_arguments_are_checked_against_the_schema_of_the_real_tool() {
    let look = FakeTool::new("crm_look").requiring(&["id"]).echoing();
    let provider = ScriptedProvider::new()
        .call("use_tool", of("crm_look", json!({"id": 7})))
        .call("use_tool", of("crm_look", json!(r#"{"id": "7"}"#)))
        .text("Done.");
    let agent = agent(&provider).toolset(set([look.clone()]).deferred()).build().unwrap();
    on(&memory()).session().start(&agent, "Go").outcome().await.unwrap();
    let requests = provider.requests();
    let refused = told(&requests[1])[0];
    assert!(refused.is_error, "{refused:?}");
    assert!(refused.to_text().contains("the arguments of `crm_look` do not fit its schema"), "{refused:?}");
    // Models send the object as a text.
    assert_eq!(told(&requests[2])[0].to_text(), r#"{"id":"7"}"#);
    assert_eq!(look.started(), 1);
}

#[tokio::test]
async fn issue_15_calls_run_side_by_side_or_alone_as_the_real_tools_do() {
    let (gate, look) = (Gate::new(), FakeTool::new("crm_look"));
    let look = look.behind(&gate);
    let pay = FakeTool::new("crm_pay").access(Access::WRITE);
    let provider = ScriptedProvider::new()
        .calls([
            ("use_tool", of("crm_look", json!({"id": 1}))),
            ("use_tool", of("crm_look", json!({"id": 2}))),
            ("use_tool", of("crm_pay", json!({}))),
        ])
        .text("Done.");
    let agent = agent(&provider).toolset(set([look.clone(), pay.clone()]).deferred()).build().unwrap();
    let session = on(&memory()).session();
    let run = session.start(&agent, "Go");
    gate.arrived(2).await;
    assert_eq!((look.running(), pay.started()), (2, 0), "the payment waits for both");
    gate.open();
    run.outcome().await.unwrap();
    assert_eq!((look.most_at_once(), pay.finished()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn issue_15_the_time_limit_of_the_real_tool_holds() {
    let slow = FakeTool::new("crm_slow").timeout(Duration::from_secs(3)).hanging();
    let provider = ScriptedProvider::new().call("use_tool", of("crm_slow", json!({}))).text("Done.");
    let agent = agent(&provider).toolset(set([slow]).deferred()).build().unwrap();
    on(&memory()).session().start(&agent, "Go").outcome().await.unwrap();
    assert!(told(&provider.requests()[1])[0].to_text().contains("took longer than 3 s"));
}

#[tokio::test]
async fn issue_15_a_condition_on_the_real_tool_ends_the_run() {
    let provider = ScriptedProvider::new().call("use_tool", of("submit", json!({})));
    let agent = agent(&provider)
        .toolset(set([FakeTool::new("submit")]).deferred())
        .stop_when([StopWhen::tool_called("submit")])
        .build()
        .unwrap();
    let outcome = on(&memory()).session().start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Stopped(StopReason::Condition("a call of submit".into())));
}

/// Turns each call with a problem into a call of the right tool, and keeps the problems.
#[derive(Debug, Default, Clone)]
struct Mends(Arc<std::sync::Mutex<Vec<String>>>);

impl Repair for Mends {
    fn repair(&self, call: &RawCall, problem: &str, offered: &Tools) -> Option<RawCall> {
        self.0.lock().unwrap().push(problem.to_owned());
        offered.get("crm_look").map(|_| RawCall::new(&*call.id, "crm_look", r#"{"id": "7"}"#))
    }
}

#[tokio::test]
async fn issue_15_the_repair_of_a_program_is_asked_about_the_real_call() {
    let look = FakeTool::new("crm_look").requiring(&["id"]).echoing();
    let provider = ScriptedProvider::new()
        .call("use_tool", of("crm_look", json!({"id": "1"})))
        .call("use_tool", of("crm_look", json!({"id": 1})))
        .call("use_tool", of("crm_lock", json!({})))
        .text("Done.");
    let mends = Mends::default();
    let agent =
        agent(&provider).toolset(set([look.clone()]).deferred()).repair(mends.clone()).build().unwrap();
    on(&memory()).session().start(&agent, "Go").outcome().await.unwrap();
    let problems = mends.0.lock().unwrap().clone();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].contains("the arguments of `crm_look`"), "{problems:?}");
    assert!(problems[1].contains("there is no tool `crm_lock`"), "{problems:?}");
    assert_eq!(look.finished(), 3);
}

fn clicker(provider: &ScriptedProvider) -> ReactAgent {
    let spec = ToolSpec::new("page_click", "Clicks.", json!({"type": "object"})).with_access(Access::READ);
    let tools = Tools::new([Arc::new(external(spec)) as _]).unwrap();
    agent(provider).toolset(tools.deferred()).build().unwrap()
}

#[tokio::test]
async fn issue_15_a_deferred_call_is_handed_out_with_its_own_arguments_and_answered_elsewhere() {
    let store = memory();
    let provider =
        ScriptedProvider::by_history().call("use_tool", of("page_click", json!({"on": "b"}))).text("Done.");
    let session = on(&store).session();
    let outcome = session.start(&clicker(&provider), "Go").outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Paused(Pause::Call(_))), "{outcome}");
    let elsewhere = on(&store);
    let waiting = elsewhere.open(session.id()).await.unwrap().pending().await.unwrap();
    let Waiting::Call { id, call } = &waiting[0].waits_for else { panic!("{waiting:?}") };
    assert_eq!((&*call.name, call.arguments.as_str()), ("page_click", r#"{"on":"b"}"#));
    elsewhere.answer(id, ToolOutput::text("clicked")).await.unwrap();
    let other = elsewhere.open(session.id()).await.unwrap();
    let outcome = other.resume(&clicker(&provider)).outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Completed);
    let request = provider.requests().remove(1);
    assert_eq!((told(&request)[0].to_text().as_str(), &*told(&request)[0].name), ("clicked", "use_tool"));
}

#[tokio::test]
async fn issue_15_what_was_found_works_after_a_resume_in_a_new_runtime() {
    let store = memory();
    let script = || {
        ScriptedProvider::by_history()
            .call("find_tools", json!({"query": "pay"}))
            .call("use_tool", of("crm_pay", json!({"to": "ada"})))
            .call("use_tool", of("crm_look", json!({})))
            .text("Done.")
    };
    let tools = || (FakeTool::new("crm_pay").access(Access::WRITE).echoing(), FakeTool::new("crm_look"));
    let built = |provider: &ScriptedProvider, (pay, look): (FakeTool, FakeTool)| {
        let own = Arc::new(set([FakeTool::new("look")]));
        let sets = Combined::new(vec![own, Arc::new(set([pay, look]).deferred())]);
        agent(provider).toolset(sets).build().unwrap()
    };
    let runtime = || testkit::runtime().shared_store(Arc::clone(&store)).build();

    let (first, (pay, look)) = (script(), tools());
    let session = runtime().session();
    let outcome = session.start(&built(&first, (pay.clone(), look)), "Go").outcome().await.unwrap();
    let Status::Paused(Pause::Approval(id)) = outcome.status else { panic!("{outcome}") };
    assert_eq!((first.count(), pay.started()), (2, 0));

    runtime().decide(&id, entourage_core::permission::Decision::Allow).await.unwrap();
    let (second, (pay, look)) = (script(), tools());
    let later = runtime().open(session.id()).await.unwrap();
    let outcome = later.resume(&built(&second, (pay.clone(), look.clone()))).outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Completed);
    assert_eq!((second.count(), pay.finished(), look.finished()), (2, 1, 1));
    let events = stored(&store, session.id()).await;
    assert_eq!(started(&events), ["find_tools", "crm_pay", "crm_look"], "nothing was looked for again");
    let requests = [first.requests(), second.requests()].concat();
    assert!(requests.iter().all(|request| request.tools == requests[0].tools));
    let messages = |request: &entourage_core::provider::Request| request.messages.clone();
    for (before, after) in requests.iter().zip(requests.iter().skip(1)) {
        let (before, after) = (messages(before), messages(after));
        assert!(before.iter().eq(after.iter().take(before.len())), "{before:?} {after:?}");
    }
}

#[tokio::test]
async fn issue_15_a_run_with_deferred_calls_is_played_again_and_nothing_runs() {
    let (store, look) = (memory(), FakeTool::new("crm_look").returning("a customer"));
    let provider = ScriptedProvider::new()
        .call("find_tools", json!({"query": "look"}))
        .calls([
            ("use_tool", of("crm_look", json!({"id": 1}))),
            ("use_tool", of("crm_lock", json!({}))),
            ("crm_look", json!({"id": 2})),
        ])
        .text("Done.");
    let agent = agent(&provider).toolset(set([look.clone()]).deferred()).build().unwrap();
    let session = on(&store).session();
    let run = session.start(&agent, "Go");
    let id = run.id();
    run.outcome().await.unwrap();
    let played = session.replay(&agent, id).await.unwrap();
    assert_eq!(
        (played.status, &*played.text, provider.count(), look.started()),
        (Status::Completed, "Done.", 3, 2)
    );
}

#[tokio::test]
async fn issue_15_rules_that_cannot_be_matched_are_warned_of_when_a_deferred_tool_is_called() {
    let store = memory();
    let provider = ScriptedProvider::new().call("use_tool", of("crm_pay", json!({}))).text("Done.");
    let tools = set([FakeTool::new("crm_pay").access(Access::NONE), FakeTool::new("crm_look")]);
    let agent = agent(&provider).toolset(tools.deferred()).build().unwrap();
    let policy = Policy::allow_all().allow("crm_*:a");
    let policy = policy.deny("crm_look:x").allow("crm_pay:x");
    let runtime = testkit::runtime().policy(policy).shared_store(Arc::clone(&store)).build();
    let session = runtime.session();
    session.start(&agent, "Go").outcome().await.unwrap();
    let events = stored(&store, session.id()).await;
    let warned = events.iter().filter_map(|event| match &event.event {
        Event::WarningRaised(warning) => Some(warning.text.to_string()),
        _ => None,
    });
    let warned: Vec<_> = warned.collect();
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(warned[0].contains("`crm_pay`"), "{warned:?}");
}
