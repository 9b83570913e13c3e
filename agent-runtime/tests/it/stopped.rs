//! Runs that were stopped before they had an answer, as errors: the reason is typed, and the text names the next step.

use entourage_core::{
    Error, ErrorKind, ErrorRecord,
    provider::FinishReason,
    run::{FailedTask, Limits, StopReason},
};
use entourage_runners::{DualAgent, ReactAgent, graph::TaskGraph};
use entourage_runtime::AgentExt;
use entourage_testkit::{FakeTool, Script, ScriptedProvider};
use serde_json::json;

use crate::common::agent;

#[test]
fn an_error_of_each_reason_keeps_it_when_it_is_stored_and_names_the_next_step() {
    let (failed, none) = (vec![FailedTask::new("two", "no")].into_boxed_slice(), Box::default());
    for (reason, next) in [
        (StopReason::Steps(3), "with_steps"),
        (StopReason::Condition("3 steps".into()), "outcome"),
        (StopReason::Reply(FinishReason::Length), "with_max_output"),
        (StopReason::Reply(FinishReason::Refusal), "another model"),
        (StopReason::Reply(FinishReason::Other), "again"),
        (StopReason::Denied("put".into()), "approver"),
        (StopReason::Deadline, "Task::with_deadline"),
        (StopReason::LoopDetected, "loops"),
        (StopReason::Incomplete { iterations: 2, feedback: "no tests".into() }, "more rounds"),
        (StopReason::Tasks { failed, cancelled: none, skipped: Box::default() }, "run the graph again"),
    ] {
        let error = Error::stopped(reason.clone());
        assert!(error.message().contains(&reason.to_string()), "{error}");
        assert!(error.message().contains(next), "{error}");
        let stored = serde_json::to_string(&error.record()).unwrap();
        let back = serde_json::from_str::<ErrorRecord>(&stored).unwrap().to_error();
        assert_eq!((back.kind(), back.stop_reason()), (ErrorKind::Stopped, Some(&reason)));
        assert_eq!(back.to_string(), error.to_string());
    }
}

#[test]
fn records_that_were_stored_before_errors_had_a_stop_reason_are_read() {
    let text =
        r#"{"kind":"tool","retry":"permanent","message":"the agent ended without an answer: stopped: x"}"#;
    let record: ErrorRecord = serde_json::from_str(text).unwrap();
    assert_eq!((record.kind, record.stopped.clone()), (ErrorKind::Tool, None));
    assert_eq!(serde_json::to_string(&record).unwrap(), text);
}

#[tokio::test]
async fn asking_an_agent_that_is_stopped_gives_the_reason() {
    let provider = ScriptedProvider::new().call("look", json!({}));
    let scout = agent(provider.model()).tool(FakeTool::new("look")).limits(Limits::default().with_steps(1));
    let error = scout.build().unwrap().ask("Go").await.unwrap_err();
    assert_eq!((error.kind(), error.stop_reason()), (ErrorKind::Stopped, Some(&StopReason::Steps(1))));

    let executor = ScriptedProvider::new().text("Done.").text("I did it.");
    let checker = ScriptedProvider::new().text("No, you did not.");
    let built = |provider: &ScriptedProvider| ReactAgent::builder("one", provider.model()).build().unwrap();
    let pair = DualAgent::builder("pair", built(&executor), built(&checker)).iterations(1).build().unwrap();
    let error = pair.ask("Go").await.unwrap_err();
    let feedback = "No, you did not.".into();
    assert_eq!(error.stop_reason(), Some(&StopReason::Incomplete { iterations: 1, feedback }));
}

#[tokio::test]
async fn a_graph_that_is_stopped_gives_the_reason_and_so_does_a_node_whose_agent_was() {
    let refused = ScriptedProvider::new().step(Script::new().text("No.").finish(FinishReason::Refusal));
    let agent = agent(refused.model()).build().unwrap();
    let graph = TaskGraph::builder("graph");
    graph.agent("one", &agent, "Write.");
    let graph = graph.build().unwrap();
    let error = graph.ask("Go").await.unwrap_err();
    let Some(StopReason::Tasks { failed, .. }) = error.stop_reason() else { panic!("{error}") };
    assert_eq!(
        failed[0].error, "stopped: the model declined",
        "it has no advice for the model that tries again"
    );
    assert_eq!(error.kind(), ErrorKind::Stopped);
}
