//! Generated task graphs in the shapes of the published sets, the same each time.

use super::stg::{Stg, StgTask};

/// A pseudo-random sequence that is the same everywhere (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap_or_default()
    }

    /// A number from `least` to `most`, both included.
    fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most - least + 1)
    }
}

/// The dependencies between the tasks of a graph.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// Layers; a task needs some tasks of the layer before.
    Layered,
    /// Tasks that fork into many, and join again.
    Fan,
    /// Any earlier tasks, one or two on average.
    Sparse,
    /// Any earlier tasks, and most of them.
    Dense,
}

/// The processing times of the tasks.
#[derive(Debug, Clone, Copy)]
enum Times {
    /// Times from 1 to 10.
    Even,
    /// Mostly short, some very long.
    Mixed,
}

/// The sample: the name and the file of each graph.
pub(crate) fn sample() -> Vec<(String, String)> {
    let shapes = [
        (Shape::Layered, [50, 150, 300]),
        (Shape::Fan, [50, 150, 300]),
        (Shape::Sparse, [50, 150, 300]),
        (Shape::Dense, [50, 75, 100]),
    ];
    let mut files = Vec::new();
    for (shape, sizes) in shapes {
        for size in sizes {
            for times in [Times::Even, Times::Mixed] {
                let name = format!("{shape:?}-{size}-{times:?}").to_lowercase();
                let mut random = Random(
                    name.bytes().fold(7, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte))),
                );
                let graph = graph(shape, size, times, &mut random);
                let remarks = format!("{name}, from examples/schedule_stg/generate.rs");
                files.push((format!("{name}.stg"), graph.render(&remarks)));
            }
        }
    }
    files
}

fn graph(shape: Shape, size: usize, times: Times, random: &mut Random) -> Stg {
    let before = match shape {
        Shape::Layered => layered(size, random),
        Shape::Fan => fan(size, random),
        Shape::Sparse => scattered(size, (3, size), random),
        Shape::Dense => scattered(size, (1, 4), random),
    };
    let tasks = before.into_iter().map(|after| StgTask { time: time(times, random), after });
    Stg { tasks: tasks.collect() }
}

fn time(times: Times, random: &mut Random) -> u64 {
    let time = match times {
        Times::Even => random.between(1, 10),
        Times::Mixed if random.below(10) == 0 => random.between(50, 150),
        Times::Mixed => random.between(1, 15),
    };
    time as u64
}

fn layered(size: usize, random: &mut Random) -> Vec<Vec<usize>> {
    let mut before = Vec::with_capacity(size);
    let (mut last, mut this) = (0..0, 0..0);
    for task in 0..size {
        if task == this.end {
            let width = random.between(2, size / 8 + 2);
            (last, this) = (this, task..task + width);
        }
        let mut after: Vec<_> = last.clone().filter(|_| random.below(3) == 0).collect();
        if after.is_empty() && !last.is_empty() {
            after.push(random.between(last.start, last.end - 1));
        }
        before.push(after);
    }
    before
}

fn fan(size: usize, random: &mut Random) -> Vec<Vec<usize>> {
    let mut before: Vec<Vec<usize>> = vec![Vec::new()];
    // The tasks that no other task needs yet.
    let mut open = vec![0];
    while before.len() < size {
        let room = size - before.len();
        if open.len() > 3 && random.below(2) == 0 {
            let start = random.below(open.len() - 2);
            let end = random.between(start + 2, open.len().min(start + 8));
            let joined = open.drain(start..end).collect();
            open.push(before.len());
            before.push(joined);
        } else {
            let from = open.swap_remove(random.below(open.len()));
            let forks = random.between(1, 7.min(room));
            open.extend(before.len()..before.len() + forks);
            before.extend((0..forks).map(|_| vec![from]));
        }
    }
    before
}

/// Makes each task need any earlier one with a chance of `some` in `of`.
fn scattered(size: usize, (some, of): (usize, usize), random: &mut Random) -> Vec<Vec<usize>> {
    (0..size).map(|task| (0..task).filter(|_| random.below(of) < some).collect()).collect()
}
