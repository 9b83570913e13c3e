//! Usage of a run and all runs below it, counted while this process lives: for reports about a whole subtree.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Money, Result, SessionId, Usage, event::ModelFinished, session::SessionFilter};

use super::Env;

/// Tokens and money. The sum with something unknown is unknown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spent {
    pub(crate) usage: Usage,
    pub(crate) cost: Option<Money>,
}

impl Default for Spent {
    fn default() -> Self {
        Self { usage: Usage::default(), cost: Some(Money::default()) }
    }
}

impl Spent {
    pub(crate) fn add(&mut self, other: &Self) {
        self.usage += other.usage;
        self.cost = self.cost.zip(other.cost).map(|(sum, cost)| sum + cost);
    }
}

/// The figures of one subtree. Each model call below it is added, here and in the subtrees above.
#[derive(Debug, Default)]
pub(crate) struct Subtree {
    inner: Mutex<Inner>,
    above: Option<Arc<Subtree>>,
}

#[derive(Debug, Default)]
struct Inner {
    spent: Spent,
    /// True when its run began in this process, so that nothing is missing.
    whole: bool,
}

impl Subtree {
    /// Creates a subtree within another one.
    pub(crate) fn below(above: Option<&Arc<Self>>) -> Arc<Self> {
        Arc::new(Self { inner: Mutex::default(), above: above.cloned() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks its run as begun in this process.
    pub(super) fn begin(&self) {
        self.lock().whole = true;
    }

    /// Adds a model call.
    pub(super) fn count(&self, reply: &ModelFinished) {
        let spent = Spent { usage: (reply.usage + reply.wasted).tokens(), cost: reply.cost };
        let subtrees = std::iter::successors(Some(self), |subtree| subtree.above.as_deref());
        subtrees.for_each(|subtree| subtree.lock().spent.add(&spent));
    }

    /// Returns the figures of the subtree of session `root`, whose run has ended: as counted here, or from the store
    /// when a part of it ran in an earlier process.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn total(&self, env: &Env, root: &SessionId) -> Result<Spent> {
        let (spent, whole) = {
            let inner = self.lock();
            (inner.spent, inner.whole)
        };
        let Some(store) = env.store.as_ref().filter(|_| !whole) else { return Ok(spent) };
        let mut spent = Spent::default();
        for info in store.query(&SessionFilter::tree(root.clone())).await? {
            spent.add(&Spent { usage: info.head.usage, cost: info.head.cost });
        }
        Ok(spent)
    }
}
