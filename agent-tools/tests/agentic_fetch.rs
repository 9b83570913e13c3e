//! The tool `agentic_fetch` with a place on disk, the client of the web tools and a server of this machine.

#![cfg(feature = "web")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests fail by panicking too"
)]

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{IpAddr, Ipv4Addr, TcpListener},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use entourage_core::{
    run::{Status, StopReason},
    tool::Tool,
};
use entourage_runners::{ReactAgent, agentic_fetch};
use entourage_runtime::{DenyAll, Runtime, permission::Policy};
use entourage_testkit::ScriptedProvider;
use entourage_tools::{fs::TemporaryWorkspace, web::Web};
use serde_json::json;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Serves one page, and counts the requests.
fn serve(page: String) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((LOCAL, 0)).unwrap();
    let url = format!("http://{}/news", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let mut head = String::new();
            while reader.read_line(&mut head).is_ok_and(|read| read > 2) {}
            counted.fetch_add(1, Ordering::SeqCst);
            let length = page.len();
            let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/plain";
            drop(write!(reader.get_mut(), "{head}\r\nContent-Length: {length}\r\n\r\n{page}"));
        }
    });
    (url, asked)
}

/// Makes the tool, whose places are below `root`.
fn tool(small: &ScriptedProvider, root: PathBuf) -> impl Tool + use<> {
    let web = Web::new().unwrap().opening([LOCAL]).unwrap();
    agentic_fetch(small.model(), move || {
        let place = TemporaryWorkspace::create(&root)?;
        let mut tools = place.workspace().read_tools();
        tools.push(web.web_fetch(place.workspace()));
        Ok((place, tools))
    })
}

#[tokio::test]
async fn cf01_a_long_page_is_searched_in_a_place_that_is_gone_afterwards() {
    let (url, asked) = serve(format!("{}the needle is red\n", "hay and hay\n".repeat(6_000)));
    let data = tempfile::tempdir().unwrap();
    let (root, secret) = (data.path().join("places"), data.path().join("secret.md"));
    fs::write(&secret, "the secret").unwrap();
    let small = ScriptedProvider::new()
        .call("grep", json!({ "pattern": "needle" }))
        .call("view", json!({ "path": secret }))
        .call("view", json!({ "path": "../../secret.md" }))
        .text("It is red.");
    let asks = json!({ "prompt": "Which colour has the needle?", "url": url });
    let large = ScriptedProvider::new().call("agentic_fetch", asks).text("Red.");
    let agent = ReactAgent::builder("lead", large.model()).tool(tool(&small, root.clone())).build().unwrap();
    let runtime = Runtime::builder().policy(Policy::allow_all()).build();
    let outcome = runtime.session().start(&agent, "Which colour?").outcome().await.unwrap();
    assert_eq!((outcome.text.as_str(), asked.load(Ordering::SeqCst)), ("Red.", 1));

    let told = |request: usize| {
        let requests = small.requests();
        let last = requests[request].messages.last().unwrap();
        let result = last.tool_results().next().unwrap();
        (result.is_error, result.to_text())
    };
    let page = small.requests()[0].messages.last().unwrap().text();
    assert!(page.contains("page-") && page.len() < 2_000, "it is in a file: {page}");
    let (failed, found) = told(1);
    assert!(!failed && found.contains("the needle is red"), "{found}");
    for outside in [told(2), told(3)] {
        assert!(outside.0 && !outside.1.contains("the secret"), "{outside:?}");
    }
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0, "neither the place nor its lock is left");
}

#[tokio::test]
async fn cf01_a_refused_call_asks_no_server_and_makes_no_directory() {
    let (url, asked) = serve("never".to_owned());
    let data = tempfile::tempdir().unwrap();
    let root = data.path().join("places");
    let host = "agentic_fetch:127.0.0.1";
    for policy in [Policy::allow_all().deny(host), Policy::allow_all().ask("agentic_fetch")] {
        let asks = json!({ "prompt": "Which?", "url": url });
        let large = ScriptedProvider::by_history().call("agentic_fetch", asks).text("Refused.");
        let small = ScriptedProvider::new();
        let agent =
            ReactAgent::builder("lead", large.model()).tool(tool(&small, root.clone())).build().unwrap();
        let runtime = Runtime::builder().policy(policy).approver(DenyAll).build();
        let outcome = runtime.session().start(&agent, "Which?").outcome().await.unwrap();
        assert_eq!(outcome.status, Status::Stopped(StopReason::Denied("agentic_fetch".into())));
        assert_eq!((small.count(), asked.load(Ordering::SeqCst)), (0, 0));
        assert!(!root.exists());
    }
}
