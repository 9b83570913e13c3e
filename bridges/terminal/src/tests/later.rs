//! Questions that are put off: until a time, or until a person is there.

use std::time::Duration;

use async_trait::async_trait;
use entourage_core::{
    Clock, Result, Timestamp,
    permission::{ApprovalRequest, Approver, Decision},
};
use entourage_testkit::PausedClock;

use super::*;

/// Puts every question off until a time.
#[derive(Debug)]
struct Off(Timestamp);

#[async_trait]
impl Approver for Off {
    async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
        Ok(Decision::Until { at: self.0, allow: true })
    }
}

#[tokio::test]
async fn a_question_that_was_put_off_until_a_time_is_asked_again() {
    for (input, count, completed) in [("y\n", 1, true), ("not today\n", 0, true), ("", 0, false)] {
        let put = FakeTool::new("put").access(Access::WRITE).returning("put");
        let provider = ScriptedProvider::by_history().call("put", json!({})).text("Done.");
        let agent = ReactAgent::builder("a", provider.model()).tool(put.clone()).build().unwrap();
        let far = Off(Timestamp::now().after(Duration::from_secs(3_600)));
        let runtime = Runtime::builder().policy(Policy::new().ask("put")).approver(far).build();
        let (terminal, paper) = terminal(input);
        let outcome = terminal.run(&runtime.session(), &agent, "Put it.").await.unwrap();
        assert_eq!((put.finished(), outcome.is_completed()), (count, completed), "{outcome}");
        assert!(paper.text().contains("a wants put: "), "{}", paper.text());
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_is_withdrawn_when_its_time_has_come() {
    let (clock, put) = (PausedClock::new(), FakeTool::new("put").access(Access::WRITE).returning("put"));
    let provider = ScriptedProvider::by_history().call("put", json!({})).text("Done.");
    let agent = ReactAgent::builder("a", provider.model()).tool(put.clone()).build().unwrap();
    let off = Off(clock.now().after(Duration::from_secs(60)));
    let runtime = Runtime::builder().clock(clock).policy(Policy::new().ask("put")).approver(off).build();
    // Nobody writes a line.
    let (terminal, paper, _keys) = typed();
    let begun = tokio::time::Instant::now();
    let outcome = terminal.run(&runtime.session(), &agent, "Put it.").await.unwrap();
    assert_eq!((outcome.status, put.finished(), begun.elapsed().as_secs()), (Status::Completed, 1, 60));
    let output = paper.text();
    assert_eq!(output.matches("a wants put: ").count(), 1, "{output}");
    assert!(output.contains("the time for an answer is over"), "{output}");
}

/// A question that nobody could answer is answered by a later process, wherever below the session it was asked.
#[tokio::test]
async fn a_question_of_an_agent_below_is_answered_later() {
    let put = FakeTool::new("put").access(Access::WRITE).returning("put");
    let provider = ScriptedProvider::by_history().call("put", json!({})).text("Done.").text("It is put.");
    let writer = ReactAgent::builder("writer", provider.model()).tool(put.clone()).build().unwrap();
    let lead =
        ScriptedProvider::by_history().call("agent", json!({"prompt": "Put it."})).text("Handed over.");
    let lead = ReactAgent::builder("lead", lead.model()).tool(AgentTool::new(&writer)).build().unwrap();
    let graph = TaskGraph::builder("chores");
    let node = graph.agent("put", &writer, "Put it.");
    let graph = graph.returning(&node).build().unwrap();
    let pair = DualAgent::reviewed_by("pair", writer.clone(), "ada").build().unwrap();
    let agents: [Arc<dyn Agent>; 4] = [Arc::new(writer), Arc::new(lead), Arc::new(graph), Arc::new(pair)];

    for (agent, times) in agents.into_iter().zip(1..) {
        let store: Arc<MemoryStore> = Arc::default();
        let at = |terminal: &Terminal| {
            Runtime::builder().shared_store(store.clone()).approver(terminal.clone()).build()
        };
        let (nobody, _) = terminal("");
        let runtime = at(&nobody);
        let session = runtime.session();
        let outcome = nobody.run(&session, Arc::clone(&agent), "Put it.").await.unwrap();
        assert!(matches!(outcome.status, Status::Paused(_)), "{}: {outcome}", agent.name());
        let id = session.id().clone();

        // The first line is for the call; the person of the pair is then asked for a verdict on the work.
        let (somebody, paper) = terminal("y\n{\"accepted\": true, \"reason\": \"It is.\"}\n");
        let runtime = at(&somebody);
        let session = runtime.open(&id).await.unwrap();
        let outcome = somebody.run(&session, Arc::clone(&agent), "Left out.").await.unwrap();
        assert!(outcome.is_completed(), "{}: {outcome}\n{}", agent.name(), paper.text());
        assert_eq!(put.finished(), times, "{}", agent.name());
    }
}
