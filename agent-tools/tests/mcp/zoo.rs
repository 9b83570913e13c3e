//! Servers that die, hang, flood, lie and change: a run goes on, and no process is left behind.

use std::{collections::BTreeSet, time::Duration};

use entourage_core::tool::Toolset;
use entourage_runners::ReactAgent;
use entourage_runtime::{Runtime, permission::Policy};
use entourage_testkit::ScriptedProvider;
use entourage_tools::mcp::{Mcp, McpState};
use serde_json::json;

use crate::{all_end, fake, one, started};

#[tokio::test]
async fn twenty_servers_that_misbehave_stop_no_run() {
    let manners = [
        "plain",
        "dies",
        "silent",
        "garbage",
        "floods",
        "disorder",
        "twice",
        "hangs",
        "changing",
        "changed",
        "same_names",
        "many",
        "huge",
        "long",
        "odd",
        "login",
        "no_list",
        "mute_before",
        "endless",
        "child",
    ];
    let notes = tempfile::tempdir().unwrap();
    let server = |(number, manner): (usize, &&str)| {
        let server = fake::server(&format!("s{number}"), manner, notes.path());
        server.with_connect_timeout(Duration::from_secs(20)).with_call_timeout(Duration::from_millis(300))
    };
    // Those that never answer are waited for, but for a shorter time.
    let servers = manners.iter().enumerate().map(|(number, manner)| match *manner {
        "silent" | "no_list" | "huge" => {
            server((number, manner)).with_connect_timeout(Duration::from_secs(2))
        }
        _ => server((number, manner)),
    });
    let mcp = started(servers).await;
    let states = mcp.servers();
    let failed: BTreeSet<_> = manners
        .iter()
        .zip(&states)
        .filter_map(|(manner, (_, state))| matches!(state, McpState::Failed(_)).then_some(*manner))
        .collect();
    assert_eq!(failed, ["dies", "huge", "login", "mute_before", "no_list", "silent"].into(), "{states:?}");
    // One call of each that is there, and of one that is not.
    let calls: Vec<_> =
        (0..manners.len()).map(|number| (format!("mcp_s{number}_echo"), json!({"text": "hi"}))).collect();
    let calls = calls.iter().map(|(name, arguments)| (name.as_str(), arguments.clone()));
    let provider = ScriptedProvider::by_history().calls(calls).text("Done.");
    let agent = ReactAgent::builder("a", provider.model()).toolset(mcp.clone()).build().unwrap();
    let runtime = Runtime::builder().policy(Policy::allow_all()).build();
    let outcome = runtime.session().start(&agent, "Go").outcome().await.unwrap();
    assert_eq!((outcome.is_completed(), outcome.text.as_str()), (true, "Done."), "{outcome}");
    let results = provider.requests()[1].messages.iter().map(|it| format!("{it:?}")).collect::<String>();
    assert!(results.matches("hi").count() >= 11, "{results}");
    drop((agent, mcp, runtime));
    all_end(notes.path()).await;
}

#[tokio::test]
async fn what_a_server_lists_is_bounded() {
    for (manner, tools, left_out) in
        [("many", 1_000 + 2, 211 - 2), ("endless", 13, 990), ("long", 14, 0), ("odd", 14, 0)]
    {
        let (_notes, mcp) = one(manner).await;
        let state = crate::state(&mcp);
        let McpState::Connected { tools: offered, left_out: left } = state else {
            panic!("{manner}: {state}")
        };
        assert_eq!(offered, tools, "{manner}");
        assert!(left == left_out || left > 0 && left_out > 0, "{manner}: {left}");
        if manner == "long" {
            let set = mcp.tools();
            let description = set.get("mcp_fake_long").unwrap().spec().description();
            assert!(description.len() <= 16 << 10 && description.ends_with('…'));
        }
        if manner == "odd" {
            assert!(mcp.tools().iter().any(|tool| tool.spec().name().starts_with("mcp_fake_a_b___")));
        }
    }
}

#[tokio::test]
async fn servers_that_are_dropped_while_they_start_leave_no_process() {
    let notes = tempfile::tempdir().unwrap();
    for _ in 0..5 {
        let mcp = Mcp::start([fake::server("fake", "silent", notes.path())]).unwrap();
        crate::eventually("it starts", || !fake::notes(notes.path(), "started").is_empty()).await;
        mcp.shut_down().await;
    }
    all_end(notes.path()).await;
}
