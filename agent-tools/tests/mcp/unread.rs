//! Answers that cannot be read: who waits for one is told at once, and the server stays.

use entourage_tools::mcp::{Mcp, McpServer};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    call, echo,
    http::{Site, speaks},
    kept::{in_time, shell},
    manners::notes,
    started,
};

/// The tools of a server in the shell.
const LISTED: &str = r#"answer "\"tools\":[{\"name\":\"write\",$schema},{\"name\":\"other\",$schema}]""#;
/// The answer to the calls for which no other one is made.
const GOOD: &str = r#"answer '"content":[{"type":"text","text":"good"}]'"#;

async fn server(called: &str) -> (TempDir, Mcp) {
    let dir = tempfile::tempdir().unwrap();
    let server: McpServer = shell(dir.path(), LISTED, called);
    let mcp = started([server]).await;
    (dir, mcp)
}

/// An answer that nests deeper than what is read.
fn deep(id: &str) -> String {
    let deep = r#"{"a":"#.repeat(126) + "1" + &"}".repeat(126);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[],"structuredContent":{deep}}}}}"#)
}

/// Answers to the request `ID`, and what the model is told of each.
fn unreadable() -> Vec<(String, &'static str)> {
    let both = r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[]},"error":{"code":1,"message":"e"}}"#;
    vec![
        (deep("ID"), "its answer cannot be read: recursion limit exceeded"),
        (deep("null"), "its answer cannot be read: it names no request"),
        (both.into(), "its answer cannot be read: it has a result and an error"),
        (
            r#"{"jsonrpc":"2.0","id":null,"result":{"content":[]}}"#.into(),
            "cannot be read: it names no request",
        ),
        (r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[],"a":NaN}}"#.into(), "cannot be read: "),
        (r#"{"jsonrpc":"2.0","id":ID}"#.into(), "cannot be read: it is no message of the protocol"),
        (
            r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"what?"}}"#.into(),
            "refused the call: what? (code -32700)",
        ),
    ]
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_ends_its_call_at_once() {
    let batch = r#"[{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}]"#.to_owned();
    let batch = (batch, "its answer cannot be read: it came in a batch, which is not supported");
    for (text, expected) in unreadable().into_iter().chain([batch]) {
        // Only the first one is like this. A line of a log before it ends nothing.
        let called = format!(
            r#"if [ -e "$0/called" ]; then {GOOD}; else
                echo >> "$0/called"
                echo '[INFO] called'
                printf '%s\n' '{text}' | sed "s/ID/$id/"
            fi"#
        );
        let (dir, mcp) = server(&called).await;
        let told = in_time(&text, call(&mcp, "mcp_fake_write", json!({}))).await.unwrap_err();
        assert!(told.contains(expected), "{text}: {told}");
        assert_eq!(told.contains("unknown; find out"), expected.contains("cannot be read"), "{told}");
        assert_eq!(call(&mcp, "mcp_fake_write", json!({})).await.as_deref(), Ok("good"), "{text}");
        assert_eq!(notes(dir.path(), "started").len(), 1, "{text}");
    }
}

#[tokio::test]
async fn an_answer_that_names_no_request_ends_none_where_several_wait() {
    let called = r#"if [ -e "$0/first" ]; then
            printf '%s\n' '{"jsonrpc":"2.0","id":null,"result":{"content":[]}}'
            printf '%s\n' '{"jsonrpc":"2.0","error":{"code":-32700,"message":"what?"}}'
            answer '"content":[{"type":"text","text":"good"}]'
            id=$(cat "$0/first")
            answer '"content":[{"type":"text","text":"good"}]'
        else
            echo "$id" > "$0/first"
        fi"#;
    let (_dir, mcp) = server(called).await;
    let both = async {
        tokio::join!(call(&mcp, "mcp_fake_write", json!({})), call(&mcp, "mcp_fake_other", json!({})))
    };
    let (first, second) = in_time("both end", both).await;
    assert_eq!((first.as_deref(), second.as_deref()), (Ok("good"), Ok("good")));
}

#[tokio::test]
async fn a_request_that_cannot_be_read_is_refused() {
    let called = format!(
        r#"echo '{{"jsonrpc":"2.0","id":"q","method":5}}'
        read -r refused
        case "$refused" in *'"id":"q"'*'-32600'* | *'-32600'*'"id":"q"'*) {GOOD} ;; esac"#
    );
    let (_dir, mcp) = server(&called).await;
    let told = in_time("the call ends", call(&mcp, "mcp_fake_write", json!({}))).await;
    assert_eq!(told.as_deref(), Ok("good"));
}

#[tokio::test]
async fn an_answer_over_http_that_cannot_be_read_ends_its_call_at_once() {
    let json = [
        (
            r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32700,"message":"what?"}}"#,
            "refused the call: what?",
        ),
        (r#"{"jsonrpc":"2.0","id":99,"result":{"content":[]}}"#, "is no answer to the request"),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#,
            "is no answer",
        ),
        (r#"[{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}]"#, "gave no usable answer"),
    ];
    let json = json.map(|(text, expected)| ("application/json", text.to_owned(), expected));
    let streams = unreadable().into_iter().map(|(text, expected)| ("text/event-stream", text, expected));
    for (kind, text, expected) in streams.chain(json) {
        let body = text.clone();
        let site = Site::new(move |asked| {
            if asked.body["method"] != "tools/call" {
                return speaks(asked);
            }
            let text = body.replace("ID", &asked.body["id"].to_string());
            let text = if kind == "application/json" { text } else { format!("data: {text}\n\n") };
            (format!("200 OK\r\nContent-Type: {kind}"), text)
        });
        let mcp = started([site.server()]).await;
        let told = in_time(&text, echo(&mcp)).await.unwrap_err();
        assert!(told.contains(expected), "{text}: {told}");
    }
}
