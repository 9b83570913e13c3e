//! Lines of a client that cannot be read.

use serde_json::{Value, json};

use crate::{
    ends::{Raw, server, steps},
    kit::Steps,
};

fn call(argument: &str) -> String {
    steps("7").replace("\"arguments\":{}", &format!(r#""arguments":{{"a":{argument}}}"#))
}

#[tokio::test(start_paused = true)]
async fn json_that_cannot_be_read_is_answered() {
    let tool = Steps::new();
    tool.gate.open();
    let mut raw = Raw::begin(server(&tool).max_message(100_000)).await;
    let deep = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let (seven, none) = (json!("7"), Value::Null);
    for (line, id, code) in [
        (call(r#""\ud800""#), &seven, -32700),
        (call("1e400"), &seven, -32700),
        (call(&deep(127)), &seven, -32700),
        (call(&deep(40_000)), &seven, -32700),
        (call(&"9".repeat(50_000)), &seven, -32700),
        (call("1e400").replace("\"7\"", "1e400"), &none, -32700),
        // It answers a request of the server.
        (r#"{"jsonrpc":"2.0","id":"7","result":{"a":1e400}}"#.to_owned(), &none, -32700),
        (r#"{"jsonrpc":"2.0","id":"7","method":5}"#.to_owned(), &seven, -32600),
        ("[]".to_owned(), &none, -32600),
    ] {
        raw.say(&line).await;
        let answer = raw.hear().await;
        let shown: String = line.chars().take(200).collect();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (id, &json!(code)), "{shown}: {answer}");
    }
    // These get no answer: no JSON, a line that is too long, and a notification that nobody knows.
    for line in ["", "{", "hello", &"[".repeat(1_000), r#"{"jsonrpc":"2.0","method":"notifications/odd"}"#] {
        raw.say(line).await;
    }
    raw.say(&call(&deep(60_000))).await;
    raw.say(&call(&deep(80))).await;
    let answer = raw.hear().await;
    assert_eq!(answer["result"]["content"][0]["text"], "done", "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_much_that_cannot_be_read_is_read_no_further() {
    use tokio::{io::AsyncWriteExt, time::timeout};
    let mut raw = Raw::begin(server(&Steps::new())).await;
    let line = format!("{}\n", call("1e400"));
    let mut sent = 0;
    while timeout(std::time::Duration::from_secs(30), raw.input.write_all(line.as_bytes())).await.is_ok() {
        sent += 1;
        // More than what fits into the pipe and is read ahead.
        assert!(sent < 50_000, "the server reads on");
    }
    for _ in 0..sent {
        assert_eq!(raw.hear().await["error"]["code"], -32700);
    }
}
