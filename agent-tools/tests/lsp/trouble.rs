//! Servers that hang, crash, flood and lie: results come in time, and no process is left behind.

use std::time::Duration;

use entourage_tools::lsp::{LanguageServerState, LanguageServers};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    Bench, fake,
    manners::{all_end, eventually},
};

/// The bench with the waits of the defaults, and a server that was greeted.
async fn greeted(manner: &str) -> Bench {
    let mut bench = Bench::new(manner);
    let server = fake::server("fake", manner, &bench.notes);
    bench.servers = LanguageServers::builder(&bench.workspace).server(server).build().unwrap();
    bench.file("first.fk", "");
    bench.call("view", json!({"path": "first.fk"})).await;
    let servers = bench.servers.clone();
    eventually("it runs", || servers.servers()[0].1 == LanguageServerState::Running).await;
    bench
}

#[tokio::test]
async fn ce02_a_server_that_hangs_holds_no_call_beyond_its_limit() {
    let bench = greeted("hangs").await;
    tokio::time::pause();
    let began = Instant::now();
    let result = bench.write("a.fk", "ERROR\n").await;
    let note =
        "created `a.fk` with 1 line\nDiagnostics: the language server `fake` has not checked this text yet.";
    assert_eq!((result.as_str(), began.elapsed().as_millis() / 10), (note, 500));
    let began = Instant::now();
    assert_eq!(bench.call("view", json!({"path": "a.fk"})).await, "     1\tERROR");
    assert_eq!(began.elapsed().as_millis() / 10, 30);
    let began = Instant::now();
    let result = bench.call("lsp_references", json!({"path": "a.fk", "line": 1, "symbol": "ERROR"})).await;
    assert!(result.contains("did not answer within 30 s"), "{result}");
    assert_eq!(began.elapsed().as_secs(), 30);
    tokio::time::resume();
    eventually("the server is told", || bench.notes("cancelled").len() == 1).await;
}

#[tokio::test]
async fn ce02_a_server_that_does_not_start_holds_no_call_beyond_its_limit() {
    let bench = Bench::new("silent");
    let server = fake::server("fake", "silent", &bench.notes).with_start_timeout(Duration::from_secs(60));
    let bench = bench.waiting(server, Duration::from_millis(20));
    let result = bench.write("a.fk", "ERROR\n").await;
    assert!(result.ends_with("Diagnostics: the language server `fake` is still starting."), "{result}");
    assert_eq!(bench.state(), LanguageServerState::Starting);
    eventually("it starts", || bench.notes("started").len() == 1).await;
    tokio::time::pause();
    let result = bench.call("lsp_diagnostics", json!({"path": "a.fk"})).await;
    assert!(result.contains("`fake` is still starting"), "{result}");
    tokio::time::resume();
    let notes = bench.notes.clone();
    let keep = bench._keep;
    drop((bench.servers, bench.session));
    all_end(&notes).await;
    drop(keep);
}

#[tokio::test]
async fn ce02_servers_that_misbehave_cost_their_diagnostics_alone() {
    for manner in ["crashes", "garbage", "deep_garbage", "no_frames", "huge"] {
        let bench = Bench::new(manner);
        let result = bench.write("a.fk", "ERROR\n").await;
        assert!(result.starts_with("created `a.fk` with 1 line"), "{manner}: {result}");
        assert!(!result.contains("- error"), "{manner}: {result}");
        let LanguageServerState::Failed(reason) = bench.state() else {
            panic!("{manner}: {}", bench.state())
        };
        let expected = match manner {
            "crashes" => "; it said: out of cheese",
            "garbage" => "a message that is no JSON",
            "deep_garbage" => "a message that nests too deep",
            "no_frames" => "there is no header",
            _ => "more than 16 MiB",
        };
        if manner == "crashes" {
            eventually("its words are there", || bench.state().to_string().contains(expected)).await;
        } else {
            assert!(reason.contains(expected), "{manner}: {reason}");
        }
        all_end(&bench.notes).await;
    }
    let bench = Bench::new("dies");
    bench.write("a.fk", "").await;
    let state = bench.state().to_string();
    assert!(state.contains("it said: no licence for [31mthis machine"), "{state}");
}

#[tokio::test]
async fn ce02_an_answer_that_nests_too_deep_costs_itself_alone() {
    let bench = Bench::new("deep");
    bench.write("a.fk", "fn one\nERROR\n").await;
    let result = bench.call("lsp_symbols", json!({"path": "a.fk"})).await;
    assert!(result.contains("nests too deep to be read; ask for another place"), "{result}");
    // The same server goes on.
    assert_eq!(bench.notes("started").len(), 1);
    let result = bench.call("lsp_symbols", json!({"query": "one"})).await;
    assert!(result.contains("one"), "{result}");
    assert!(bench.call("lsp_diagnostics", json!({"path": "a.fk"})).await.contains("1 error"));
    assert_eq!(bench.notes("started").len(), 1);
}

#[tokio::test]
async fn ce02_a_server_that_floods_or_does_not_read_holds_nothing() {
    for manner in ["floods", "stuck"] {
        let bench = greeted(manner).await;
        // Waits for what the server says are over at once.
        tokio::time::pause();
        let size = if manner == "stuck" { 4_000_000 } else { 4_000 };
        let calls =
            (0..8).map(|n| ("write", json!({"path": format!("f{n}.fk"), "content": "x".repeat(size)})));
        let results = bench.call_all(calls.collect()).await;
        assert!(results.iter().all(|result| !result.is_error), "{manner}: {results:?}");
        if manner == "stuck" {
            bench.write("one_too_many.fk", &"x".repeat(size)).await;
            assert_eq!(bench.state().to_string(), "failed: it does not read what it is sent");
        }
        bench.servers.shut_down().await;
        tokio::time::resume();
        all_end(&bench.notes).await;
    }
}

#[tokio::test]
async fn ce02_what_a_server_says_is_bounded() {
    let bench = Bench::new("many");
    let result = bench.write("a.fk", "fine\n").await;
    assert!(
        result.contains("(490 more)") && result.contains("250 errors, 250 warnings in `a.fk`"),
        "{result}"
    );
    assert!(result.len() < 7_000, "{}", result.len());
    let result = bench.call("lsp_diagnostics", json!({"path": "a.fk"})).await;
    assert!(result.contains("(450 more)") && result.len() < 30_000, "{}", result.len());
}

#[tokio::test]
async fn ce02_a_server_that_crashes_is_started_again_a_few_times() {
    let bench = Bench::new("crashes_once");
    bench.write("a.fk", "ERROR\n").await;
    let result = bench.write("b.fk", "ERROR\n").await;
    assert!(result.contains("1 error, 0 warnings in `b.fk`"), "{result}");
    assert_eq!(bench.notes("started").len(), 2);

    let bench = Bench::new("crashes");
    for n in 0..6 {
        bench.write(&format!("f{n}.fk"), "ERROR\n").await;
    }
    assert_eq!(bench.notes("started").len(), 4);
    let result = bench.call("lsp_references", json!({"path": "f1.fk", "line": 1, "symbol": "ERROR"})).await;
    assert!(result.starts_with("error: ") && result.contains("it failed 4 times"), "{result}");
    assert_eq!(
        bench.call("lsp_restart", json!({"server": "fake"})).await,
        "the language server `fake` runs again"
    );
    assert_eq!(bench.notes("started").len(), 5);
}

#[tokio::test]
async fn ce02_servers_end_by_themselves_or_are_killed() {
    for manner in ["plain", "deaf", "child", "hangs"] {
        for is_asked in [true, false] {
            let bench = Bench::new(manner);
            let server = fake::server("fake", manner, &bench.notes);
            let bench = bench.waiting(server, Duration::from_millis(10));
            bench.write("a.fk", "fine\n").await;
            eventually("it runs", || bench.state() == LanguageServerState::Running).await;
            let tools = bench.servers.tools();
            if is_asked {
                if manner == "deaf" {
                    // What it has for its end is over at once.
                    tokio::time::pause();
                }
                bench.servers.shut_down().await;
                if manner == "deaf" {
                    tokio::time::resume();
                }
                assert_eq!(bench.state(), LanguageServerState::Stopped);
                let result = bench.call("lsp_symbols", json!({"path": "a.fk"})).await;
                assert!(result.contains("it was shut down"), "{result}");
                assert_eq!(bench.notes("shut_down").len(), usize::from(manner != "deaf"), "{manner}");
            }
            let notes = bench.notes.clone();
            let keep = bench._keep;
            drop((tools, bench.servers, bench.session));
            all_end(&notes).await;
            drop(keep);
        }
    }
}
