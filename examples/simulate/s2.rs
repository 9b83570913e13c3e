//! S2: the five levels of autonomy, with an executor that is right with probability `p` in each round and a check that
//! accepts right work with probability `a` and wrong work with probability `b`; at most [`ROUNDS`] rounds.
//!
//! The closed form ([`closed`]): a round accepts with `q = p a + (1 - p) b`, so a task is accepted with
//! `1 - (1 - q)^n`, and accepted work is right with `p a / q`. Calls and money are sums over a random number of rounds;
//! their means and deviations follow by recursion from the list of possible rounds.
//!
//! Each cell is [`RUNS`] runs with a seed of its own. A measurement passes if it lies within the 99 % interval around
//! the closed form, over all comparisons together: with `m` comparisons each one has the risk 1 % / `m` (Bonferroni),
//! so the whole table of correct figures passes with a chance of at least 99 %, whatever the seed. Rates are compared
//! by the exact binomial test, means by the normal one.

mod closed;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use entourage::{
    Money, Result,
    agent::{Autonomy, AutonomyLevel, ReactAgent},
    provider::{Model, Request, ToolChoice},
    run::{Outcome, Status, StopReason},
    testkit::FakeTool,
};
use serde_json::json;

use crate::{
    kit::{Checks, Table, on_paused_time, runtime},
    model::{Meter, Reply, RequestExt, metered},
    stats::{Chance, deviations, is_plausible},
};
use closed::{Expected, Mean};

const ROUNDS: u32 = 3;
const RUNS: u64 = 5_000;
/// Number of runs whose check breaks down.
const BROKEN_RUNS: u64 = 100;
/// Risk of a false alarm over all comparisons.
const RISK: f64 = 0.01;
/// Probability that a judge gives no readable verdict, not even at the second try.
const GARBLED: f64 = 0.05;

/// Tokens in and out of the calls of each kind: fixed, so that money is a sum over calls.
const WORK: (u64, u64) = (1_000, 200);
const SUMMARY: (u64, u64) = (1_200, 80);
const CONFIRM: (u64, u64) = (1_300, 20);
const JUDGE: (u64, u64) = (500, 60);
const LOOK: (u64, u64) = (800, 40);
const VERDICT: (u64, u64) = (900, 30);

/// The level, and the probabilities of its agents.
#[derive(Debug, Clone, Copy)]
struct Setting {
    level: AutonomyLevel,
    /// Probability that the executor is right.
    p: f64,
    /// Probability that right work is accepted.
    a: f64,
    /// Probability that wrong work is accepted.
    b: f64,
}

/// Checks of each level with their `a` and `b`: an agent is lenient with itself, a judge sees words only, and a check
/// that looks for itself is hard to fool.
const CHECKS: [(AutonomyLevel, f64, f64); 5] = [
    (AutonomyLevel::React, 1.0, 1.0),
    (AutonomyLevel::Prompted, 0.95, 0.70),
    (AutonomyLevel::Judge, 0.85, 0.30),
    (AutonomyLevel::Verified, 0.90, 0.10),
    (AutonomyLevel::Dual, 0.95, 0.05),
];

/// Totals of many runs.
#[derive(Debug, Default)]
struct Measured {
    accepted: u64,
    right: u64,
    incomplete: u64,
    after_a_veto: u64,
    calls: u64,
    cost: Money,
}

pub(crate) fn run(checks: &mut Checks) -> Result<()> {
    println!("## S2\n");
    println!(
        "{RUNS} runs a row, at most {ROUNDS} rounds. `p`: the executor is right; `a`, `b`: right and wrong work is"
    );
    println!(
        "accepted. Each pair is measured / closed form; each must lie within the joint 99 % interval.\n"
    );
    let head =
        ["level", "p", "a", "b", "accepted", "accepted and right", "model calls", "cost", "after a veto"];
    let mut table = Table::new(head);
    let executors = [0.3, 0.7];
    let risk = RISK / (executors.len() * CHECKS.len() * 4) as f64;
    let settings = executors.map(|p| CHECKS.map(|(level, a, b)| Setting { level, p, a, b }));
    for (setting, measured) in settings.into_iter().flatten().zip(measure_all(&settings)?) {
        let Setting { level, p, a, b } = setting;
        let expected = closed::expected(setting);
        check(checks, setting, &measured, &expected, risk);
        let rate = |hits: u64, expected: f64| {
            format!("{:.1} / {:.1} %", 100.0 * hits as f64 / RUNS as f64, 100.0 * expected)
        };
        table.row([
            format!("L{} {level}", level.number()),
            format!("{p}"),
            if level == AutonomyLevel::React { "-".to_owned() } else { format!("{a}") },
            if level == AutonomyLevel::React { "-".to_owned() } else { format!("{b}") },
            rate(measured.accepted, expected.accepted),
            rate(measured.right, expected.right),
            format!("{:.2} / {:.2}", measured.calls as f64 / RUNS as f64, expected.calls.value),
            format!("${:.5} / {:.5}", dollars(measured.cost) / RUNS as f64, expected.cost.value),
            measured.after_a_veto.to_string(),
        ]);
    }
    println!("{table}");
    let mut accepted = 0;
    for (level, ..) in CHECKS.iter().skip(1) {
        accepted += unchecked(*level)?;
    }
    println!(
        "Where the check itself breaks down, at L2 to L5, {BROKEN_RUNS} runs each: {accepted} accepted.\n"
    );
    checks.same("S2: accepted without a check", accepted, 0);
    Ok(())
}

/// Measures all settings, each with a seed of its own; a thread for each executor.
fn measure_all(settings: &[[Setting; CHECKS.len()]]) -> Result<Vec<Measured>> {
    let measure_one = |(setting, seed): (&Setting, u64)| measure(*setting, seed);
    std::thread::scope(|scope| {
        let seeds = (1..).step_by(CHECKS.len());
        let threads: Vec<_> = settings
            .iter()
            .zip(seeds)
            .map(|(some, first)| scope.spawn(move || some.iter().zip(first..).map(measure_one).collect()))
            .collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(measured) => measured,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        Ok(joined.collect::<Result<Vec<Vec<_>>>>()?.into_iter().flatten().collect())
    })
}

fn check(checks: &mut Checks, setting: Setting, measured: &Measured, expected: &Expected, risk: f64) {
    let what = format!("S2 {} at p = {}", setting.level, setting.p);
    for (name, hits, rate) in
        [("accepted", measured.accepted, expected.accepted), ("right", measured.right, expected.right)]
    {
        checks.that(is_plausible(hits, RUNS, rate, risk), || {
            format!("{what}: {name} {hits} of {RUNS}, expected {rate:.4}")
        });
    }
    let means =
        [("calls", measured.calls as f64, &expected.calls), ("cost", dollars(measured.cost), &expected.cost)];
    for (name, sum, Mean { value, deviation }) in means {
        let mean = sum / RUNS as f64;
        // A value without variance is off by rounding alone.
        let bound = deviations(risk) * deviation / (RUNS as f64).sqrt() + 1e-9;
        checks.that((mean - value).abs() <= bound, || {
            format!("{what}: {name} {mean}, expected {value} +- {bound}")
        });
    }
    checks.same(&format!("{what}: accepted after a veto"), measured.after_a_veto, 0);
    checks.same(&format!("{what}: ended"), measured.accepted + measured.incomplete, RUNS);
}

fn dollars(money: Money) -> f64 {
    money.as_pico() as f64 / 1e12
}

/// State that the models of a setting share: chance, and the work that a checker can look at.
struct World {
    setting: Setting,
    chance: Chance,
    right: bool,
    /// The last verdict of the check.
    said_yes: bool,
    /// Number of looks of the discriminator before it decides.
    looks: usize,
    /// True if the judge will garble its second try too.
    garbling: bool,
    /// True if the service of the checker breaks down.
    breaks: bool,
}

type Shared = Arc<Mutex<World>>;

fn lock(world: &Shared) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    fn new(setting: Setting, seed: u64) -> Shared {
        let chance = Chance::new(seed);
        let (right, said_yes, looks, garbling, breaks) = (false, true, 0, false, false);
        Arc::new(Mutex::new(Self { setting, chance, right, said_yes, looks, garbling, breaks }))
    }

    /// Draws the verdict of the check on the work.
    fn verdict(&mut self) -> bool {
        let rate = if self.right { self.setting.a } else { self.setting.b };
        self.said_yes = self.chance.holds(rate);
        self.said_yes
    }
}

fn measure(setting: Setting, seed: u64) -> Result<Measured> {
    let (world, meter) = (World::new(setting, seed), Arc::new(Meter::default()));
    let agent = ladder(setting.level, &world, &meter)?;
    let mut measured = Measured::default();
    on_paused_time(async {
        for _ in 0..RUNS {
            lock(&world).said_yes = true;
            let outcome = runtime().build().session().start(&agent, "Write it.").outcome().await?;
            let world = lock(&world);
            if outcome.is_completed() {
                measured.accepted += 1;
                measured.right += u64::from(world.right);
                measured.after_a_veto += u64::from(!world.said_yes);
            } else if is_incomplete(&outcome) {
                measured.incomplete += 1;
            }
        }
        Ok(())
    })?;
    (measured.calls, measured.cost) = (meter.calls(), meter.cost());
    Ok(measured)
}

/// Number of accepted runs at a level whose check always fails to happen.
fn unchecked(level: AutonomyLevel) -> Result<u64> {
    let world = World::new(Setting { level, p: 1.0, a: 1.0, b: 1.0 }, 0);
    lock(&world).breaks = true;
    let agent = ladder(level, &world, &Arc::default())?;
    on_paused_time(async {
        let mut accepted = 0;
        for _ in 0..BROKEN_RUNS {
            let outcome = runtime().build().session().start(&agent, "Write it.").outcome().await;
            accepted += u64::from(outcome.is_ok_and(|outcome| outcome.is_completed()));
        }
        Ok(accepted)
    })
}

fn is_incomplete(outcome: &Outcome) -> bool {
    matches!(outcome.status, Status::Stopped(StopReason::Incomplete { iterations: ROUNDS, .. }))
}

fn ladder(level: AutonomyLevel, world: &Shared, meter: &Arc<Meter>) -> Result<Autonomy> {
    let role = |says: fn(&mut World, &Request) -> Reply| -> Model {
        let world = Arc::clone(world);
        metered(meter, move |request| says(&mut lock(&world), request))
    };
    let executor = ReactAgent::builder("executor", role(executor_says)).build()?;
    let look = FakeTool::new("look").requiring(&["at"]);
    let discriminator = ReactAgent::builder("verifier", role(discriminator_says)).tool(look).build()?;
    Autonomy::builder("writer", executor)
        .judge(role(judge_says))
        .discriminator(discriminator)
        .iterations(ROUNDS)
        .level(level)
        .build()
}

/// The executor works; when no tool may be called, it answers about its work: a summary, or at L2 the question if it
/// is done.
fn executor_says(world: &mut World, request: &Request) -> Reply {
    if request.tool_choice != ToolChoice::None {
        world.right = world.chance.holds(world.setting.p);
        return Reply::text("It is written.").taking(WORK.0, WORK.1);
    }
    if world.setting.level != AutonomyLevel::Prompted {
        return Reply::text("I wrote all of it.").taking(SUMMARY.0, SUMMARY.1);
    }
    if world.breaks {
        return Reply::failure("the connection broke");
    }
    let word = if world.verdict() { "Yes." } else { "No. The end is missing." };
    Reply::text(word).taking(CONFIRM.0, CONFIRM.1)
}

fn judge_says(world: &mut World, _: &Request) -> Reply {
    if world.breaks {
        return Reply::failure("the connection broke");
    }
    let second_try = std::mem::take(&mut world.garbling);
    if second_try || world.chance.holds(GARBLED) {
        (world.garbling, world.said_yes) = (!second_try, false);
        return Reply::text("Well done, I would say, all in all.").taking(JUDGE.0, JUDGE.1);
    }
    let verdict = json!({ "approved": world.verdict(), "reason": "I read it to its end." });
    Reply::text(verdict.to_string()).taking(JUDGE.0, JUDGE.1)
}

/// The discriminator looks one to three times, then decides.
fn discriminator_says(world: &mut World, request: &Request) -> Reply {
    if world.breaks {
        return Reply::failure("the connection broke");
    }
    let looked = request.results().len();
    if looked == 0 {
        world.looks =
            if world.chance.holds(1.0 / 3.0) { 1 } else { 2 + usize::from(world.chance.holds(0.5)) };
    }
    if looked < world.looks {
        return Reply::call("look", json!({ "at": format!("page {looked}") })).taking(LOOK.0, LOOK.1);
    }
    let reply = if world.verdict() {
        Reply::call("task_complete", json!({ "summary": "I read it to its end." }))
    } else {
        Reply::text("The end is missing.")
    };
    reply.taking(VERDICT.0, VERDICT.1)
}
