//! The cost of a plan beside that of the graph alone.

use std::time::{Duration, Instant};

use entourage_core::{event::Envelope, tool::ToolOutput};
use entourage_runners::{ReactAgent, graph::TaskGraph};
use entourage_testkit::{FakeTool, ScriptedProvider};

use super::{REQUEST, builder, events, plans, reply, runtime, step, steps, view};

const STEPS: u32 = 200;

fn count(events: &[Envelope], kind: &str) -> usize {
    events.iter().filter(|event| event.event.kind() == kind).count()
}

/// Runs the plan, and returns its events and the time that it took.
async fn planned() -> (Vec<Envelope>, Duration) {
    let planner_model = plans(steps((1..=STEPS).map(|number| step(number, &[])))).text("Done.");
    let executor_model = ScriptedProvider::by_history().call("reply", reply("complete", "Seen."));
    let planner =
        builder(&planner_model, &executor_model).tools((view(),)).executors_at_once(9).build().unwrap();
    let runtime = runtime();
    let session = runtime.session();
    let began = Instant::now();
    let outcome = session.start(&planner, REQUEST).outcome().await.unwrap();
    let took = began.elapsed();
    assert!(outcome.is_completed());
    (events(&session, &runtime).await, took)
}

/// Runs the same steps as a graph of agents that call the same tool.
async fn alone() -> (Vec<Envelope>, Duration) {
    let executor_model = ScriptedProvider::by_history().call("reply", reply("complete", "Seen."));
    let replies = FakeTool::new("reply").giving(ToolOutput::text("The planner has it.").stopping());
    let agent =
        ReactAgent::builder("executor", executor_model.model()).tools((view(), replies)).build().unwrap();
    let graph = TaskGraph::builder("plan").limit_each_agent(10);
    for number in 1..=STEPS {
        graph.agent(number.to_string(), &agent, format!("Look at {number}."));
    }
    let graph = graph.build().unwrap();
    let runtime = runtime();
    let session = runtime.session();
    let began = Instant::now();
    let outcome = session.start(&graph, REQUEST).outcome().await.unwrap();
    let took = began.elapsed();
    assert!(outcome.is_completed());
    (events(&session, &runtime).await, took)
}

#[tokio::test(start_paused = true)]
async fn bo05_a_step_adds_few_events_and_no_model_call_to_the_graph() {
    let ((planned, _), (alone, _)) = (planned().await, alone().await);
    let calls = |events: &[Envelope]| count(events, "model_finished");
    assert_eq!((calls(&planned), calls(&alone)), (STEPS as usize + 2, STEPS as usize));
    assert!(planned.len() <= 2 * alone.len(), "{} {}", planned.len(), alone.len());
}

#[tokio::test]
#[ignore = "prints figures"]
#[allow(clippy::print_stdout)]
async fn cost_of_a_plan_of_200_steps() {
    for _ in 0..5 {
        let ((planned, a), (alone, b)) = (planned().await, alone().await);
        println!(
            "planned {} events in {a:?}, alone {} in {b:?}: {:.2}",
            planned.len(),
            alone.len(),
            a.as_secs_f64() / b.as_secs_f64()
        );
    }
}
