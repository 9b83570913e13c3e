//! S1: an agent that makes one call after another, compared with a graph of parallel tasks from a planner (the
//! comparison of LLMCompiler, arXiv 2312.04511, which reports up to 3.7x on real services).
//!
//! The work: `k` independent look-ups and one answer. A model call takes `first + tokens x each`; with `c(n)` for a
//! call that says `n` tokens, and `t_i` for look-up `i`, the closed forms are:
//!
//! * one call after another: `sum_i (c(40) + t_i) + c(60)`: a thought and a call each, then the answer;
//! * a graph: the critical path of plan -> look-ups -> answer, so `c(20 + 20 k) + max_i t_i + c(60)`. It is computed
//!   from the plan's own edges as a longest path, not from this formula. Where each task is an agent of its own, with
//!   a model that calls the tool and reports, `t_i` becomes `c(40) + t_i + c(20)`.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage::{
    Error, ErrorKind, Result,
    agent::{Agent, ReactAgent},
    graph::{Plan, PlanTask},
    provider::{Model, Request},
    run::{Outcome, RunContext, RunExt, Task, Waited},
    tool::{self, Access, ToolError, Tools},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    kit::{Checks, Table, on_paused_time, runtime, seconds},
    model::{Reply, RequestExt, model},
};

/// Tokens of a model's reply: a thought with a call, a plan without its tasks, each task of it, a report, an answer.
const STEP: u32 = 40;
const PLAN: u32 = 20;
const PLANNED: u32 = 20;
const REPORT: u32 = 20;
const ANSWER: u32 = 60;

/// Speeds of the model and the tools.
#[derive(Debug, Clone)]
struct World {
    /// Time to a model's first token, and for each token.
    first: Duration,
    each: Duration,
    /// Time of each look-up.
    tools: Vec<Duration>,
    /// True if each task is an agent with a model, instead of the tool alone.
    agents: bool,
}

impl World {
    fn new(first: u64, each: u64, tool: u64, count: usize) -> Self {
        let [first, each, tool] = [first, each, tool].map(Duration::from_millis);
        Self { first, each, tools: vec![tool; count], agents: false }
    }

    fn call(&self, tokens: u32) -> Duration {
        self.first + self.each * tokens
    }

    /// Time of one task of the graph.
    fn task(&self, tool: Duration) -> Duration {
        if self.agents { self.call(STEP) + tool + self.call(REPORT) } else { tool }
    }

    fn one_after_another(&self) -> Duration {
        self.tools.iter().map(|tool| self.call(STEP) + *tool).sum::<Duration>() + self.call(ANSWER)
    }

    fn planning(&self) -> Duration {
        self.call(PLAN + PLANNED * u32::try_from(self.tools.len()).unwrap_or(u32::MAX))
    }

    /// The plan that the planner's model writes.
    fn plan(&self) -> Plan {
        let ids: Vec<_> = (0..self.tools.len()).map(|item| format!("item-{item}")).collect();
        let look_up =
            |(item, id): (usize, &String)| PlanTask::new(id, "look_up", format!("Look up item {item} ."));
        let mut tasks: Vec<_> = ids.iter().enumerate().map(look_up).collect();
        tasks.push(PlanTask::new("answer", "answer", "Say what was found.").after(ids));
        Plan { tasks }
    }

    /// Length of the longest path through the plan, with the planning before it.
    fn critical_path(&self) -> Duration {
        let mut ends: Vec<(String, Duration)> = Vec::new();
        let times = self.tools.iter().map(|tool| self.task(*tool)).chain([self.call(ANSWER)]);
        for (task, time) in self.plan().tasks.iter().zip(times) {
            let before = ends.iter().filter(|(id, _)| task.after.contains(id)).map(|(_, end)| *end);
            let start = before.max().unwrap_or_default();
            ends.push((task.id.clone(), start + time));
        }
        self.planning() + ends.iter().map(|(_, end)| *end).max().unwrap_or_default()
    }
}

pub(crate) fn run(checks: &mut Checks) -> Result<()> {
    println!("## S1\n");
    println!(
        "Independent look-ups and an answer: one call after another, against a graph made by a planner. A model needs"
    );
    println!(
        "0.5 s and 20 ms a token, a look-up 2 s. (LLMCompiler, arXiv 2312.04511, reports up to 3.7x.)\n"
    );
    let mut table = Table::new(["fan-out", "ReAct", "graph", "critical path", "error", "speed-up"]);
    for count in [2, 3, 4, 5, 8] {
        let row = compare(&World::new(500, 20, 2_000, count), &format!("fan-out {count}"), checks)?;
        table.row([count.to_string(), row.react, row.graph, row.critical, row.error, row.speed_up]);
    }
    println!("{table}");

    println!("What the speed-up hangs on, at fan-out 8:\n");
    let mut table = Table::new(["changed", "ReAct", "graph", "critical path", "error", "speed-up"]);
    for (what, world) in worlds() {
        let row = compare(&world, what, checks)?;
        table.row([what.to_owned(), row.react, row.graph, row.critical, row.error, row.speed_up]);
    }
    println!("{table}");
    Ok(())
}

fn worlds() -> Vec<(&'static str, World)> {
    let base = World::new(500, 20, 2_000, 8);
    let mut uneven = base.clone();
    if let Some(tool) = uneven.tools.first_mut() {
        *tool = Duration::from_secs(16);
    }
    vec![
        ("nothing", base.clone()),
        ("a fast model: 0.1 s and 5 ms a token", World::new(100, 5, 2_000, 8)),
        ("a slow model: 2 s and 50 ms a token", World::new(2_000, 50, 2_000, 8)),
        ("a fast tool: 0.1 s", World::new(500, 20, 100, 8)),
        ("a slow tool: 10 s", World::new(500, 20, 10_000, 8)),
        ("one look-up of eight takes 16 s", uneven),
        ("each task is an agent with a model", World { agents: true, ..base }),
    ]
}

struct Row {
    react: String,
    graph: String,
    critical: String,
    error: String,
    speed_up: String,
}

fn compare(world: &World, what: &str, checks: &mut Checks) -> Result<Row> {
    let react = timed(world, &react(world)?, what, checks)?;
    let graph = timed(world, &planner(world)?, what, checks)?;
    let off = |measured: Duration, expected: Duration| {
        measured.abs_diff(expected).as_secs_f64() / expected.as_secs_f64()
    };
    let (critical, error) = (world.critical_path(), off(graph, world.critical_path()));
    checks.that(error < 0.01, || {
        format!("S1 {what}: the graph took {graph:?}, its critical path is {critical:?}")
    });
    let one = world.one_after_another();
    checks.that(off(react, one) < 0.01, || format!("S1 {what}: ReAct took {react:?}, expected {one:?}"));
    Ok(Row {
        react: seconds(react),
        graph: seconds(graph),
        critical: seconds(critical),
        error: format!("{:.2} %", 100.0 * error),
        speed_up: format!("{:.2}x", react.as_secs_f64() / graph.as_secs_f64()),
    })
}

/// Runs the agent and returns its time; checks that its answer has every result.
fn timed(
    world: &World,
    agent: &(impl Agent + Clone + 'static),
    what: &str,
    checks: &mut Checks,
) -> Result<Duration> {
    let (text, time) = on_paused_time(async {
        let began = Instant::now();
        let outcome = runtime().build().session().start(agent, "What are they?").outcome().await?;
        Ok((outcome.text, began.elapsed()))
    })?;
    let found = (0..world.tools.len()).filter(|item| text.contains(&fact(*item))).count();
    checks.same(&format!("S1 {what}: {} found", agent.name()), found, world.tools.len());
    Ok(time)
}

// ---- who works

/// The tool, which takes its time.
fn look_up(world: &World) -> Result<Tools> {
    #[derive(Debug, Deserialize, JsonSchema)]
    struct Item {
        item: usize,
    }
    let times = Arc::new(world.tools.clone());
    let look_up = tool::typed("look_up", "Looks up an item.", Access::READ, move |Item { item }| {
        let time = times.get(item).copied();
        async move {
            let time = time.ok_or_else(|| ToolError::tell(format!("there is no item {item}")))?;
            tokio::time::sleep(time).await;
            Ok(fact(item))
        }
    });
    Tools::new([Arc::new(look_up) as _])
}

fn fact(item: usize) -> String {
    format!("<item {item} is known>")
}

/// The agent that makes one call after another.
fn react(world: &World) -> Result<ReactAgent> {
    let (step, answer, count) = (world.call(STEP), world.call(ANSWER), world.tools.len());
    let (model, _) = model(move |request| {
        let results = request.results();
        if results.len() < count {
            return Reply::call("look_up", json!({ "item": results.len() })).after(step);
        }
        let found: Vec<_> = results.into_iter().map(|(text, _)| text).collect();
        Reply::text(found.join(" ")).after(answer)
    });
    ReactAgent::builder("react", model).toolset(look_up(world)?).build()
}

/// An agent that has a model make a plan, and a graph carry it out.
#[derive(Clone)]
struct Planner {
    model: Model,
    crew: Vec<Arc<dyn Agent>>,
}

#[async_trait]
impl Agent for Planner {
    fn name(&self) -> &str {
        "planner"
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        let plan = cx.generate::<Plan>(&self.model, (*task.prompt).clone()).await?.value;
        let graph = plan.builder("plan", &self.crew)?.limit_each_agent(8).build()?;
        let child = cx.spawn(Arc::new(graph), task).await?;
        match cx.wait_any(&[child], None).await? {
            Waited::Ended { outcome, .. } if outcome.is_completed() => Ok(Outcome::completed(outcome.text)),
            other => Err(Error::new(ErrorKind::Internal, format!("the plan failed: {other:?}"))),
        }
    }
}

fn planner(world: &World) -> Result<Planner> {
    let (planning, answer) = (world.planning(), world.call(ANSWER));
    let plan = json!(world.plan()).to_string();
    let (planner, _) = model(move |_| Reply::text(plan.clone()).after(planning));
    let (answering, _) = model(move |request| Reply::text(request.asked()).after(answer));
    let worker: Arc<dyn Agent> =
        if world.agents { Arc::new(thinking(world)?) } else { Arc::new(LookUp(look_up(world)?)) };
    let answering = ReactAgent::builder("answer", answering).build()?;
    Ok(Planner { model: planner, crew: vec![worker, Arc::new(answering)] })
}

/// A task that is one call of the tool.
struct LookUp(Tools);

#[async_trait]
impl Agent for LookUp {
    fn name(&self) -> &str {
        "look_up"
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        let found =
            cx.call_tool(&self.0, "look_up", &json!({ "item": item_in(&task.prompt.text()) })).await?;
        Ok(Outcome::completed(found.to_text()))
    }
}

/// A task that is an agent of its own: its model calls the tool, and reports.
fn thinking(world: &World) -> Result<ReactAgent> {
    let (step, report) = (world.call(STEP), world.call(REPORT));
    let (model, _) = model(move |request: &Request| match request.results().pop() {
        None => Reply::call("look_up", json!({ "item": item_in(&request.asked()) })).after(step),
        Some((found, _)) => Reply::text(found).after(report),
    });
    ReactAgent::builder("look_up", model).toolset(look_up(world)?).build()
}

fn item_in(prompt: &str) -> Option<usize> {
    prompt.split_whitespace().find_map(|word| word.parse().ok())
}
