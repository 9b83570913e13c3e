//! Many teams at once on models that take 10 ms a call, beside the same calls by hand: lists of messages, a loop for
//! each item, and joined tasks.
//!
//! A team is a lead and three members. Its plan has three items: two side by side, and one after both.

use std::{collections::HashMap, sync::Arc, time::Duration};

use entourage_benches::median;
use entourage_core::tool::Access;
use entourage_runners::{
    ReactAgent,
    from_fn::typed,
    team::{Member, Team},
};
use entourage_runtime::AgentExt;
use futures_util::{
    FutureExt,
    future::{BoxFuture, join, join_all},
};
use serde_json::{Value, json};
use tokio::runtime::Runtime as Tokio;

use crate::{
    least, seconds,
    stand_in::{self, Said, pass},
};

const CALL: Duration = Duration::from_millis(10);
const TASK: &str = "Do it.";

fn plan() -> String {
    let item = |id: &str, after: &[String]| stand_in::item(id, "code", None, after);
    stand_in::plan(&[item("one", &[]), item("two", &[]), item("three", &["one".into(), "two".into()])])
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Add {
    a: usize,
    b: usize,
}

/// A team whose members make `calls` model calls for each item, with one tool call between two of them.
fn team(calls: usize) -> Team {
    let add = Arc::new(typed("add", "Adds.", Access::NONE, |Add { a, b }| async move { Ok(a + b) }));
    let member = |name: &str| {
        let model = stand_in::model(CALL, move |request| match (request.messages.len() - 1) / 2 {
            made if made + 1 < calls => Said::Calls(vec![("add", json!({ "a": made, "b": 1 }))]),
            made => Said::Text(format!("sum {made}")),
        });
        let agent = ReactAgent::builder(name, model).tools([Arc::clone(&add) as _]).build().unwrap();
        Member::new(agent)
    };
    let members = ["ann", "bob", "eve"].map(member);
    Team::builder("crew", stand_in::lead(CALL, &plan())).members(members).build().unwrap()
}

type Tool = Box<dyn Fn(Value) -> BoxFuture<'static, Value> + Send + Sync>;

/// The floor.
struct ByHand {
    calls: usize,
    tools: HashMap<&'static str, Tool>,
    plan: String,
}

#[derive(serde::Deserialize)]
struct Plan {
    items: Vec<Value>,
}

fn message(role: &str, content: &str) -> Value {
    json!({ "role": role, "content": content })
}

impl ByHand {
    fn new(calls: usize) -> Self {
        let add = |arguments| {
            async move {
                let Add { a, b } = serde_json::from_value(arguments).unwrap();
                json!(a + b)
            }
            .boxed()
        };
        Self { calls, tools: HashMap::from([("add", Box::new(add) as Tool)]), plan: plan() }
    }

    async fn item(&self, task: &str) -> String {
        let mut messages = vec![message("user", task)];
        for made in 0.. {
            pass(CALL).await;
            if made + 1 >= self.calls {
                messages.push(message("assistant", &format!("sum {made}")));
                break;
            }
            let arguments = json!({ "a": made, "b": 1 });
            let function = json!({ "name": "add", "arguments": arguments.to_string() });
            let call = json!({ "id": "call0", "type": "function", "function": function });
            messages.push(json!({ "role": "assistant", "tool_calls": [call] }));
            let result = self.tools["add"](arguments).await;
            messages.push(json!({ "role": "tool", "tool_call_id": "call0", "content": result.to_string() }));
        }
        messages.last().and_then(|message| message["content"].as_str()).unwrap_or_default().to_owned()
    }

    async fn run(&self, task: &str) -> String {
        pass(CALL).await;
        let plan: Plan = serde_json::from_str(&self.plan).unwrap();
        let tasks: Vec<_> = plan.items.iter().map(|item| item["task"].as_str().unwrap()).collect();
        let (one, two) = join(self.item(tasks[0]), self.item(tasks[1])).await;
        let three = self.item(&format!("{}\n\n{one}\n\n{two}", tasks[2])).await;
        let mut messages = vec![message("user", task), message("assistant", &self.plan)];
        messages.push(message("user", &[one, two, three].join("\n\n")));
        pass(CALL).await;
        messages.push(message("assistant", "Done."));
        "Done.".to_owned()
    }
}

async fn by_hand(team: Arc<ByHand>, count: usize) {
    let run = |_| {
        let team = Arc::clone(&team);
        tokio::spawn(async move { team.run(TASK).await })
    };
    let ended = join_all((0..count).map(run)).await;
    assert!(ended.into_iter().all(|end| end.unwrap() == "Done."));
}

async fn ours(team: Team, count: usize) {
    let started: Vec<_> = (0..count).map(|_| team.start(TASK)).collect();
    let ended = join_all(started.into_iter().map(|run| run.outcome())).await;
    assert!(ended.into_iter().all(|end| end.unwrap().text == "Done."));
}

/// Seconds of processor time that this process has taken, in steps of 10 ms; not a number where that is not known.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name before them may hold spaces; user and system time are the 12th and 13th field after it.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields.split_whitespace().skip(11).take(2));
    let ticks: Option<f64> = fields.and_then(|fields| fields.map(|field| field.parse::<f64>().ok()).sum());
    ticks.map_or(f64::NAN, |ticks| ticks / 100.0)
}

/// Returns the ratio of the quickest samples, since another program may slow down one side only.
fn compare(tokio: &Tokio, calls: usize, count: usize, samples: usize) -> f64 {
    let (floor, team) = (Arc::new(ByHand::new(calls)), team(calls));
    let (mut floors, mut teams, mut spent) = (Vec::new(), Vec::new(), [0.0; 2]);
    for _ in 0..samples {
        let began = cpu();
        floors.push(seconds(tokio, by_hand(Arc::clone(&floor), count)));
        let between = cpu();
        teams.push(seconds(tokio, ours(team.clone(), count)));
        spent[0] += between - began;
        spent[1] += cpu() - between;
    }
    let ratio = least(&teams) / least(&floors);
    println!(
        "{count} teams at once, {calls} model calls an item: {:.0} ms (least {:.0}), floor {:.0} ms (least {:.0}), ratio {ratio:.2}",
        median(teams.clone()) * 1e3,
        least(&teams) * 1e3,
        median(floors.clone()) * 1e3,
        least(&floors) * 1e3,
    );
    let [by_hand, ours] = spent.map(|seconds| seconds * 1e6 / (samples * count) as f64);
    println!("processor time of such a team: {ours:.0} µs, floor {by_hand:.0} µs");
    ratio
}

pub(crate) fn measure(quick: bool) -> f64 {
    // A runtime as in a server: the runs share its threads.
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (count, samples) = if quick { (10, 1) } else { (1_000, 15) };
    let long = compare(&tokio, 10, count, samples);
    // A team that does next to nothing shows what the team itself takes.
    compare(&tokio, 1, count, samples);
    long
}
