//! The todo list that both agents share, their sessions side by side, and the content of each session.

use entourage_core::{
    agent::Agent,
    event::Event,
    run::{RunContext, Task},
    session::SessionFilter,
};
use entourage_runners::{DualAgent, ReactAgent, TodoTool, checked::PhaseStarted};
use entourage_testkit::ScriptedProvider;
use serde_json::json;

use crate::{
    common::{Do, act, count, memory, runtime_on, stored},
    pair::{child, done, pair, root, session, told, two_rounds},
};

#[tokio::test(start_paused = true)]
async fn cw08_the_two_sessions_are_siblings_and_the_users_holds_one_answer() {
    let (works, checks) = two_rounds();
    let store = memory();
    let runtime = runtime_on(&store);
    session(&runtime).start(&pair(&works, &checks), "Write it.").outcome().await.unwrap();
    let mut below = store.query(&SessionFilter::children_of(root())).await.unwrap();
    below.sort_by_key(|info| info.record.role.clone());
    let roles: Vec<_> = below.iter().map(|info| &*info.record.role).collect();
    assert_eq!(roles, ["discriminator", "executor"]);
    for (info, sibling) in below.iter().zip(["executor", "discriminator"]) {
        // Parent and role suffice to find each session: nothing else is stored.
        let (parent, role) = info.record.id.role().unwrap();
        assert_eq!((parent, role), (root().as_str(), &*info.record.role));
        let other = info.record.parent.as_ref().unwrap().in_role(sibling).unwrap();
        assert!(below.iter().any(|info| info.record.id == other));
    }
    let (executor, checker) = (&below[1].head, &below[0].head);
    assert_eq!((executor.usage.input, checker.usage.input), (Some(40), Some(20)));
    assert_eq!(session(&runtime).head().await.unwrap().usage.total(), None, "nothing is counted twice");
    assert_eq!(told(&session(&runtime).history().await.unwrap()), ["U: Write it.", "A: Summary two."]);
    let runs = |events: &[_]| (count(events, "run_started"), count(events, "run_finished"));
    assert_eq!(runs(&stored(&store, &child("executor")).await), (4, 4));
    assert_eq!(runs(&stored(&store, &child("discriminator")).await), (2, 2));
    let calls = stored(&store, &child("discriminator")).await;
    let template = calls.iter().find_map(|event| match &event.event {
        Event::ModelStarted(call) => call.template.clone(),
        _ => None,
    });
    assert!(template.unwrap().starts_with("entourage/discriminator@1#"));
}

/// Each phase is recorded by its start event: session, run and prompt.
#[tokio::test(start_paused = true)]
async fn cw08_the_users_session_names_each_run_below_it() {
    let (works, checks) = two_rounds();
    let store = memory();
    session(&runtime_on(&store)).start(&pair(&works, &checks), "Write it.").outcome().await.unwrap();
    let mut seen = 0;
    for event in stored(&store, &root()).await {
        let Some(phase) = event.event.record::<PhaseStarted>().unwrap() else { continue };
        let below = stored(&store, &phase.child).await;
        let prompt = below.iter().find_map(|event| match &event.event {
            Event::RunStarted(started) if event.origin.run == phase.run => Some(started.prompt.clone()),
            _ => None,
        });
        assert_eq!(prompt.unwrap(), phase.prompt);
        seen += 1;
    }
    assert_eq!(seen, 6);
}

fn list(content: &str, status: &str) -> serde_json::Value {
    json!({"todos": [{"content": content, "status": status, "active_form": content}]})
}

#[tokio::test(start_paused = true)]
async fn cw07_both_work_on_one_list_which_is_the_users_sessions() {
    let works =
        ScriptedProvider::new().call("todos", list("Write it", "completed")).text("a").text("Summary.");
    let checks = ScriptedProvider::new()
        .call("todos", list("Test it", "pending"))
        .call("task_complete", done("I saw it."));
    let agent = |name: &str, provider: &ScriptedProvider| {
        ReactAgent::builder(name, provider.model()).tool(TodoTool::new()).build().unwrap()
    };
    let pair =
        DualAgent::builder("pair", agent("coder", &works), agent("reviewer", &checks)).build().unwrap();
    let store = memory();
    let runtime = runtime_on(&store);
    session(&runtime).start(&pair, "Write it.").outcome().await.unwrap();
    let state = session(&runtime).state().await.unwrap();
    assert_eq!(state.todos()[0].content, "Test it");
    let changes: Vec<_> = stored(&store, &root())
        .await
        .into_iter()
        .filter(|event| event.event.kind() == "todos_changed")
        .map(|event| event.origin.agent.to_string())
        .collect();
    assert_eq!(changes, ["pair/coder", "pair/reviewer"]);
    for role in ["executor", "discriminator"] {
        assert_eq!(count(&stored(&store, &child(role)).await, "todos_changed"), 0);
    }
    // The executor of the next task sees what the checker left.
    let never = ScriptedProvider::new();
    let next = ScriptedProvider::new().fail(entourage_core::ErrorKind::Overloaded, "gone");
    let pair = DualAgent::builder("pair", agent("coder", &next), agent("reviewer", &never)).build().unwrap();
    session(&runtime).start(&pair, "Go on.").outcome().await.unwrap_err();
    assert_eq!(session(&runtime).state().await.unwrap().todos()[0].content, "Test it");
}

/// A pair below another agent is an agent like any other.
#[tokio::test(start_paused = true)]
async fn design_3_a_pair_works_below_another_agent() {
    let (works, checks) = two_rounds();
    let agent = pair(&works, &checks);
    let parent: Do = act(move |cx: &RunContext| {
        let agent = agent.clone();
        Box::pin(async move {
            let child = cx.spawn(std::sync::Arc::new(agent), Task::new("Write it.")).await?;
            match cx.wait_any(&[child], None).await? {
                entourage_core::run::Waited::Ended { outcome, .. } => Ok(outcome.text),
                entourage_core::run::Waited::TimedOut => Ok("late".to_owned()),
            }
        })
    });
    let store = memory();
    let outcome = session(&runtime_on(&store)).start(&parent, "Go").outcome().await.unwrap();
    assert_eq!((outcome.text.as_str(), parent.name()), ("Summary two.", "doer"));
    let below = store.query(&SessionFilter::children_of(root())).await.unwrap();
    assert_eq!(below.len(), 1);
    let pairs = store.query(&SessionFilter::children_of(below[0].record.id.clone())).await.unwrap();
    assert_eq!(pairs.len(), 2);
}
