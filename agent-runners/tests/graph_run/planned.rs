//! A plan that a model makes in a run, and its graph below it: a process that resumes keeps the plan, whatever the
//! model would plan now.

use std::sync::Arc;

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    agent::Agent,
    event::Event,
    provider::Model,
    run::{Outcome, RunContext, Task, Waited},
    session::SharedStore,
};
use entourage_runners::{ReactAgent, graph::Plan, typed::RunExt};
use entourage_testkit::ScriptedProvider;

use crate::{
    common::{Fault, FaultyStore, count, memory, process, runtime_on, stored, until_killed},
    crew::root,
};

#[derive(Clone)]
struct Planner {
    model: Model,
    roster: Vec<Arc<dyn Agent>>,
    /// True to ask in a conversation of its own, instead of within this agent.
    asks: bool,
}

#[async_trait]
impl Agent for Planner {
    fn name(&self) -> &'static str {
        "planner"
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        let plan: Plan = cx.generate(&self.model, "Plan it").await?.value;
        let graph = Arc::new(plan.graph("work", &self.roster)?);
        if self.asks {
            return cx.ask("work", graph, task).await;
        }
        let work = cx.spawn(graph, task).await?;
        match cx.wait_any(&[work], None).await? {
            Waited::Ended { outcome, .. } => Ok(outcome),
            Waited::TimedOut => Err(Error::new(ErrorKind::Timeout, "it took too long")),
        }
    }
}

/// Creates the planner of process number `life`: its model makes another plan in each.
fn planner(life: u32, asks: bool) -> (Planner, ScriptedProvider) {
    let plan = format!(
        r#"{{"tasks": [{{"id": "first{life}", "task": "Do the first.", "agent": "coder"}},
            {{"id": "second{life}", "task": "Do the second.", "agent": "coder", "after": ["first{life}"]}}]}}"#
    );
    let model = ScriptedProvider::by_history().text(plan);
    let works = ScriptedProvider::by_history().text("Done.");
    let coder = ReactAgent::builder("coder", works.model()).build().unwrap();
    (Planner { model: model.model(), roster: vec![Arc::new(coder)], asks }, model)
}

async fn go(store: &SharedStore, life: u32, asks: bool) -> Outcome {
    let session = runtime_on(store).session_with_id(root());
    let (agent, _) = planner(life, asks);
    let run = match session.unfinished().await.unwrap() {
        Some(_) => session.resume(&agent),
        None if session.head().await.unwrap().seq == 0 => session.start(&agent, "Go"),
        None => return Outcome::completed("Done."),
    };
    run.outcome().await.unwrap()
}

/// Asserts that one plan of the model counts, and that its tasks are begun and completed once each.
async fn assert_whole(store: &SharedStore, label: &str) {
    let above = stored(store, &root()).await;
    assert_eq!(count(&above, "model_finished"), 1, "{label}: one plan");
    let child = above.iter().find_map(|event| match &event.event {
        Event::ChildStarted(started) => Some(started.child.clone()),
        _ => None,
    });
    let below = stored(store, &child.unwrap()).await;
    let figures =
        ["record:graph.started", "record:graph.node_started", "record:graph.node_finished", "run_finished"]
            .map(|kind| count(&below, kind));
    assert_eq!(figures, [1, 2, 2, 1], "{label}");
}

#[test]
fn lo06_a_plan_made_in_a_run_survives_death_at_every_append() {
    for (fault, asks) in [Fault::HangBefore, Fault::HangAfter].map(|it| [(it, false), (it, true)]).concat() {
        let mut deaths = 0;
        for at in 0.. {
            let store = memory();
            let faulty = FaultyStore::new(&store, at, fault);
            let killed = faulty.killed.clone();
            let label = format!("{fault:?} at append {at}, asks: {asks}");
            let ended = process(until_killed(go(&(faulty as SharedStore), 1, asks), &killed));
            let alive = ended.is_some();
            let outcome = ended.unwrap_or_else(|| process(go(&store, 2, asks)));
            assert!(outcome.is_completed() && outcome.text.contains("Done."), "{label}: {outcome:?}");
            process(assert_whole(&store, &label));
            if alive {
                break;
            }
            deaths += 1;
        }
        assert!(deaths >= 10, "{fault:?}: {deaths}");
    }
}
