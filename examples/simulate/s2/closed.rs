//! The closed form of a task that is worked on and checked in rounds.

use entourage::agent::AutonomyLevel;

use super::{CONFIRM, GARBLED, JUDGE, LOOK, ROUNDS, SUMMARY, Setting, VERDICT, WORK, dollars};
use crate::model::price;

/// Expected values of a task.
#[derive(Debug)]
pub(super) struct Expected {
    /// Probability that it is accepted.
    pub(super) accepted: f64,
    /// Probability that it is accepted and right.
    pub(super) right: f64,
    pub(super) calls: Mean,
    /// In dollars.
    pub(super) cost: Mean,
}

#[derive(Debug)]
pub(super) struct Mean {
    pub(super) value: f64,
    pub(super) deviation: f64,
}

/// One possible course of a round.
#[derive(Debug, Clone)]
struct Way {
    chance: f64,
    right: bool,
    accepted: bool,
    calls: f64,
    cost: f64,
}

pub(super) fn expected(setting: Setting) -> Expected {
    let ways = ways(setting);
    let sum =
        |holds: fn(&Way) -> bool| -> f64 { ways.iter().filter(|way| holds(way)).map(|way| way.chance).sum() };
    let (q, right) = (sum(|way| way.accepted), sum(|way| way.accepted && way.right));
    let accepted = 1.0 - (1.0 - q).powi(i32::try_from(ROUNDS).unwrap_or(i32::MAX));
    Expected {
        accepted,
        right: accepted * right / q,
        calls: over_rounds(&ways, |way| way.calls),
        cost: over_rounds(&ways, |way| way.cost),
    }
}

/// All possible courses of a round: their chances add up to 1.
fn ways(Setting { level, p, a, b }: Setting) -> Vec<Way> {
    let mut ways = Vec::new();
    for (right, chance, accepts) in [(true, p, a), (false, 1.0 - p, b)] {
        for (accepted, share) in [(true, accepts), (false, 1.0 - accepts)] {
            for (of_check, calls) in checks(level) {
                let chance = chance * share * of_check;
                // An unreadable verdict accepts nothing.
                let accepted = accepted && (level != AutonomyLevel::Judge || calls.len() == READABLE);
                ways.push(Way {
                    chance,
                    right,
                    accepted,
                    calls: 1.0 + calls.len() as f64,
                    cost: cost(&calls),
                });
            }
        }
    }
    ways
}

/// Number of calls of a judged round with a readable verdict, apart from the work: the summary and the verdict.
const READABLE: usize = 2;

/// The calls that follow the work, for each possible course of the check.
fn checks(level: AutonomyLevel) -> Vec<(f64, Vec<(u64, u64)>)> {
    match level {
        AutonomyLevel::Prompted => vec![(1.0, vec![CONFIRM])],
        AutonomyLevel::Judge => {
            vec![(1.0 - GARBLED, vec![SUMMARY, JUDGE]), (GARBLED, vec![SUMMARY, JUDGE, JUDGE])]
        }
        AutonomyLevel::Verified | AutonomyLevel::Dual => (1..=3)
            .map(|looks| {
                let looks = std::iter::repeat_n(LOOK, looks);
                (1.0 / 3.0, [SUMMARY].into_iter().chain(looks).chain([VERDICT]).collect())
            })
            .collect(),
        _ => vec![(1.0, Vec::new())],
    }
}

fn cost(calls: &[(u64, u64)]) -> f64 {
    calls.iter().chain([&WORK]).map(|(input, output)| dollars(price(*input, *output))).sum()
}

/// Mean and deviation of a sum over rounds that ends with the first accepting one. The last round comes first; each
/// earlier one adds its own share and, where it rejects, the sum of the rounds after it.
fn over_rounds(ways: &[Way], of: fn(&Way) -> f64) -> Mean {
    let (mut first, mut second) = (0.0, 0.0);
    for _ in 0..ROUNDS {
        let moments = ways.iter().map(|way| {
            let here = of(way);
            let (later, later_squared) = if way.accepted { (0.0, 0.0) } else { (first, second) };
            (way.chance * (here + later), way.chance * (here * here + 2.0 * here * later + later_squared))
        });
        (first, second) = moments.fold((0.0, 0.0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    }
    Mean { value: first, deviation: (second - first * first).max(0.0).sqrt() }
}
