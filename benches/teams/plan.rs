//! A plan of a planner beside its graph alone, between the same calls of the planner's model: the same executors,
//! each of which answers at once, as the nodes of a graph with the same edges, limits and permissions. What the
//! planner takes beyond that is to check, record and build the plan, and for each step a conversation with its
//! messages, which is a session more.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_benches::median;
use entourage_core::{
    Result,
    agent::Agent,
    permission::Scope,
    provider::Params,
    run::{Outcome, RunContext, Task},
    tool::{Access, Tool},
};
use entourage_runners::{
    ReactAgent,
    from_fn::typed,
    graph::{Handle, TaskGraph},
    planner::Planner,
};
use entourage_runtime::{Runtime, permission::Policy};
use serde_json::{Value, json};
use tokio::runtime::Runtime as Tokio;

use crate::{
    least, seconds,
    stand_in::{self, Said},
};

/// Steps that do not come after each other, and executors that work at once.
const WIDTH: usize = 20;
const INSTRUCTIONS: &str = "You look things up.";
const PROMPT: &str = "First look at all of them, then sum up.";

/// The form of a plan.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[allow(dead_code, reason = "it is read, and nothing else")]
struct Planned {
    steps: Vec<PlannedStep>,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[allow(dead_code, reason = "it is read, and nothing else")]
struct PlannedStep {
    number: usize,
    description: String,
    executor_required: bool,
    tools: Vec<String>,
    depends_on: Vec<usize>,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

fn look() -> Arc<dyn Tool> {
    Arc::new(typed("look", "Looks.", Access::READ, |Nothing {}| async move { Ok("seen") }))
}

/// The step of the layer before that a step comes after.
fn after(number: usize) -> Option<usize> {
    number.checked_sub(WIDTH).filter(|number| *number > 0)
}

fn plan(steps: usize) -> Value {
    let step = |number| {
        let depends_on: Vec<_> = after(number).into_iter().collect();
        json!({
            "number": number, "description": "Look at it.", "executor_required": true, "tools": ["look"],
            "depends_on": depends_on,
        })
    };
    json!({ "steps": (1..=steps).map(step).collect::<Vec<_>>() })
}

/// The model of both roles that plan and answer.
fn plans(steps: usize) -> entourage_core::provider::Model {
    let plan = plan(steps);
    stand_in::model(Duration::ZERO, move |request| match request.messages.len() {
        1 => Said::Calls(vec![("final_answer", plan.clone())]),
        _ => Said::Text("All are seen.".to_owned()),
    })
}

fn looks() -> entourage_core::provider::Model {
    stand_in::model(Duration::ZERO, |_| Said::Text("complete: It is there.".to_owned()))
}

fn planner(steps: usize) -> Planner {
    Planner::builder("assistant", plans(steps))
        .executor(looks())
        .without_classifier()
        .executors_at_once(WIDTH)
        .tools([look()])
        .build()
        .unwrap()
}

/// The graph alone, between the same calls of the planner's model.
#[derive(Clone)]
struct Alone {
    planner: Arc<dyn Agent>,
    speaker: ReactAgent,
    graph: TaskGraph,
}

impl Alone {
    fn new(steps: usize) -> Self {
        let builder = || ReactAgent::builder("planner", plans(steps)).instructions(INSTRUCTIONS);
        let planner = Arc::new(builder().tools([look()]).returns::<Planned>().build().unwrap());
        Self { planner, speaker: builder().build().unwrap(), graph: graph(steps) }
    }
}

fn graph(steps: usize) -> TaskGraph {
    // As an executor is built, whose tools are those of its step and the one by which it replies.
    let tools =
        [look(), Arc::new(typed("reply", "Replies.", Access::NONE, |Nothing {}| async move { Ok("told") }))];
    let params = Params::default().with_max_output(1_500).with_temperature(0.3);
    let executor =
        ReactAgent::builder("executor", looks()).instructions(INSTRUCTIONS).params(params).tools(tools);
    let executor = executor.build().unwrap();
    let graph = TaskGraph::builder("plan").agent_limit("executor", WIDTH);
    let mut handles: Vec<Handle<String>> = Vec::new();
    for number in 1..=steps {
        let node =
            graph.agent(number.to_string(), &executor, format!("Step {number}: Look at it.\n\n{PROMPT}"));
        let scope = Scope::all().with_access(Access::READ).with_tools(["look", "reply"]);
        let node = node.timeout(Duration::from_secs(300)).scope(scope);
        handles.push(match after(number) {
            Some(before) => node.after(&handles[before - 1]),
            None => node,
        });
    }
    graph.build().unwrap()
}

#[async_trait]
impl Agent for Alone {
    fn name(&self) -> &str {
        "assistant"
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        assert!(cx.ask("planner", &self.planner, PROMPT).await?.is_completed());
        let worked = Agent::run(&self.graph, task, cx).await?;
        assert!(worked.is_completed());
        cx.ask("planner", &self.speaker, "Answer.").await
    }
}

fn run(agent: &(impl Agent + Clone + 'static)) -> impl Future<Output = ()> + Send + 'static {
    let (agent, runtime) = (agent.clone(), Runtime::builder().policy(Policy::allow_all()).build());
    async move {
        let session = runtime.session();
        let outcome = session.start(&agent, PROMPT).outcome().await.unwrap();
        assert!(outcome.is_completed() && outcome.text == "All are seen.", "{outcome}");
    }
}

/// Returns the ratio of the quickest samples.
pub(crate) fn measure(tokio: &Tokio, quick: bool) -> f64 {
    let (steps, samples) = if quick { (2 * WIDTH, 1) } else { (200, 101) };
    let (planner, alone) = (planner(steps), Alone::new(steps));
    let each = |seconds: f64| seconds * 1e6 / steps as f64;
    let (mut planned, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..samples {
        planned.push(each(seconds(tokio, run(&planner))));
        floors.push(each(seconds(tokio, run(&alone))));
    }
    println!(
        "a step of a plan of {steps}: {:.1} µs (median {:.1}), the node of its graph alone {:.1} µs (median {:.1})",
        least(&planned),
        median(planned.clone()),
        least(&floors),
        median(floors.clone()),
    );
    least(&planned) / least(&floors)
}
