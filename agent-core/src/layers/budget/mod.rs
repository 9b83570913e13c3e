//! One budget for a tree of agents: money, tokens, model calls, tool calls and time.
//!
//! Something is set aside before a call and settled after it. Whatever is unknown counts at its worst, so a budget
//! fails closed. It never waits for another call to end, and never cuts a reply for its tokens or money.

mod account;
mod layer;
mod ledger;
mod limits;
#[cfg(test)]
mod tests;

pub(crate) use account::{Account, reply_charge};
pub use layer::BudgetLayer;
pub use limits::{BudgetLimits, BudgetState, Charge, Exhausted, Spend};

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::Result;
use ledger::{Ledger, NodeId};

/// What a tree of agents may use. Cloning shares it.
///
/// A [`Budget::child`] has bounds of its own, and what it uses is charged to all above it as well: a child can only
/// be narrower. Reservations of calls that run in parallel never exceed a bound together. [`BudgetLimits`] says by how much
/// the calls themselves may, and that much is then missing for the next.
///
/// ```
/// use entourage_core::{Money, layers::{Budget, BudgetLimits, Charge}};
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

/// A budget in its tree. Those above it live as long as it does.
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

    /// A budget that goes on where `state` was taken. What was under way then counts as spent.
    #[must_use]
    pub fn restore(state: BudgetState) -> Self {
        Self::open(Arc::default(), None, state, Arc::default())
    }

    /// A narrower budget, for a part of the work: what it uses is charged here as well. It has this one's label.
    #[must_use]
    pub fn child(&self, limits: BudgetLimits) -> Self {
        self.restore_child(BudgetState { limits, ..BudgetState::default() })
    }

    /// A child that goes on where `state` was taken. What it spent before is not charged here again: this budget's
    /// own state has it.
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

    /// The same budget, reporting what goes through this handle under `label`: an agent's name, for example.
    #[must_use]
    pub fn labelled(&self, label: impl Into<Arc<str>>) -> Self {
        Self { node: Arc::clone(&self.node), label: label.into() }
    }

    /// A layer that charges model calls to this budget, under `label`.
    #[must_use]
    pub fn layer(&self, label: impl Into<Arc<str>>) -> BudgetLayer {
        BudgetLayer::new(self.labelled(label))
    }

    /// Sets `estimate` aside, here and in all budgets above; all that is left there when it is
    /// [open-ended](Charge::open_ended()) and covered.
    ///
    /// # Errors
    /// [`ErrorKind::BudgetExceeded`](crate::ErrorKind::BudgetExceeded), permanent, when a bound does not cover it, or
    /// when money is bounded and the estimate's money is unknown. Nothing is set aside then. The bound and what is left
    /// are its [`Error::exhausted`](crate::Error::exhausted), unless it is the price that is missing.
    pub fn reserve(&self, estimate: Charge) -> Result<Reservation> {
        let reserved = self.node.lock().reserve(self.node.id, &estimate, Instant::now());
        reserved.map_err(|short| short.into_error())?;
        Ok(Reservation { budget: self.clone(), reserved: Some(estimate) })
    }

    /// What was spent here and in all budgets below, without what is set aside.
    #[must_use]
    pub fn spent(&self) -> Spend {
        self.node.lock().spent(self.node.id)
    }

    /// What is set aside for calls that are under way, here and in all budgets below.
    #[must_use]
    pub fn reserved(&self) -> Spend {
        self.node.lock().reserved(self.node.id)
    }

    /// What a call could use now: the narrowest of what is left here and above; `None` where nothing is bounded.
    #[must_use]
    pub fn remaining(&self) -> BudgetLimits {
        self.node.lock().remaining(self.node.id, Instant::now())
    }

    /// What was spent here and below under each label; `""` is what has none.
    #[must_use]
    pub fn report(&self) -> BTreeMap<Arc<str>, Spend> {
        self.node.lock().labels(self.node.id)
    }

    /// What [`Budget::restore`] needs to go on in another process. It says nothing about budgets above or below: a
    /// child that goes on has a state of its own.
    #[must_use]
    pub fn state(&self) -> BudgetState {
        self.node.lock().state(self.node.id, Instant::now())
    }

    fn time_left(&self) -> Option<Duration> {
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

/// What is set aside for one call.
///
/// Dropped without [`Reservation::settle`] or [`Reservation::cancel`], it counts as spent in full: nobody knows how
/// the call ended.
#[must_use = "dropping a reservation spends it"]
#[derive(Debug)]
pub struct Reservation {
    budget: Budget,
    reserved: Option<Charge>,
}

impl Reservation {
    /// What was set aside.
    #[must_use]
    pub fn charge(&self) -> Charge {
        self.reserved.unwrap_or_default()
    }

    /// The call is over and used `actual`. Money that is unknown counts as reserved.
    pub fn settle(mut self, actual: Charge) {
        self.close(|reserved| Charge { money: actual.money.or(reserved.money), ..actual });
    }

    /// The call was never made: it costs nothing.
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
