//! S6: teams of 2, 4 and 8 members on random graphs, and then with a slow member and one that fails, with and without
//! what was learned of them.
//!
//! A graph has work `W` and a critical path `P`, in seconds of a member of full speed. The bounds:
//!
//! * `m` members of full speed: no schedule takes less than `max(P, W / m)`, and one that lets nobody idle while an
//!   item is ready takes at most `W / m + (1 - 1 / m) P` (Graham 1966).
//! * One of them fails at the end of each item, which then goes to a senior of the next size, and another one is slow
//!   by the factor `s` (1, or [`SLOW`]). At least `max(P, W / (m - 1 + 1 / s))`, since the senior stands in for the one
//!   that fails. At most, with the work `E` that the senior did: follow the path of items back from the last end. Each
//!   of its moments is work on it at a speed of at least `1 / s` (`s P` in all), an attempt at it that fails (`P`), a
//!   wait while all members are busy (`(W - E) / (m - 2 + 1 / s)`), or a wait while the senior is (`E`).
//!
//! The failing and the slow member are the first ones of the list, so that without knowledge they are asked first.
//! What is learned in one run of each graph orders the members of the next one. A slow member keeps its place then: it
//! was asked most, so its smoothed rate of success is the highest, and times decide among equal rates alone.

use std::{sync::Arc, time::Duration};

use entourage::{
    Error, ErrorKind, Result,
    agent::ReactAgent,
    graph::NodeState,
    provider::{Model, Request, Size},
    team::{Member, Performance, Team, TeamReport},
};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    kit::{Checks, Table, on_paused_time, runtime, seconds},
    model::{Reply, RequestExt, model},
    stats::Chance,
};

const ITEMS: usize = 48;
const GRAPHS: u64 = 5;
/// Items before it that an item may come after, and the chance of each.
const NEAR: usize = 12;
const EDGE: f64 = 0.15;
/// Longest item, in seconds.
const LONGEST: u32 = 10;
const SLOW: u32 = 3;

/// Items with their seconds and the items that they come after.
type Graph = Arc<[(u32, Vec<usize>)]>;

fn random(seed: u64) -> Graph {
    let mut chance = Chance::new(seed);
    let item = |place: usize| {
        let drawn = chance.unit() * f64::from(LONGEST);
        let time = (1..LONGEST).find(|time| drawn < f64::from(*time)).unwrap_or(LONGEST);
        (time, (place.saturating_sub(NEAR)..place).filter(|_| chance.holds(EDGE)).collect())
    };
    (0..ITEMS).map(item).collect()
}

fn work(graph: &Graph) -> f64 {
    graph.iter().map(|(time, _)| f64::from(*time)).sum()
}

fn critical_path(graph: &Graph) -> f64 {
    let mut ends: Vec<f64> = Vec::new();
    for (time, after) in graph.iter() {
        let start = after.iter().filter_map(|before| ends.get(*before)).copied().fold(0.0, f64::max);
        ends.push(start + f64::from(*time));
    }
    ends.into_iter().fold(0.0, f64::max)
}

/// What is wrong with the first members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    None,
    Fails,
    SlowAndFails,
}

impl Trouble {
    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Fails => "one fails",
            Self::SlowAndFails => "one fails, one is slow",
        }
    }

    /// Returns the factor of the slow member.
    fn slowness(self) -> u32 {
        if self == Self::SlowAndFails { SLOW } else { 1 }
    }
}

/// The least and the most time of a run, in seconds.
fn bounds(graph: &Graph, members: usize, trouble: Trouble, by_senior: f64) -> (f64, f64) {
    let (work, path, m, s) =
        (work(graph), critical_path(graph), members as f64, f64::from(trouble.slowness()));
    if trouble != Trouble::None {
        let most = s * path + path + (work - by_senior) / (m - 2.0 + 1.0 / s) + by_senior;
        return (path.max(work / (m - 1.0 + 1.0 / s)), most);
    }
    (path.max(work / m), work / m + (1.0 - 1.0 / m) * path)
}

/// Figures of several runs, in seconds.
#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    time: f64,
    least: f64,
    most: f64,
    failures: u32,
}

impl Sums {
    fn row(&self, members: usize, trouble: Trouble, learned: &str) -> [String; 8] {
        let mean = |sum: f64| seconds(Duration::from_secs_f64(sum / GRAPHS as f64));
        [
            members.to_string(),
            trouble.name().to_owned(),
            learned.to_owned(),
            mean(self.time),
            mean(self.least),
            format!("{:.2}", self.time / self.least),
            mean(self.most),
            format!("{:.1}", f64::from(self.failures) / GRAPHS as f64),
        ]
    }
}

pub(crate) fn run(checks: &mut Checks) -> Result<()> {
    println!("## S6\n");
    println!(
        "{GRAPHS} random graphs of {ITEMS} items, by a team; means. One slow member takes {SLOW} times as long, one fails at"
    );
    println!(
        "the end of each item, which then goes to a senior of the next size. No schedule is below the bound.\n"
    );
    let mut table =
        Table::new(["members", "trouble", "learned", "time", "bound", "time / bound", "at most", "failures"]);
    for members in [2, 4, 8] {
        let well = rows(checks, members, Trouble::None, &Performance::new(), &mut Performance::new())?;
        table.row(well.row(members, Trouble::None, "-"));
        for trouble in [Trouble::Fails, Trouble::SlowAndFails] {
            let mut learned = Performance::new();
            let before = rows(checks, members, trouble, &Performance::new(), &mut learned)?;
            let after = rows(checks, members, trouble, &learned, &mut Performance::new())?;
            table.row(before.row(members, trouble, "no"));
            table.row(after.row(members, trouble, "yes"));
            // Where both of two members are in trouble, there is no better one to ask first.
            let has_choice = members > 2 || trouble == Trouble::Fails;
            let is_better = after.time <= before.time || !has_choice;
            checks.that(is_better && after.failures <= before.failures, || {
                let what = trouble.name();
                format!("S6 {members} members, {what}: {after:?} with what was learned, {before:?} without")
            });
        }
    }
    println!("{table}");
    Ok(())
}

/// Runs a team on each graph, checks the bounds of each run, and learns from all.
fn rows(
    checks: &mut Checks,
    members: usize,
    trouble: Trouble,
    known: &Performance,
    learned: &mut Performance,
) -> Result<Sums> {
    let mut sums = Sums::default();
    for seed in 1..=GRAPHS {
        let graph = random(seed);
        let (time, report) = measure(&graph, members, trouble, known)?;
        learned.learn_from(&report);
        let failures = |attempts: u32| attempts.saturating_sub(1);
        // The second attempt at an item is the senior's.
        let nodes = report.graph.nodes.iter().zip(graph.iter());
        let by_senior =
            nodes.filter(|(node, _)| node.attempts > 1).map(|(_, (time, _))| f64::from(*time)).sum();
        let (least, most) = bounds(&graph, members, trouble, by_senior);
        let (what, time) =
            (format!("S6 graph {seed}, {members} members, {}", trouble.name()), time.as_secs_f64());
        checks.same(&format!("{what}: items done"), report.graph.count(NodeState::Completed), ITEMS);
        // Timers count milliseconds, which a longer path of items adds up.
        checks.that((least - 0.1..=most + 0.1).contains(&time), || {
            format!("{what}: {time} s, not within {least} and {most} s")
        });
        sums.time += time;
        sums.least += least;
        sums.most += most;
        sums.failures += report.graph.nodes.iter().map(|node| failures(node.attempts)).sum::<u32>();
    }
    Ok(sums)
}

// ---- the simulation

fn measure(
    graph: &Graph,
    members: usize,
    trouble: Trouble,
    known: &Performance,
) -> Result<(Duration, TeamReport)> {
    let team = team(graph, members, trouble, known)?;
    on_paused_time(async {
        let (began, session) = (Instant::now(), runtime().build().session());
        let outcome = session.start(&team, "Do all of it.").outcome().await?;
        let time = began.elapsed();
        if !outcome.is_completed() {
            return Err(Error::new(ErrorKind::Internal, format!("the team ended otherwise: {outcome}")));
        }
        Ok((time, TeamReport::from_events(&session.events(0, usize::MAX).await?)?))
    })
}

fn team(graph: &Graph, members: usize, trouble: Trouble, known: &Performance) -> Result<Team> {
    let member = |place: usize| {
        let fails = place == 0 && trouble != Trouble::None;
        let factor = if place == 1 { trouble.slowness() } else { 1 };
        worker(&format!("member-{place}"), graph, factor, fails).map(Member::new)
    };
    let all = (0..members).map(member).collect::<Result<Vec<_>>>()?;
    let senior = Member::new(worker("senior", graph, 1, false)?).size(Size::L);
    let team = Team::builder("crew", lead(graph)).members(all).member(senior);
    team.at_once(members + 1).performance(known).build()
}

fn worker(name: &str, graph: &Graph, factor: u32, fails: bool) -> Result<ReactAgent> {
    let graph = Arc::clone(graph);
    let (model, _) = model(move |request: &Request| {
        let place = request.asked().split_whitespace().find_map(|word| word.parse::<usize>().ok());
        let time = place.and_then(|place| graph.get(place)).map_or(0, |(time, _)| *time);
        let reply = if fails { Reply::failure("the connection broke") } else { Reply::text("Done.") };
        reply.after(Duration::from_secs(u64::from(time * factor)))
    });
    ReactAgent::builder(name, model).build()
}

/// The lead plans, and answers.
fn lead(graph: &Graph) -> Model {
    let item = |(place, (time, after)): (usize, &(u32, Vec<usize>))| {
        let after: Vec<_> = after.iter().map(|before| format!("item-{before}")).collect();
        let task = format!("Do item {place} .");
        json!({ "id": format!("item-{place}"), "task": task, "type": "edit", "after": after, "expected_seconds": time })
    };
    let plan = json!({ "items": graph.iter().enumerate().map(item).collect::<Vec<_>>() }).to_string();
    let (model, _) = model(move |request| match request.prompts() {
        1 => Reply::text(plan.as_str()),
        _ => Reply::text("All is done."),
    });
    model
}
