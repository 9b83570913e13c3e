//! How many agents below one root run at once (AI04).
//!
//! [`Places`] is pure: it says who has a place and who is next. The rest of the file is who holds it. Whoever waits for
//! children lends its place, and gets it back from the child whose end it waited for: so a tree of any depth goes on
//! with a single place, and nobody ever waits for one in order to go on.

use std::{
    collections::{BTreeMap, VecDeque},
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

use serde_json::{Value, json};

use crate::{Error, ErrorKind};

/// Names a run below the root.
pub(super) type Number = u64;

/// Who has a place, and who waits for one in the order in which they came.
///
/// A wait that ends without a child's end (its time was over, its future was dropped) gives the place back at once, even
/// when that makes one too many for a while: whoever keeps a deadline may have to stop the others.
#[derive(Debug)]
pub(super) struct Places {
    limit: usize,
    taken: usize,
    next: u64,
    runs: BTreeMap<Number, Run>,
    /// May name runs that are gone.
    line: VecDeque<Number>,
}

#[derive(Debug)]
struct Run {
    above: Option<Number>,
    placed: bool,
    /// What it waits for, each wait by a number of its own.
    waits: Vec<u64>,
    /// The wait of the run above that this one's end ends.
    awaited: Option<u64>,
    waker: Option<Waker>,
}

impl Places {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, taken: 0, next: 0, runs: BTreeMap::new(), line: VecDeque::new() }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A run below `above` takes a place, or waits for one.
    pub(super) fn enter(&mut self, above: Option<Number>) -> Number {
        let (run, placed) = (self.number(), self.taken < self.limit);
        let entry = Run { above, placed, waits: Vec::new(), awaited: None, waker: None };
        self.runs.insert(run, entry);
        if placed {
            self.taken += 1;
        } else {
            self.line.push_back(run);
        }
        run
    }

    /// The same, unless it would have to wait.
    pub(super) fn try_enter(&mut self, above: Option<Number>) -> Option<Number> {
        (self.taken < self.limit).then(|| self.enter(above))
    }

    /// Whether the run may go on. Remembers whom to wake when it may.
    fn is_placed(&mut self, run: Number, waker: &Waker) -> bool {
        let Some(run) = self.runs.get_mut(&run) else { return true };
        if !run.placed {
            run.waker = Some(waker.clone());
        }
        run.placed
    }

    /// The run waits for the end of any of `children`, and lends its place meanwhile. Names the wait.
    pub(super) fn wait(
        &mut self,
        run: Number,
        children: impl IntoIterator<Item = Number>,
    ) -> (u64, Option<Waker>) {
        let wait = self.number();
        for child in children {
            if let Some(child) = self.runs.get_mut(&child) {
                child.awaited = Some(wait);
            }
        }
        if let Some(run) = self.runs.get_mut(&run) {
            run.waits.push(wait);
        }
        (wait, self.vacate(run))
    }

    /// The wait is over, if no child's end ended it.
    pub(super) fn wait_over(&mut self, run: Number, wait: u64) {
        self.end_wait(run, wait);
    }

    /// The run's own work is done, and it waits for what it left running.
    pub(super) fn rest(&mut self, run: Number) -> Option<Waker> {
        self.vacate(run)
    }

    /// The run ended; `waited_for` unless whoever waits for it goes on waiting.
    pub(super) fn leave(&mut self, run: Number, waited_for: bool) -> Option<Waker> {
        let gone = self.runs.remove(&run)?;
        if gone.placed {
            self.taken = self.taken.saturating_sub(1);
        }
        if let (true, Some(above), Some(wait)) = (waited_for, gone.above, gone.awaited) {
            self.end_wait(above, wait);
        }
        self.grant()
    }

    /// With the last of its waits over, a run has its place again.
    fn end_wait(&mut self, run: Number, wait: u64) {
        let Some(entry) = self.runs.get_mut(&run) else { return };
        let Some(at) = entry.waits.iter().position(|open| *open == wait) else { return };
        entry.waits.swap_remove(at);
        if entry.waits.is_empty() && !entry.placed {
            entry.placed = true;
            self.taken += 1;
        }
    }

    fn vacate(&mut self, run: Number) -> Option<Waker> {
        if let Some(run) = self.runs.get_mut(&run)
            && std::mem::replace(&mut run.placed, false)
        {
            self.taken = self.taken.saturating_sub(1);
        }
        self.grant()
    }

    /// Gives the place that became free to whoever has waited longest.
    fn grant(&mut self) -> Option<Waker> {
        while self.taken < self.limit {
            let next = self.line.pop_front()?;
            if let Some(run) = self.runs.get_mut(&next) {
                run.placed = true;
                self.taken += 1;
                return run.waker.take();
            }
        }
        None
    }
}

/// The places of one tree, as seen by one run of it. Cloning shares them.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    places: Arc<Mutex<Places>>,
    /// `None` for the root, which takes no place.
    run: Option<Number>,
}

impl Pool {
    /// The pool of a root, below which at most `limit` agents, at least one, run at once.
    pub(super) fn new(limit: usize) -> Self {
        Self { places: Arc::new(Mutex::new(Places::new(limit))), run: None }
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A seat for a child of this run: with a place, or in the line for one.
    pub(super) fn enter(&self) -> Seat {
        let run = self.lock().enter(self.run);
        self.seat(run)
    }

    /// The same, unless it would have to wait.
    pub(super) fn try_enter(&self) -> Option<Seat> {
        let run = self.lock().try_enter(self.run);
        run.map(|run| self.seat(run))
    }

    fn seat(&self, run: Number) -> Seat {
        Seat { pool: Self { places: Arc::clone(&self.places), run: Some(run) }, ends_waits: true }
    }

    /// This run waits for the first of `children` to end, until the guard is dropped.
    pub(super) fn waiting(&self, children: &[Number]) -> Option<Waiting> {
        let run = self.run.filter(|_| !children.is_empty())?;
        let (wait, next) = self.lock().wait(run, children.iter().copied());
        next.into_iter().for_each(Waker::wake);
        Some(Waiting { pool: self.clone(), run, wait })
    }

    /// This run's own work is done, and it waits for what it left running.
    pub(super) fn rest(&self) {
        let Some(run) = self.run else { return };
        let next = self.lock().rest(run);
        next.into_iter().for_each(Waker::wake);
    }
}

/// A child's place, or its turn in the line. Dropping it gives it to whoever is next.
#[derive(Debug)]
pub(super) struct Seat {
    pool: Pool,
    ends_waits: bool,
}

impl Seat {
    /// What the child's own children are seated in.
    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(super) fn number(&self) -> Option<Number> {
        self.pool.run
    }

    /// Waits for the place.
    pub(super) async fn placed(&self) {
        let Some(run) = self.pool.run else { return };
        poll_fn(|task| match self.pool.lock().is_placed(run, task.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    /// The child is not done: whoever waits for it goes on waiting.
    pub(super) fn leave_unfinished(mut self) {
        self.ends_waits = false;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(run) = self.pool.run else { return };
        let next = self.pool.lock().leave(run, self.ends_waits);
        next.into_iter().for_each(Waker::wake);
    }
}

/// A run that waits for children: it has lent its place.
#[derive(Debug)]
pub(super) struct Waiting {
    pool: Pool,
    run: Number,
    wait: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.pool.lock().wait_over(self.run, self.wait);
    }
}

/// What is recorded in the stead of a child that would have had to wait.
pub(super) fn refusal(limit: usize) -> Value {
    json!({ "too_many": limit })
}

/// The refusal again, as whoever asked is told of it.
pub(super) fn too_many(refusal: &Value) -> Error {
    let limit = refusal.get("too_many").and_then(Value::as_u64).unwrap_or_default();
    let text = format!(
        "{limit} agents run below the root session, as many as may at once; wait until one of them ends, or let this one wait"
    );
    Error::new(ErrorKind::TooMany, text).during("agent.spawn")
}

#[cfg(test)]
#[path = "pool/tests.rs"]
mod tests;
