//! Bad input at every edge, through the facade: services that break off, lie or fall silent, files that are not a
//! database, paths that lead out, calls that make no sense. It ends in a typed error or in a result that the model
//! reads; the session can be continued, and no key leaks.

use std::{collections::HashSet, fs, time::Duration};

use super::http::{Answer, Asked, LONG, STREAM, Server, call_chunk, chunk};
use entourage::{
    event::Event,
    prelude::*,
    provider::Egress,
    session::SessionStatus,
    testkit::{FakeTool, Gate},
};
use entourage_core::session::ReadRange;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

const KEY: &str = "sk-0123456789abcdef";
/// Time limit for a test: longer than any of them takes, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time limit where a service falls silent. A loaded machine must still answer within it.
const SILENCE: Duration = Duration::from_secs(2);

fn model(url: &str) -> Model {
    OpenAiChat::builder().base_url(url).api_key(KEY).vendor_name("test").build().unwrap().model("m")
}

fn agent(url: &str, tools: impl IntoIterator<Item = FakeTool>) -> ReactAgent {
    within(PATIENCE, url, tools)
}

fn within(silence: Duration, url: &str, tools: impl IntoIterator<Item = FakeTool>) -> ReactAgent {
    let mut limits = Limits::default();
    limits.model_silence = silence;
    let builder = ReactAgent::builder("tester", model(url)).limits(limits);
    tools.into_iter().fold(builder, |builder, tool| builder.tool(tool)).build().unwrap()
}

/// A runtime on a database of its own, which may connect to this machine only.
struct Place {
    directory: TempDir,
    runtime: Runtime,
}

impl Place {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(directory.path().join("sessions.db")).await.unwrap();
        let runtime = Runtime::builder().store(store).egress(Egress::Loopback).build();
        Self { directory, runtime }
    }

    /// Kinds of the stored events of a session, and their bodies as one text.
    async fn stored(&self, session: &SessionId) -> (Vec<String>, String) {
        let rows = self.runtime.store().read(session, ReadRange::all()).await.unwrap();
        let kinds = rows.iter().map(|row| row.columns().kind.into_owned()).collect();
        (kinds, rows.iter().map(|row| row.body().unwrap().into_owned()).collect())
    }
}

async fn run(session: &Session, agent: &ReactAgent) -> Result<Outcome> {
    let ended = timeout(PATIENCE, session.start(agent, "Look around.").outcome()).await;
    assert!(!session.is_busy(), "the run is over, and the session is not free");
    ended.expect("the run hangs")
}

/// Checks that services accept a history: each call has exactly one result, right after the message that holds it.
fn assert_valid(asked: &Asked) {
    let mut open: Vec<&str> = Vec::new();
    for message in asked.messages() {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap();
            let at = open.iter().position(|it| *it == id);
            open.remove(at.unwrap_or_else(|| panic!("a result of no call: {message}")));
            continue;
        }
        assert!(open.is_empty(), "calls without a result: {open:?} in {:#}", asked.body);
        let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut seen = HashSet::new();
        for call in calls {
            let id = call["id"].as_str().unwrap();
            assert!(!id.is_empty() && seen.insert(id), "an id that names no call: {message}");
            let arguments: Value =
                serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
            assert!(arguments.is_object(), "{call}");
            open.push(id);
        }
        let says = message["content"].as_str().is_some_and(|text| !text.is_empty());
        assert!(says || !calls.is_empty(), "a message that says nothing: {message}");
    }
    assert!(open.is_empty(), "calls without a result: {open:?}");
}

#[tokio::test]
async fn a_service_that_fails_gives_a_typed_error_and_the_session_goes_on() {
    let hello = chunk(&json!({ "content": "Hello" }), None);
    let call = call_chunk(&[("c1", "look", "{}"), ("c2", "look", "{}")]);
    let half = call_chunk(&[("c1", "look", "{\"path\": \"sr")]);
    let inside = "data: {\"error\":{\"code\":429,\"message\":\"slow down\"}}\n\n";
    let garbage = [STREAM.as_bytes(), b"data: \xff\xfe{\xc3(\n\n"].concat();
    let cases: Vec<(&str, Answer, ErrorKind)> = vec![
        ("text, then a broken connection", Answer::text([LONG, &hello].concat()), ErrorKind::Transport),
        ("a broken connection within a call", Answer::text([LONG, &half].concat()), ErrorKind::Transport),
        ("a broken connection after calls", Answer::text([LONG, &call].concat()), ErrorKind::Transport),
        (
            "calls and a clean end without a reason",
            Answer::text([STREAM, &call].concat()),
            ErrorKind::Protocol,
        ),
        ("no answer at all", Answer::text(""), ErrorKind::Transport),
        ("a head and nothing else", Answer::text(STREAM), ErrorKind::Protocol),
        ("bytes that are no text", Answer::Send(garbage), ErrorKind::Protocol),
        ("what is no HTTP", Answer::text("ICY 200 OK\r\n\r\nHello"), ErrorKind::Transport),
        (
            "a web page",
            Answer::text("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n<html>Hi</html>"),
            ErrorKind::Protocol,
        ),
        ("a web page as a stream", Answer::text(format!("{STREAM}<html>Hi</html>")), ErrorKind::Protocol),
        (
            "an error inside the stream",
            Answer::text([STREAM, &hello, inside].concat()),
            ErrorKind::RateLimited,
        ),
        ("an error after calls", Answer::text([STREAM, &call, inside].concat()), ErrorKind::RateLimited),
        (
            "broken JSON",
            Answer::text([STREAM, &hello, "data: {\"choices\": [\n\n"].concat()),
            ErrorKind::Protocol,
        ),
        ("silence at once", Answer::Stall(Vec::new()), ErrorKind::Timeout),
        ("silence after a head", Answer::Stall(STREAM.into()), ErrorKind::Timeout),
        ("silence after calls", Answer::Stall([STREAM, &call].concat().into()), ErrorKind::Timeout),
    ];
    let place = Place::new().await;
    for (what, answer, kind) in cases {
        let stalls = matches!(answer, Answer::Stall(_));
        let session = place.runtime.session();
        let look = FakeTool::new("look");
        let mut bad = Server::start([Answer::calls(&[("c0", "look", "{}")]), answer]).await;
        let silence = if stalls { SILENCE } else { PATIENCE };
        let agent_of_bad = within(silence, &bad.url(), [look.clone()]);
        let error = run(&session, &agent_of_bad).await.expect_err(what);
        assert_eq!(error.kind(), kind, "{what}: {error:?}");
        assert_eq!(look.started(), 1, "{what}: a call that broke off ran");
        if stalls {
            timeout(PATIENCE, bad.client_left()).await.expect("the connection stays open");
        }
        bad.asked().await;
        let (kinds, _) = place.stored(session.id()).await;
        assert_eq!(kinds.last().unwrap(), "run_finished", "{what}: {kinds:?}");
        assert_eq!(session.head().await.unwrap().status, SessionStatus::Idle, "{what}");

        let good = Server::start([Answer::says("Here I am.")]).await;
        let outcome = run(&session, &agent(&good.url(), [look])).await.unwrap();
        assert_eq!(outcome.text, "Here I am.", "{what}");
        let asked = good.asked().await;
        assert_valid(&asked[0]);
        assert!(asked[0].messages().len() >= 4, "{what}: the history is gone: {:#}", asked[0].body);
    }
}

#[tokio::test]
async fn broken_characters_cost_a_replacement_and_not_the_reply() {
    let reply = [
        STREAM.as_bytes(),
        b"data: {\"choices\":[{\"delta\":{\"content\":\"a\xffb\"},\"finish_reason\":\"stop\"}]}\n\n",
    ];
    let server = Server::start([Answer::Send(reply.concat())]).await;
    let place = Place::new().await;
    let outcome = run(&place.runtime.session(), &agent(&server.url(), [])).await.unwrap();
    assert_eq!(outcome.text, "a\u{fffd}b");
    server.asked().await;
}

#[tokio::test]
async fn attack_46_calls_that_make_no_sense_are_answered_and_the_run_goes_on() {
    let look = FakeTool::new("look").requiring(&["path"]);
    let deep = format!("{{\"path\": {}1{}}}", "[".repeat(300), "]".repeat(300));
    let calls: [(&str, &str, &str); 12] = [
        ("a", "no_such_tool", "{}"),
        ("b", "look", "this is no JSON"),
        ("c", "look", "[1, 2]"),
        ("d", "look", "{\"path\": "),
        ("e", "look", "{}"),
        ("f", "look", "\"path\""),
        ("g", "__proto__", "{\"path\": \"x\"}"),
        ("h", "look", &deep),
        ("i", "", "{}"),
        ("", "look", "{\"path\": \"a\"}"),
        ("same", "look", "{\"path\": \"b\"}"),
        ("same", "look", "{\"path\": \"c\"}"),
    ];
    let server = Server::start([Answer::calls(&calls), Answer::says("I see.")]).await;
    let place = Place::new().await;
    let session = place.runtime.session();
    let outcome = run(&session, &agent(&server.url(), [look.clone()])).await.unwrap();
    assert_eq!((outcome.text.as_str(), outcome.is_completed()), ("I see.", true));
    let asked = server.asked().await;
    assert_valid(&asked[1]);
    let results: Vec<_> = asked[1].messages().iter().filter(|message| message["role"] == "tool").collect();
    let sent = asked[1].messages().iter().find_map(|message| message["tool_calls"].as_array()).unwrap();
    assert_eq!(results.len(), sent.len());
    let text = |at: usize| results[at]["content"].as_str().unwrap();
    assert!(text(0).contains("no_such_tool"), "{}", text(0));
    assert!(text(4).contains("path"), "{}", text(4));
    assert_eq!(look.started(), 3, "only what made sense ran: {results:#?}");
}

#[tokio::test]
async fn attack_24_a_path_out_of_the_workspace_is_an_error_result_and_the_run_goes_on() {
    let place = Place::new().await;
    let root = place.directory.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("inside.txt"), "a harmless line").unwrap();
    fs::write(place.directory.path().join("secret.txt"), "MARKER-7f3a").unwrap();
    let secret = place.directory.path().join("secret.txt");
    let path = |path: &str| json!({ "path": path }).to_string();
    let paths =
        [path("../secret.txt"), path("/etc/passwd"), path(secret.to_str().unwrap()), path("inside.txt")];
    let calls: Vec<_> =
        ["a", "b", "c", "d"].iter().zip(&paths).map(|(id, path)| (*id, "view", path.as_str())).collect();
    let server = Server::start([Answer::calls(&calls), Answer::says("I saw one file.")]).await;
    let agent = ReactAgent::builder("reader", model(&server.url()))
        .tools(Workspace::open(&root).unwrap().read_tools())
        .build()
        .unwrap();
    let session = place.runtime.session();
    let mut handle = session.start(&agent, "Look around.");
    let mut errors = Vec::new();
    while let Some(envelope) = handle.next().await {
        if let Event::ToolFinished(call) = envelope.event {
            errors.push((call.result.call.to_string(), call.result.is_error));
        }
    }
    errors.sort();
    let error = |id: &str, is_error| (id.to_owned(), is_error);
    assert_eq!(errors, [error("a", true), error("b", true), error("c", true), error("d", false)]);
    assert_eq!(handle.outcome().await.unwrap().text, "I saw one file.");
    let asked = server.asked().await;
    assert_valid(&asked[1]);
    let sent = asked[1].body.to_string();
    assert!(!sent.contains("MARKER-7f3a") && !sent.contains("root:x:"), "{sent}");
    assert!(sent.contains("outside the workspace") && sent.contains("a harmless line"), "{sent}");
}

#[tokio::test]
async fn attack_08_files_that_are_no_database_are_typed_errors() {
    let directory = tempfile::tempdir().unwrap();
    let kind = async |name: &str| {
        let error = SqliteStore::open(directory.path().join(name)).await.unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
        error.kind()
    };
    fs::write(directory.path().join("notes.txt"), "these are notes\n".repeat(1_000)).unwrap();
    assert_eq!(kind("notes.txt").await, ErrorKind::Corrupt);
    fs::create_dir(directory.path().join("folder")).unwrap();
    assert_eq!(kind("folder").await, ErrorKind::Store);
    assert_eq!(kind("missing/sessions.db").await, ErrorKind::Store);

    let path = directory.path().join("newer.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let runtime = Runtime::builder().store(store.clone()).build();
    let provider = entourage::testkit::ScriptedProvider::new().text("Kept.");
    let agent = ReactAgent::builder("a", provider.model()).build().unwrap();
    let session = runtime.session();
    session.start(&agent, "Keep this.").outcome().await.unwrap();
    store.close().await;
    let ours = fs::read(&path).unwrap();
    // The version number is at byte 60 of the header.
    let newer = [&ours[..60], &99_u32.to_be_bytes(), &ours[64..]].concat();
    fs::write(&path, &newer).unwrap();
    assert_eq!(kind("newer.db").await, ErrorKind::NewerVersion);
    assert_eq!(fs::read(&path).unwrap(), newer, "a file that was refused was changed");
    fs::write(&path, &ours).unwrap();
    let runtime = Runtime::builder().store(SqliteStore::open(&path).await.unwrap()).build();
    assert_eq!(runtime.open(session.id()).await.unwrap().history().await.unwrap().len(), 2);
}

/// Number of live tasks of this test's runtime.
fn alive() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

async fn until_alive(tasks: usize) {
    let settled = async {
        while alive() > tasks {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, settled)
        .await
        .unwrap_or_else(|_| panic!("{} tasks instead of {tasks} are alive", alive()));
}

#[tokio::test]
async fn a_cancelled_run_closes_its_connection_and_leaves_nothing_alive() {
    let place = Place::new().await;
    // Twice: by cancel, and by dropping the handle.
    for dropped in [false, true] {
        let before = alive();
        let hello = chunk(&json!({ "content": "Hello" }), None);
        let mut server = Server::start([Answer::Stall([STREAM, &hello].concat().into())]).await;
        let session = place.runtime.session();
        let agent = ReactAgent::builder("tester", model(&server.url())).build().unwrap();
        let mut handle = session.start(&agent, "Talk to me.");
        while let Some(envelope) = timeout(PATIENCE, handle.next()).await.unwrap() {
            if matches!(envelope.event, Event::Delta(_)) {
                break;
            }
        }
        if dropped {
            drop(handle);
            assert!(place.runtime.cancel_all().await);
        } else {
            handle.cancel();
            let outcome = timeout(PATIENCE, handle.outcome()).await.unwrap().unwrap();
            assert_eq!((outcome.status, outcome.text.as_str()), (Status::Cancelled, "Hello"));
        }
        assert!(!session.is_busy());
        timeout(PATIENCE, server.client_left()).await.expect("the server still has its connection");
        server.asked().await;
        drop(agent);
        until_alive(before).await;
        let (kinds, _) = place.stored(session.id()).await;
        assert_eq!(kinds, ["run_started", "model_started", "model_finished", "run_finished"]);
    }
}

#[tokio::test]
async fn a_cancel_while_a_tool_runs_answers_its_call_for_the_next_run() {
    let place = Place::new().await;
    let gate = Gate::new();
    let slow = FakeTool::new("slow").behind(&gate);
    let server = Server::start([Answer::calls(&[("a", "slow", "{}"), ("b", "slow", "{}")])]).await;
    let session = place.runtime.session();
    let handle = session.start(&agent(&server.url(), [slow.clone()]), "Look around.");
    timeout(PATIENCE, gate.arrived(2)).await.unwrap();
    handle.cancel();
    assert_eq!(handle.outcome().await.unwrap().status, Status::Cancelled);
    assert_eq!(slow.running(), 0);
    server.asked().await;
    let good = Server::start([Answer::says("Here I am.")]).await;
    run(&session, &agent(&good.url(), [slow])).await.unwrap();
    assert_valid(&good.asked().await[0]);
}

/// An answer of a server, made from the request.
type Echo = fn(&Asked) -> String;

/// A server that repeats its client's key in every part of its answer.
#[tokio::test]
async fn a_key_that_the_service_quotes_is_in_no_error_and_in_no_event() {
    fn refusal(asked: &Asked, status: &str, headers: &str, body: &str) -> String {
        let key = asked.authorization();
        let (headers, body) = (headers.replace("KEY", key), body.replace("KEY", key));
        format!(
            "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
    }
    fn inside(asked: &Asked, events: &str) -> String {
        let hello = chunk(&json!({ "content": "Hello" }), None);
        format!("{STREAM}{hello}{}", events.replace("KEY", asked.authorization()))
    }
    let servers: Vec<(&str, Echo)> = vec![
        ("JSON", |it| {
            refusal(it, "401 Unauthorized", "", r#"{"error":{"message":"bad: KEY","code":"KEY"}}"#)
        }),
        ("text", |it| refusal(it, "500 Broken", "", "you sent Authorization: KEY, which is bad")),
        ("a type", |it| refusal(it, "400 Bad", "", r#"{"message":["KEY"],"type":"KEY"}"#)),
        ("a page", |it| refusal(it, "403 Forbidden", "", "<html>KEY</html>")),
        ("a long text", |it| refusal(it, "400 Bad", "", &format!("{}KEY", "x".repeat(985)))),
        ("a request id", |it| refusal(it, "400 Bad", "x-request-id: KEY\r\n", "{}")),
        ("a redirect", |it| refusal(it, "307 There", "Location: /KEY\r\n", "")),
        ("an error in the stream", |it| inside(it, "data: {\"error\":{\"message\":\"KEY\"}}\n\n")),
        ("an error event", |it| inside(it, "event: error\ndata: KEY\n\n")),
        ("no JSON", |it| inside(it, "data: {KEY\n\n")),
        ("JSON of another form", |it| inside(it, "data: \"KEY\"\n\n")),
        ("a field of another form", |it| inside(it, "data: {\"choices\":\"KEY\",\"usage\":\"KEY\"}\n\n")),
    ];
    let place = Place::new().await;
    let mut leaks = Vec::new();
    for (what, echo) in servers {
        let server = Server::start([Answer::Echo(echo)]).await;
        let session = place.runtime.session();
        let mut handle = session.start(&agent(&server.url(), []), "Look around.");
        let mut shown = String::new();
        while let Some(envelope) = timeout(PATIENCE, handle.next()).await.unwrap() {
            shown.push_str(&format!("{envelope} {envelope:?}"));
        }
        let error = handle.outcome().await.expect_err(what);
        shown.push_str(&format!("{error} {error:?}"));
        let asked = server.asked().await;
        assert_eq!(asked[0].authorization(), format!("Bearer {KEY}"), "the server had nothing to tell");
        if shown.contains(KEY) || place.stored(session.id()).await.1.contains(KEY) {
            leaks.push(format!("{what}: {error}"));
        }
    }
    assert!(leaks.is_empty(), "the key was told by {leaks:#?}");
    let mut bytes = Vec::new();
    for file in fs::read_dir(place.directory.path()).unwrap() {
        bytes.extend(fs::read(file.unwrap().path()).unwrap());
    }
    let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("run_finished"), "what is stored is plain text in these files");
    assert!(!holds(KEY), "the key is on the disk");
}
