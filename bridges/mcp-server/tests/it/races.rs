//! Requests that are cancelled at any time: what did not begin does not, and their ids are free again.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use entourage_mcp_server::ToolServer;
use entourage_runtime::Runtime;
use entourage_testkit::FakeTool;
use serde_json::{Value, json};
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

fn call(id: &str) -> String {
    let params = json!({"name": "act", "arguments": {}});
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
    let tool = FakeTool::new("act");
    let mut raw = Raw::begin(server(&tool)).await;
    for id in ids() {
        // In one piece, so that the cancel is there before the call begins.
        raw.say(&format!("{}\n{}", call(&id), cancel(&id))).await;
    }
    are_free(&mut raw, &ids()).await;
    assert_eq!(tool.started(), 0);
}

/// Sends a request, its cancel, and a call of the same id, in one piece.
async fn again_at_once() {
    let tool = FakeTool::new("act");
    let mut raw = Raw::begin(server(&tool)).await;
    let ids = ids();
    for id in &ids {
        let first = if id.ends_with(['1', '2', '3']) { call(id) } else { ask(id, "tools/list") };
        raw.say(&format!("{first}\n{}\n{}", cancel(id), call(id))).await;
    }
    let mut answers: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for _ in &ids {
        let answer = raw.hear().await;
        answers.entry(answer["id"].as_str().unwrap().to_owned()).or_default().push(answer);
    }
    let mut performed = 0;
    for (id, answers) in &answers {
        let [answer] = answers.as_slice() else { panic!("{id}: {answers:?}") };
        let is_refused = answer["error"]["code"] == -32600;
        let is_performed = answer["result"]["content"][0]["text"] == "ok";
        assert!(is_refused || is_performed, "{id}: {answer}");
        performed += usize::from(is_performed);
    }
    assert_eq!(answers.len(), ids.len());
    // Of the first calls, some may have begun before their cancels.
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
