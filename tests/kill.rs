//! A run that was killed with SIGKILL at any moment resumes from SQLite: no completed model or tool step runs again, no
//! event is lost or doubled.
//!
//! Real processes die here. This binary starts itself again as the worker (`support/worker.rs`), kills it
//! (`support/process.rs`) and judges what it left (`support/audit.rs`).

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking too"
)]

#[path = "support/audit.rs"]
mod audit;
#[path = "support/process.rs"]
mod process;
#[path = "support/worker.rs"]
mod worker;

use std::{
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use audit::{Faults, compare, judge};
use entourage::event::Event;
use process::{Kill, Worker, look, run};

/// Workers at once.
const LANES: usize = 2;
/// What an undisturbed worker says at its end.
const COMPLETED: &str = "completed | The work is done. | 5 | 50 in, 25 out";

/// Only ever started by the other tests.
#[test]
#[ignore = "the process that the other tests kill; they start it themselves"]
fn worker_process() {
    if let Some(directory) = std::env::var_os(worker::DIRECTORY) {
        worker::work(Path::new(&directory));
    }
}

/// Kills that follow one another, and then a worker that may finish.
struct Plan(Vec<Kill>);

/// What all plans came to.
#[derive(Debug, Default)]
struct Total {
    kills: usize,
    faults: Faults,
}

#[test]
fn attack_11_a_run_killed_at_any_moment_goes_on_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let undisturbed = run(directory.path(), "go", None, Kill::Never);
    let time = began.elapsed();
    assert_eq!(undisturbed.end.as_deref(), Some(COMPLETED));
    let left = look(directory.path());
    judge(&left);
    assert_eq!(undisturbed.shown().count(), left.rows.len(), "every stored event is shown");
    assert!(!left.log.iter().any(|line| line.starts_with("start model") && !line.ends_with("told 0")));

    let plans = plans(undisturbed.points.len(), time);
    let total = carry_out(&plans);
    println!(
        "kill points {} kills {} repeats {} lost {}",
        plans.len(),
        total.kills,
        total.faults.repeats,
        total.faults.lost
    );
    assert_eq!(total.faults, Faults::default());
    assert!(total.kills >= undisturbed.points.len().max(60), "too few were killed: {total:?}");
}

/// Every point standing still, every point in full flight, and moments in between; some of them twice.
fn plans(points: usize, time: Duration) -> Vec<Plan> {
    let mut random = Random(0x5eed);
    let mut plans = Vec::new();
    for point in 1..=points {
        let mut kills = vec![Kill::At(point)];
        if point % 3 == 0 {
            kills.push(Kill::At(1 + random.below(points)));
        }
        plans.push(Plan(kills));
        plans.push(Plan(vec![Kill::After(point, Duration::ZERO)]));
    }
    for _ in 0..30 {
        let within = u64::try_from(time.as_micros()).unwrap();
        let moment = |random: &mut Random| Kill::In(Duration::from_micros(random.next() % within));
        plans.push(Plan(vec![moment(&mut random), moment(&mut random)]));
        let delay = Duration::from_micros(random.next() % 3_000);
        plans.push(Plan(vec![Kill::After(1 + random.below(points), delay)]));
    }
    plans
}

fn carry_out(plans: &[Plan]) -> Total {
    let (next, total) = (AtomicUsize::new(0), Mutex::new(Total::default()));
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                while let Some(plan) = plans.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (kills, faults) = killed_and_resumed(plan);
                    let mut total = total.lock().unwrap();
                    total.kills += kills;
                    total.faults.repeats += faults.repeats;
                    total.faults.lost += faults.lost;
                }
            });
        }
    });
    total.into_inner().unwrap()
}

fn killed_and_resumed(plan: &Plan) -> (usize, Faults) {
    let directory = tempfile::tempdir().unwrap();
    let mut dead = Vec::new();
    for kill in &plan.0 {
        let ended = run(directory.path(), "go", None, *kill);
        if ended.killed {
            dead.push((ended, look(directory.path())));
        }
    }
    let last = run(directory.path(), "go", None, Kill::Never);
    let end = last.end.unwrap();
    assert!(end == COMPLETED || end == "over before", "{:?}: {end}", plan.0);
    let left = look(directory.path());
    judge(&left);
    let faults = dead.iter().fold(Faults::default(), |sum, (ended, then)| {
        let faults = compare(ended, then, &left);
        if faults != Faults::default() {
            println!("{:?} {faults:?}\n{:?}\n{:?}\n{:?}", plan.0, ended.points, then.log, left.log);
        }
        Faults { repeats: sum.repeats + faults.repeats, lost: sum.lost + faults.lost }
    });
    (dead.len(), faults)
}

#[test]
fn a_call_waits_for_leave_through_three_processes_and_kills() {
    for (answer, end) in [("allow", COMPLETED), ("deny", "stopped: leave to run `pay` was refused")] {
        let mut points = 1;
        // Killed at each point of the run that goes on, until there is no such point.
        loop {
            let directory = tempfile::tempdir().unwrap();
            let go = |kill| run(directory.path(), "go", Some("pay"), kill);
            let paused = go(Kill::Never).end.unwrap();
            assert!(paused.starts_with("paused: waits for a decision about killed."), "{paused}");
            let asked = look(directory.path());
            let question = asked.events.iter().find_map(|it| match &it.event {
                Event::ApprovalRequested(request) => Some(request.id.clone()),
                _ => None,
            });
            let question = question.unwrap();
            // Nobody answered: it waits again, and asks nothing new.
            assert_eq!(go(Kill::Never).end.unwrap(), paused);
            assert!(!look(directory.path()).log.iter().any(|line| line.ends_with(" pay")));

            let order = format!("{answer} {}", question.as_str());
            let decided = run(directory.path(), &order, Some("pay"), Kill::Never);
            assert_eq!(decided.end.as_deref(), Some("decided"));
            let killed = go(Kill::At(points));
            let then = look(directory.path());
            let last = go(Kill::Never).end.unwrap();
            let left = look(directory.path());
            assert_eq!(compare(&killed, &then, &left), Faults::default());
            if killed.killed {
                assert!(last.starts_with(end) || last == "over before", "{points}: {last}");
            } else {
                assert!(killed.end.unwrap().starts_with(end));
            }
            let ran = left.log.iter().filter(|line| line.ends_with(" pay") && line.starts_with("start"));
            if answer == "allow" {
                judge(&left);
            } else {
                assert_eq!(ran.count(), 0, "{points}: a refused call ran");
            }
            // The points of the call itself; those after it are the other test's.
            if !killed.killed || points == 16 {
                break;
            }
            points += 1;
        }
        assert!(points >= 3, "{answer} was killed at {points} points only");
    }
}

#[test]
fn attack_09_of_two_processes_that_resume_one_run_one_is_admitted() {
    let mut taken_over = 0;
    for point in (4..80).step_by(15) {
        for order in ["race warm", "race cold"] {
            let directory = tempfile::tempdir().unwrap();
            assert!(run(directory.path(), "go", None, Kill::At(point)).killed);
            let then = look(directory.path());
            let mut racers = [0; 2].map(|_| Worker::start(directory.path(), order, None, Kill::Never));
            racers.iter_mut().for_each(Worker::wait_until_ready);
            racers.iter_mut().for_each(Worker::go);
            let ends = racers.map(|racer| racer.end(Kill::Never).end.unwrap());
            assert_eq!(ends.iter().filter(|end| *end == COMPLETED).count(), 1, "{point} {order}: {ends:?}");
            // Who comes when the other has finished finds nothing to resume.
            let late = |end: &&String| order == "race cold" && **end == "error not found";
            let lost = |end: &&String| **end == "error conflict" || late(end);
            assert_eq!(ends.iter().filter(lost).count(), 1, "{point} {order}: {ends:?}");
            let left = look(directory.path());
            judge(&left);
            assert_eq!(left.rows[..then.rows.len()], then.rows[..]);
            let resumed = left.events.iter().filter(|it| it.event.kind() == "run_resumed").count();
            if order == "race warm" {
                assert_eq!(resumed, 1, "{point}: both were admitted");
            } else {
                taken_over += usize::from(resumed > 1);
            }
        }
    }
    println!("of the cold races {taken_over} were a takeover");
}

/// The same numbers each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }
}
