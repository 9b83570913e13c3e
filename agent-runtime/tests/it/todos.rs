//! The todo list, kept with the session and shared by the agents that are given it.

use std::sync::Arc;

use entourage_core::{
    SessionId,
    run::{Delegate, Effect, Spawn},
    team::{Todo, TodoStatus},
    tool::Tool,
};
use entourage_runners::TodoTool;
use entourage_testkit::{FakeTool, ScriptedProvider};
use serde_json::{Value, json};

use crate::common::{
    Fault, FaultyStore, act, agent, count, memory, open_runtime, process, results, runtime_on, stored,
    until_killed,
};

fn list(items: &[(&str, &str)]) -> Value {
    let todos = items.iter().map(|(content, status)| {
        json!({"content": content, "status": status, "active_form": format!("{content}ing")})
    });
    json!({ "todos": todos.collect::<Vec<_>>() })
}

#[tokio::test]
async fn cx11_the_whole_list_is_replaced_and_what_changed_is_told() {
    let first = list(&[("build", "in_progress"), ("test", "pending"), ("ship", "pending")]);
    let second = list(&[("build", "completed"), ("test", "in_progress"), ("ship", "cancelled")]);
    let provider = ScriptedProvider::new().call("todos", first).call("todos", second).text("Done.");
    let agent = agent(provider.model()).tool(TodoTool::new()).build().unwrap();
    let store = memory();
    let runtime = runtime_on(&store);
    let session = runtime.session();
    session.start(&agent, "Go").outcome().await.unwrap();
    let todos = session.state().await.unwrap().todos().to_vec();
    let shown: Vec<_> = todos.iter().map(|todo| (todo.content.as_str(), todo.status)).collect();
    let expected =
        [("build", TodoStatus::Completed), ("test", TodoStatus::InProgress), ("ship", TodoStatus::Cancelled)];
    assert_eq!(shown, expected);

    let told: Vec<_> =
        (1..3).flat_map(|step| results(provider.requests()[step].messages.last().unwrap())).collect();
    assert_eq!(told[0], "The list has 3 things: 2 pending, 1 in progress, 0 completed, 0 cancelled.");
    assert_eq!(told[1], "The list has 3 things: 0 pending, 1 in progress, 1 completed, 1 cancelled.");
    let metadata: Vec<_> = stored(&store, session.id())
        .await
        .into_iter()
        .filter_map(|event| match event.event {
            entourage_core::event::Event::ToolFinished(call) => call.metadata.clone(),
            _ => None,
        })
        .collect();
    assert_eq!((&metadata[0]["is_new"], &metadata[0]["just_started"]), (&json!(true), &json!(["build"])));
    assert_eq!(metadata[1]["just_completed"], json!(["build"]));
    assert_eq!((&metadata[1]["is_new"], &metadata[1]["just_started"]), (&json!(false), &json!(["test"])));

    let reopened = runtime_on(&store).open(session.id()).await.unwrap();
    assert_eq!(reopened.state().await.unwrap().todos(), todos, "the list comes back with its session");
}

#[tokio::test]
async fn cx11_a_list_that_is_none_is_an_error_and_nothing_is_saved() {
    let long: Vec<_> = (0..201).map(|n| n.to_string()).collect();
    let long: Vec<_> = long.iter().map(|content| (content.as_str(), "pending")).collect();
    for bad in [
        list(&[("build", "begun")]),
        list(&[("  ", "pending")]),
        json!({"todos": [{"status": "pending"}]}),
        json!({"todos": "build"}),
        list(&long),
    ] {
        let provider = ScriptedProvider::new().call("todos", bad).text("Hm.");
        let agent = agent(provider.model()).tool(TodoTool::new()).build().unwrap();
        let store = memory();
        let session = runtime_on(&store).session();
        session.start(&agent, "Go").outcome().await.unwrap();
        assert_eq!(count(&stored(&store, session.id()).await, "todos_changed"), 0);
        assert!(provider.requests()[1].messages.last().unwrap().tool_results().all(|it| it.is_error));
    }
}

/// An agent that records the list, adds `name` to it, and records it again.
fn writer(name: &'static str) -> Arc<dyn entourage_core::agent::Agent> {
    Arc::new(act(move |cx| {
        Box::pin(async move {
            let before = cx.todos().len();
            let mut todos = cx.todos();
            todos.push(Todo {
                content: name.to_owned(),
                status: TodoStatus::Pending,
                active_form: String::new(),
            });
            cx.set_todos(todos).await?;
            Ok(format!("{before}-{}", cx.todos().len()))
        })
    }))
}

#[tokio::test]
async fn cw07_agents_that_share_a_list_see_each_others_changes_and_others_do_not() {
    let store = memory();
    let runtime = runtime_on(&store);
    let lead = act(|cx| {
        Box::pin(async move {
            let mut said = Vec::new();
            for (number, spawn) in [
                Spawn::new(writer("first"), "Go").sharing_todos(),
                Spawn::new(writer("second"), "Go").sharing_todos(),
                Spawn::new(writer("third"), "Go"),
            ]
            .into_iter()
            .enumerate()
            {
                let child = cx.session().child(99, number as u64)?;
                let effect = Effect::Delegate(Box::new(Delegate::new(child, spawn)));
                let entourage_core::run::Observation::Child { outcome: Some(outcome), .. } =
                    cx.effects().perform(cx, None, effect).await?
                else {
                    panic!("no outcome")
                };
                said.push(outcome.text);
            }
            let all: Vec<_> = cx.todos().into_iter().map(|todo| todo.content).collect();
            Ok(format!("{} | {}", said.join(" "), all.join(" ")))
        })
    });
    let session = runtime.session();
    let outcome = session.start(&lead, "Go").outcome().await.unwrap();
    assert_eq!(outcome.text, "0-1 1-2 0-1 | first second");
    let own: SessionId = session.id().child(99, 2).unwrap();
    assert_eq!(count(&stored(&store, &own).await, "todos_changed"), 1, "its own list is its own session's");
    assert_eq!(count(&stored(&store, session.id()).await, "todos_changed"), 2);
}

#[tokio::test]
async fn cx11_the_tool_touches_nothing_outside_and_may_be_repeated() {
    let tool = TodoTool::new();
    assert_eq!(tool.spec().name(), "todos");
    assert!(!entourage_core::tool::Footprint::new(tool.spec().access()).is_exclusive());
    assert_eq!(tool.spec().repeat(), entourage_core::tool::Repeat::Idempotent);
    let provider = ScriptedProvider::new().call("todos", list(&[("a", "pending")])).text("Ok.");
    let agent = agent(provider.model()).tool(tool).build().unwrap();
    let outcome = open_runtime().session().start(&agent, "Go").outcome().await.unwrap();
    assert!(outcome.is_completed());
}

#[tokio::test]
async fn cx11_the_main_agent_is_reminded_of_an_empty_list_and_nobody_else() {
    let store = memory();
    let runtime = runtime_on(&store);
    let provider = ScriptedProvider::new()
        .call("todos", list(&[("build", "pending")]))
        .text("Planned.")
        .text("Still planned.");
    let main = agent(provider.model()).todos().build().unwrap();
    let session = runtime.session();
    session.start(&main, "Go").outcome().await.unwrap();
    session.start(&main, "And now?").outcome().await.unwrap();
    let requests = provider.requests();
    let reminded = |message: &entourage_core::message::Message| {
        message.text().contains("list of what is to be done is empty")
    };
    assert!(reminded(requests[0].messages.last().unwrap()));
    let (first, second): (Vec<_>, Vec<_>) =
        (requests[0].messages.iter().collect(), requests[1].messages.iter().collect());
    assert_eq!(first, second[..first.len()], "what was sent once is sent again");
    assert_eq!(
        requests[2].messages.iter().filter(|message| reminded(message)).count(),
        1,
        "the list has something"
    );
    assert_eq!(count(&stored(&store, session.id()).await, "message_added"), 1);

    let below = ScriptedProvider::new().text("Done.");
    let child: Arc<dyn entourage_core::agent::Agent> =
        Arc::new(agent(below.model()).todos().build().unwrap());
    let lead = act(move |cx| {
        let child = Arc::clone(&child);
        Box::pin(async move {
            let child = cx.spawn(child, "Help").await?;
            cx.wait_any(&[child], None).await?;
            Ok("Helped.".to_owned())
        })
    });
    runtime.session().start(&lead, "Go").outcome().await.unwrap();
    assert_eq!(below.requests()[0].messages.len(), 1, "a child is not reminded");
}

#[test]
fn cx11_a_run_that_is_killed_is_reminded_once() {
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        for at in 0..6 {
            let inner = memory();
            let faulty = FaultyStore::new(&inner, at, fault);
            let killed = faulty.killed.clone();
            let id = SessionId::new("s").unwrap();
            let provider = || ScriptedProvider::by_history().call("look", json!({})).text("Done.");
            let build = |provider: &ScriptedProvider| {
                agent(provider.model()).todos().tool(FakeTool::new("look")).build().unwrap()
            };
            process(until_killed(
                async {
                    let agent = build(&provider());
                    runtime_on(&(faulty as _))
                        .session_with_id(id.clone())
                        .start(&agent, "Go")
                        .outcome()
                        .await
                        .unwrap();
                },
                &killed,
            ));
            process(async {
                let runtime = runtime_on(&inner);
                let session = runtime.session_with_id(id.clone());
                let agent = build(&provider());
                match session.unfinished().await.unwrap() {
                    Some(_) => session.resume(&agent).outcome().await.unwrap(),
                    None if session.history().await.unwrap().is_empty() => {
                        session.start(&agent, "Go").outcome().await.unwrap()
                    }
                    None => return,
                };
                let told = count(&stored(&inner, &id).await, "message_added");
                assert_eq!(told, 1, "{fault:?} at append {at}");
            });
        }
    }
}
