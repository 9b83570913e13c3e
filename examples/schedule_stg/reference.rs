//! References for a measurement: a bound that no schedule can beat, and the schedule of a textbook's list scheduler.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::stg::Stg;

/// The lower bound for any schedule on `workers` workers: the critical path, or all work evenly spread.
pub(crate) fn bound(graph: &Stg, workers: usize) -> f64 {
    let path = graph.longest().into_iter().max().unwrap_or_default();
    (path as f64).max(graph.work() as f64 / workers as f64)
}

/// Time of a list schedule: each free worker takes the ready task with the longest path to the end; of equal ones, the
/// first of the file.
pub(crate) fn list_schedule(graph: &Stg, workers: usize) -> u64 {
    let longest = graph.longest();
    let mut dependents = vec![Vec::new(); graph.tasks.len()];
    for (place, task) in graph.tasks.iter().enumerate() {
        for before in &task.after {
            if let Some(dependents) = dependents.get_mut(*before) {
                dependents.push(place);
            }
        }
    }
    let mut missing: Vec<_> = graph.tasks.iter().map(|task| task.after.len()).collect();
    let rank = |place: usize| (longest.get(place).copied().unwrap_or_default(), Reverse(place));
    let first = missing.iter().enumerate().filter(|(_, missing)| **missing == 0);
    let mut ready: BinaryHeap<_> = first.map(|(place, _)| rank(place)).collect();
    let mut running = BinaryHeap::new();
    let mut now = 0;
    loop {
        while running.len() < workers
            && let Some((_, Reverse(place))) = ready.pop()
        {
            let time = graph.tasks.get(place).map_or(0, |task| task.time);
            running.push(Reverse((now + time, place)));
        }
        let Some(Reverse((end, _))) = running.peek() else { return now };
        now = *end;
        while let Some(Reverse((end, place))) = running.peek().copied()
            && end == now
        {
            running.pop();
            for dependent in dependents.get(place).into_iter().flatten() {
                if let Some(missing) = missing.get_mut(*dependent) {
                    *missing -= 1;
                    if *missing == 0 {
                        ready.push(rank(*dependent));
                    }
                }
            }
        }
    }
}
