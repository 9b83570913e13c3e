//! The cost of the chat-completions wire, beside a hand-written reader of the same stream in the same run.
//!
//! `cargo bench -p entourage-benches --bench wire` starts a service of its own (this program again, as another
//! process), shows criterion's figures, then the ratios with their targets. `RATIOS_ONLY=1` leaves criterion out;
//! `-- --test` runs each part once; `-- decoding`, `-- memory` or `-- encoding` runs that part without criterion.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::string_slice,
    clippy::unwrap_used,
    reason = "a bench prints, and stops at the first thing that is not as it should be"
)]

mod encoding;
mod floor;
mod ours;
mod server;

use std::{
    hint::black_box,
    process::Command,
    time::{Duration, Instant},
};

use criterion::Criterion;
use entourage_benches::{Parts, median};
use rustix::time::{ClockId, clock_gettime};
use server::{Script, Server};
use tokio::runtime::Runtime as Tokio;

#[global_allocator]
static ALLOCATOR: counting_alloc::Counting = counting_alloc::Counting;

const DELTAS: usize = 20_000;
const STREAMS: usize = 1_000;
const STREAM_DELTAS: usize = 50;

/// The two readers of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Floor,
    Ours,
}

/// One reader with its address, ready to read.
#[derive(Clone)]
enum Reader {
    Floor(floor::Client, String),
    Ours(entourage::provider::Model),
}

impl Reader {
    fn new(side: Side, base: &str) -> Self {
        match side {
            Side::Floor => Self::Floor(floor::client(), base.to_owned()),
            Side::Ours => Self::Ours(ours::model(base)),
        }
    }

    /// Reads a whole reply. Returns the number of pieces of text and the length of the text.
    async fn read(&self) -> (usize, usize) {
        match self {
            Self::Floor(client, base) => {
                let read = floor::read(client, base).await;
                (read.pieces, black_box(read.text).len())
            }
            Self::Ours(model) => {
                let (pieces, message) = ours::read(model).await;
                (pieces, black_box(message).first_text().map_or(0, str::len))
            }
        }
    }
}

/// A runtime with one thread, as in a server. Work runs in spawned tasks, because a future that `block_on` polls
/// itself is woken by a system call.
fn runtime() -> Tokio {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn read_again(tokio: &Tokio, reader: &Reader, times: usize, deltas: usize) {
    let (reader, length) = (reader.clone(), server::text(deltas).len());
    let task = async move {
        for _ in 0..times {
            assert_eq!(reader.read().await, (deltas, length));
        }
    };
    tokio.block_on(tokio.spawn(task)).unwrap();
}

/// CPU time of all threads of this process so far.
fn cpu() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap()
}

fn cpu_seconds(work: impl FnOnce()) -> f64 {
    let before = cpu();
    work();
    (cpu() - before).as_secs_f64()
}

/// The median over pairs of samples taken in turns, so that a slow moment of the machine hits both sides.
fn ratio(floor: &[f64], ours: &[f64]) -> f64 {
    median(ours.iter().zip(floor).map(|(ours, floor)| ours / floor).collect())
}

/// The lines to print last.
#[derive(Default)]
struct Results(Vec<String>);

impl Results {
    fn add(&mut self, name: &str, ratio: f64, target: f64) {
        let verdict = if ratio <= target { "" } else { " MISSED" };
        self.0.push(format!("ratio {name} {ratio:.2} (target {target:.1}){verdict}"));
    }
}

/// Measures the CPU time from the socket to the finished message.
fn decoding(results: &mut Results, tokio: &Tokio, server: &Server, quick: bool) {
    let (samples, times, deltas) = if quick { (1, 1, 500) } else { (31, 4, DELTAS) };
    // One chunk of the body per delta; up to 8 at once, as is common; up to 128, as behind a slow network. The fewer
    // reads there are, the less hides the decoder: the last is the strictest and the steadiest.
    for burst in [1, 8, 128] {
        let base = Script { deltas, burst, crowd: 1 }.base(server.port);
        let readers = [Side::Floor, Side::Ours].map(|side| Reader::new(side, &base));
        readers.iter().for_each(|reader| read_again(tokio, reader, times, deltas));
        let mut seconds = [Vec::new(), Vec::new()];
        for _ in 0..samples {
            for (seconds, reader) in seconds.iter_mut().zip(&readers) {
                seconds.push(cpu_seconds(|| read_again(tokio, reader, times, deltas)));
            }
        }
        let [floor, ours] = seconds;
        let calls = readers.each_ref().map(|reader| {
            counting_alloc::count(|| read_again(tokio, reader, 1, deltas)).calls as f64 / deltas as f64
        });
        let per_delta = |seconds: &[f64]| median(seconds.to_vec()) * 1e9 / (deltas * times) as f64;
        println!(
            "decode, bursts of {burst}: {:.0} ns a delta, {:.2} allocations; floor {:.0} ns, {:.2}",
            per_delta(&ours),
            calls[1],
            per_delta(&floor),
            calls[0]
        );
        results.add(&format!("decode_cpu_{burst}"), ratio(&floor, &ours), 1.5);
    }
}

/// Peaks of a crowd's heap above its start, and of its process's memory, in bytes.
fn crowd(side: Side, server: &Server, streams: usize) -> [f64; 2] {
    let base = Script { deltas: STREAM_DELTAS, burst: 1, crowd: streams }.base(server.port);
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["crowd", &format!("{side:?}"), &base, &streams.to_string()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut figures = text.split_whitespace().map(|figure| figure.parse().unwrap());
    [figures.next().unwrap(), figures.next().unwrap()]
}

/// The `main` of a crowd's process.
fn be_crowd(arguments: &[String]) {
    let side = if arguments[0] == "Ours" { Side::Ours } else { Side::Floor };
    let (base, streams) = (&arguments[1], arguments[2].parse().unwrap());
    let tokio = runtime();
    let length = server::text(STREAM_DELTAS).len();
    let counts = counting_alloc::count(|| {
        let reader = Reader::new(side, base);
        tokio.block_on(async {
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..streams {
                let reader = reader.clone();
                tasks.spawn(async move { reader.read().await });
            }
            while let Some(read) = tasks.join_next().await {
                assert_eq!(read.unwrap(), (STREAM_DELTAS, length));
            }
        });
    });
    println!("{} {}", counts.peak, high_water_mark());
}

fn high_water_mark() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
    kib.map_or(0, |kib: u64| kib * 1_024)
}

fn memory(results: &mut Results, server: &Server, quick: bool) {
    let (samples, streams) = if quick { (1, 20) } else { (5, STREAMS) };
    let mut figures: [[Vec<f64>; 2]; 2] = Default::default();
    for _ in 0..samples {
        for (figures, side) in figures.iter_mut().zip([Side::Floor, Side::Ours]) {
            for (figures, figure) in figures.iter_mut().zip(crowd(side, server, streams)) {
                figures.push(figure);
            }
        }
    }
    let [floor, ours] = &figures;
    for (n, name) in ["streams_heap", "streams_rss"].into_iter().enumerate() {
        let mib = |bytes: &[f64]| median(bytes.to_vec()) / f64::from(1 << 20);
        println!("{streams} streams, {name} peak: {:.2} MiB; floor {:.2} MiB", mib(&ours[n]), mib(&floor[n]));
        results.add(name, ratio(&floor[n], &ours[n]), 1.5);
    }
}

fn encoding(results: &mut Results, tokio: &Tokio, quick: bool) {
    let samples = if quick { 3 } else { 2_001 };
    let conversation = encoding::Conversation::new();
    let (length, [encoding_calls, call_calls]) = encoding::sizes(&conversation, tokio);
    let pure = |request| {
        black_box(encoding::bytes(&request));
        request
    };
    let warm_up = encoding::pairs(samples / 10, &conversation, false, pure);
    drop(warm_up);
    let micros = |seconds: &[f64]| median(seconds.to_vec()) * 1e6;
    let (copies, encodings) = encoding::pairs(samples, &conversation, false, pure);
    println!(
        "encode: {:.1} µs, {encoding_calls} allocations; copy of its {length} bytes {:.1} µs",
        micros(&encodings),
        micros(&copies)
    );
    results.add("encode", ratio(&copies, &encodings), 2.0);
    let call = |request| conversation.call(tokio, request);
    let (copies, calls) = encoding::pairs(samples, &conversation, true, call);
    println!(
        "call up to its connection, 10 tools: {:.1} µs, {call_calls} allocations; copy {:.1} µs",
        micros(&calls),
        micros(&copies)
    );
    results.add("encode_call", ratio(&copies, &calls), 2.0);
}

fn show(tokio: &Tokio, server: &Server) {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .sample_size(20);
    let base = Script { deltas: DELTAS, burst: 8, crowd: 1 }.base(server.port);
    for (name, side) in [("20,000 deltas, floor", Side::Floor), ("20,000 deltas, entourage", Side::Ours)] {
        let reader = Reader::new(side, &base);
        let timed = |times: u64| {
            let start = Instant::now();
            read_again(tokio, &reader, times as usize, DELTAS);
            start.elapsed()
        };
        criterion.bench_function(name, |bencher| bencher.iter_custom(timed));
    }
    let conversation = encoding::Conversation::new();
    let request = conversation.next(false);
    let bytes = encoding::bytes(&request);
    criterion.bench_function("copy of 1,000 messages", |bencher| bencher.iter(|| black_box(bytes.to_vec())));
    criterion.bench_function("encoding 1,000 messages, entourage", |bencher| {
        bencher.iter(|| black_box(encoding::bytes(&request)));
    });
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("serve") => return server::serve(),
        Some("crowd") => return be_crowd(&arguments[1..]),
        _ => {}
    }
    let parts = Parts::of_arguments();
    let quick = parts.quick;
    let (tokio, server) = (runtime(), Server::start());
    if !quick && parts.are_all() && std::env::var_os("RATIOS_ONLY").is_none() {
        show(&tokio, &server);
    }
    let mut results = Results::default();
    if parts.want("decoding") {
        decoding(&mut results, &tokio, &server, quick);
    }
    if parts.want("memory") {
        memory(&mut results, &server, quick);
    }
    if parts.want("encoding") {
        encoding(&mut results, &tokio, quick);
    }
    println!("{}", results.0.join("\n"));
}
