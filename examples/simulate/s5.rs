//! S5: a cascade of three sizes of models, as FrugalGPT has it (arXiv 2305.05176): the smallest one works first, and
//! what its check does not accept goes one size up. It is a graph in which each node escalates from S over M to L.
//!
//! Size `i` is right with probability `p_i`; its check accepts right work with `a` and wrong work with `b`, so it
//! accepts with `q_i = p_i a + (1 - p_i) b`. The last size is not checked: `q_L = 1`. Its closed forms:
//!
//! * expected cost: `sum_i c_i x product_(j < i) (1 - q_j)`;
//! * quality, the chance that the work is right: `sum_i r_i x product_(j < i) (1 - q_j)` with `r_i = p_i a`, and
//!   `r_L = p_L`.
//!
//! A cascade that always takes L costs `c_L` and is right with `p_L`. Measurements are compared as in S2.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use entourage::{
    Error, ErrorKind, Prices, Result, Usage,
    agent::{Agent, ReactAgent},
    graph::{NodeEnd, NodeState, TaskGraph},
    provider::{Profile, Size},
    run::{Outcome, RunContext, Task},
};

use crate::{
    kit::{Checks, Table, on_paused_time},
    model::{Reply, metered},
    stats::{Chance, deviations, is_plausible},
};

/// Nodes of one graph, and graphs of one row.
const NODES: u64 = 500;
const GRAPHS: u64 = 8;
const ITEMS: u64 = NODES * GRAPHS;
/// Risk of a false alarm over all comparisons.
const RISK: f64 = 0.01;
/// Tokens in and out of each call.
const TOKENS: (u64, u64) = (1_000, 200);
const RIGHT: &str = "right";
const WRONG: &str = "wrong";

const SIZES: [Size; 3] = [Size::S, Size::M, Size::L];
/// Prices of each size in millionths of a dollar per million tokens, in and out.
const PRICES: [(u64, u64); 3] = [(150_000, 600_000), (800_000, 4_000_000), (3_000_000, 15_000_000)];

/// The probabilities of a row.
#[derive(Debug, Clone, Copy)]
struct Setting {
    name: &'static str,
    /// Probability that each size is right.
    p: [f64; 3],
    /// Probability that right work is accepted.
    a: f64,
    /// Probability that wrong work is accepted.
    b: f64,
}

const SETTINGS: [Setting; 5] = [
    Setting { name: "easy work, a good check", p: [0.80, 0.90, 0.95], a: 0.95, b: 0.05 },
    Setting { name: "hard work, a good check", p: [0.30, 0.60, 0.90], a: 0.95, b: 0.05 },
    Setting { name: "easy work, a lenient check", p: [0.80, 0.90, 0.95], a: 1.00, b: 0.50 },
    Setting { name: "hard work, a lenient check", p: [0.30, 0.60, 0.90], a: 1.00, b: 0.50 },
    Setting { name: "a check that accepts nothing", p: [0.80, 0.90, 0.95], a: 0.00, b: 0.00 },
];

/// What is expected of one item.
#[derive(Debug, Default)]
struct Expected {
    cost: f64,
    deviation: f64,
    quality: f64,
}

impl Setting {
    /// Returns the chance that size `place` accepts, and that it accepts and is right.
    fn chances(&self, place: usize) -> (f64, f64) {
        let p = self.p.get(place).copied().unwrap_or_default();
        if place + 1 == SIZES.len() { (1.0, p) } else { (p * self.a + (1.0 - p) * self.b, p * self.a) }
    }

    fn expected(&self) -> Expected {
        let (mut reached, mut paid, mut square) = (1.0, 0.0, 0.0);
        let mut expected = Expected::default();
        for (place, cost) in costs().into_iter().enumerate() {
            let (accepts, right) = self.chances(place);
            paid += cost;
            expected.cost += reached * cost;
            expected.quality += reached * right;
            // The cost of an item that ends here, squared.
            square += reached * accepts * paid * paid;
            reached *= 1.0 - accepts;
        }
        expected.deviation = (square - expected.cost * expected.cost).max(0.0).sqrt();
        expected
    }
}

/// Cost of a call of each size, in dollars.
fn costs() -> [f64; 3] {
    let usage = Usage::new(TOKENS.0, TOKENS.1);
    PRICES.map(|prices| priced(prices).cost(&usage).map_or(0.0, |cost| cost.as_pico() as f64 / 1e12))
}

fn priced((input, output): (u64, u64)) -> Prices {
    Prices::per_million_micros(input, output)
}

/// Totals of many items.
#[derive(Debug, Default)]
struct Measured {
    done: u64,
    right: u64,
    cost: f64,
}

pub(crate) fn run(checks: &mut Checks) -> Result<()> {
    println!("## S5\n");
    println!(
        "{ITEMS} items a row, from a model of size S over M to L. `p`: the model is right; `a`, `b`: right and wrong work"
    );
    println!(
        "is accepted. Each pair is measured / closed form; each must lie within the joint 99 % interval.\n"
    );
    let mut table =
        Table::new(["setting", "p", "a", "b", "cost of an item", "of always L", "quality", "of always L"]);
    let risk = RISK / (SETTINGS.len() * 2) as f64;
    let [.., large] = costs();
    for (setting, seed) in SETTINGS.into_iter().zip(1..) {
        let (measured, expected) = (measure(setting, seed)?, setting.expected());
        check(checks, setting, &measured, &expected, risk);
        let cost = measured.cost / ITEMS as f64;
        let quality = measured.right as f64 / ITEMS as f64;
        let [p_s, p_m, p_l] = setting.p;
        table.row([
            setting.name.to_owned(),
            format!("{p_s} {p_m} {p_l}"),
            setting.a.to_string(),
            setting.b.to_string(),
            format!("${cost:.5} / {:.5}", expected.cost),
            format!("{:.0} %", 100.0 * cost / large),
            format!("{:.1} / {:.1} %", 100.0 * quality, 100.0 * expected.quality),
            format!("{:.1} %", 100.0 * p_l),
        ]);
    }
    println!("{table}");
    Ok(())
}

fn check(checks: &mut Checks, setting: Setting, measured: &Measured, expected: &Expected, risk: f64) {
    let what = format!("S5 {}", setting.name);
    checks.same(&format!("{what}: items done"), measured.done, ITEMS);
    checks.that(is_plausible(measured.right, ITEMS, expected.quality, risk), || {
        format!("{what}: right {} of {ITEMS}, expected {:.4}", measured.right, expected.quality)
    });
    let mean = measured.cost / ITEMS as f64;
    // A value without variance is off by rounding alone.
    let bound = deviations(risk) * expected.deviation / (ITEMS as f64).sqrt() + 1e-9;
    checks.that((mean - expected.cost).abs() <= bound, || {
        format!("{what}: cost {mean}, expected {} +- {bound}", expected.cost)
    });
}

// ---- the simulation

/// An agent of one size: its model works, and a check accepts the work or not.
#[derive(Clone)]
struct Checked {
    name: String,
    works: ReactAgent,
    chance: Arc<Mutex<Chance>>,
    setting: Setting,
    is_last: bool,
}

#[async_trait]
impl Agent for Checked {
    fn name(&self) -> &str {
        &self.name
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        let done = cx.ask("works", &self.works, task).await?;
        let accepts = if done.text == RIGHT { self.setting.a } else { self.setting.b };
        if self.is_last || self.chance.lock().unwrap_or_else(PoisonError::into_inner).holds(accepts) {
            return Ok(done);
        }
        Err(Error::new(ErrorKind::Tool, "the work was not accepted"))
    }
}

fn crew(setting: Setting, seed: u64) -> Result<Vec<(Size, Checked)>> {
    let chance = Arc::new(Mutex::new(Chance::new(seed)));
    let of = |(place, size): (usize, Size)| {
        let (drawn, p) = (Arc::clone(&chance), setting.p.get(place).copied().unwrap_or_default());
        let model = metered(&Arc::default(), move |_| {
            let is_right = drawn.lock().unwrap_or_else(PoisonError::into_inner).holds(p);
            Reply::text(if is_right { RIGHT } else { WRONG }).taking(TOKENS.0, TOKENS.1)
        });
        let mut profile = Profile::default();
        profile.prices = PRICES.get(place).copied().map(priced);
        let works = ReactAgent::builder("works", model.with_profile(profile)).build()?;
        let (name, chance) = (format!("of-size-{size}").to_lowercase(), Arc::clone(&chance));
        Ok((size, Checked { name, works, chance, setting, is_last: place + 1 == SIZES.len() }))
    };
    SIZES.into_iter().enumerate().map(of).collect()
}

fn measure(setting: Setting, seed: u64) -> Result<Measured> {
    let crew = crew(setting, seed)?;
    let Some((_, first)) = crew.first() else { return Ok(Measured::default()) };
    let graph = TaskGraph::builder("cascade").limit_each_agent(10);
    for item in 0..NODES {
        graph.agent(format!("item-{item}"), first, "Do it.").escalate(crew.clone());
    }
    let graph = graph.build()?;
    let mut measured = Measured::default();
    on_paused_time(async {
        for _ in 0..GRAPHS {
            let report = graph.run("Do all of it.").await?.report();
            measured.done += report.count(NodeState::Completed) as u64;
            let outputs = report.nodes.iter().filter_map(|node| match &node.end {
                Some(NodeEnd::Completed(value)) => Some(value.to_text()),
                _ => None,
            });
            measured.right += outputs.filter(|text| text == RIGHT).count() as u64;
            measured.cost += report.cost().map_or(f64::NAN, |cost| cost.as_pico() as f64 / 1e12);
        }
        Ok(())
    })?;
    Ok(measured)
}
