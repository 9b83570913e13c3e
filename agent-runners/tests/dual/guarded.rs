//! A pair whose executor is guarded: what its guards refused reaches neither the checker nor the user.

use entourage_core::{
    run::{Status, StopReason},
    tool::LayerVerdict,
};
use entourage_runners::{
    Autonomy, AutonomyLevel, DualAgent, ReactAgent, ReactBuilder, Verdict, checked::PhaseFinished,
};
use entourage_runtime::{Runtime, Session};
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

/// Refuses one number, stops at another, and blanks a third.
fn guarded(builder: ReactBuilder) -> ReactBuilder {
    builder.guard_answers(|text, _| {
        *text = text.replace("777", "(left out)");
        match text {
            text if text.contains("555") => LayerVerdict::Refuse("give no phone number".to_owned()),
            text if text.contains("666") => LayerVerdict::Stop("a trap".to_owned()),
            _ => LayerVerdict::Pass,
        }
    })
}

async fn verdicts(session: &Session) -> Vec<Verdict> {
    let events = session.events(0, 1_000).await.unwrap();
    let phases = events.iter().filter_map(|event| event.event.record::<PhaseFinished>().unwrap());
    phases.filter_map(|phase| phase.verdict.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_summary_of_a_guarded_checker_passes_its_guards_before_it_is_a_verdict() {
    let works = ScriptedProvider::new().text("Done.").text("All done.");
    let checks = ScriptedProvider::new()
        .call("task_complete", json!({"summary": "Call 555."}))
        .call("task_complete", json!({"summary": "Seen, says 777."}));
    let executor = ReactAgent::builder("executor", works.model()).build().unwrap();
    let checker = guarded(ReactAgent::builder("checker", checks.model())).build().unwrap();
    let pair = DualAgent::builder("pair", executor, checker).build().unwrap();
    let session = Runtime::in_memory().session();
    let outcome = session.start(&pair, "Do it").outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Completed, "{outcome}");
    assert_eq!(verdicts(&session).await, [Verdict::accepted("Seen, says (left out).")]);
    let told = checks.requests()[1].messages.last().unwrap().tool_results().next().unwrap().to_text();
    assert!(told.contains("refused: give no phone number"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_stops_the_summary_of_a_checker_accepts_nothing() {
    let works = ScriptedProvider::by_history().text("Done.").text("All done.");
    let checks = ScriptedProvider::by_history().call("task_complete", json!({"summary": "666"}));
    let executor = ReactAgent::builder("executor", works.model()).build().unwrap();
    let checker = guarded(ReactAgent::builder("checker", checks.model())).build().unwrap();
    let pair = DualAgent::builder("pair", executor, checker).iterations(1).build().unwrap();
    let session = Runtime::in_memory().session();
    let outcome = session.start(&pair, "Do it").outcome().await.unwrap();
    assert!(
        matches!(outcome.status, Status::Stopped(StopReason::Incomplete { .. })),
        "{outcome}: {:?}",
        verdicts(&session).await
    );
    let verdicts = verdicts(&session).await;
    assert!(!verdicts[0].accepted && !verdicts[0].reason.contains("666"), "{verdicts:?}");
}

#[tokio::test(start_paused = true)]
async fn the_summary_of_a_guarded_executor_that_claims_passes_its_guards() {
    let works = ScriptedProvider::new()
        .call("task_complete", json!({"summary": "Call 555."}))
        .call("task_complete", json!({"summary": "It is 777."}));
    let executor = guarded(ReactAgent::builder("executor", works.model())).build().unwrap();
    let levels = Autonomy::builder("levels", executor).until_task_complete().level(AutonomyLevel::Prompted);
    let session = Runtime::in_memory().session();
    let outcome = session.start(&levels.build().unwrap(), "Do it").outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Completed, "{outcome}");
    assert_eq!(verdicts(&session).await, [Verdict::accepted("It is (left out).")]);
    assert!(!outcome.text.contains("777") && !outcome.text.contains("555"), "{}", outcome.text);
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Number {
    #[allow(dead_code, reason = "only its schema counts")]
    text: String,
}

#[tokio::test(start_paused = true)]
async fn what_a_guarded_typed_executor_said_is_in_no_report() {
    let works = ScriptedProvider::by_history()
        .call("final_answer", json!({"text": "555"}))
        .text("It is 555, I would say.")
        .text("It is 555, I would say.");
    let checks = ScriptedProvider::new().text("Go on.");
    let executor = guarded(ReactAgent::builder("executor", works.model())).returns::<Number>();
    let checker = ReactAgent::builder("checker", checks.model()).build().unwrap();
    let pair = DualAgent::builder("pair", executor.build().unwrap(), checker).iterations(1).build().unwrap();
    Runtime::in_memory().session().start(&pair, "Whom?").outcome().await.unwrap();
    let report = checks.requests()[0].messages.last().unwrap().text();
    assert!(!report.contains("I would say"), "{report}");
}
