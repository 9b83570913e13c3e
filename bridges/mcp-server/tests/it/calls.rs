//! Lists and calls over a pipe: what is offered, what comes back, what is recorded.

use std::sync::Arc;

use entourage_core::{
    ErrorKind,
    event::Event,
    message::{Media, MediaSource},
    permission::Scope,
    session::SessionFilter,
    tool::{Access, Repeat, ToolOutput},
};
use entourage_mcp_server::ToolServer;
use entourage_runtime::{Runtime, permission::Policy};
use entourage_testkit::{FakeTool, Gate, ReactAgent, ScriptedProvider};
use rmcp::model::ContentBlock;
use serde_json::json;

use crate::kit::{connect, connect_by, lifecycles, result, told, tools};

#[tokio::test(start_paused = true)]
async fn lists_and_calls_in_each_lifecycle() {
    for lifecycle in lifecycles() {
        let echo = FakeTool::new("echo").requiring(&["what"]).echoing();
        let server = ToolServer::new("test", &Runtime::in_memory())
            .toolset(tools([Arc::new(echo), Arc::new(FakeTool::new("ok"))]))
            .instructions("Call echo.")
            .version("7.1");
        let client = connect_by(server, lifecycle).await;
        let info = client.service.peer_info().unwrap();
        assert_eq!(info.instructions.as_deref(), Some("Call echo."));
        let listed = client.service.list_all_tools().await.unwrap();
        assert_eq!(listed.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["echo", "ok"]);
        assert_eq!(listed[0].input_schema.get("required"), Some(&json!(["what"])));
        assert_eq!(listed[0].annotations.as_ref().unwrap().read_only_hint, Some(true));
        assert_eq!(client.text("echo", json!({"what": "x"})).await, (r#"{"what":"x"}"#.to_owned(), false));
        assert_eq!(client.text("ok", json!({})).await, ("ok".to_owned(), false));
        client.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn failures_are_error_results_and_the_connection_goes_on() {
    let server = ToolServer::new("test", &Runtime::in_memory()).toolset(tools([
        Arc::new(FakeTool::new("needs").requiring(&["what"])),
        Arc::new(FakeTool::new("panics").panicking("the tool's own panic")),
        Arc::new(FakeTool::new("tells").telling("try another file")),
        Arc::new(FakeTool::new("fails").failing(ErrorKind::Io, "the disk is gone")),
        Arc::new(FakeTool::new("hangs").hanging().timeout(std::time::Duration::from_secs(5))),
    ]));
    let client = connect(server).await;
    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!([deep]);
    }
    for (tool, arguments, words) in [
        ("needs", json!({}), "what"),
        ("needs", json!({"what": 7}), "what"),
        ("needs", json!({"what": deep}), "96"),
        ("panics", json!({}), "panic"),
        ("tells", json!({}), "try another file"),
        ("fails", json!({}), "the disk is gone"),
        ("hangs", json!({}), "5 s"),
        ("nothing", json!({}), "nothing"),
        ("", json!({}), ""),
    ] {
        let (text, failed) = client.text(tool, arguments).await;
        assert!(failed && text.contains(words), "{tool}: {text}");
    }
    let (text, failed) = client.text(&"long".repeat(1_000), json!({})).await;
    assert!(failed && text.len() < 200, "{text}");
    assert_eq!(client.names().await.len(), 5);
    client.close().await;
}

#[tokio::test(start_paused = true)]
async fn only_what_a_model_sees_goes_out() {
    let image = Media::new("image/png", MediaSource::Base64("aGk=".into()));
    let output = ToolOutput::text("See:").with_media(image).with_metadata(json!({"secret": "hunter2"}));
    let tool = FakeTool::new("shows").giving(output);
    let client =
        connect(ToolServer::new("test", &Runtime::in_memory()).toolset(tools([Arc::new(tool)]))).await;
    let result = client.call("shows", json!({})).await;
    assert!(matches!(result.content.as_slice(), [ContentBlock::Text(_), ContentBlock::Image(_)]));
    let all = serde_json::to_string(&result).unwrap();
    assert!(all.contains("aGk=") && !all.contains("hunter2"), "{all}");
    client.close().await;
}

#[tokio::test(start_paused = true)]
async fn the_scope_bounds_what_is_offered_and_what_runs() {
    let make = || {
        let access = |name: &str, access| Arc::new(FakeTool::new(name).access(access));
        let runtime = Runtime::builder().policy(Policy::allow_all()).build();
        let write = access("write", Access::WRITE);
        let set = tools([access("read", Access::READ), write.clone(), access("run", Access::EXECUTE)]);
        (ToolServer::new("test", &runtime).toolset(set), write)
    };
    let (server, write) = make();
    let client = connect(server).await;
    assert_eq!(client.names().await, ["read"], "reading alone, whatever the rules allow");
    let (text, failed) = client.text("write", json!({})).await;
    assert!(failed && text.contains("scope"), "{text}");
    let (text, failed) = client.text("none", json!({})).await;
    assert!(failed && text.contains("read") && !text.contains("write"), "{text}");
    assert_eq!(write.started(), 0);
    client.close().await;

    let (server, write) = make();
    let client = connect(server.scope(Scope::all().without_tools(["run"]))).await;
    assert_eq!(client.names().await, ["read", "write"]);
    assert_eq!(client.text("write", json!({})).await, ("ok".to_owned(), false));
    assert_eq!(write.finished(), 1);
    client.close().await;
}

#[tokio::test(start_paused = true)]
async fn parallel_calls_overlap_within_the_limit() {
    let gate = Gate::new();
    let tool = FakeTool::new("waits").behind(&gate);
    let runtime = Runtime::in_memory();
    let server = ToolServer::new("test", &runtime).toolset(tools([Arc::new(tool.clone())])).max_calls(3);
    let client = connect(server).await;
    let mut calls = Vec::new();
    for _ in 0..5 {
        calls.push(client.begin("waits", json!({})).await);
    }
    gate.arrived(3).await;
    // Two wait for a place: the list is answered meanwhile.
    assert_eq!(client.names().await, ["waits"]);
    assert_eq!(tool.running(), 3);
    gate.open();
    for call in calls {
        assert_eq!(result(call).await, ("ok".to_owned(), false));
    }
    assert_eq!((tool.finished(), tool.most_at_once()), (5, 3));
    // They ran in three sessions of one name.
    let mut ids: Vec<_> =
        runtime.sessions(&SessionFilter::all()).await.unwrap().into_iter().map(|it| it.record.id).collect();
    ids.sort();
    assert_eq!(ids.len(), 3, "{ids:?}");
    let first = ids[0].as_str().to_owned();
    assert!(first.starts_with("mcp-"));
    assert_eq!([ids[1].as_str(), ids[2].as_str()], [format!("{first}-2"), format!("{first}-3")]);
    client.close().await;
}

#[tokio::test(start_paused = true)]
async fn more_calls_than_may_wait_are_refused() {
    let gate = Gate::new();
    let tool = FakeTool::new("waits").behind(&gate);
    let server =
        ToolServer::new("test", &Runtime::in_memory()).toolset(tools([Arc::new(tool.clone())])).max_calls(1);
    let client = connect(server).await;
    let mut calls = Vec::new();
    for _ in 0..18 {
        calls.push(client.begin("waits", json!({})).await);
    }
    gate.arrived(1).await;
    // One runs and sixteen wait. Which one is refused is a matter of the order in which their tasks began.
    let mut refused = 0;
    while refused == 0 {
        tokio::task::yield_now().await;
        gate.open();
        for call in calls.drain(..) {
            let (text, failed) = result(call).await;
            if failed {
                assert!(text.contains("too many calls"), "{text}");
                refused += 1;
            }
        }
    }
    assert_eq!((refused, tool.finished()), (1, 17));
    client.close().await;
}

#[tokio::test(start_paused = true)]
async fn the_calls_of_a_client_are_one_session_of_the_store() {
    let runtime = Runtime::in_memory();
    let echo = FakeTool::new("echo").echoing();
    let server = ToolServer::new("files", &runtime).toolset(tools([Arc::new(echo)]));
    let client = connect(server).await;
    for number in 1..=3 {
        client.text("echo", json!({"number": number})).await;
    }
    client.text("none", json!({})).await;
    client.close().await;
    let [info] = &*runtime.sessions(&SessionFilter::all()).await.unwrap() else { panic!("one session") };
    let events = runtime.open(&info.record.id).await.unwrap().events(0, 100).await.unwrap();
    let recorded: Vec<_> = events
        .iter()
        .filter_map(|it| match &it.event {
            Event::ToolFinished(call) => Some((call.result.content[0].as_text(), call.result.is_error)),
            _ => None,
        })
        .collect();
    assert_eq!(recorded[..3], [1, 2, 3].map(|number| (format!(r#"{{"number":{number}}}"#), false)));
    assert!(recorded[3].1);
    assert!(events.iter().all(|it| &*it.origin.agent == "files"));
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_a_tool_and_its_work_a_child_session() {
    let provider = ScriptedProvider::new().call("look", json!({"at": "lexer"})).text("In src/lexer.rs.");
    let look = FakeTool::new("look").returning("fn lex()");
    let scout = ReactAgent::builder("scout", provider.model()).tool(look.clone()).build().unwrap();
    let runtime = Runtime::in_memory();
    let mut client = connect(ToolServer::new("team", &runtime).agent(scout)).await;
    let listed = client.service.list_all_tools().await.unwrap();
    assert_eq!(listed[0].name, "scout");
    assert_eq!(listed[0].input_schema.get("required"), Some(&json!(["prompt"])));
    let call = client.begin("scout", json!({"prompt": "Where are numbers read?"})).await;
    assert_eq!(result(call).await, ("In src/lexer.rs.".to_owned(), false));
    assert_eq!(provider.requests()[0].messages.last().unwrap().text(), "Where are numbers read?");
    let (_, step) = client.progress.recv().await.unwrap();
    assert_eq!(step, "team/scout: look");
    client.close().await;
    assert_eq!(runtime.sessions(&SessionFilter::all()).await.unwrap().len(), 2);
    assert_eq!(look.finished(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_may_only_read_unless_the_scope_says_otherwise() {
    for (scope, written) in [(None, 0), (Some(Scope::all()), 1)] {
        let provider = ScriptedProvider::new().call("write", json!({})).text("Done.");
        let write = FakeTool::new("write").access(Access::WRITE).repeat(Repeat::Idempotent);
        let worker = ReactAgent::builder("worker", provider.model()).tool(write.clone()).build().unwrap();
        let runtime = Runtime::builder().policy(Policy::allow_all()).build();
        let mut server = ToolServer::new("team", &runtime).agent(worker);
        if let Some(scope) = scope {
            server = server.scope(scope);
        }
        let client = connect(server).await;
        assert_eq!(told(&client.call("worker", json!({"prompt": "Write."})).await).0, "Done.");
        assert_eq!(write.finished(), written);
        client.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_is_refused_before_anything_is_read() {
    let runtime = Runtime::in_memory();
    let tool = || tools([Arc::new(FakeTool::new("same"))]);
    let provider = ScriptedProvider::new();
    let agent = ReactAgent::builder("same", provider.model()).build().unwrap();
    for (server, words) in [
        (ToolServer::new("", &runtime), "cannot name"),
        (ToolServer::new("a b", &runtime), "cannot name"),
        (ToolServer::new("test", &runtime).toolset(tool()).toolset(tool()), "two tools are named `same`"),
        (ToolServer::new("test", &runtime).toolset(tool()).agent(agent), "two tools are named `same`"),
    ] {
        let error = server.serve_io(tokio::io::empty(), tokio::io::sink()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(words), "{error}");
    }
}
