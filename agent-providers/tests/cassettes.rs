//! Replies that other projects recorded from the real services, through the wires that users get.
//!
//! What each reply came to, whole and cut in many places, is written for `compare_cassettes.py`, which judges it. Judged
//! here are the contract of streams, and that a reply is sent back as the recorded client sent it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic, in its helpers too")]

#[path = "cassettes/cuts.rs"]
mod cuts;
#[path = "cassettes/judge.rs"]
mod judge;
#[path = "cassettes/recordings.rs"]
mod recordings;
#[path = "cassettes/replay.rs"]
mod replay;
#[path = "cassettes/said.rs"]
mod said;
#[path = "cassettes/skips.rs"]
mod skips;
#[path = "cassettes/tolerances.rs"]
mod tolerances;
#[path = "cassettes/wires.rs"]
mod wires;

use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use recordings::{Interaction, Sequence};
use serde_json::{Value, json};
use skips::SKIPS;
use tolerances::TOLERANCES;
use wires::Reply;

/// How many sequences there are when nobody names another directory; floors and lists are made for these.
const KNOWN: usize = 447;

/// How many replies of those must have been compared with what the client sent back.
const FEWEST_COMPARED: usize = 230;

/// What became of one interaction.
struct Outcome {
    line: Value,
    failures: Vec<String>,
    judged: Vec<String>,
}

fn outcome(sequence: &Sequence, i: usize, one: &Interaction) -> Outcome {
    let mut failures = Vec::new();
    let (reply, cuts) = if one.status >= 400 {
        (Reply::refused(&one.wire.refusal(one.status, &one.body)), 0)
    } else {
        let whole = one.wire.decode([&one.body[..]]);
        for broken in [one.wire.broken([&one.body[..]]), one.wire.broken(one.body.chunks(1))] {
            failures.extend(broken);
        }
        let (cuts, differs) = cuts::try_all(one.wire, &one.body, &whole);
        failures.extend(differs.map(|cut| format!("another result when cut {cut}")));
        (whole, cuts)
    };
    let mut line = reply.line(one.status);
    let judged = judge::differences(&one.protocol, &one.expect, one.status, &line);
    line["id"] = json!(sequence.id);
    line["i"] = json!(i);
    line["cuts"] = json!(cuts);
    line["same"] = json!(failures.is_empty());
    Outcome { line, failures, judged }
}

/// The outcomes of all interactions, sequence by sequence, with as many threads as there are processors.
fn outcomes(sequences: &[Sequence]) -> Vec<Vec<Outcome>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(at) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < sequences.len())
                {
                    let all = sequences[at].interactions.iter().enumerate();
                    let all: Vec<_> = all.map(|(i, one)| outcome(&sequences[at], i, one)).collect();
                    done.lock().unwrap().insert(at, all);
                }
            });
        }
    });
    done.into_inner().unwrap().into_values().collect()
}

#[test]
fn recorded_replies_are_read_as_they_are_known() {
    let folder = recordings::folder();
    let Some(sequences) = recordings::read(&folder) else {
        println!("SKIPPED: no recordings at {}; set CASSETTES_DIR", folder.display());
        return;
    };
    let started = std::time::Instant::now();
    let outcomes = outcomes(&sequences);
    let mut failures = Vec::new();
    let mut out = String::new();
    for (sequence, outcomes) in sequences.iter().zip(&outcomes) {
        let skip = SKIPS.iter().find(|(id, _)| *id == sequence.id);
        if skip.is_some() && outcomes.iter().all(|one| one.judged.is_empty() && one.failures.is_empty()) {
            failures.push(format!("{}: skipped, but it passes; take it off the list", sequence.id));
        }
        for (i, one) in outcomes.iter().enumerate() {
            failures.extend(one.failures.iter().map(|text| format!("{}[{i}]: {text}", sequence.id)));
            let line = match skip {
                Some((id, reason)) => json!({"id": id, "i": i, "skip": reason}),
                None => one.line.clone(),
            };
            out += &format!("{line}\n");
        }
    }
    fs::write(recordings::results(), out).unwrap();
    println!("{} sequences in {:?}", sequences.len(), started.elapsed());
    assert!(!sequences.is_empty(), "{} holds no recordings", folder.display());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn replies_are_sent_back_as_recorded_clients_did() {
    let folder = recordings::folder();
    let Some(sequences) = recordings::read(&folder) else {
        println!("SKIPPED: no recordings at {}; set CASSETTES_DIR", folder.display());
        return;
    };
    let mut tally = replay::Tally::default();
    for sequence in &sequences {
        let replies: Vec<_> =
            sequence.interactions.iter().map(|one| one.wire.decode([&one.body[..]])).collect();
        tally.sequence(sequence, &replies);
    }
    println!(
        "{} replies compared with what the client sent back, {} results; {} not sent back, {} not comparable",
        tally.compared, tally.results, tally.not_sent, tally.not_comparable
    );
    for rule in TOLERANCES {
        let needed = tally.tolerated.get(rule.name).copied().unwrap_or(0);
        println!("tolerated {needed} times: {}", rule.name);
        if sequences.len() == KNOWN && needed != rule.needed {
            tally.failures.push(format!("{} was tolerated {needed} times, not {}", rule.name, rule.needed));
        }
    }
    assert!(tally.failures.is_empty(), "{}", tally.failures.join("\n"));
    assert!(
        sequences.len() != KNOWN || tally.compared >= FEWEST_COMPARED,
        "only {} are compared",
        tally.compared
    );
}
