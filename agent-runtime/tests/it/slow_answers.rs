//! Time that a person takes to answer: it counts in no limit of what the person is asked about.

use std::time::Duration;

use async_trait::async_trait;
use entourage_core::{
    Result,
    agent::Agent,
    event::Event,
    permission::{ApprovalRequest, Approver, Decision},
    run::{Status, StopReason},
};
use entourage_runners::{AgentTool, IntoTools, ReactAgent, graph::TaskGraph};
use entourage_runtime::{Runtime, permission::Policy};
use entourage_testkit::{self as testkit, FakeTool, ScriptedProvider};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::common::results;

/// An approver that takes this long, and allows the call.
#[derive(Debug)]
struct Slow(Duration);

#[async_trait]
impl Approver for Slow {
    async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
        sleep(self.0).await;
        Ok(Decision::Allow)
    }
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A runtime whose approver takes 1,000 seconds for each call of `asked`.
fn runtime() -> Runtime {
    testkit::runtime().policy(Policy::allow_all().ask("asked")).approver(Slow(seconds(1_000))).build()
}

fn calls(tool: &str) -> ScriptedProvider {
    ScriptedProvider::new().call(tool, json!({}))
}

fn agent_call() -> ScriptedProvider {
    ScriptedProvider::new().call("agent", json!({"prompt": "Look."}))
}

/// An agent of this name with these tools.
fn helper<Form>(name: &str, model: &ScriptedProvider, tools: impl IntoTools<Form>) -> ReactAgent {
    ReactAgent::builder(name, model.model()).tools(tools).build().unwrap()
}

fn within(limit: Duration, agent: ReactAgent) -> AgentTool {
    AgentTool::new(agent).with_timeout(limit)
}

#[tokio::test(start_paused = true)]
async fn a_call_that_runs_an_agent_is_not_late_while_somebody_is_asked_below() {
    let asked = FakeTool::new("asked").taking(seconds(7));
    let hangs = FakeTool::new("hangs").timeout(seconds(100_000)).hanging();
    for (model, told, took) in [
        (calls("asked").call("asked", json!({})).text("Looked."), "Looked.", 2_014),
        // The agent's own time does count: 7 s of the first call, and 13 s of the second.
        (calls("asked").call("hangs", json!({})), "the call took longer than 20 s and was stopped", 1_020),
    ] {
        let leaf = helper("leaf", &model, (asked.clone(), hangs.clone()));
        let middle_model = agent_call().text("The middle one.");
        let middle = helper("middle", &middle_model, (within(seconds(20), leaf),));
        // The limits of two calls stand still.
        let lead_model = agent_call().text("Done.");
        let lead = helper("lead", &lead_model, (within(seconds(30), middle),));
        let start = Instant::now();
        let outcome = runtime().session().start(&lead, "Go").outcome().await.unwrap();
        assert_eq!((outcome.text.as_str(), start.elapsed().as_secs()), ("Done.", took));
        assert_eq!(results(middle_model.requests()[1].messages.last().unwrap()), [told]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_late_while_somebody_is_asked_about_another_one() {
    const LATE: &str = "the call took longer than 20 s and was stopped";
    let asked = FakeTool::new("asked").taking(seconds(7));
    let hangs = FakeTool::new("hangs").timeout(seconds(100_000)).hanging();
    let plain = FakeTool::new("plain").timeout(seconds(20)).hanging();
    let late = |took| (LATE.to_owned(), took);
    let answered = |took| ("Looked.".to_owned(), took);
    // The calls beside one whose agent is asked about, and how they end: that one first, and after how many seconds.
    for (others, ends) in [
        (vec!["plain"], vec![answered(1_007), late(20)]),
        (vec!["hanging"], vec![answered(1_007), late(20)]),
        (vec!["plain", "hanging", "slow"], vec![answered(1_007), late(20), late(20), late(1_020)]),
        (vec!["slow", "agent"], vec![answered(1_007), late(1_020), answered(1_007)]),
        (vec!["nested", "plain"], vec![answered(1_007), answered(2_014), late(20)]),
    ] {
        let agent = |name: &str, model: &ScriptedProvider| {
            within(seconds(20), helper(name, model, (asked.clone(), hangs.clone()))).with_name(name)
        };
        let model = || ScriptedProvider::by_history();
        let look = model().call("asked", json!({})).text("Looked.");
        let hanging = model().call("hangs", json!({}));
        let slow = model().call("asked", json!({})).call("hangs", json!({}));
        // Below it one call is asked about, and another one is late, beside each other.
        let both = model().calls([("agent", json!({"prompt": "Look."})), ("plain", json!({}))]);
        let both = both.call("asked", json!({})).text("Looked.");
        let middle = helper("nested", &both, (agent("agent", &look), plain.clone(), asked.clone()));
        let first = std::iter::once("agent").chain(others.iter().copied());
        let lead_model = ScriptedProvider::new().calls(first.map(|name| (name, json!({"prompt": "Look."}))));
        let lead_model = lead_model.text("Done.");
        let tools = (
            agent("agent", &look),
            plain.clone(),
            agent("hanging", &hanging),
            agent("slow", &slow),
            within(seconds(30), middle).with_name("nested"),
        );
        let lead = helper("lead", &lead_model, tools);
        let (start, mut ended) = (Instant::now(), Vec::new());
        let mut run = runtime().session().start(&lead, "Go");
        while let Some(envelope) = run.next().await {
            if let Event::ToolFinished(end) = &envelope.event
                && &*envelope.origin.agent == "lead"
            {
                ended.push((end.index, (end.result.to_text(), start.elapsed().as_secs())));
            }
        }
        ended.sort();
        let ended: Vec<_> = ended.into_iter().map(|(_, end)| end).collect();
        assert_eq!(ended, ends, "{others:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_is_not_late_while_somebody_is_asked_in_it_and_others_are() {
    let (asked, hangs) = (FakeTool::new("asked"), FakeTool::new("hangs").hanging());
    let graph = TaskGraph::builder("graph");
    let asks = ("asks", calls("asked").text("Seen."));
    let waits = ("waits", calls("hangs"));
    let both = ("both", calls("asked").call("hangs", json!({})));
    for (name, model) in [&asks, &waits, &both] {
        let agent = helper(name, model, (asked.clone(), hangs.clone()));
        graph.agent(agent.name(), &agent, "Look.").timeout(seconds(5));
    }
    let (graph, start) = (graph.build().unwrap(), Instant::now());
    let run = runtime().session().start(&graph, "Go");
    let outcome = run.outcome().await.unwrap();
    let Status::Stopped(StopReason::Tasks { failed, .. }) = &outcome.status else { panic!("{outcome:?}") };
    let failed: Vec<_> = failed.iter().map(|it| (&*it.task, &*it.error)).collect();
    let late = "the attempt took longer than 5s and was stopped";
    assert_eq!(failed, [("waits", late), ("both", late)]);
    assert_eq!(start.elapsed().as_secs(), 1_005);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_agent_is_asked_about_can_be_cancelled_all_the_same() {
    let graph = TaskGraph::builder("graph");
    let model = calls("asked");
    let asks = helper("asks", &model, (FakeTool::new("asked"),));
    graph.agent("asks", &asks, "Look.").timeout(seconds(5));
    let (graph, start) = (graph.build().unwrap(), Instant::now());
    let session = runtime().session();
    let run = session.start(&graph, "Go");
    let cancel = async {
        sleep(seconds(500)).await;
        session.cancel();
    };
    let (outcome, ()) = tokio::join!(run.outcome(), cancel);
    assert_eq!((outcome.unwrap().status, start.elapsed().as_secs()), (Status::Cancelled, 500));
}
