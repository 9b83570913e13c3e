//! Standard Task Graph files: the number of tasks, then for each task, and for an entry and an exit that take no time,
//! its number, its processing time, the number of its predecessors, and their numbers.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    iter::Peekable,
    ops::RangeInclusive,
};

/// A task graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stg {
    /// The tasks, each after its predecessors.
    pub(crate) tasks: Vec<StgTask>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StgTask {
    pub(crate) time: u64,
    /// Indices of the predecessors.
    pub(crate) after: Vec<usize>,
}

/// The reason why a file is not a task graph. Lines count from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StgError {
    /// A word that is not a number, or is too large.
    Number { line: usize, word: String },
    /// The file ends within a task, or before its first.
    Short { line: usize, expected: &'static str },
    /// A line continues after the end of its entry (a task, or the number of tasks), which began on the line `began`.
    Long { line: usize, began: usize },
    /// The file has neither as many tasks as it states nor two more.
    Count { said: u64, found: usize },
    /// A number that two tasks have.
    Twice { line: usize, task: u64 },
    /// A predecessor that does not exist.
    Before { line: usize, task: u64, before: u64 },
    /// A cycle of predecessors.
    Cycle { task: u64 },
    /// A total time beyond the range of a clock.
    Time,
}

impl fmt::Display for StgError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { line, word } => write!(f, "line {line}: `{word}` is no number of a task graph"),
            Self::Short { line, expected } => {
                write!(f, "line {line}: the file ends where {expected} is expected")
            }
            Self::Long { line, began } if line == began => {
                write!(f, "line {line}: it goes on after what it says; is a number in it wrong?")
            }
            Self::Long { line, began } => {
                write!(
                    f,
                    "line {began}: it says less than it is to; what it lacks was looked for up to line {line}"
                )
            }
            Self::Count { said, found } => {
                write!(
                    f,
                    "{found} tasks, where the first line says {said}; there may be an entry and an exit more"
                )
            }
            Self::Twice { line, task } => write!(f, "line {line}: there is a task {task} already"),
            Self::Before { line, task, before } => {
                write!(f, "line {line}: {before} comes before task {task}, and there is no such task")
            }
            Self::Cycle { task } => write!(f, "task {task} comes before itself"),
            Self::Time => write!(f, "the processing times add up to more than {MOST_TIME}"),
        }
    }
}

impl std::error::Error for StgError {}

/// Largest total of processing time: as seconds some thirty years, which tokio's clock can represent.
const MOST_TIME: u64 = 1_000_000_000;

/// A task as written in the file.
struct Said {
    line: usize,
    number: u64,
    time: u64,
    after: Vec<u64>,
}

impl Stg {
    /// Parses a file. Text after a `#` is a remark. Each task begins a line, and may take several; its predecessors
    /// may be named in any order, and more than once.
    pub(crate) fn parse(text: &str) -> Result<Self, StgError> {
        let text = text.trim_start_matches('\u{feff}');
        let words = text.lines().zip(1..).flat_map(|(text, line)| {
            let text = text.split_once('#').map_or(text, |(text, _)| text);
            text.split_whitespace().map(move |word| (line, word))
        });
        let mut numbers = Numbers { words: words.peekable(), line: 1 };
        let count = numbers.next("the number of tasks")?;
        numbers.end_of(1)?;
        let mut said = Vec::new();
        while let Some(line) = numbers.next_line() {
            let (number, time) = (numbers.next("a task")?, numbers.next("a processing time")?);
            let before = numbers.next("a number of tasks before")?;
            let after = (0..before).map(|_| numbers.next("a task before")).collect::<Result<_, _>>()?;
            numbers.end_of(line)?;
            said.push(Said { line, number, time, after });
        }
        let found = said.len();
        if !with_dummies(count).contains(&(found as u64)) {
            return Err(StgError::Count { said: count, found });
        }
        if said
            .iter()
            .try_fold(0_u64, |sum, task| sum.checked_add(task.time))
            .is_none_or(|sum| sum > MOST_TIME)
        {
            return Err(StgError::Time);
        }
        sorted(&said)
    }

    /// Renders the tasks as a file, with an entry and an exit.
    pub(crate) fn render(&self, remarks: &str) -> String {
        let mut followed = vec![false; self.tasks.len()];
        for before in self.tasks.iter().flat_map(|task| &task.after) {
            if let Some(followed) = followed.get_mut(*before) {
                *followed = true;
            }
        }
        let mut text = format!("{:5}\n{}", self.tasks.len(), line(0, 0, &[]));
        for (place, task) in self.tasks.iter().enumerate() {
            let after: Vec<_> = task.after.iter().map(|before| before + 1).collect();
            text.push_str(&line(place + 1, task.time, if after.is_empty() { &[0] } else { &after }));
        }
        let last: Vec<_> =
            (1..).zip(followed).filter(|(_, followed)| !followed).map(|(task, _)| task).collect();
        text.push_str(&line(self.tasks.len() + 1, 0, &last));
        text.extend(remarks.lines().map(|remark| format!("# {remark}\n")));
        text
    }

    /// Total processing time of all tasks.
    pub(crate) fn work(&self) -> u64 {
        self.tasks.iter().map(|task| task.time).sum()
    }

    /// The longest time from the start of each task to the end of the graph.
    pub(crate) fn longest(&self) -> Vec<u64> {
        let mut after = vec![0_u64; self.tasks.len()];
        let mut longest = vec![0_u64; self.tasks.len()];
        for (place, task) in self.tasks.iter().enumerate().rev() {
            let own = task.time + after.get(place).copied().unwrap_or_default();
            if let Some(longest) = longest.get_mut(place) {
                *longest = own;
            }
            for before in &task.after {
                if let Some(after) = after.get_mut(*before) {
                    *after = own.max(*after);
                }
            }
        }
        longest
    }
}

fn with_dummies(count: u64) -> RangeInclusive<u64> {
    count..=count.saturating_add(2)
}

fn line(task: usize, time: u64, after: &[usize]) -> String {
    let after: String = after.iter().map(|before| format!(" {before:4}")).collect();
    format!("{task:5} {time:5} {:4}{after}\n", after.split_whitespace().count())
}

/// The numbers of a file, each with its line.
struct Numbers<'a, W: Iterator<Item = (usize, &'a str)>> {
    words: Peekable<W>,
    /// Line of the newest number.
    line: usize,
}

impl<'a, W: Iterator<Item = (usize, &'a str)>> Numbers<'a, W> {
    fn next(&mut self, expected: &'static str) -> Result<u64, StgError> {
        let (line, word) = self.words.next().ok_or(StgError::Short { line: self.line, expected })?;
        self.line = line;
        word.parse().map_err(|_| StgError::Number { line, word: word.chars().take(40).collect() })
    }

    /// Line of the next number.
    fn next_line(&mut self) -> Option<usize> {
        self.words.peek().map(|(line, _)| *line)
    }

    /// Checks that the entry which began on the line `began` ends here: the next number is on another line.
    fn end_of(&mut self, began: usize) -> Result<(), StgError> {
        let line = self.line;
        if self.next_line() == Some(line) { Err(StgError::Long { line, began }) } else { Ok(()) }
    }
}

/// The tasks in topological order, otherwise in the order of the file.
fn sorted(said: &[Said]) -> Result<Stg, StgError> {
    let mut places = HashMap::new();
    for (place, task) in said.iter().enumerate() {
        if places.insert(task.number, place).is_some() {
            return Err(StgError::Twice { line: task.line, task: task.number });
        }
    }
    let mut dependents = vec![Vec::new(); said.len()];
    let mut missing = Vec::with_capacity(said.len());
    for (place, task) in said.iter().enumerate() {
        if let Some(before) = task.after.iter().find(|before| !places.contains_key(before)) {
            return Err(StgError::Before { line: task.line, task: task.number, before: *before });
        }
        let before: BTreeSet<_> = task.after.iter().filter_map(|before| places.get(before)).collect();
        for from in &before {
            if let Some(dependents) = dependents.get_mut(**from) {
                dependents.push(place);
            }
        }
        missing.push(before.len());
    }
    let order = order(&dependents, missing)
        .map_err(|place| StgError::Cycle { task: said.get(place).map_or(0, |task| task.number) })?;
    let moved: HashMap<_, _> = order.iter().zip(0..).map(|(place, new)| (*place, new)).collect();
    let task = |place: &usize| {
        let task = said.get(*place)?;
        let after: BTreeSet<_> =
            task.after.iter().filter_map(|number| moved.get(places.get(number)?).copied()).collect();
        Some(StgTask { time: task.time, after: after.into_iter().collect() })
    };
    Ok(Stg { tasks: order.iter().filter_map(task).collect() })
}

/// A topological order of the tasks; among free ones the first of the file comes first. The error is a task on a
/// cycle, or behind one.
fn order(dependents: &[Vec<usize>], mut missing: Vec<usize>) -> Result<Vec<usize>, usize> {
    use std::{cmp::Reverse, collections::BinaryHeap};
    let free = missing.iter().enumerate().filter(|(_, missing)| **missing == 0);
    let mut free: BinaryHeap<_> = free.map(|(place, _)| Reverse(place)).collect();
    let mut order = Vec::with_capacity(missing.len());
    while let Some(Reverse(place)) = free.pop() {
        order.push(place);
        for dependent in dependents.get(place).into_iter().flatten() {
            if let Some(missing) = missing.get_mut(*dependent) {
                *missing -= 1;
                if *missing == 0 {
                    free.push(Reverse(*dependent));
                }
            }
        }
    }
    match missing.iter().position(|missing| *missing > 0) {
        Some(place) => Err(place),
        None => Ok(order),
    }
}
