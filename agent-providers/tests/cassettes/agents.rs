//! Typed agents on recorded replies: the recorded bytes come over a connection, through the provider that users get,
//! and what the recording holds is the agent's value.
//!
//! A recording fits if its replies call tools until one holds an object as JSON, or calls the tool that took the answer
//! of the recorded client. The name of that tool is the only thing that is changed.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use entourage_core::{
    provider::{Egress, Model},
    tool::{Access, Tool, ToolSpec},
};
use entourage_providers::{
    anthropic_messages::AnthropicMessages, gemini::Gemini, ollama::Ollama, openai_chat::OpenAiChat,
    openai_responses::OpenAiResponses,
};
use entourage_runners::{
    ReactAgent,
    from_fn::from_fn,
    typed::{OutcomeExt, Partial, Strategy},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::{
    recordings::{self, Interaction, Sequence},
    wires::Wire,
};

/// Names that recorded clients gave the tool that takes the answer, each as long as `final_answer`.
const FINAL: [&str; 2] = ["final_result", "final_answer"];

/// Fewest recordings that fit, of each wire in the default directory: by the service's own form, by the final tool, and
/// those of both in which other tools are called before. No client of the wires with none had such a tool.
const FEWEST: [(&str, [usize; 3]); 5] = [
    ("anthropic-messages", [6, 0, 3]),
    ("gemini", [5, 0, 2]),
    ("ollama", [2, 1, 1]),
    ("openai-chat", [10, 3, 6]),
    ("openai-responses", [7, 0, 1]),
];

/// A recording that fits.
struct Fitting<'a> {
    replies: Vec<&'a Interaction>,
    strategy: Strategy,
    value: Map<String, Value>,
    /// The calls before the answer, with their arguments.
    calls: Vec<(String, Value)>,
}

fn calls(one: &Interaction) -> Option<Vec<(String, Value)>> {
    let calls = one.expect["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    calls.iter().map(|call| Some((call["name"].as_str()?.to_owned(), call["arguments"].clone()))).collect()
}

fn fitting(sequence: &Sequence) -> Option<Fitting<'_>> {
    let (mut replies, mut before) = (Vec::new(), Vec::new());
    for one in &sequence.interactions {
        let is_known = one.protocol == sequence.interactions[0].protocol && one.status == 200;
        let server_side = one.expect["server_tools"].as_array().is_some_and(|tools| !tools.is_empty());
        if !is_known || server_side {
            return None;
        }
        replies.push(one);
        let mut calls = calls(one)?;
        let (strategy, value) = match calls.as_slice() {
            [] => (
                Strategy::Native,
                serde_json::from_str(one.expect["text"].as_str()?).ok().filter(is_schema(one))?,
            ),
            [(name, value)] if FINAL.contains(&name.as_str()) => (Strategy::Tool, value.clone()),
            _ => {
                before.append(&mut calls);
                continue;
            }
        };
        let Value::Object(value) = value else { return None };
        return Some(Fitting { replies, strategy, value, calls: before });
    }
    None
}

/// True for the values of a client that asked for them.
fn is_schema(one: &Interaction) -> impl Fn(&Value) -> bool {
    let asked = one.request.to_string().to_lowercase();
    let words = [
        "json_schema",
        "responseschema",
        "responsejsonschema",
        "output_format",
        "output_config",
        "\"format\":{",
    ];
    let asked = words.iter().any(|word| asked.contains(word));
    move |value| asked && value.is_object()
}

/// Answers each request with the next recorded reply.
async fn serve(listener: TcpListener, replies: Vec<(String, String)>) {
    for (kind, body) in replies {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).await.unwrap();
        stream.shutdown().await.ok();
    }
}

async fn read_request(stream: &mut TcpStream) {
    let mut request = Vec::new();
    loop {
        let mut piece = [0; 4_096];
        let n = stream.read(&mut piece).await.unwrap();
        assert!(n > 0, "the request broke off");
        request.extend_from_slice(&piece[..n]);
        let text = String::from_utf8_lossy(&request).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if length.is_some_and(|length| body.len() >= length.trim().parse().unwrap()) {
                return;
            }
        }
    }
}

fn model(wire: Wire, url: &str) -> Model {
    let key = "sk-recorded-0123456789";
    match wire {
        Wire::Chat(dialect) => {
            let builder = OpenAiChat::builder().base_url(url).api_key(key).dialect(dialect);
            builder.build().unwrap().model("m")
        }
        Wire::Responses => OpenAiResponses::builder().base_url(url).api_key(key).build().unwrap().model("m"),
        Wire::Messages => AnthropicMessages::builder().base_url(url).api_key(key).build().unwrap().model("m"),
        Wire::Gemini => Gemini::builder().base_url(url).api_key(key).build().unwrap().model("m"),
        Wire::Ollama => Ollama::builder().base_url(url).build().unwrap().model("m"),
    }
}

type Called = Arc<Mutex<Vec<(String, Value)>>>;

/// A tool of this name, which notes its calls.
fn tool(name: &str, called: &Called) -> Arc<dyn Tool> {
    let spec = ToolSpec::new(name, "Looks.", json!({"type": "object"})).with_access(Access::NONE);
    let (name, called) = (name.to_owned(), Arc::clone(called));
    Arc::new(from_fn(spec, move |input| {
        called.lock().unwrap().push((name.clone(), input.arguments));
        async { Ok("seen") }
    }))
}

/// Runs an agent on the recorded replies. Returns what is wrong.
async fn differences<T>(fitting: &Fitting<'_>) -> Vec<String>
where
    T: DeserializeOwned + Serialize + JsonSchema + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let renamed = |one: &&Interaction| {
        let body = String::from_utf8(one.body.clone()).unwrap();
        (one.kind.clone(), body.replace("\"final_result\"", "\"final_answer\""))
    };
    let server = tokio::spawn(serve(listener, fitting.replies.iter().map(renamed).collect()));
    let called = Called::default();
    let names: BTreeMap<_, _> = fitting.calls.iter().map(|(name, _)| (name, ())).collect();
    let agent = ReactAgent::builder("replayed", model(fitting.replies[0].wire, &url))
        .tools(names.into_keys().map(|name| tool(name, &called)))
        .returns::<T>()
        .strategy(fitting.strategy)
        .repairs(0)
        .build()
        .unwrap();
    let session = entourage_testkit::runtime().egress(Egress::Loopback).build().session();
    let mut run = session.start(&agent, "As recorded.");
    let mut partial = Partial::of::<T>();
    // What streamed before the run's end, which brings the whole value.
    let mut streamed = None;
    while let Some(event) = run.next().await {
        partial.apply(&event.event);
        if !partial.is_complete() {
            streamed = partial.value().cloned();
        }
    }
    let outcome = run.outcome().await.unwrap();
    let mut wrong = Vec::new();
    match outcome.value::<T>().map(|value| serde_json::to_value(value).unwrap()) {
        Ok(value) if value.as_object() == Some(&fitting.value) => {}
        Ok(value) => wrong.push(format!("the value is {value}")),
        Err(error) => wrong.push(format!("{error}: {outcome}")),
    }
    if streamed.as_ref().and_then(Value::as_object) != Some(&fitting.value) {
        wrong.push(format!("{streamed:?} streamed"));
    }
    let mut called = called.lock().unwrap().clone();
    let mut recorded = fitting.calls.clone();
    // Calls of one step run side by side.
    for calls in [&mut called, &mut recorded] {
        calls.sort_by_key(|(name, arguments)| format!("{name} {arguments}"));
    }
    if called != recorded {
        wrong.push(format!("these were called: {called:?}"));
    }
    match server.is_finished() || wrong.is_empty() {
        true => server.await.unwrap(),
        false => server.abort(),
    }
    wrong
}

#[tokio::test]
async fn a_typed_agent_answers_with_the_value_that_a_recording_holds() {
    let folder = recordings::folder();
    let Some(sequences) = recordings::read(&folder) else {
        println!("SKIPPED: no recordings at {}; set CASSETTES_DIR", folder.display());
        return;
    };
    let mut tally: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    let mut failures = Vec::new();
    for sequence in &sequences {
        let Some(fitting) = fitting(sequence) else { continue };
        let count = tally.entry(&fitting.replies[0].protocol).or_default();
        count[usize::from(fitting.strategy == Strategy::Tool)] += 1;
        count[2] += usize::from(!fitting.calls.is_empty());
        let wrong = differences::<Map<String, Value>>(&fitting).await;
        if !wrong.is_empty() {
            failures.push(format!("{}: {:?}: {}", sequence.id, fitting.strategy, wrong.join("; ")));
        }
    }
    println!("typed agents on recordings, by schema, by final tool, of these with calls before: {tally:?}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    if sequences.len() == crate::KNOWN {
        for (wire, fewest) in FEWEST {
            let found = tally.get(wire).copied().unwrap_or_default();
            assert!(found.iter().zip(fewest).all(|(found, fewest)| *found >= fewest), "{wire}: {found:?}");
        }
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Book {
    title: String,
    author: Author,
    genres: Vec<String>,
    published_year: u16,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Author {
    name: String,
    nationality: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Sum {
    integer_a: i64,
    integer_b: i64,
    answer: i64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Weather {
    city: String,
    weather: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct City {
    city: String,
    country: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Summary {
    city: String,
    summary: String,
}

#[tokio::test]
async fn a_recorded_answer_is_a_value_of_a_type_of_ones_own_on_each_wire() {
    let folder = recordings::folder();
    let Some(sequences) = recordings::read(&folder).filter(|all| all.len() == crate::KNOWN) else {
        println!("SKIPPED: other recordings, or none, at {}; set CASSETTES_DIR", folder.display());
        return;
    };
    let named = |id: &str| fitting(sequences.iter().find(|one| one.id == id).unwrap()).unwrap();
    let wrong = [
        differences::<Book>(&named("openai-complex-object-streaming-422fa3")).await,
        differences::<Weather>(&named("copilot-prompt-typed-with-tool-call-roundtrip-ffe457")).await,
        differences::<Sum>(&named("anthropic-anthropic-claude-sonnet-4-5-62c059")).await,
        differences::<City>(&named("google-test-native-output-with-function-tools-stream-65ef7c")).await,
        differences::<Summary>(&named("ollama-streaming-structured-output-with-tools-873cf8")).await,
    ];
    assert_eq!(wrong.concat(), Vec::<String>::new());
    let other = differences::<City>(&named("openai-complex-object-streaming-422fa3")).await;
    assert!(other.concat().contains("`city` is required"), "a book is no city: {other:?}");
}
