//! Shared parts of the simulations: simulated time, a recorder of events, tables, and checked bounds.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use entourage::{
    Error, ErrorKind, Result, RuntimeBuilder, event::Envelope, permission::Policy, run::Observer, testkit,
};

/// Runs `work` on simulated time: waits take no real time, and everything else takes no simulated time.
pub(crate) fn on_paused_time<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| Error::new(ErrorKind::Internal, "no runtime").caused_by(error))?;
    runtime.block_on(work)
}

/// A runtime on simulated time, in memory, where every tool call is allowed.
pub(crate) fn runtime() -> RuntimeBuilder {
    testkit::runtime().policy(Policy::allow_all())
}

/// Keeps every stored event of every session of a runtime, in order.
#[derive(Clone, Default)]
pub(crate) struct Watch(Arc<Mutex<Vec<Envelope>>>);

impl Watch {
    pub(crate) fn events(&self) -> Vec<Envelope> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Observer for Watch {
    fn on_event(&self, event: &Envelope) {
        if event.event.is_stored() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event.clone());
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch({} events)", self.events().len())
    }
}

/// Bounds that were checked, and those that did not hold.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    held: usize,
    broken: Vec<String>,
}

impl Checks {
    /// Checks that `holds`; `what` names the bound, with the figures.
    pub(crate) fn that(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if holds {
            self.held += 1;
        } else {
            self.broken.push(what());
        }
    }

    /// Checks that two figures are equal.
    pub(crate) fn same<T: PartialEq + fmt::Debug + Copy>(&mut self, what: &str, measured: T, expected: T) {
        let holds = measured == expected;
        self.that(holds, || format!("{what}: measured {measured:?}, expected {expected:?}"));
    }

    pub(crate) fn held(&self) -> usize {
        self.held
    }

    pub(crate) fn broken(&self) -> &[String] {
        &self.broken
    }
}

/// A Markdown table, its columns aligned.
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(head: [&str; N]) -> Self {
        Self { head: head.map(str::to_owned).to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.rows.iter().chain([&self.head]).filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..self.head.len()).map(width).collect();
        let line = |f: &mut fmt::Formatter<'_>, row: &[String]| {
            for (cell, width) in row.iter().zip(&widths) {
                write!(f, "| {cell:width$} ")?;
            }
            writeln!(f, "|")
        };
        line(f, &self.head)?;
        line(f, &widths.iter().map(|width| "-".repeat(*width)).collect::<Vec<_>>())?;
        self.rows.iter().try_for_each(|row| line(f, row))
    }
}

pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
