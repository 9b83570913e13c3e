//! Requests that are cancelled at any time: what did not begin does not, and their ids are free again.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use entourage_mcp_server::ToolServer;
use entourage_runtime::Runtime;
use entourage_testkit::FakeTool;
use serde_json::json;
use tokio::time::timeout;

use crate::{ends::Raw, kit::tools};

fn server(tool: &FakeTool) -> ToolServer {
    ToolServer::new("test", &Runtime::in_memory()).toolset(tools([Arc::new(tool.clone())]))
}

fn cancel(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":"{id}"}}}}"#)
}

fn ask(id: &str, method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"{method}"}}"#)
}

/// Returns a call of a tool that answers with its arguments.
fn call(id: &str, number: u32) -> String {
    let params = json!({"name": "act", "arguments": {"call": number}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

fn ids() -> Vec<String> {
    (0..50).map(|id| format!("x{id}")).collect()
}

/// Waits until no id of these is taken: a ping of each is answered.
async fn are_free(raw: &mut Raw, ids: &[String]) {
    for id in ids {
        let free = async {
            loop {
                raw.say(&ask(id, "ping")).await;
                let answer = raw.hear().await;
                assert_eq!(answer["id"], *id);
                if answer.get("result").is_some() {
                    break;
                }
            }
        };
        timeout(Duration::from_secs(60), free).await.unwrap_or_else(|_| panic!("{id} is refused for ever"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_cancelled_at_once_does_not_begin_and_its_id_is_free() {
    let tool = FakeTool::new("act").echoing();
    let mut raw = Raw::begin(server(&tool)).await;
    for id in ids() {
        // In one piece, so that the cancel is there before the call begins.
        raw.say(&format!("{}\n{}", call(&id, 1), cancel(&id))).await;
    }
    are_free(&mut raw, &ids()).await;
    assert_eq!(tool.started(), 0);
}

/// Sends a request, its cancel, and a call of the same id, in one piece.
async fn again_at_once() {
    let tool = FakeTool::new("act").echoing();
    let mut raw = Raw::begin(server(&tool)).await;
    let ids = ids();
    for id in &ids {
        let first = if id.ends_with(['1', '2', '3']) { call(id, 1) } else { ask(id, "tools/list") };
        raw.say(&format!("{first}\n{}\n{}", cancel(id), call(id, 2))).await;
    }
    let (mut performed, mut open) = (0, ids.iter().cloned().collect::<BTreeSet<_>>());
    while !open.is_empty() {
        let answer = raw.hear().await;
        let id = answer["id"].as_str().unwrap();
        // The first request may be answered before its cancel is there, and then before the second one.
        assert!(open.contains(id), "{answer}");
        let is_performed = answer["result"]["content"][0]["text"] == r#"{"call":2}"#;
        performed += usize::from(is_performed);
        if is_performed || answer["error"]["code"] == -32600 {
            open.remove(id);
        } else {
            assert!(answer.get("result").is_some(), "{answer}");
        }
    }
    assert!(tool.started() >= performed);
    are_free(&mut raw, &ids).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_never_answers_the_next_one_of_its_id() {
    again_at_once().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cancelled_request_never_answers_the_next_one_of_its_id_on_several_threads() {
    again_at_once().await;
}
