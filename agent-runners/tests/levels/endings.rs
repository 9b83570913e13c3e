//! Stop kinds: why a run ended, in the words of editors.

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    budget::{BudgetLimits, Exhausted},
    permission::{ApprovalRequest, Approver, Decision},
    provider::FinishReason,
    run::{Outcome, Pause, Status, StopReason},
    tool::Access,
};
use entourage_runners::StopKind;
use entourage_testkit::{self as testkit, FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::common::{agent, open_runtime};

fn budget(bound: &str) -> StopReason {
    Exhausted::new(bound, BudgetLimits::none()).into()
}

#[test]
fn cw13_every_end_has_its_word_and_only_a_failure_has_none() {
    use StopKind::{Cancelled, EndTurn, MaxTokens, MaxTurnRequests, Refusal};
    let stopped = Status::Stopped;
    let failed = |kind| Status::Failed(Error::new(kind, "it failed").record());
    for (status, expected) in [
        (Status::Completed, Some(EndTurn)),
        (stopped(StopReason::Condition("Steps(1)".to_owned())), Some(EndTurn)),
        (stopped(StopReason::Denied("write".to_owned())), Some(EndTurn)),
        (stopped(StopReason::Reply(FinishReason::Stop)), Some(EndTurn)),
        (stopped(StopReason::Reply(FinishReason::ToolCalls)), Some(EndTurn)),
        (stopped(StopReason::Reply(FinishReason::Other)), Some(EndTurn)),
        (stopped(StopReason::Reply(FinishReason::Error)), Some(EndTurn)),
        (stopped(StopReason::Reply(FinishReason::Length)), Some(MaxTokens)),
        (stopped(StopReason::Reply(FinishReason::ContentFilter)), Some(Refusal)),
        (stopped(StopReason::Reply(FinishReason::Refusal)), Some(Refusal)),
        (stopped(StopReason::Reply(FinishReason::Cancelled)), Some(Cancelled)),
        (stopped(budget("tokens")), Some(MaxTokens)),
        (stopped(budget("money")), Some(MaxTurnRequests)),
        (stopped(budget("model_calls")), Some(MaxTurnRequests)),
        (stopped(budget("tool_calls")), Some(MaxTurnRequests)),
        (stopped(budget("time")), Some(MaxTurnRequests)),
        (stopped(StopReason::Steps(50)), Some(MaxTurnRequests)),
        (stopped(StopReason::Deadline), Some(MaxTurnRequests)),
        (stopped(StopReason::LoopDetected), Some(MaxTurnRequests)),
        (stopped(StopReason::Incomplete { iterations: 10, feedback: "x".into() }), Some(MaxTurnRequests)),
        (Status::Cancelled, Some(Cancelled)),
        (Status::Paused(Pause::Asked), Some(Cancelled)),
        (Status::Paused(Pause::Approval("a.1$$0".into())), Some(Cancelled)),
        (Status::Paused(Pause::Signal { name: "go".to_owned(), until: None }), Some(Cancelled)),
        (failed(ErrorKind::Cancelled), Some(Cancelled)),
        (failed(ErrorKind::ContentFiltered), Some(Refusal)),
        (failed(ErrorKind::Transport), None),
        (failed(ErrorKind::ContextOverflow), None),
        (failed(ErrorKind::Internal), None),
    ] {
        assert_eq!(StopKind::of(&status), expected, "{status}");
        let answer = StopKind::answer(Ok(Outcome::new(status.clone())));
        assert_eq!(answer.ok(), expected, "{status}, as an outcome");
    }
}

#[test]
fn cw13_the_words_are_those_on_the_wire() {
    for (kind, word) in [
        (StopKind::EndTurn, "end_turn"),
        (StopKind::MaxTokens, "max_tokens"),
        (StopKind::MaxTurnRequests, "max_turn_requests"),
        (StopKind::Refusal, "refusal"),
        (StopKind::Cancelled, "cancelled"),
    ] {
        assert_eq!((kind.as_str(), serde_json::to_value(kind).unwrap()), (word, json!(word)));
        assert_eq!(serde_json::from_value::<StopKind>(json!(word)).unwrap(), kind);
    }
}

#[test]
fn cw13_an_error_that_is_a_cancel_is_no_error_and_another_one_comes_back_whole() {
    for error in [Error::cancelled(), Error::paused(Pause::Asked)] {
        assert_eq!(StopKind::answer(Err(error)).unwrap(), StopKind::Cancelled);
    }
    let refused = Error::new(ErrorKind::ContentFiltered, "the service refused the content");
    assert_eq!(StopKind::answer(Err(refused)).unwrap(), StopKind::Refusal);
    let lost = Error::new(ErrorKind::Transport, "the connection broke").with("host", "example.invalid");
    let kept = StopKind::answer(Err(lost)).unwrap_err();
    assert!(format!("{kept:?}").contains("example.invalid"), "{kept:?}");
}

#[tokio::test(start_paused = true)]
async fn cw13_runs_end_with_these_words() {
    let reply = |reason| Script::new().text("Hm.").finish(reason);
    for (reason, expected) in [
        (FinishReason::Stop, StopKind::EndTurn),
        (FinishReason::Length, StopKind::MaxTokens),
        (FinishReason::Refusal, StopKind::Refusal),
        (FinishReason::ContentFilter, StopKind::Refusal),
    ] {
        let provider = ScriptedProvider::new().step(reply(reason));
        let agent = agent(provider.model()).build().unwrap();
        let outcome = open_runtime().session().start(&agent, "Go").outcome().await;
        assert_eq!(StopKind::answer(outcome).unwrap(), expected, "{reason:?}");
    }
    let provider =
        ScriptedProvider::new().fail(ErrorKind::Authentication, "the key was refused; set another");
    let agent = agent(provider.model()).build().unwrap();
    let outcome = open_runtime().session().start(&agent, "Go").outcome().await;
    assert_eq!(StopKind::answer(outcome).unwrap_err().kind(), ErrorKind::Authentication);
}

#[tokio::test(start_paused = true)]
async fn cw13_a_cancel_is_answered_after_all_that_happened_was_told() {
    let gate = Gate::new();
    let provider = ScriptedProvider::new().call("look", json!({}));
    let agent = agent(provider.model()).tool(FakeTool::new("look").behind(&gate)).build().unwrap();
    let mut run = open_runtime().session().start(&agent, "Go");
    gate.arrived(1).await;
    run.cancel();
    let mut last = None;
    while let Some(event) = run.next().await {
        last = Some(event);
    }
    assert_eq!(last.unwrap().event.kind(), "run_finished");
    assert_eq!(StopKind::answer(run.outcome().await).unwrap(), StopKind::Cancelled);
}

/// An approver that never answers.
#[derive(Debug)]
struct Undecided(Gate);

#[async_trait]
impl Approver for Undecided {
    async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
        self.0.pass().await;
        Ok(Decision::Allow)
    }
}

#[tokio::test(start_paused = true)]
async fn cw13_a_question_that_is_open_when_the_run_is_cancelled_ends_as_cancelled() {
    let asked = Gate::new();
    let write = FakeTool::new("write").access(Access::WRITE);
    let provider = ScriptedProvider::new().call("write", json!({}));
    let agent = agent(provider.model()).tool(write.clone()).build().unwrap();
    let runtime = testkit::runtime().approver(Undecided(asked.clone())).build();
    let session = runtime.session();
    let run = session.start(&agent, "Go");
    asked.arrived(1).await;
    run.cancel();
    assert_eq!(StopKind::answer(run.outcome().await).unwrap(), StopKind::Cancelled);
    assert_eq!(write.started(), 0);
    let history = session.history().await.unwrap();
    let told: Vec<_> = history.iter().flat_map(|message| message.tool_results()).collect();
    assert!(told[0].is_error && told[0].to_text().contains("cancelled"), "{told:?}");
}
