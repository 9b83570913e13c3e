//! A call that waits for leave inside each kind of runner: killed everywhere, then decided and resumed, or stopped. At
//! the end every run is replayed.

use entourage_core::{
    Result,
    agent::Agent,
    event::Event,
    permission::Decision,
    session::{SessionFilter, SessionStatus},
    tool::Access,
};
use entourage_runners::{AgentTool, Autonomy, AutonomyLevel, DualAgent, ReactAgent, graph::TaskGraph};
use entourage_testkit::{
    FakeTool, ScriptedProvider,
    crash::{DriveContext, DriveStep, Life, Scenario},
};
use serde_json::json;

use crate::survives;

const PROMPT: &str = "Refund it";

/// An agent that may ask for leave to pay.
fn one(life: &Life, name: &str, script: &ScriptedProvider, pays: bool) -> Result<ReactAgent> {
    let builder = ReactAgent::builder(name, life.model(&script.model()));
    match pays {
        true => builder.tool(life.tool(FakeTool::new("refund").access(Access::WRITE))).build(),
        false => builder.build(),
    }
}

fn pays(life: &Life) -> Result<ReactAgent> {
    let script = ScriptedProvider::by_history().call("refund", json!({})).text("Paid.").text("It is paid.");
    one(life, "w", &script, true)
}

fn accepts(life: &Life) -> Result<ReactAgent> {
    let script = ScriptedProvider::by_history().call("task_complete", json!({"summary": "ok"}));
    one(life, "c", &script, false)
}

/// The check is what asks for leave.
fn pair_with_a_checker_that_pays(life: &Life) -> Result<DualAgent> {
    let again = ["Done.", "It is done.", "Done again.", "It is done again."];
    let works = again.into_iter().fold(ScriptedProvider::by_history(), ScriptedProvider::text);
    let checks = ScriptedProvider::by_history()
        .call("refund", json!({}))
        .call("task_complete", json!({"summary": "ok"}));
    DualAgent::builder("d", one(life, "w", &works, false)?, one(life, "c", &checks, true)?).build()
}

fn agent_below(life: &Life) -> Result<ReactAgent> {
    let asks = ScriptedProvider::by_history().call("agent", json!({"prompt": "x"})).text("Paid.");
    let tool = life.tool(AgentTool::new(pays(life)?));
    ReactAgent::builder("l", life.model(&asks.model())).tool(tool).build()
}

fn judged(life: &Life) -> Result<Autonomy> {
    let judge = ScriptedProvider::by_history().text(r#"{"approved": true, "reason": "It is paid."}"#);
    let judge = life.model(&judge.model());
    Autonomy::builder("d", pays(life)?).judge(judge).level(AutonomyLevel::Judge).build()
}

fn node(life: &Life) -> Result<TaskGraph<String>> {
    let works = pays(life)?;
    let graph = TaskGraph::builder("g");
    let node = graph.agent("n", &works, "x");
    graph.returning(&node).build()
}

/// A pair in a node: three levels.
fn pair_in_a_node(life: &Life) -> Result<TaskGraph<String>> {
    let pair = DualAgent::builder("d", pays(life)?, accepts(life)?).build()?;
    let graph = TaskGraph::builder("g");
    let node = graph.agent("n", &pair, "x");
    graph.returning(&node).build()
}

fn scenario<A: Agent + 'static>(
    name: &str,
    build: impl Fn(&Life) -> Result<A> + Send + Sync + 'static,
) -> Scenario {
    Scenario::new(name, build).prompt(PROMPT).decide("refund", Decision::Allow)
}

/// Each kind of runner.
fn runners() -> Vec<Scenario> {
    vec![
        scenario("leave-react", pays),
        scenario("leave-below", agent_below),
        scenario("leave-executor", |life| DualAgent::builder("d", pays(life)?, accepts(life)?).build()),
        scenario("leave-checker", pair_with_a_checker_that_pays),
        scenario("leave-cancel-ends", |life| {
            DualAgent::builder("d", pays(life)?, accepts(life)?).cancel_ends().build()
        }),
        scenario("leave-level-react", |life| {
            Autonomy::builder("d", pays(life)?).level(AutonomyLevel::React).build()
        }),
        scenario("leave-level-judge", judged),
        scenario("leave-node", node),
        scenario("leave-pair-in-a-node", pair_in_a_node),
    ]
}

#[test]
fn leave_in_each_runner_is_decided_resumed_and_replayed() {
    for scenario in runners() {
        survives(&scenario, &["approval_decided Allow", "tool_finished refund false known"]);
    }
}

#[test]
fn a_runner_that_waits_for_leave_and_is_stopped_replays_as_cancelled() {
    // A call that runs an agent is told that its outcome is unknown, which the suite takes for a death.
    for scenario in runners().into_iter().filter(|it| it.name() != "leave-below") {
        survives(&scenario.driven(|cx| Box::pin(stopped(cx))), &["run_finished cancelled"]);
    }
}

#[test]
fn a_runner_that_waits_for_leave_and_is_abandoned_replays_as_cancelled() {
    // A call that runs an agent is told that its outcome is unknown, which the suite takes for a death.
    for scenario in runners().into_iter().filter(|it| it.name() != "leave-below") {
        survives(&scenario.driven(|cx| Box::pin(abandoned(cx))), &["run_finished cancelled"]);
    }
}

/// Gives another prompt once the run waits, and stops what waits again.
async fn abandoned(cx: &DriveContext) -> Result<DriveStep> {
    let DriveContext { agent, session, tree, runtime, .. } = cx;
    let root = tree.get(session.id());
    let runs = root.map_or(0, |log| {
        log.events.iter().filter(|event| matches!(event.event, Event::RunStarted(_))).count()
    });
    match root.map(|log| log.info.head.status) {
        Some(SessionStatus::Running) => drop(session.resume(agent).outcome().await?),
        Some(SessionStatus::Paused) if runs < 2 => {
            drop(session.start(agent, "Forget it").outcome().await?);
        }
        Some(SessionStatus::Paused) => drop(session.stop().await?),
        Some(SessionStatus::Idle) => {
            let open = SessionFilter::all().with_status(SessionStatus::Paused);
            assert!(runtime.sessions(&open).await?.is_empty(), "a run below waits for ever");
            return Ok(DriveStep::Over);
        }
        None => drop(session.start(agent, PROMPT).outcome().await?),
    }
    Ok(DriveStep::More)
}

/// Stops the run once it waits.
async fn stopped(cx: &DriveContext) -> Result<DriveStep> {
    let DriveContext { agent, session, tree, .. } = cx;
    let root = tree.get(session.id());
    let ended = root.is_some_and(|log| log.events.iter().any(|it| matches!(it.event, Event::RunFinished(_))));
    match root.map(|log| log.info.head.status) {
        Some(SessionStatus::Running) => drop(session.resume(agent).outcome().await?),
        Some(SessionStatus::Paused) => drop(session.stop().await?),
        Some(_) if ended => return Ok(DriveStep::Over),
        _ => drop(session.start(agent, PROMPT).outcome().await?),
    }
    Ok(DriveStep::More)
}
