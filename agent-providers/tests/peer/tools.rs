//! Tool loops to their end.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use entourage_core::{
    message::{History, Message, ToolResult},
    provider::{CallContext, FinishReason, Request},
    tool::{Access, ToolSpec},
};
use entourage_runners::{ReactAgent, from_fn::from_fn};
use entourage_runtime::AgentExt;
use entourage_runtime::reply::ProviderExt;
use serde_json::json;

use crate::{SERVER, params, peers};

#[tokio::test]
#[ignore = "needs LLM_PEER_URL, the address of a llama.cpp server"]
async fn an_agent_calls_its_tool_and_then_answers() {
    let _server = SERVER.read().await;
    for peer in peers() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let schema =
            json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
        let spec =
            ToolSpec::new("line_count", "Counts the lines of a file.", schema).with_access(Access::NONE);
        let line_count = from_fn(spec, move |input| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move { Ok(format!("{} has 42 lines", input.arguments["path"].as_str().unwrap())) }
        });
        let agent = ReactAgent::builder("scout", peer.model.clone())
            .instructions("Answer briefly.")
            .tool(line_count)
            .params(params())
            .build()
            .unwrap();
        let outcome = agent.start("Which file is the longest?").outcome().await.unwrap();
        println!("{}: {outcome}, {} bytes of text", peer.wire, outcome.text.len());
        assert_eq!((calls.load(Ordering::Relaxed), outcome.steps), (1, 2), "{}: {outcome}", peer.wire);
        assert!(outcome.is_completed() && !outcome.text.is_empty(), "{}: {outcome}", peer.wire);
        assert!(outcome.usage.input.is_some() && outcome.usage.output.is_some(), "{:?}", outcome.usage);
    }
}

#[tokio::test]
#[ignore = "needs LLM_PEER_URL, the address of a llama.cpp server"]
async fn results_errors_and_further_turns_are_understood() {
    let _server = SERVER.read().await;
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    let tools = [ToolSpec::new("line_count", "Counts the lines of a file.", schema)];
    let cx = CallContext::new();
    for peer in peers() {
        let mut history = History::default();
        let ask = |history: &History| {
            Request::new("default", history.clone()).with_tools(tools.clone()).with_params(params())
        };
        for prompt in ["Which file is the longest?", "Try another."] {
            history.push(Message::user(prompt));
            let reply = peer.provider.complete(ask(&history), &cx).await.unwrap();
            assert_eq!(reply.finish.reason, FinishReason::ToolCalls, "{}", peer.wire);
            let message = reply.into_message();
            let call = message.tool_calls().next().unwrap().clone();
            assert_eq!((&*call.name, call.malformed.as_deref()), ("line_count", None), "{}", peer.wire);
            history.push(message);
            let failed = ToolResult::error(&call, "no such file");
            let counted = ToolResult::text(&call, "42");
            history.push(Message::tool([if prompt.starts_with("Try") { counted } else { failed }]));
            let reply = peer.provider.complete(ask(&history), &cx).await.unwrap();
            assert!(
                matches!(reply.finish.reason, FinishReason::Stop | FinishReason::Length),
                "{}",
                peer.wire
            );
            let message = reply.into_message();
            assert!(!message.text().is_empty(), "{}: {message:?}", peer.wire);
            history.push(message);
        }
        println!("{}: {} messages", peer.wire, history.len());
    }
}
