//! Replies that other projects recorded from the real services, through the wires that users get.
//!
//! The decoded form of each reply, whole and cut in many places, is written for `compare_cassettes.py`, which judges
//! it. This test judges the contract of streams, and that a reply is sent back as the recorded client sent it.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may panic, in its helpers too"
)]

#[path = "cassettes/agents.rs"]
mod agents;
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
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use recordings::{Interaction, Sequence};
use said::{Item, Piece};
use serde_json::{Value, json};
use skips::SKIPS;
use tolerances::{Case, TOLERANCES, Turn, reconcile};
use wires::Reply;

/// Number of sequences in the default directory; the bounds and lists below were made for these.
const KNOWN: usize = 447;

/// Fewest replies of those that must be compared with the client's own repetition.
const FEWEST_COMPARED: usize = 230;

/// In other recordings, one turn in this many may differ, since clients may have unknown habits.
const STRANGERS: usize = 20;

/// The result of one interaction.
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
    if sequences.len() == KNOWN {
        let unknown = SKIPS.iter().filter(|(id, _)| sequences.iter().all(|sequence| sequence.id != *id));
        failures.extend(unknown.map(|(id, _)| format!("{id}: skipped, but there is no such recording")));
        assert!(SKIPS.len() * 50 <= KNOWN, "more than 2 in 100 are skipped");
    }
    recordings::write_results(&out);
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
    for failure in &tally.failures {
        println!("{failure}");
    }
    let known = sequences.len() == KNOWN;
    let allowed = if known { 0 } else { tally.compared.div_ceil(STRANGERS) };
    assert!(tally.failures.len() <= allowed, "{} of {} differ", tally.failures.len(), tally.compared);
    assert!(!known || tally.compared >= FEWEST_COMPARED, "only {} are compared", tally.compared);
}

#[test]
fn what_is_lost_or_changed_on_the_way_back_is_found() {
    let call =
        |n: u8| Item::Call { id: format!("id{n}"), name: "look".to_owned(), arguments: json!({"n": n}) };
    let result = |n: u8| Item::Result {
        id: format!("id{n}"),
        name: String::new(),
        content: vec![Piece::Text(format!("found {n}"))],
        is_error: false,
    };
    let block = |text: &str| Item::Block(json!({"type": "search", "found": text}));
    let reasoning = |proof: &str| Item::Reasoning { text: "Hm".to_owned(), proof: proof.to_owned() };
    let sent = Turn {
        reply: vec![reasoning("seal"), Item::Text("Hello".to_owned()), block("a"), call(1), call(2)],
        results: vec![result(1), result(2)],
        after: String::new(),
    };
    let case = Case { wire: wires::Wire::named("openai-chat", "openrouter"), body: r#""id1" "id2" "look""# };
    assert_eq!(reconcile(case, &sent, &sent), Ok(Vec::new()));
    type Change = (&'static str, fn(&mut Turn));
    let changes: [Change; 8] = [
        ("reasoning", |turn| drop(turn.reply.remove(0))),
        ("a seal", |turn| turn.reply[0] = Item::Reasoning { text: "Hm".to_owned(), proof: "sea".to_owned() }),
        ("text", |turn| turn.reply[1] = Item::Text("Help".to_owned())),
        ("a block", |turn| turn.reply[2] = Item::Block(json!({"type": "search", "found": "b"}))),
        ("a call", |turn| drop(turn.reply.pop())),
        ("the order of calls", |turn| turn.reply.swap(3, 4)),
        ("a result", |turn| drop(turn.results.pop())),
        ("the order of results", |turn| turn.results.swap(0, 1)),
    ];
    for (what, change) in changes {
        let mut ours = sent.clone();
        change(&mut ours);
        assert!(reconcile(case, &ours, &sent).is_err(), "{what} is not missed");
    }
}
