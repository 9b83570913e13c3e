//! Runtimes that end, or lack a part, while servers live in them.

use entourage_core::tool::Toolset;
use entourage_tools::mcp::{Mcp, McpState};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

use crate::{
    all_end, call, fake,
    fake::notes,
    manners::{eventually, is_alive},
    started, state,
};

const ENDED: &str = "the runtime in which the MCP servers were started has ended; start them again";

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_server_whose_runtime_ended_before_it_was_connected_has_failed_for_all_who_wait() {
    for is_begun in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (runtime(), runtime());
        let mcp = first.block_on(async {
            let mcp = Mcp::start([fake::server("fake", "silent", dir.path())]).unwrap();
            if is_begun {
                eventually("it is started", || !notes(dir.path(), "started").is_empty()).await;
            }
            mcp
        });
        drop(first);
        assert_eq!(state(&mcp), McpState::Failed(ENDED.to_owned()));
        second.block_on(async {
            mcp.ready().await;
            assert_eq!(mcp.reconnect("fake").await.unwrap(), McpState::Failed(ENDED.to_owned()));
            mcp.shut_down().await;
            mcp.ready().await;
            let lives = || notes(dir.path(), "started").iter().any(|pid| is_alive(pid));
            eventually("no process is left", || !lives()).await;
        });
        assert_eq!(state(&mcp), McpState::Disabled);
    }
}

#[test]
fn a_server_and_its_children_end_with_the_runtime_in_which_they_were_started() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (runtime(), runtime());
    let mcp = first.block_on(started([fake::server("fake", "child", dir.path())]));
    // It was used from elsewhere, too, which changes nothing.
    let used = std::thread::scope(|scope| {
        let used = scope.spawn(|| second.block_on(call(&mcp, "mcp_fake_echo", json!({"text": "hi"}))));
        first.block_on(eventually("the call ends", || used.is_finished()));
        used.join().unwrap()
    });
    assert_eq!(used.as_deref(), Ok("hi"));
    assert_eq!(mcp.tools().iter().count(), 13);
    drop(first);
    assert_eq!(state(&mcp), McpState::Failed(ENDED.to_owned()));
    second.block_on(async {
        all_end(dir.path()).await;
        let told = call(&mcp, "mcp_fake_echo", json!({})).await.unwrap_err();
        assert!(told.contains(ENDED), "{told}");
        mcp.shut_down().await;
    });
    assert_eq!(notes(dir.path(), "started").len(), 1);
}

#[test]
fn a_panic_that_is_not_of_the_login_is_not_told_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let without_timers = Builder::new_current_thread().enable_io().build().unwrap();
    let mcp = without_timers.block_on(started([fake::server("fake", "plain", dir.path())]));
    assert_eq!(state(&mcp), McpState::Failed("this program panicked".to_owned()));
}
