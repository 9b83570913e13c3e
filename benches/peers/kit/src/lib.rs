//! Measures and prints the workloads, which are the same for each library.
//!
//! A figure is a line: label, workload, least sample, median of the samples, separated by tabs.

use std::{fs, hint::black_box, time::Instant};

use counting_alloc::count;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Runtime};

pub use counting_alloc::Counting;

/// Tool calls in a run, one a turn: the workloads `turn_2`, `turn_51` and `loop_1000`.
pub const STEPS: [usize; 3] = [1, 50, 1000];
/// Turns of the workload `chat`.
pub const CHAT: usize = 1000;
/// Calls of one turn in the workload `tools`, each of which sleeps a millisecond.
pub const FAN: usize = 32;
/// Deltas of the workload `delta`, six bytes each.
pub const DELTAS: usize = 10_000;
/// Deltas of one stream in the workload `wire`, and the model that the server knows it by.
pub const WIRE: (usize, &str) = (20_000, "bench-20000");
/// Deltas of each of 1,000 streams in the workload `streams`, and the model that the server knows them by.
pub const STREAMS: (usize, &str) = (50, "bench-50-slow");
/// Steps of the graph `login`.
pub const LOGIN: [&str; 6] = ["analyze", "design", "backend", "frontend", "tests", "review"];
/// Edges of the graph `login`.
pub const LOGIN_EDGES: [(usize, usize); 7] = [(0, 1), (0, 2), (1, 3), (2, 3), (2, 4), (3, 4), (4, 5)];
/// Steps of the graph `chain`.
pub const CHAIN: usize = 1000;
/// Layers of the graph `layers` and steps in each. A step follows every step of the layer before.
pub const LAYERS: (usize, usize) = (10, 100);
/// Tool calls in each of 1,000 runs at once, and the milliseconds that the model takes for a turn.
pub const RUNS: (usize, u64) = (4, 10);

const CROWD: usize = 1000;
const SAMPLE: f64 = 0.03;

/// The workloads that the command line names; all of them if it names none.
pub struct Bench {
    label: &'static str,
    one: Runtime,
    two: Runtime,
    wanted: Vec<String>,
}

impl Bench {
    pub fn new(label: &'static str) -> Self {
        Self {
            label,
            one: Builder::new_current_thread().enable_all().build().expect("a runtime"),
            two: Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime"),
            wanted: std::env::args().skip(1).collect(),
        }
    }

    /// The same workloads in another way, under a label of its own.
    pub fn labelled(self, label: &'static str) -> Self {
        Self { label, ..self }
    }

    pub fn wants(&self, workload: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|one| one == workload)
    }

    /// A run of `steps` tool calls and an answer: CPU for each turn, or for the run if it is long.
    pub fn run(&self, steps: usize, work: impl AsyncFn()) {
        let turns = (steps + 1) as f64;
        match steps {
            1000 if self.wants("loop") => self.put("loop_1000", self.cpu(&work), 1e3),
            1 | 50 if self.wants("turn") => {
                self.put(&format!("turn_{}", steps + 1), self.cpu(&work), 1e6 / turns);
                let calls = count(|| self.one.block_on(async { repeat(20, &work).await })).calls;
                self.put(&format!("turn_{}_allocations", steps + 1), vec![calls as f64 / 20.0], 1.0 / turns);
            }
            _ => {}
        }
    }

    /// `CHAT` turns of one conversation.
    pub fn chat(&self, work: impl AsyncFn()) {
        if self.wants("chat") {
            self.put("chat_1000", self.cpu(&work), 1e3);
        }
    }

    /// A turn of `FAN` calls and an answer.
    pub fn tools(&self, work: impl AsyncFn()) {
        if self.wants("tools") {
            self.put("tools_32", self.samples(wall, &work), 1e3);
        }
    }

    /// A streamed run in this process, which returns its deltas.
    pub fn deltas(&self, work: impl AsyncFn() -> usize) {
        if self.wants("delta") {
            let work = async || assert_eq!(work().await, DELTAS);
            self.put("delta", self.cpu(&work), 1e9 / DELTAS as f64);
        }
    }

    /// A streamed run over HTTP, which returns its deltas.
    pub fn wire(&self, work: impl AsyncFn() -> usize) {
        if self.wants("wire") {
            let once = |_| {
                let begun = cpu();
                assert_eq!(self.two.block_on(work()), WIRE.0);
                cpu() - begun
            };
            self.put("wire", (0..10).map(once).skip(2).collect(), 1e6 / WIRE.0 as f64);
        }
    }

    /// 1,000 streamed runs at once over HTTP, each of which returns its deltas. Once: connections are new.
    pub fn streams<F>(&self, make: impl Fn() -> F)
    where
        F: Future<Output = usize> + Send + 'static,
    {
        if self.wants("streams") {
            let (wall, cpu) = self.crowd(&make, |deltas| assert_eq!(deltas, STREAMS.0));
            self.put("streams_wall", vec![wall], 1e3);
            self.put("streams_cpu", vec![cpu], 1e3);
            self.put("streams_memory", vec![peak_memory()], 1.0);
        }
    }

    /// A graph, in CPU for each of its steps.
    pub fn graph(&self, name: &str, steps: usize, work: impl AsyncFn()) {
        if self.wants(name) {
            self.put(name, self.cpu(&work), 1e6 / steps as f64);
        }
    }

    /// Memory of 10,000 agents alive.
    pub fn heap<T>(&self, make: impl AsyncFn() -> T) {
        if self.wants("heap") {
            drop(self.one.block_on(make()));
            let mut agents = Vec::with_capacity(10_000);
            let live = count(|| {
                self.one.block_on(async {
                    for _ in 0..10_000 {
                        agents.push(make().await);
                    }
                });
            });
            black_box(&agents);
            self.put("heap", vec![live.live as f64], 1e-4);
        }
    }

    /// 1,000 runs at once on a model that takes its time, each of which returns its answer.
    pub fn runs<F>(&self, make: impl Fn() -> F)
    where
        F: Future<Output = String> + Send + 'static,
    {
        if self.wants("runs") {
            let (mut walls, mut cpus) = (Vec::new(), Vec::new());
            for round in 0..6 {
                let (wall, cpu) = self.crowd(&make, |answer| assert_eq!(answer, sum(RUNS.0)));
                if round > 0 {
                    walls.push(wall);
                    cpus.push(cpu);
                }
            }
            self.put("runs_wall", walls, 1e3);
            self.put("runs_cpu", cpus, 1e3);
        }
    }

    fn crowd<F, T>(&self, make: &impl Fn() -> F, check: impl Fn(T)) -> (f64, f64)
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let (begun, spent) = (Instant::now(), cpu());
        self.two.block_on(async {
            let runs: Vec<_> = (0..CROWD).map(|_| tokio::spawn(make())).collect();
            for run in runs {
                check(run.await.expect("a run that does not panic"));
            }
        });
        (begun.elapsed().as_secs_f64(), cpu() - spent)
    }

    fn cpu(&self, work: &impl AsyncFn()) -> Vec<f64> {
        self.samples(cpu, work)
    }

    fn samples(&self, clock: fn() -> f64, work: &impl AsyncFn()) -> Vec<f64> {
        let timed = |times: usize| {
            let begun = clock();
            self.one.block_on(async { repeat(times, work).await });
            (clock() - begun) / times as f64
        };
        let first = timed(1);
        if first > 1.0 {
            return vec![first, timed(1)];
        }
        let one = timed(1);
        let times = ((SAMPLE / one.max(1e-7)) as usize).clamp(1, 2000);
        timed(times.min(200));
        (0..if one > 0.1 { 3 } else { 15 }).map(|_| timed(times)).collect()
    }

    fn put(&self, workload: &str, mut samples: Vec<f64>, scale: f64) {
        samples.sort_by(f64::total_cmp);
        let (least, median) = (samples[0] * scale, samples[samples.len() / 2] * scale);
        println!("{}\t{workload}\t{least:.4}\t{median:.4}", self.label);
    }
}

/// The answer of a run of `steps` tool calls: the last one adds one to the number of those before it.
pub fn sum(steps: usize) -> String {
    format!("sum={steps}")
}

/// Where the server listens.
pub fn base_url() -> String {
    std::env::var("PEERS_URL").unwrap_or_else(|_| "http://127.0.0.1:8199/v1".to_owned())
}

async fn repeat(times: usize, work: &impl AsyncFn()) {
    for _ in 0..times {
        work().await;
    }
}

/// CPU of this process in seconds, which other programs disturb less than the time on the wall.
fn cpu() -> f64 {
    seconds(ClockId::ProcessCPUTime)
}

fn wall() -> f64 {
    seconds(ClockId::Monotonic)
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn peak_memory() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kibibytes.map_or(f64::NAN, |kibibytes| kibibytes * 1024.0 / 1e6)
}
