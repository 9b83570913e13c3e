//! Slots for the agents below one root run.
//!
//! [`Places`] is pure: it decides which run has a slot and which is next. The rest of the file holds the slots for
//! their runs. A run that waits for children lends its slot, and gets it back from the child whose end it waited for.
//! So nesting of any depth makes progress with a single slot, and no run that has begun ever waits for a slot to
//! continue.

use std::{
    collections::{BTreeMap, VecDeque},
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

use entourage_core::{Error, ErrorKind};
use serde_json::{Value, json};

/// Number of a run below the root.
pub(super) type Number = u64;

/// The slots of one tree: the runs that have one, and the queue of those that wait.
///
/// A wait that ends without a child's end (a timeout, a dropped future) takes the slot back at once, even when that
/// exceeds the limit for a while: a run that keeps a deadline may have to stop the others.
#[derive(Debug)]
pub(super) struct Places {
    limit: usize,
    taken: usize,
    next: u64,
    runs: BTreeMap<Number, Run>,
    /// Queue of runs without a slot, oldest first. May hold runs that are gone.
    line: VecDeque<Number>,
}

#[derive(Debug)]
struct Run {
    above: Option<Number>,
    placed: bool,
    /// Open waits, each by its own number.
    waits: Vec<u64>,
    /// The wait of the parent run that the end of this run completes.
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

    /// Adds a run below `above`: it takes a slot, or joins the queue.
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

    /// Adds a run, or returns `None` if it would have to wait.
    pub(super) fn try_enter(&mut self, above: Option<Number>) -> Option<Number> {
        (self.taken < self.limit).then(|| self.enter(above))
    }

    /// True when the run has a slot. Otherwise keeps `waker` for the moment that it gets one.
    fn is_placed(&mut self, run: Number, waker: &Waker) -> bool {
        let Some(run) = self.runs.get_mut(&run) else { return true };
        if !run.placed {
            run.waker = Some(waker.clone());
        }
        run.placed
    }

    /// Begins a wait for the end of any of `children`, and lends the run's slot meanwhile. Returns the number of the
    /// wait.
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

    /// Ends the wait, unless a child's end has ended it.
    pub(super) fn wait_over(&mut self, run: Number, wait: u64) {
        self.end_wait(run, wait);
    }

    /// Gives up the slot of a run whose own work is done and that only waits for its children.
    pub(super) fn rest(&mut self, run: Number) -> Option<Waker> {
        self.vacate(run)
    }

    /// Removes a run that ended. Unless `waited_for`, its parent's wait continues.
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

    /// Ends one wait. With the last one, the run has its slot again.
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

    /// Gives a free slot to the run that has waited longest.
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

/// The slots of one tree, as seen by one run of it. Cloning shares them.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    places: Arc<Mutex<Places>>,
    /// `None` for the root, which takes no slot.
    run: Option<Number>,
}

impl Pool {
    /// Creates the pool of a root, below which at most `limit` agents, at least one, run at once.
    pub(crate) fn new(limit: usize) -> Self {
        Self { places: Arc::new(Mutex::new(Places::new(limit))), run: None }
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a seat for a child of this run, with a slot or in the queue for one.
    pub(crate) fn enter(&self) -> Seat {
        let run = self.lock().enter(self.run);
        self.seat(run)
    }

    /// Returns a seat with a slot, or `None` if the child would have to wait.
    pub(crate) fn try_enter(&self) -> Option<Seat> {
        let run = self.lock().try_enter(self.run);
        run.map(|run| self.seat(run))
    }

    fn seat(&self, run: Number) -> Seat {
        Seat { pool: Self { places: Arc::clone(&self.places), run: Some(run) }, ends_waits: true }
    }

    /// Lends this run's slot while it waits for the first of `children` to end, until the guard is dropped.
    pub(crate) fn waiting(&self, children: &[Number]) -> Option<Waiting> {
        let run = self.run.filter(|_| !children.is_empty())?;
        let (wait, next) = self.lock().wait(run, children.iter().copied());
        next.into_iter().for_each(Waker::wake);
        Some(Waiting { pool: self.clone(), run, wait })
    }

    /// Gives up this run's slot: its own work is done, and it only waits for its children.
    pub(crate) fn rest(&self) {
        let Some(run) = self.run else { return };
        let next = self.lock().rest(run);
        next.into_iter().for_each(Waker::wake);
    }
}

/// A child's slot, or its position in the queue. Dropping it passes the slot on to the next run.
#[derive(Debug)]
pub(crate) struct Seat {
    pool: Pool,
    ends_waits: bool,
}

impl Seat {
    /// The pool that the child's own children take their seats from.
    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(super) fn number(&self) -> Option<Number> {
        self.pool.run
    }

    /// Waits for the slot.
    pub(super) async fn placed(&self) {
        let Some(run) = self.pool.run else { return };
        poll_fn(|task| match self.pool.lock().is_placed(run, task.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    /// Gives up the seat of a child that is not done: its parent's wait continues.
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

/// Guard of a run that waits for children and has lent its slot.
#[derive(Debug)]
pub(crate) struct Waiting {
    pool: Pool,
    run: Number,
    wait: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.pool.lock().wait_over(self.run, self.wait);
    }
}

/// The record of a child that was refused because it would have had to wait.
pub(crate) fn refusal(limit: usize) -> Value {
    json!({ "too_many": limit })
}

/// The error of the caller whose child was refused, from its record.
pub(crate) fn too_many(refusal: &Value) -> Error {
    let limit = refusal.get("too_many").and_then(Value::as_u64).unwrap_or_default();
    let text = format!(
        "{limit} agents run below the root session, as many as may at once; wait until one of them ends, or let this one wait"
    );
    Error::new(ErrorKind::TooMany, text).during("agent.spawn")
}

#[cfg(test)]
mod tests;
