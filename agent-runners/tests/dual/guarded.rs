//! A pair whose executor is guarded: what its guards refused reaches neither the checker nor the user.

use entourage_core::{run::Status, tool::LayerVerdict};
use entourage_runners::{DualAgent, ReactAgent};
use entourage_runtime::Runtime;
use entourage_testkit::{FakeTool, ScriptedProvider};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn a_refused_text_is_in_no_report_and_no_outcome() {
    let works = ScriptedProvider::new().call("look", json!({})).text("Call 555.").text("555 it is.");
    let checks = ScriptedProvider::new().call("task_complete", json!({"summary": "Seen."}));
    let executor = ReactAgent::builder("executor", works.model()).tool(FakeTool::new("look"));
    let executor = executor
        .guard_answers(|text, _| match text.contains("555") {
            true => LayerVerdict::Refuse("give no phone number".to_owned()),
            false => LayerVerdict::Pass,
        })
        .build()
        .unwrap();
    let checker = ReactAgent::builder("checker", checks.model()).build().unwrap();
    let pair = DualAgent::builder("pair", executor, checker).build().unwrap();
    let outcome = Runtime::in_memory().session().start(&pair, "Whom?").outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Completed);
    assert!(!outcome.text.contains("555"), "{}", outcome.text);
    let report = checks.requests()[0].messages.last().unwrap().text();
    assert!(report.contains("- look()") && !report.contains("555"), "{report}");
}
