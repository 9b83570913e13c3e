//! Clients over pipes that close their input and read nothing.

use std::{sync::Arc, time::Duration};

use entourage_core::Result;
use entourage_mcp_server::ToolServer;
use entourage_runtime::Runtime;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream},
    task::JoinHandle,
    time::{Instant, timeout},
};

use crate::{
    http::INITIALIZE,
    kit::{Steps, tools},
};

/// A client of raw lines, whose output is as small as a message.
pub(crate) struct Raw {
    pub(crate) input: DuplexStream,
    pub(crate) output: BufReader<DuplexStream>,
    pub(crate) serving: JoinHandle<Result<()>>,
}

impl Raw {
    pub(crate) fn open(server: ToolServer) -> Self {
        let (input, theirs) = tokio::io::duplex(1 << 20);
        let (output, written) = tokio::io::duplex(64);
        let serving = tokio::spawn(server.serve_io(theirs, written));
        Self { input, output: BufReader::new(output), serving }
    }

    /// Begins a session.
    pub(crate) async fn begin(server: ToolServer) -> Self {
        let mut raw = Self::open(server);
        raw.say(INITIALIZE).await;
        raw.hear().await;
        raw.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        raw
    }

    pub(crate) async fn say(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    /// Returns the next message.
    pub(crate) async fn hear(&mut self) -> serde_json::Value {
        let mut line = String::new();
        timeout(Duration::from_secs(60), self.output.read_line(&mut line)).await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

/// Returns a call of the tool `steps`.
pub(crate) fn steps(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":"{id}","method":"tools/call","params":{{"name":"steps","arguments":{{}}}}}}"#
    )
}

pub(crate) fn server(tool: &Steps) -> ToolServer {
    ToolServer::new("test", &Runtime::in_memory()).toolset(tools([Arc::new(tool.clone())]))
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_input_ends_calls_and_server_though_nothing_is_read() {
    // Answers that wait to be read: few, and more than those after which no further message is taken.
    for asks in [3, 400] {
        let tool = Steps::new();
        let mut raw = Raw::begin(server(&tool)).await;
        raw.say(&steps("call")).await;
        tool.gate.arrived(1).await;
        for id in 0..asks {
            raw.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#)).await;
        }
        let Raw { input, output, serving } = raw;
        drop(input);
        let before = Instant::now();
        timeout(Duration::from_secs(60), tool.alive(0)).await.unwrap();
        let took = before.elapsed();
        assert!((4..=6).contains(&took.as_secs()), "{asks}: {took:?}");
        timeout(Duration::from_secs(60), serving).await.unwrap().unwrap().unwrap();
        let took = before.elapsed();
        assert!(took.as_secs() <= 8, "{asks}: {took:?}");
        drop(output);
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_input_ends_a_server_whose_first_answer_is_not_read() {
    let mut raw = Raw::open(server(&Steps::new()));
    raw.say(INITIALIZE).await;
    let Raw { input, output, serving } = raw;
    drop(input);
    timeout(Duration::from_secs(60), serving).await.unwrap().unwrap().unwrap();
    drop(output);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_on_and_reads_nothing_is_taken_for_gone() {
    // Its input stays open, or ends behind more than what is read ahead.
    for ends in [true, false] {
        let tool = Steps::new();
        let mut raw = Raw::begin(server(&tool)).await;
        raw.say(&steps("call")).await;
        tool.gate.arrived(1).await;
        for id in 0..3_000 {
            raw.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#)).await;
        }
        let Raw { mut input, output, serving } = raw;
        if ends {
            input.shutdown().await.unwrap();
        }
        let before = Instant::now();
        timeout(Duration::from_secs(600), tool.alive(0)).await.unwrap();
        timeout(Duration::from_secs(60), serving).await.unwrap().unwrap().unwrap();
        let took = before.elapsed();
        assert!((60..=80).contains(&took.as_secs()), "{ends}: {took:?}");
        drop((input, output));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_slow_to_read_stays() {
    let mut raw = Raw::begin(server(&Steps::new())).await;
    for id in 0..1_500 {
        raw.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#)).await;
    }
    // Together that takes far longer than the time of a client that reads nothing.
    for _ in 0..1_500 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(raw.hear().await.get("result").is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_line_is_answered_without_its_end_unless_it_was_cut_off() {
    for (line, answers) in
        [(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, true), (r#"{"jsonrpc":"2.0","id":1,"#, false)]
    {
        let Raw { mut input, mut output, serving } = Raw::begin(server(&Steps::new())).await;
        input.write_all(line.as_bytes()).await.unwrap();
        drop(input);
        let mut rest = String::new();
        timeout(Duration::from_secs(60), output.read_to_string(&mut rest)).await.unwrap().unwrap();
        assert_eq!(rest.contains(r#""id":1"#), answers, "{rest}");
        serving.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ended_makes_room_though_its_progress_is_not_read() {
    let tool = Steps::new();
    tool.gate.open();
    let mut raw = Raw::begin(server(&tool).max_calls(1)).await;
    for id in ["one", "two", "three"] {
        raw.say(
            &steps(id)
                .replace("\"arguments\"", &format!(r#""_meta":{{"progressToken":"{id}"}},"arguments""#)),
        )
        .await;
    }
    timeout(Duration::from_secs(60), tool.gate.arrived(3)).await.unwrap();
    let mut ids = Vec::new();
    while ids.len() < 3 {
        let message = raw.hear().await;
        ids.extend(message["id"].as_str().map(str::to_owned));
    }
    assert_eq!(ids, ["one", "two", "three"]);
}

/// Returns a request of a client without a session.
fn ask(id: &str, method: &str, more: &str) -> String {
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;
    format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"{method}","params":{{{more}{meta}}}}}"#)
}

/// Returns a subscription to changes.
fn listen(id: &str) -> String {
    ask(id, "subscriptions/listen", r#""notifications":{"toolsListChanged":true},"#)
}

#[tokio::test(start_paused = true)]
async fn a_subscription_right_before_the_end_of_the_input_is_answered() {
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let discover = ask("d", "server/discover", "");
    let one = [listen("a")];
    let cases: [(&str, &[&str]); 3] =
        [("alone", &[]), ("discovered", &[&discover]), ("in a session", &[INITIALIZE, initialized])];
    for (case, before) in cases {
        for listens in [&one[..], &[listen("a"), listen("b"), listen("c")]] {
            let Raw { mut input, mut output, serving } = Raw::open(server(&Steps::new()));
            for line in before.iter().copied().chain(listens.iter().map(String::as_str)) {
                input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
            }
            drop(input);
            let (began, mut rest) = (Instant::now(), String::new());
            timeout(Duration::from_secs(60), output.read_to_string(&mut rest)).await.unwrap().unwrap();
            serving.await.unwrap().unwrap();
            assert!(began.elapsed() < Duration::from_secs(1), "{case}: {:?}: {rest}", began.elapsed());
            let answers = rest.lines().filter(|line| line.contains(r#""result""#));
            let acknowledged = rest.matches("subscriptions/acknowledged").count();
            let expected = listens.len() + before.len().min(1);
            assert_eq!((acknowledged, answers.count()), (listens.len(), expected), "{case}: {rest}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_listens_keeps_no_server_after_the_end_of_its_input() {
    // A call has its time to answer, and the subscription adds none.
    for calls in [false, true] {
        let tool = Steps::new();
        let mut raw = Raw::open(server(&tool));
        raw.say(&ask("d", "server/discover", "")).await;
        raw.hear().await;
        raw.say(&listen("l")).await;
        assert!(raw.hear().await.to_string().contains("acknowledged"));
        if calls {
            raw.say(&ask("c", "tools/call", r#""name":"steps","arguments":{},"#)).await;
            tool.gate.arrived(1).await;
        }
        let Raw { input, mut output, serving } = raw;
        drop(input);
        let before = Instant::now();
        if calls {
            tokio::time::sleep(Duration::from_secs(3)).await;
            tool.gate.open();
        }
        let mut rest = String::new();
        timeout(Duration::from_secs(60), output.read_to_string(&mut rest)).await.unwrap().unwrap();
        serving.await.unwrap().unwrap();
        let least = Duration::from_secs(if calls { 3 } else { 0 });
        let took = before.elapsed();
        assert!(took >= least && took < least + Duration::from_secs(1), "{calls}: {took:?}");
        assert_eq!(rest.contains("done"), calls, "{rest}");
    }
}
