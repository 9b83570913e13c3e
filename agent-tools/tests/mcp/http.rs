//! Servers at an address.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use entourage_tools::mcp::{Mcp, McpServer, McpState};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::{call, started, state};

/// A request: its first line and headers in lower case, and its body.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) head: String,
    pub(crate) text: String,
    pub(crate) body: Value,
}

/// The status of no answer: nothing is said until the client goes.
pub(crate) const SILENCE: &str = "silence";
/// The status of an answer that does not end: a stream in which the body is said again and again.
pub(crate) const FLOOD: &str = "flood";

/// An HTTP server that answers as `answer` says: status, headers, body.
pub(crate) struct Site {
    pub(crate) port: u16,
    pub(crate) asked: Arc<Mutex<Vec<Asked>>>,
    open: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    listens: thread::JoinHandle<()>,
}

type Answer = dyn Fn(&Asked) -> (String, String) + Send + Sync;

impl Site {
    pub(crate) fn new(answer: impl Fn(&Asked) -> (String, String) + Send + Sync + 'static) -> Self {
        Self::at(0, answer)
    }

    pub(crate) fn at(port: u16, answer: impl Fn(&Asked) -> (String, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let (port, asked) = (listener.local_addr().unwrap().port(), Arc::new(Mutex::new(Vec::new())));
        let (noted, answer): (_, Arc<Answer>) = (Arc::clone(&asked), Arc::new(answer));
        let (open, is_over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (count, ends) = (Arc::clone(&open), Arc::clone(&is_over));
        let listens = thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                let (noted, answer, count) = (Arc::clone(&noted), Arc::clone(&answer), Arc::clone(&count));
                count.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || {
                    serve(stream, &noted, &*answer);
                    count.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { port, asked, open, is_over, listens }
    }

    /// Listens no more.
    pub(crate) fn stop(self) {
        self.is_over.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        self.listens.join().unwrap();
    }

    /// Number of connections that are open.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    pub(crate) fn server(&self) -> McpServer {
        self.server_named("fake")
    }

    pub(crate) fn server_named(&self, name: &str) -> McpServer {
        McpServer::http(name, &self.url()).unwrap()
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|asked| asked.head.clone()).collect()
    }
}

fn serve(stream: TcpStream, noted: &Mutex<Vec<Asked>>, answer: &Answer) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let line = line.trim_end().to_lowercase();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
            head.push_str(&line);
            head.push('\n');
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let text = String::from_utf8(body).unwrap();
        let asked = Asked { head, body: serde_json::from_str(&text).unwrap_or_default(), text };
        noted.lock().unwrap().push(asked.clone());
        let (head, body) = answer(&asked);
        if head == SILENCE {
            // What comes is of no interest, but the end is.
            let _ = std::io::copy(&mut reader, &mut std::io::sink());
            return;
        }
        if head == FLOOD {
            let stream = reader.get_mut();
            let mut said = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
            while said.is_ok() {
                said = stream.write_all(body.as_bytes());
            }
            return;
        }
        let text = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        if reader.get_mut().write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

/// Answers as a server with one tool does.
pub(crate) fn speaks(asked: &Asked) -> (String, String) {
    let answer = |result: Value| {
        let body = json!({"jsonrpc": "2.0", "id": asked.body["id"], "result": result}).to_string();
        ("200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: s-1".to_owned(), body)
    };
    match asked.body["method"].as_str() {
        Some("initialize") => answer(json!({"protocolVersion": asked.body["params"]["protocolVersion"],
            "capabilities": {"tools": {}}, "serverInfo": {"name": "site", "version": "1"}})),
        Some("tools/list") => answer(
            json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}}]}),
        ),
        Some("tools/call") => {
            let result = json!({"jsonrpc": "2.0", "id": asked.body["id"],
                "result": {"content": [{"type": "text", "text": "over http"}]}});
            // A stream is an answer too.
            ("200 OK\r\nContent-Type: text/event-stream".to_owned(), format!("data: {result}\n\n"))
        }
        Some(_) if !asked.body["id"].is_null() => {
            let error = json!({"jsonrpc": "2.0", "id": asked.body["id"], "error": {"code": -32601, "message": "unknown"}});
            ("200 OK\r\nContent-Type: application/json".to_owned(), error.to_string())
        }
        Some(_) => ("202 Accepted".to_owned(), String::new()),
        None => ("405 Method Not Allowed".to_owned(), String::new()),
    }
}

async fn echo(mcp: &Mcp) -> Result<String, String> {
    call(mcp, "mcp_fake_echo", json!({})).await
}

#[tokio::test]
async fn ce01_a_server_at_an_address_is_sent_its_headers_and_its_session() {
    let site = Site::new(speaks);
    let mcp = started([site.server().with_header("Authorization", "Bearer abc").unwrap()]).await;
    assert_eq!(state(&mcp), McpState::Connected { tools: 1, left_out: 0 });
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"));
    let heads = site.heads();
    assert!(heads.iter().all(|head| head.contains("authorization: bearer abc")), "{heads:?}");
    let asked = site.asked.lock().unwrap();
    let called = asked.iter().find(|asked| asked.body["method"] == "tools/call").unwrap();
    assert!(called.head.contains("mcp-session-id: s-1"), "{called:?}");
}

#[tokio::test]
async fn ce01_a_server_that_wants_a_login_says_so() {
    let site = Site::new(|_| {
        let head = "401 Unauthorized\r\nWWW-Authenticate: Bearer resource_metadata=\"http://127.0.0.1/x\"";
        (head.to_owned(), String::new())
    });
    let mcp = started([site.server()]).await;
    assert_eq!(state(&mcp), McpState::NeedsAuth);
    // Nothing was asked at the address that the server named.
    assert!(site.heads().iter().all(|head| head.starts_with("post /mcp ")), "{:?}", site.heads());
}

#[tokio::test]
async fn attack_37_keys_are_sent_to_no_other_origin() {
    let other = Site::new(speaks);
    let there = other.url();
    let site = Site::new(move |_| (format!("307 Temporary Redirect\r\nLocation: {there}"), String::new()));
    let mcp = started([site.server().with_header("x-api-key", "sk-1").unwrap()]).await;
    assert!(matches!(state(&mcp), McpState::Failed(_)), "{mcp:?}");
    assert_eq!((site.heads().is_empty(), other.heads().len()), (false, 0));
    // Within the same origin they are.
    let site = Site::new(|asked| match asked.head.starts_with("post /mcp ") {
        true => ("307 Temporary Redirect\r\nLocation: /mcp/".to_owned(), String::new()),
        false => speaks(asked),
    });
    let mcp = started([site.server().with_header("x-api-key", "sk-1").unwrap()]).await;
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"), "{mcp:?}");
}

#[tokio::test]
async fn a_server_at_an_address_that_answers_anything_else_fails() {
    for head in
        ["200 OK\r\nContent-Type: text/html", "500 Internal Server Error", "404 Not Found", "204 No Content"]
    {
        let site = Site::new(move |_| (head.to_owned(), "<html>secret page</html>".to_owned()));
        let mcp = started([site.server()]).await;
        let state = state(&mcp);
        assert!(matches!(state, McpState::Failed(_)), "{head}: {state}");
    }
    let page = "200 OK\r\nContent-Type: text/html";
    for (head, expected) in
        [("500 Internal Server Error", "HTTP 500"), (page, "`text/html`, which is no answer")]
    {
        let site = Site::new(move |_| (head.to_owned(), "<html>secret page</html>".to_owned()));
        let mcp = started([site.server()]).await;
        let McpState::Failed(reason) = state(&mcp) else { panic!("{mcp:?}") };
        assert!(reason.contains(expected) && !reason.contains("secret page"), "{reason}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let mcp = started([McpServer::http("fake", &format!("http://127.0.0.1:{port}/mcp")).unwrap()]).await;
    assert!(matches!(state(&mcp), McpState::Failed(_)), "{mcp:?}");
}

#[tokio::test]
async fn ce01_a_call_that_was_refused_is_told_from_one_of_unknown_outcome() {
    for (head, expected) in [
        ("403 Forbidden", "refused the call with HTTP 403, and performed nothing"),
        ("404 Not Found\r\nContent-Type: text/html", "refused the call with HTTP 404, and performed nothing"),
        ("429 Too Many Requests", "refused the call with HTTP 429, and performed nothing"),
        ("503 Service Unavailable", "refused the call with HTTP 503, and performed nothing"),
        ("500 Internal Server Error", "HTTP 500, so the outcome of the call is unknown"),
        ("502 Bad Gateway\r\nContent-Type: text/html", "HTTP 502, so the outcome of the call is unknown"),
        ("408 Request Timeout", "HTTP 408, so the outcome of the call is unknown"),
        (
            "200 OK\r\nContent-Type: text/html",
            "`text/html`, which is no answer of an MCP server, so the outcome",
        ),
        ("401 Unauthorized", "needs a login"),
    ] {
        let site = Site::new(move |asked| match asked.body["method"] == "tools/call" {
            true => (head.to_owned(), "<html>secret page</html>".to_owned()),
            // Without a session: what its end means is another thing.
            false => {
                let (head, body) = speaks(asked);
                (head.replace("\r\nMcp-Session-Id: s-1", ""), body)
            }
        });
        let mcp = started([site.server()]).await;
        let told = echo(&mcp).await.unwrap_err();
        assert!(told.contains(expected) && !told.contains("secret page"), "{head}: {told}");
    }
}

#[tokio::test]
async fn ce01_a_server_of_an_unknown_version_is_told_which_ones_there_are() {
    let site = Site::new(|asked| {
        let (head, body) = speaks(asked);
        (head, body.replace("2025-11-25", "2031-01-01"))
    });
    let mcp = started([site.server()]).await;
    let McpState::Failed(reason) = state(&mcp) else { panic!("{mcp:?}") };
    assert!(reason.contains("`2031-01-01`") && reason.contains("2025-11-25"), "{reason}");
}

#[tokio::test]
async fn attack_42_a_stream_that_wants_to_be_asked_at_once_is_not() {
    let asked_again = Arc::new(Notify::new());
    let (tell, floods) = (Arc::clone(&asked_again), "200 OK\r\nContent-Type: text/event-stream");
    // Each stream ends at once, and says that the next one may begin at once, or never.
    let site = Site::new(move |asked| {
        if asked.head.starts_with("get /mcp ") {
            tell.notify_one();
            return (floods.to_owned(), "retry: 0\nid: 1\n\n".to_owned());
        }
        match asked.body["method"] == "tools/call" {
            true => (floods.to_owned(), format!("retry: {}\nid: 2\n\n", u64::MAX)),
            false => speaks(asked),
        }
    });
    let begun = Instant::now();
    let mcp = started([site.server().with_call_timeout(Duration::from_millis(200))]).await;
    for _ in 0..4 {
        asked_again.notified().await;
    }
    assert!(begun.elapsed() >= Duration::from_millis(500), "{:?}", begun.elapsed());
    // A call whose answer is put off for ever ends in its time.
    let told = echo(&mcp).await.unwrap_err();
    assert!(told.contains("longer than 0.2 s"), "{told}");
}

#[tokio::test]
async fn ce01_what_can_be_read_of_an_answer_is_used() {
    let site = Site::new(|asked| {
        let (head, body) = speaks(asked);
        let body = match asked.body["method"].as_str() {
            Some("initialize") => {
                body.replace(r#"{"tools":{}}"#, r#"{"tools":{},"resources":{},"prompts":{}}"#)
            }
            Some("tools/list") => body.replace(r#"[{"#, r#"[{"name":"broken"},{"#),
            Some("tools/call") => body.replace(r#"[{"#, r#"[{"type":"hologram","data":5},{"#),
            Some("resources/list") => {
                let list = json!({"resources": [{"uri": 5}, {"uri": "x://1\u{202e}", "name": "one"}]});
                json!({"jsonrpc": "2.0", "id": asked.body["id"], "result": list}).to_string()
            }
            Some("prompts/list") => {
                let list =
                    json!({"prompts": [{"name": "greet", "description": "a\u{200b}b"}, {"title": "none"}]});
                json!({"jsonrpc": "2.0", "id": asked.body["id"], "result": list}).to_string()
            }
            Some("prompts/get") => {
                let messages = json!({"messages": [
                    {"role": "user", "content": {"type": "hologram"}},
                    {"role": "user", "content": {"type": "text", "text": "hi"}},
                ]});
                json!({"jsonrpc": "2.0", "id": asked.body["id"], "result": messages}).to_string()
            }
            _ => body,
        };
        (head, body)
    });
    let mcp = started([site.server()]).await;
    assert_eq!(state(&mcp), McpState::Connected { tools: 3, left_out: 1 });
    let unknown = "(content of the kind `hologram`, which cannot be read here)";
    for (tool, arguments, expected) in [
        ("echo", json!({}), format!("{unknown}\nover http")),
        ("resources", json!({}), "x://1 (one)".to_owned()),
        ("prompts", json!({}), "greet(): ab".to_owned()),
        ("prompts", json!({"name": "greet"}), format!("user: {unknown}\nuser: hi")),
    ] {
        let told = call(&mcp, &format!("mcp_fake_{tool}"), arguments).await;
        assert_eq!(told, Ok(expected), "{tool}");
    }
}

#[tokio::test]
async fn attack_44_nothing_in_what_a_server_says_of_a_failure_is_hidden() {
    let hidden = "no\u{1b}[2J \u{202e}place\u{e0041}";
    let error = move |asked: &Asked| {
        let error = json!({"code": -32602, "message": hidden});
        let body = json!({"jsonrpc": "2.0", "id": asked.body["id"], "error": error}).to_string();
        ("200 OK\r\nContent-Type: application/json".to_owned(), body)
    };
    let site = Site::new(move |asked| match asked.body["method"] == "tools/call" {
        true => error(asked),
        false => {
            let (head, body) = speaks(asked);
            (
                head,
                body.replace(
                    r#""capabilities""#,
                    &format!(r#""instructions":{},"capabilities""#, json!(hidden)),
                ),
            )
        }
    });
    let mcp = started([site.server()]).await;
    let told = echo(&mcp).await.unwrap_err();
    assert!(told.contains("refused the call: no[2J place (code"), "{told}");
    assert!(mcp.instructions().contains("\nno[2J place\n"), "{}", mcp.instructions());
    let site = Site::new(error);
    let mcp = started([site.server()]).await;
    let McpState::Failed(reason) = state(&mcp) else { panic!("{mcp:?}") };
    assert!(reason.contains("no[2J place"), "{reason}");
}

#[tokio::test]
async fn attack_10_the_query_of_an_address_is_in_no_error() {
    // The long one is cut where errors are.
    for key in ["sk-in-query".to_owned(), "sk-in-query".repeat(200)] {
        let at = |url: &str| McpServer::http("fake", &format!("{url}?key={key}")).unwrap();
        let site = Site::new(|asked| match asked.body["method"] == "tools/call" {
            true => ("no answer at all".to_owned(), String::new()),
            false => speaks(asked),
        });
        let mcp = started([at(&site.url())]).await;
        let told = echo(&mcp).await.unwrap_err();
        assert!(
            told.contains("its address") && told.contains("the outcome of the call is unknown"),
            "{told}"
        );
        let mute = Site::new(|_| ("no answer at all".to_owned(), String::new()));
        let mcp = started([at(&mute.url())]).await;
        let McpState::Failed(reason) = state(&mcp) else { panic!("{mcp:?}") };
        assert!(reason.contains("its address"), "{reason}");
        for text in [told, reason, format!("{mcp:?}")] {
            assert!(!text.contains("sk-in"), "{text}");
        }
    }
}
