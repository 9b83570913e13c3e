//! Budgets of trees of agents: money, tokens, model calls, tool calls and time.
//!
//! A reservation is made before a call and settled after it. An unknown figure counts at its worst, so a budget fails
//! closed. It never waits for another call to end, and never cuts a reply for its tokens or money.

mod ledger;
mod shortage;
mod state;
#[cfg(test)]
mod tests;

pub use crate::base::{BudgetLimits, Charge, Exhausted, Failure, Spend};
pub use state::BudgetState;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::Result;
use ledger::{Ledger, NodeId};

/// Budget of a tree of agents. Cloning shares it.
///
/// A [`Budget::child`] has bounds of its own, and its use is charged to all budgets above it as well: a child can only
/// be narrower. Reservations of parallel calls never exceed a bound together. [`BudgetLimits`] says how far the calls
/// themselves may exceed it; the excess is then missing for later calls.
///
/// ```
/// use entourage_core::{Money, budget::{Budget, BudgetLimits, Charge}};
///
/// let budget = Budget::new(BudgetLimits::none().with_tokens(1_000));
/// let scout = budget.child(BudgetLimits::none().with_model_calls(2));
/// let call = scout.reserve(Charge::model_call(600, None)).unwrap();
/// assert!(budget.reserve(Charge::model_call(600, None)).is_err());
/// call.settle(Charge::model_call(150, Some(Money::from_pico(7))));
/// assert_eq!(budget.remaining().tokens, Some(850));
/// assert_eq!(budget.spent().money, Money::from_pico(7));
/// ```
#[derive(Clone)]
pub struct Budget {
    node: Arc<Node>,
    label: Arc<str>,
}

/// Node of a budget in its tree. It keeps the nodes above it alive.
struct Node {
    ledger: Arc<Mutex<Ledger>>,
    id: NodeId,
    parent: Option<Arc<Node>>,
}

impl Node {
    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.lock().close(self.id);
    }
}

impl Budget {
    /// A budget with these bounds. Its time begins now.
    #[must_use]
    pub fn new(limits: BudgetLimits) -> Self {
        Self::restore(BudgetState { limits, ..BudgetState::default() })
    }

    /// A budget that goes on from `state`. Its reservations then count as spent.
    #[must_use]
    pub fn restore(state: BudgetState) -> Self {
        Self::open(Arc::default(), None, state, Arc::default())
    }

    /// True if both are the same budget, and not only equal ones.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.node, &other.node)
    }

    /// A narrower budget for a part of the work, with this one's label. Its use is charged here as well.
    #[must_use]
    pub fn child(&self, limits: BudgetLimits) -> Self {
        self.restore_child(BudgetState { limits, ..BudgetState::default() })
    }

    /// A child that goes on from `state`. Its earlier use is not charged here again: it is in this budget's own state.
    #[must_use]
    pub fn restore_child(&self, state: BudgetState) -> Self {
        let ledger = Arc::clone(&self.node.ledger);
        Self::open(ledger, Some(Arc::clone(&self.node)), state, Arc::clone(&self.label))
    }

    fn open(
        ledger: Arc<Mutex<Ledger>>,
        parent: Option<Arc<Node>>,
        state: BudgetState,
        label: Arc<str>,
    ) -> Self {
        let above = parent.as_ref().map(|parent| parent.id);
        let id = ledger.lock().unwrap_or_else(PoisonError::into_inner).open(above, state, Instant::now());
        Self { node: Arc::new(Node { ledger, id, parent }), label }
    }

    /// The same budget, with use through this handle reported under `label`, for example an agent's name.
    #[must_use]
    pub fn labelled(&self, label: impl Into<Arc<str>>) -> Self {
        Self { node: Arc::clone(&self.node), label: label.into() }
    }

    /// Reserves `estimate`, here and in all budgets above. If it is [open-ended](Charge::open_ended()) and covered, it
    /// reserves all that is left there.
    ///
    /// # Errors
    /// [`ErrorKind::BudgetExceeded`](crate::ErrorKind::BudgetExceeded), permanent, when a bound does not cover it, or
    /// when money is bounded and the estimate's money is unknown. Nothing is reserved then.
    /// [`Error::exhausted`](crate::Error::exhausted) names the bound and what is left, unless the price is unknown.
    pub fn reserve(&self, estimate: Charge) -> Result<Reservation> {
        let reserved = self.node.lock().reserve(self.node.id, &estimate, Instant::now());
        reserved.map_err(|short| short.into_error())?;
        Ok(Reservation { budget: self.clone(), reserved: Some(estimate) })
    }

    /// Spend here and in all budgets below, without reservations.
    #[must_use]
    pub fn spent(&self) -> Spend {
        self.node.lock().spent(self.node.id)
    }

    /// Reservations of calls in flight, here and in all budgets below.
    #[must_use]
    pub fn reserved(&self) -> Spend {
        self.node.lock().reserved(self.node.id)
    }

    /// Remaining amounts that a call could use now: the narrowest here and above. `None` where nothing is bounded.
    #[must_use]
    pub fn remaining(&self) -> BudgetLimits {
        self.node.lock().remaining(self.node.id, Instant::now())
    }

    /// Spend here and below by label; `""` is use without a label.
    #[must_use]
    pub fn report(&self) -> BTreeMap<Arc<str>, Spend> {
        self.node.lock().labels(self.node.id)
    }

    /// State from which [`Budget::restore`] goes on in another process. Budgets above and below are not in it: a child
    /// that goes on has a state of its own.
    #[must_use]
    pub fn state(&self) -> BudgetState {
        self.node.lock().state(self.node.id, Instant::now())
    }

    /// Returns the time that is left, here and above; `None` when it has no bound.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        self.remaining().time
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("label", &self.label)
            .field(
                "depth",
                &std::iter::successors(self.node.parent.as_ref(), |node| node.parent.as_ref()).count(),
            )
            .field("spent", &self.spent())
            .field("remaining", &self.remaining())
            .finish()
    }
}

/// Reservation of a budget for one call.
///
/// Dropped without [`Reservation::settle`] or [`Reservation::cancel`], it counts as spent in full, since the end of the
/// call is unknown.
#[must_use = "dropping a reservation spends it"]
#[derive(Debug)]
pub struct Reservation {
    budget: Budget,
    reserved: Option<Charge>,
}

impl Reservation {
    /// The reserved charge.
    #[must_use]
    pub fn charge(&self) -> Charge {
        self.reserved.unwrap_or_default()
    }

    /// Returns the budget that it was made on.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Settles a call that is over and used `actual`. Unknown money counts as reserved.
    pub fn settle(mut self, actual: Charge) {
        self.close(|reserved| Charge { money: actual.money.or(reserved.money), ..actual });
    }

    /// Settles a call that was never made, at no cost.
    pub fn cancel(mut self) {
        self.close(|_| Charge::nothing());
    }

    fn close(&mut self, actual: impl FnOnce(&Charge) -> Charge) {
        if let Some(reserved) = self.reserved.take() {
            let actual = actual(&reserved);
            let node = &self.budget.node;
            node.lock().settle(node.id, &reserved, &actual, &self.budget.label);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.close(|reserved| *reserved);
    }
}
