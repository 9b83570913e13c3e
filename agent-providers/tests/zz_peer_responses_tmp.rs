#![cfg(feature = "openai-responses")]
//! Against a real llama.cpp server: `LLM_PEER_URL=http://127.0.0.1:PORT cargo test … -- --ignored`.

use entourage_core::{
    ErrorKind,
    message::{History, Message, ToolResult},
    provider::{CallContext, FinishReason, Params, ProviderExt, Request},
    tool::ToolSpec,
};
use entourage_providers::openai_responses::OpenAiResponses;
use serde_json::json;

#[tokio::test]
#[ignore = "needs LLM_PEER_URL, the address of a llama.cpp server"]
async fn a_real_server_calls_a_tool_and_then_answers() {
    let url = std::env::var("LLM_PEER_URL").expect("set LLM_PEER_URL to the server's address, without /v1");
    let provider =
        OpenAiResponses::builder().base_url(format!("{}/v1", url.trim_end_matches('/'))).build().unwrap();
    let cx = CallContext::new();
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    let tools = [ToolSpec::new("line_count", "Counts the lines of a file.", schema)];
    let mut params = Params::default();
    params.max_output = Some(2_000);
    let mut history: History = [Message::user("Which file is the longest?")].into_iter().collect();
    // No name: the server is asked which model it has.
    let request = |history: &History| {
        Request::new("default", history.clone())
            .with_instructions("Answer briefly.")
            .with_tools(tools.clone())
            .with_params(params.clone())
    };
    let reply = provider.complete(request(&history), &cx).await.unwrap();
    assert_eq!(reply.finish.reason, FinishReason::ToolCalls);
    assert!(reply.usage.input.is_some() && reply.usage.output.is_some(), "{:?}", reply.usage);
    let message = reply.into_message();
    let call = message.tool_calls().next().unwrap().clone();
    assert_eq!((&*call.name, call.malformed.as_deref()), ("line_count", None));
    history.push(message);
    history.push(Message::tool([ToolResult::text(&call, "42")]));
    let reply = provider.complete(request(&history), &cx).await.unwrap();
    assert!(matches!(reply.finish.reason, FinishReason::Stop | FinishReason::Length), "{:?}", reply.finish);
    assert!(!reply.into_message().text().is_empty());

    let long: History = [Message::user("word ".repeat(50_000))].into_iter().collect();
    let refused = provider.complete(Request::new("default", long), &cx).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ContextOverflow, "{refused}");
    assert!(refused.context().any(|(name, value)| (name, value) == ("status", "400")), "{refused}");
}

#[tokio::test]
#[ignore = "peer"]
async fn typed_and_strict() {
    use entourage_core::provider::{Output, OutputSchema};
    let url = std::env::var("LLM_PEER_URL").unwrap();
    let provider = OpenAiResponses::builder().base_url(format!("{url}/v1")).build().unwrap();
    let cx = CallContext::new();
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}, "required": ["a"]});
    let mut params = Params::default();
    params.max_output = Some(500);
    params.strict_tools = Some(true);
    let history: History = [Message::user("hi"), Message::assistant("hello"), Message::user("json please")].into_iter().collect();
    let request = Request::new("default", history).with_output(Output::from(OutputSchema::new("x", schema))).with_params(params);
    let reply = provider.complete(request, &cx).await.unwrap();
    eprintln!("{:?} {:?} {:?}", reply.finish, reply.usage, reply.info);
    let text = reply.into_message().text();
    eprintln!("{text}");
    serde_json::from_str::<serde_json::Value>(&text).unwrap();
}
