//! The overhead of the framework, beside a hand-written floor doing the same work in the same run.
//!
//! `cargo bench -p entourage-benches --bench overhead` shows criterion's figures, then the ratios. Each ratio is the
//! median over pairs of samples taken in turns, so that a slow moment of the machine hits both sides. `RATIOS_ONLY=1`
//! leaves criterion out; `-- --test` runs each part small; `-- loop`, `calls`, `graph` or `dual` runs that part without
//! criterion.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::semicolon_if_nothing_returned,
    clippy::unwrap_used,
    reason = "a bench prints, and stops at the first thing that is not as it should be"
)]

mod calls;
mod dual;
mod floor;
mod graph;
mod ours;

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use criterion::Criterion;
use entourage_benches::{Parts, median};
use entourage_runtime::{AgentExt, Runtime};
use futures_util::StreamExt;
use serde_json::json;
use tokio::runtime::Runtime as Tokio;

#[global_allocator]
static ALLOCATOR: counting_alloc::Counting = counting_alloc::Counting;

const DELTAS: usize = 10_000;

/// A piece of work, repeated. Each side runs inside a spawned task, as in a server: a future that `block_on` polls
/// itself is woken by a system call, which would dominate the measurement.
trait Work: Fn() -> Self::Future + Send + 'static {
    type Future: Future<Output = ()> + Send;
}

impl<F: Fn() -> Fut + Send + 'static, Fut: Future<Output = ()> + Send> Work for F {
    type Future = Fut;
}

fn floor_run(turns: usize) -> impl Work + Clone {
    let agent = Arc::new(floor::Agent::new(Arc::new(floor::Scripted { turns, fan: 0 })));
    move || {
        let agent = Arc::clone(&agent);
        async move { assert_eq!(black_box(agent.ask("add please").await), format!("sum {turns}")) }
    }
}

fn our_run(turns: usize) -> impl Work + Clone {
    let agent = ours::tireless(&ours::model(turns, 0, 0), &ours::tools());
    move || {
        let agent = agent.clone();
        async move {
            assert_eq!(black_box(ours::consume(agent.start("add please")).await).1, format!("sum {turns}"))
        }
    }
}

/// The same with a store: every event of the run is kept, and could be read back.
fn our_stored_run(turns: usize) -> impl Work + Clone {
    let agent = ours::tireless(&ours::model(turns, 0, 0), &ours::tools());
    move || {
        let agent = agent.clone();
        async move {
            drop(black_box(ours::consume(Runtime::in_memory().session().start(&agent, "add please")).await))
        }
    }
}

fn floor_naps() -> impl Work + Clone {
    let agent = Arc::new(floor::Agent::new(Arc::new(floor::Scripted { turns: 0, fan: 32 })));
    move || {
        let agent = Arc::clone(&agent);
        async move { assert_eq!(black_box(agent.ask("go").await), "results: 32") }
    }
}

fn our_naps() -> impl Work + Clone {
    let agent = ours::tireless(&ours::model(0, 32, 0), &ours::tools());
    move || {
        let agent = agent.clone();
        async move { assert_eq!(black_box(ours::consume(agent.start("go")).await).1, "sum 0") }
    }
}

fn floor_deltas() -> impl Work + Clone {
    let agent = Arc::new(floor::Agent::new(Arc::new(floor::Scripted { turns: DELTAS, fan: 0 })));
    move || {
        let agent = Arc::clone(&agent);
        async move {
            let messages = [json!({ "role": "user", "content": "hi" })];
            let mut pieces = agent.stream(&messages);
            let (mut count, mut length) = (0, 0);
            while let Some(piece) = pieces.next().await {
                match piece {
                    floor::Piece::Delta(text) => {
                        count += 1;
                        black_box(&text);
                    }
                    floor::Piece::Whole(text) => length = text.len(),
                }
            }
            assert_eq!((count, length), (DELTAS, DELTAS * 6));
        }
    }
}

fn our_deltas() -> impl Work + Clone {
    let agent = ours::agent(&ours::model(0, 0, DELTAS), &[]);
    move || {
        let agent = agent.clone();
        async move {
            let (count, text) = ours::consume(agent.start("hi")).await;
            assert_eq!((count, text.len()), (DELTAS + 1, DELTAS * 6));
        }
    }
}

fn our_chat(turns: usize) -> impl Work + Clone {
    let agent = ours::agent(&ours::model(0, 0, 0), &[]);
    move || {
        let agent = agent.clone();
        async move {
            let session = Runtime::in_memory().session();
            for _ in 0..turns {
                black_box(ours::consume(session.start(&agent, "hello there")).await);
            }
            assert_eq!(session.history().await.unwrap().len(), 2 * turns);
        }
    }
}

/// Seconds per call of each side, sampled in turns.
struct Pair {
    floor: Vec<f64>,
    ours: Vec<f64>,
}

impl Pair {
    fn ratio(&self) -> f64 {
        median(self.ours.iter().zip(&self.floor).map(|(ours, floor)| ours / floor).collect())
    }

    /// Ratio of the quickest samples, for work that needs all cores: another program may slow down one side only.
    fn least_ratio(&self) -> f64 {
        least(&self.ours) / least(&self.floor)
    }
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn pair(tokio: &Tokio, samples: usize, floor: impl Work + Clone, ours: impl Work + Clone) -> Pair {
    let (floor_calls, our_calls) = (calls_for(tokio, &floor), calls_for(tokio, &ours));
    let mut pair = Pair { floor: Vec::new(), ours: Vec::new() };
    for _ in 0..samples {
        pair.floor.push(time(tokio, floor_calls, &floor));
        pair.ours.push(time(tokio, our_calls, &ours));
    }
    pair
}

/// Number of calls for a sample of about 20 ms, after a warm-up.
fn calls_for(tokio: &Tokio, work: &(impl Work + Clone)) -> usize {
    time(tokio, 3, work);
    let one = time(tokio, 3, work);
    let calls = (0.02 / one).clamp(1.0, 20_000.0);
    time(tokio, calls as usize, work);
    calls as usize
}

fn time(tokio: &Tokio, calls: usize, work: &(impl Work + Clone)) -> f64 {
    let work = work.clone();
    let timed = async move {
        let start = Instant::now();
        for _ in 0..calls {
            work().await;
        }
        start.elapsed().as_secs_f64() / calls as f64
    };
    tokio.block_on(tokio.spawn(timed)).unwrap()
}

fn growth<W: Work + Clone>(tokio: &Tokio, work: impl Fn(usize) -> W) -> f64 {
    let pair = pair(tokio, 15, work(100), work(1_000));
    median(pair.ours) / median(pair.floor)
}

fn allocations(tokio: &Tokio, calls: usize, work: &(impl Work + Clone)) -> f64 {
    time(tokio, calls, work);
    counting_alloc::count(|| _ = time(tokio, calls, work)).calls as f64 / calls as f64
}

fn heap_per<T>(count: i64, make: impl Fn() -> T) -> f64 {
    let mut kept = Vec::with_capacity(count as usize);
    let used = counting_alloc::count(|| {
        for _ in 0..count {
            kept.push(make());
        }
    });
    black_box(&kept);
    used.live as f64 / count as f64 + size_of::<T>() as f64
}

fn show(tokio: &Tokio) {
    let quick = Duration::from_secs(1);
    let mut criterion =
        Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(quick).sample_size(20);
    let mut bench = |name: &str, work: &dyn Fn(usize) -> Duration| {
        criterion.bench_function(name, |bencher| bencher.iter_custom(|calls| work(calls as usize)));
    };
    fn timed(tokio: &Tokio, work: impl Work + Clone) -> impl Fn(usize) -> Duration {
        move |calls| Duration::from_secs_f64(time(tokio, calls, &work) * calls as f64)
    }
    for turns in [1, 50] {
        bench(&format!("run of {} turns, floor", turns + 1), &timed(tokio, floor_run(turns)));
        bench(&format!("run of {} turns, entourage", turns + 1), &timed(tokio, our_run(turns)));
    }
    bench("32 tools of 1 ms, floor", &timed(tokio, floor_naps()));
    bench("32 tools of 1 ms, entourage", &timed(tokio, our_naps()));
    bench("10,000 deltas, floor", &timed(tokio, floor_deltas()));
    bench("10,000 deltas, entourage", &timed(tokio, our_deltas()));
    bench("chat of 1,000 turns, entourage", &timed(tokio, our_chat(1_000)));
    bench("run of 1,001 turns, entourage", &timed(tokio, our_run(1_000)));
    bench("graph of 1,000 steps, floor", &timed(tokio, graph::floor_steps(10)));
    bench("graph of 1,000 steps, entourage", &timed(tokio, graph::our_steps(10, 1_000)));
    bench("dual iteration, floor", &timed(tokio, dual::floor_rounds(1)));
    bench("dual iteration, entourage", &timed(tokio, dual::our_rounds(1)));
}

/// Measures the loop of one agent.
fn measure(results: &mut Vec<String>, tokio: &Tokio, samples: usize) {
    let quick = samples == 1;
    for (name, turns) in [("turn2", 1), ("turn51", 50)] {
        let pair = pair(tokio, samples, floor_run(turns), our_run(turns));
        let per_turn = |times: &[f64]| median(times.to_vec()) * 1e6 / (turns + 1) as f64;
        println!("{name}: {:.2} µs a turn, floor {:.2} µs", per_turn(&pair.ours), per_turn(&pair.floor));
        results.push(format!("ratio {name} {:.2}", pair.ratio()));
    }
    let stored = pair(tokio, samples, floor_run(1), our_stored_run(1));
    println!("turn2 kept in the memory store: {:.2} times the floor", stored.ratio());
    let wall = pair(tokio, samples.min(31), floor_naps(), our_naps());
    results.push(format!("ratio tools32_wall {:.2}", wall.ratio()));
    let deltas = pair(tokio, samples.min(51), floor_deltas(), our_deltas());
    let per_delta = |times: &[f64]| median(times.to_vec()) * 1e9 / DELTAS as f64;
    println!("delta: {:.1} ns, floor {:.1} ns", per_delta(&deltas.ours), per_delta(&deltas.floor));
    results.push(format!("ratio delta {:.2}", deltas.ratio()));
    let (shared, model, tools) =
        (Arc::new(floor::Scripted { turns: 4, fan: 0 }), ours::model(4, 0, 0), ours::tools());
    let count = if quick { 10 } else { 10_000 };
    let floor_heap = heap_per(count, || floor::Agent::new(Arc::clone(&shared) as _));
    let our_heap = heap_per(count, || ours::agent(&model, &tools));
    println!("heap per agent: {our_heap:.0} bytes, floor {floor_heap:.0} bytes");
    results.push(format!("ratio heap_per_agent {:.2}", our_heap / floor_heap));
    if !quick {
        results.push(format!("growth chat {:.2}", growth(tokio, our_chat)));
        results.push(format!("growth loop {:.2}", growth(tokio, our_run)));
    }
    let (ours, floor) =
        (allocations(tokio, 200, &our_run(1)) / 2.0, allocations(tokio, 200, &floor_run(1)) / 2.0);
    results.push(format!("allocs turn2 {ours:.1} {floor:.1}"));
}

fn main() {
    let parts = Parts::of_arguments();
    let quick = parts.quick;
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    if !quick && parts.are_all() && std::env::var_os("RATIOS_ONLY").is_none() {
        show(&tokio);
    }
    let samples = if quick { 1 } else { 101 };
    let mut results = Vec::new();
    if parts.want("loop") {
        measure(&mut results, &tokio, samples);
    }
    if parts.want("calls") {
        calls::measure(&mut results, &tokio, samples);
    }
    if parts.want("graph") {
        graph::measure(&mut results, &tokio, samples);
    }
    if parts.want("dual") {
        dual::measure(&mut results, &tokio, samples);
    }
    println!("{}", results.join("\n"));
}
