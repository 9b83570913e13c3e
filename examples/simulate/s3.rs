//! S3: one agent against a lead with 3, 5 and 10 sub-agents, on the same work: thirty items to look up.
//!
//! Each item costs one model call of `M` and one tool call of `T`; an answer costs one more model call. A lead hands
//! out equal shares of `n` items in one step, waits for all, and sums up, so with `share(n) = n (M + T) + M` the
//! closed forms are:
//!
//! * nothing goes wrong: `share(30)` for one agent, `M + share(n) + M` with sub-agents;
//! * a straggler: the first three items are ten times as slow to look up, `27 T` more for the agent that has them;
//! * a worker breaks down at item 15 and is asked again once: one agent has lost all its work and its caller starts
//!   over, a lead repeats one share;
//! * it breaks down again: one agent gives nothing, a lead reports what it has;
//! * at most 20 requests a minute for all together: requests begin in the order in which they are made, each one no
//!   earlier than a minute after the one that is twenty before it.
//!
//! Tokens: a call takes 30, any text as many as it has words. Each look-up is read again in every later step of the
//! same conversation, so tokens grow with the square of a share.

mod closed;

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use entourage::{
    Money, Result,
    agent::{AgentTool, ReactAgent},
    event::{Envelope, Event},
    layers::RateLimit,
    provider::{Model, Request},
    run::Limits,
    tool::{self, Access, ToolError},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use closed::{Share, expected};

use crate::{
    kit::{Checks, Table, Watch, on_paused_time, runtime, seconds},
    model::{Meter, Reply, RequestExt, metered},
};

const M: Duration = Duration::from_secs(2);
const T: Duration = Duration::from_secs(3);
const ITEMS: u32 = 30;
/// Number of items whose look-up takes ten times as long, if there is a straggler.
const SLOW: u32 = 3;
/// The item at which a worker breaks down, if one does.
const BREAKS: u32 = 15;
const REQUESTS_A_MINUTE: usize = 20;
const WORKER: &str = "You look up items, one at a time, and report on each.";
const LEAD: &str = "You have others look up items, and report on all.";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    None,
    Straggler,
    BreaksOnce,
    BreaksTwice,
    RateLimit,
}

impl Trouble {
    const ALL: [(Self, &'static str); 5] = [
        (Self::None, "nothing goes wrong"),
        (Self::Straggler, "straggler: 3 items, 10x slower"),
        (Self::BreaksOnce, "a worker fails once, is asked again"),
        (Self::BreaksTwice, "a worker fails twice, is reported"),
        (Self::RateLimit, "20 requests a minute for all"),
    ];
}

/// Result of one simulation.
struct Measured {
    time: Duration,
    results: u32,
    calls: u64,
    tokens: (u64, u64),
    cost: Money,
}

pub(crate) fn run(checks: &mut Checks) -> Result<()> {
    println!("## S3\n");
    println!(
        "{ITEMS} items to look up, a model call of {} and a tool call of {} each: one agent,",
        seconds(M),
        seconds(T)
    );
    println!("and a lead that hands equal shares to sub-agents. Tokens are the words of what is said.\n");
    let mut table = Table::new([
        "trouble",
        "agents",
        "time",
        "computed",
        "results",
        "model calls",
        "tokens in",
        "tokens out",
        "cost",
    ]);
    for (trouble, name) in Trouble::ALL {
        for workers in [1, 3, 5, 10] {
            let measured = measure(trouble, workers)?;
            let expected = expected(trouble, workers);
            check(checks, &format!("S3 {name}, {workers} agents"), &measured, &expected);
            table.row([
                name.to_owned(),
                if workers == 1 { "one".to_owned() } else { format!("a lead and {workers}") },
                seconds(measured.time),
                seconds(expected.time),
                format!("{} of {ITEMS}", measured.results),
                measured.calls.to_string(),
                measured.tokens.0.to_string(),
                measured.tokens.1.to_string(),
                format!("${:.3}", measured.cost.as_pico() as f64 / 1e12),
            ]);
        }
    }
    println!("{table}");
    Ok(())
}

fn check(checks: &mut Checks, what: &str, measured: &Measured, expected: &Measured) {
    checks.same(&format!("{what}: results"), measured.results, expected.results);
    checks.same(&format!("{what}: model calls"), measured.calls, expected.calls);
    checks.same(&format!("{what}: tokens"), measured.tokens, expected.tokens);
    checks.same(&format!("{what}: cost"), measured.cost, expected.cost);
    let error = measured.time.abs_diff(expected.time).as_secs_f64() / expected.time.as_secs_f64();
    checks.that(error < 0.01, || format!("{what}: {:?} instead of {:?}", measured.time, expected.time));
}

// ---- the simulation

async fn look_up(Look { item, slow }: Look) -> Result<String, ToolError> {
    tokio::time::sleep(if slow { T * 10 } else { T }).await;
    Ok(fact(item))
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Look {
    item: u32,
    /// Whether its source is the slow one.
    slow: bool,
}

fn measure(trouble: Trouble, workers: u32) -> Result<Measured> {
    let meter = Arc::new(Meter::default());
    let (mut lead, mut worker) = (
        metered(&meter, move |it| lead_says(it, workers)),
        metered(&meter, move |it| worker_says(it, trouble)),
    );
    if trouble == Trouble::RateLimit {
        let limit = RateLimit::builder()
            .requests_per_minute(REQUESTS_A_MINUTE as u64)
            .concurrency(16..=16)
            .timeout(None);
        let limit = limit.build()?;
        (lead, worker) = (lead.layer(limit.clone()), worker.layer(limit));
    }
    let worker = worker_on(worker)?;
    on_paused_time(async {
        let (watch, began) = (Watch::default(), Instant::now());
        let runtime = runtime().observer(watch.clone()).build();
        let mut outcome;
        if workers == 1 {
            outcome = runtime.session().start(&worker, ask(0, ITEMS, false)).outcome().await;
            if outcome.is_err() {
                outcome = runtime.session().start(&worker, ask(0, ITEMS, true)).outcome().await;
            }
        } else {
            let lead = lead_on(lead, &worker)?;
            outcome = runtime.session().start(&lead, ask(0, ITEMS, false)).outcome().await;
        }
        let text = outcome.map(|outcome| outcome.text).unwrap_or_default();
        let results = (0..ITEMS).filter(|item| text.contains(&report(*item))).count();
        Ok(Measured {
            time: began.elapsed(),
            results: u32::try_from(results).unwrap_or(u32::MAX),
            calls: meter.calls(),
            tokens: meter.tokens(),
            cost: cost_in(&watch),
        })
    })
}

/// Cost of all calls in the whole tree, as the runtime reports it.
fn cost_in(watch: &Watch) -> Money {
    let cost = |envelope: &Envelope| match &envelope.event {
        Event::ModelFinished(reply) => reply.cost,
        _ => None,
    };
    watch.events().iter().filter_map(cost).sum()
}

fn worker_on(model: Model) -> Result<ReactAgent> {
    let look_up = tool::typed("look_up", "Looks up an item.", Access::READ, look_up);
    ReactAgent::builder("worker", model).instructions(WORKER).tool(look_up).build()
}

fn lead_on(model: Model, worker: &ReactAgent) -> Result<ReactAgent> {
    let mut limits = Limits::default();
    limits.parallel_tools = NonZeroUsize::new(10).unwrap_or(NonZeroUsize::MIN);
    let hand_out = AgentTool::new(worker.clone()).with_name("worker");
    ReactAgent::builder("lead", model).instructions(LEAD).tool(hand_out).limits(limits).build()
}

/// The worker looks up the items that its prompt names, and reports.
fn worker_says(request: &Request, trouble: Trouble) -> Reply {
    let asked = Asked::read(&request.first_asked());
    let looked = u32::try_from(request.results().len()).unwrap_or(u32::MAX);
    let item = asked.first + looked;
    let breaks = item < asked.end
        && match trouble {
            Trouble::BreaksOnce => item == BREAKS && !asked.again,
            Trouble::BreaksTwice => item == BREAKS,
            _ => false,
        };
    let reply = if breaks {
        Reply::failure("the connection broke")
    } else if item < asked.end {
        let slow = trouble == Trouble::Straggler && item < SLOW;
        Reply::call("look_up", json!({ "item": item, "slow": slow }))
    } else {
        Reply::text((asked.first..asked.end).map(report).collect::<Vec<_>>().join(" "))
    };
    reply.after(M)
}

/// The lead hands out all shares at once, repeats a failed one once, and reports the results.
fn lead_says(request: &Request, workers: u32) -> Reply {
    let results = request.results();
    let shares: Vec<_> = Share::of(workers).collect();
    let prompt = |share: &Share, again| json!({ "prompt": ask(share.first, share.items, again) });
    let failed = results.iter().zip(&shares).find(|((_, is_error), _)| *is_error);
    let reply = match failed {
        _ if results.is_empty() => {
            Reply::default().and_calls("worker", shares.iter().map(|share| prompt(share, false)))
        }
        Some((_, share)) if results.len() == shares.len() => Reply::call("worker", prompt(share, true)),
        _ => {
            let came = results.iter().filter(|(_, is_error)| !is_error).map(|(text, _)| text.as_str());
            Reply::text(came.collect::<Vec<_>>().join(" "))
        }
    };
    reply.after(M)
}

// ---- what is said

fn ask(first: u32, items: u32, again: bool) -> String {
    let again = if again { "once more" } else { "for the first time" };
    format!("Look up items {first} to {} {again}.", first + items)
}

/// A prompt, parsed back.
struct Asked {
    first: u32,
    end: u32,
    again: bool,
}

impl Asked {
    fn read(prompt: &str) -> Self {
        let mut numbers = prompt.split_whitespace().filter_map(|word| word.parse().ok());
        let (first, end) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        Self { first, end, again: prompt.contains("once more") }
    }
}

fn fact(item: u32) -> String {
    format!("item {item}:{}", " and so on".repeat(50))
}

fn report(item: u32) -> String {
    format!("Item {item} is{} fine.", " quite".repeat(16))
}
