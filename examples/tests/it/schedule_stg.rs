//! The example `schedule_stg`: files are read as the set writes them, the sample equals the generator's output, and a
//! `TaskGraph` schedules it well.

#[path = "../../schedule_stg/generate.rs"]
mod generate;
#[path = "../../schedule_stg/reference.rs"]
mod reference;
#[path = "../../schedule_stg/run.rs"]
mod run;
#[path = "../../schedule_stg/stg.rs"]
mod stg;

use std::{fs, path::Path};

use reference::{bound, list_schedule};
use stg::{Stg, StgError, StgTask};

fn task(time: u64, after: &[usize]) -> StgTask {
    StgTask { time, after: after.to_vec() }
}

/// A file as published: two more tasks than stated, any number of spaces, remarks at the end.
const DIAMOND: &str = "    4\r
    0     0     0\r
    1     3     1     0
    2     5     1     1
    3     2     1     1
    4     4     2     2     3
    5     0     1     4
#
# Standard Task Graph
#  CP Length            :   12   # of a schedule
";

#[test]
fn a_file_is_read_as_the_published_set_writes_it() {
    let graph = Stg::parse(DIAMOND).unwrap();
    let tasks =
        vec![task(0, &[]), task(3, &[0]), task(5, &[1]), task(2, &[1]), task(4, &[2, 3]), task(0, &[4])];
    assert_eq!(graph, Stg { tasks });
    assert_eq!((graph.work(), graph.longest().first().copied()), (14, Some(12)));
    assert_eq!(Stg::parse(&graph.render("again")).unwrap().tasks.len(), graph.tasks.len() + 2);
}

#[test]
fn tasks_without_entry_and_exit_in_any_order_and_over_several_lines_are_read_too() {
    let graph = Stg::parse("3\n 7 5 2\n 3\n 9\n 3 1 0\n 9 2 1 3\n").unwrap();
    assert_eq!(graph.tasks, [task(1, &[]), task(2, &[0]), task(5, &[0, 1])]);
    // Tabs, empty lines, a mark at the start, no end of the last line; named in no order, and twice.
    let graph = Stg::parse("\u{feff}\t3\r\n\r\n1\t0\t0\r\n\n2 4 1 1 # second\n# third\n3 2 3 2 1 2").unwrap();
    assert_eq!(graph.tasks, [task(0, &[]), task(4, &[0]), task(2, &[0, 1])]);
    let shuffled = Stg::parse("3\n3 2 2 2 1\n2 4 1 1\n1 0 0").unwrap();
    assert_eq!(shuffled.tasks, graph.tasks);
}

#[test]
fn what_is_no_task_graph_is_refused_with_the_place() {
    let number = |line, word: &str| StgError::Number { line, word: word.to_owned() };
    let short = |line, expected| StgError::Short { line, expected };
    let table = [
        ("", short(1, "the number of tasks")),
        ("# 3", short(1, "the number of tasks")),
        ("one", number(1, "one")),
        ("1\n0 -1 0", number(2, "-1")),
        ("1\n0 99999999999999999999 0", number(2, "99999999999999999999")),
        ("1\n0", short(2, "a processing time")),
        ("1\n\n0 1", short(3, "a number of tasks before")),
        ("1\n0 1 18446744073709551615 0", short(2, "a task before")),
        ("10 3\n0 1 0", StgError::Long { line: 1, began: 1 }),
        ("1\n0 1 0 7\n", StgError::Long { line: 2, began: 2 }),
        ("2\n0 1 0\n1 1 2 0\n2 1 1 0\n", StgError::Long { line: 4, began: 3 }),
        ("1", StgError::Count { said: 1, found: 0 }),
        ("1\n0 1 0\n1 1 0\n2 1 0\n3 1 0", StgError::Count { said: 1, found: 4 }),
        ("2\n0 1 0\n0 1 0", StgError::Twice { line: 3, task: 0 }),
        ("2\n0 1 0\n1 1 1 7", StgError::Before { line: 3, task: 1, before: 7 }),
        ("1\n5 1 1 5", StgError::Cycle { task: 5 }),
        ("3\n0 1 0\n1 1 2 0 2\n2 1 1 1", StgError::Cycle { task: 1 }),
        ("2\n0 999999999 0\n1 2 0", StgError::Time),
    ];
    for (text, error) in table {
        assert_eq!(Stg::parse(text), Err(error), "{text}");
    }
}

#[test]
fn the_reference_takes_the_longest_way_first() {
    let graph = Stg::parse(DIAMOND).unwrap();
    assert_eq!((list_schedule(&graph, 1), list_schedule(&graph, 2)), (14, 12));
    assert_eq!((bound(&graph, 1), bound(&graph, 2)), (14.0, 12.0));
    // Five of 3 on three workers: 6, though 5 would be even.
    let five = Stg { tasks: vec![task(3, &[]); 5] };
    assert_eq!((list_schedule(&five, 3), bound(&five, 3)), (6, 5.0));
}

#[test]
fn the_sample_is_what_its_generator_makes() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/stg"));
    let sample = generate::sample();
    for (name, text) in &sample {
        assert_eq!(&fs::read_to_string(folder.join(name)).unwrap(), text, "{name}");
    }
    assert_eq!(fs::read_dir(folder).unwrap().count(), sample.len());
}

#[test]
fn lo07_a_graph_of_agents_is_scheduled_nearly_as_well_as_can_be() {
    let mut ratios = Vec::new();
    for (name, text) in generate::sample() {
        let graph = Stg::parse(&text).unwrap();
        for workers in [2, 4, 8, 16] {
            let took = run::makespan(&graph, workers).unwrap();
            let (least, list) = (bound(&graph, workers), list_schedule(&graph, workers));
            assert!(took as f64 >= least, "{name} on {workers}: {took} is less than can be, {least}");
            ratios.push((took as f64 / least, took as f64 / list as f64));
        }
    }
    let mean = |of: fn(&(f64, f64)) -> f64| ratios.iter().map(of).sum::<f64>() / ratios.len() as f64;
    let means = (mean(|ratio| ratio.0), mean(|ratio| ratio.1));
    assert!(means.0 <= 1.05 && means.1 <= 1.01, "{means:?}");
}

#[test]
fn times_add_up_exactly_and_any_number_of_workers_will_do() {
    let chain = Stg { tasks: (0..2_000).map(|n: usize| task(1, n.checked_sub(1).as_slice())).collect() };
    assert_eq!(run::makespan(&chain, 3).unwrap(), 2_000);
    let wide = Stg { tasks: vec![task(7, &[]); 1_000] };
    for (workers, takes) in [(1, 7_000), (999, 14), (1_000, 7), (5_000, 7)] {
        assert_eq!(run::makespan(&wide, workers).unwrap(), takes, "{workers} workers");
        assert_eq!(list_schedule(&wide, workers), takes);
    }
}

#[test]
fn tasks_of_no_time_are_done_at_once_wherever_they_are() {
    let text = "6\n1 0 0\n2 3 1 1\n3 0 1 2\n4 0 1 3\n5 2 2 4 1\n6 0 2 5 3\n";
    let graph = Stg::parse(text).unwrap();
    for workers in [1, 2, 16] {
        assert_eq!((run::makespan(&graph, workers).unwrap(), list_schedule(&graph, workers)), (5, 5));
    }
}

#[test]
fn a_graph_of_nothing_takes_no_time() {
    let graph = Stg::parse("0\n0 0 0\n1 0 1 0\n").unwrap();
    assert_eq!((run::makespan(&graph, 2).unwrap(), list_schedule(&graph, 2)), (0, 0));
}
