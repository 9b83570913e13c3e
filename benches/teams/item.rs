//! An item of a team's plan beside the graph's node that it runs as. From the time of a team's run those of the same
//! graph and of the same calls of the lead are taken away: what is left is the plan's assignment, its record, the graph
//! that each run builds of it (twice: the plan is checked by it), and the report that the lead is told.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_benches::median;
use entourage_core::{
    Result,
    agent::Agent,
    provider::Size,
    run::{Outcome, RunContext, Task},
};
use entourage_runners::{
    ReactAgent,
    graph::{Handle, TaskGraph},
    team::{Member, TaskType, Team},
};
use entourage_runtime::Runtime;
use tokio::runtime::Runtime as Tokio;

use crate::{
    least, seconds,
    stand_in::{self, Idle},
};

/// Items that do not come after each other.
const WIDTH: usize = 20;
const MEMBERS: usize = 4;
/// Items that a member works on at once.
const REPLICAS: usize = 3;
const INSTRUCTIONS: &str = "You lead a team.";
const PROMPT: &str = "Build it.";

/// The form of a plan, as a team's lead answers.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[allow(dead_code, reason = "it is read, and nothing else")]
struct Planned {
    #[serde(default)]
    answer: Option<String>,
    #[serde(default)]
    items: Vec<PlannedItem>,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[allow(dead_code, reason = "it is read, and nothing else")]
struct PlannedItem {
    id: String,
    task: String,
    #[serde(rename = "type")]
    kind: TaskType,
    #[serde(default)]
    after: Vec<String>,
    #[serde(default)]
    member: Option<String>,
    #[serde(default)]
    expected_seconds: Option<u32>,
}

fn id(place: usize) -> String {
    format!("i{place}")
}

/// The item of the layer before that an item comes after.
fn after(place: usize) -> Option<usize> {
    place.checked_sub(WIDTH)
}

fn plan(items: usize) -> String {
    let item = |place| {
        let after: Vec<_> = after(place).map(id).into_iter().collect();
        stand_in::item(&id(place), "edit", None, &after)
    };
    stand_in::plan(&(0..items).map(item).collect::<Vec<_>>())
}

fn hands() -> Vec<Idle> {
    (0..MEMBERS).map(|number| Idle(format!("m{number}"))).collect()
}

fn team(items: usize) -> Team {
    let members = hands().into_iter().map(|hand| Member::new(hand).replicas(REPLICAS));
    let lead = stand_in::lead(Duration::ZERO, &plan(items));
    Team::builder("crew", lead).instructions(INSTRUCTIONS).members(members).build().unwrap()
}

fn graph(items: usize) -> TaskGraph {
    let hands = hands();
    let graph = TaskGraph::builder("crew");
    let mut handles: Vec<Handle<String>> = Vec::new();
    for place in 0..items {
        let node = graph.agent(id(place), &hands[0], "Do it.");
        let node = node.escalate(hands.iter().map(|hand| (Size::M, hand)));
        let before = after(place).map(|before| handles[before].clone());
        handles.push(match before {
            Some(before) => node.after(&before),
            None => node,
        });
    }
    let limited = hands.iter().fold(graph, |graph, hand| graph.agent_limit(hand.0.as_str(), REPLICAS));
    limited.build().unwrap()
}

/// The calls of the lead alone.
#[derive(Clone)]
struct Lead {
    planner: Arc<dyn Agent>,
    speaker: ReactAgent,
    asked: [String; 2],
}

impl Lead {
    fn new(items: usize) -> Self {
        let model = stand_in::lead(Duration::ZERO, &plan(items));
        let builder = || ReactAgent::builder("lead", model.clone()).instructions(INSTRUCTIONS);
        let planner = Arc::new(builder().returns::<Planned>().build().unwrap());
        let members: String = (0..=MEMBERS).map(|number| format!("\n- `m{number}`, size M")).collect();
        let results: String =
            (0..items).map(|place| format!("\n\n<result of=\"i{place}\">\ndone\n</result>")).collect();
        let asked = [
            format!("{PROMPT}\n\nPlan this for your team. The members:{members}"),
            format!("The work is over.{results}\n\nAnswer the user's request now."),
        ];
        Self { planner, speaker: builder().build().unwrap(), asked }
    }
}

#[async_trait]
impl Agent for Lead {
    fn name(&self) -> &str {
        "crew"
    }

    async fn run(&self, _: Task, cx: &RunContext) -> Result<Outcome> {
        let [plan, answer] = self.asked.clone();
        assert!(cx.ask("lead", &self.planner, plan).await?.is_completed());
        cx.ask("lead", &self.speaker, answer).await
    }
}

fn run(agent: &(impl Agent + Clone + 'static)) -> impl Future<Output = ()> + Send + 'static {
    let (agent, runtime) = (agent.clone(), Runtime::in_memory());
    async move {
        let session = runtime.session();
        assert!(session.start(&agent, PROMPT).outcome().await.unwrap().is_completed());
    }
}

/// Returns the microseconds that an item takes beyond its node, of the quickest samples: another program on the machine
/// slows the longest one most.
pub(crate) fn measure(tokio: &Tokio, quick: bool) -> f64 {
    let (items, samples) = if quick { (2 * WIDTH, 1) } else { (200, 201) };
    let (team, graph, lead) = (team(items), graph(items), Lead::new(items));
    let each = |seconds: f64| seconds * 1e6 / items as f64;
    let (mut teams, mut graphs, mut leads) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..samples {
        teams.push(each(seconds(tokio, run(&team))));
        graphs.push(each(seconds(tokio, run(&graph))));
        leads.push(each(seconds(tokio, run(&lead))));
    }
    let [team, graph, lead] = [&teams, &graphs, &leads].map(|times| least(times));
    let middle = [teams, graphs, leads].map(median);
    println!(
        "a team's item: {team:.1} µs, its node alone {graph:.1} µs, its part of the lead's calls {lead:.1} µs"
    );
    println!("the medians of these: {:.1}, {:.1} and {:.1} µs", middle[0], middle[1], middle[2]);
    team - graph - lead
}
